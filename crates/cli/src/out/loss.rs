//! The text output of `loss`.

use packtrain_loss::{Basis, Cause, Verdict};

/// One line about one signature.
pub(crate) fn verdict(place: &str, verdict: &Verdict) -> String {
    let Verdict { packets, lost, cause, .. } = verdict;
    if *lost == 0 {
        return format!("{place}: none of {packets} packets lost");
    }
    let rate = percent(verdict.loss_rate);
    let because = match verdict.basis {
        Basis::NoLoss => String::new(),
        Basis::HostCounter => ", by the host's own counter".to_owned(),
        Basis::CounterAndSignature => ", by the host's own counter and the signature".to_owned(),
        Basis::Signature | Basis::Unlike | Basis::WindowLength => {
            like(verdict, "signature is most like")
        }
        Basis::SignatureAndDelay => like(verdict, "signature and delay are most like"),
    };
    let paper = verdict.paper;
    format!(
        "{place}: {lost} of {packets} packets lost ({rate}): {}{because}; \
         the paper's classifier: {} (cpu {})",
        plain(*cause, verdict),
        paper.cause,
        percent(paper.p_cpu)
    )
}

fn plain(cause: Cause, verdict: &Verdict) -> String {
    let sure = |p: f64| format!("{} sure", percent(p));
    let all = verdict.probabilities;
    match (cause, verdict.basis) {
        (Cause::Network, _) => format!("a queue on the path was full ({})", sure(all.network)),
        (Cause::Cpu, _) => format!("the receiving host did not read in time ({})", sure(all.cpu)),
        (Cause::Hybrid, _) => format!(
            "a queue on the path was full and the receiving host did not read in time ({})",
            sure(all.hybrid)
        ),
        (Cause::Link, _) => format!("errors of the link ({})", sure(all.link)),
        (Cause::Inconclusive, Basis::Unlike) => {
            "inconclusive, the signature differs from all that the model was fitted to".to_owned()
        }
        (Cause::Inconclusive, Basis::WindowLength) => {
            "inconclusive, the model was not fitted to windows of about this length (see --window)"
                .to_owned()
        }
        (Cause::Inconclusive, _) => format!(
            "inconclusive (network {}, cpu {}, both {}, link {})",
            percent(all.network),
            percent(all.cpu),
            percent(all.hybrid),
            percent(all.link)
        ),
    }
}

fn like(verdict: &Verdict, what: &str) -> String {
    verdict.like.as_ref().map_or_else(String::new, |family| format!(", {what} {family}"))
}

fn percent(share: f64) -> String {
    if share > 0.0 && share < 0.0095 {
        return format!("{:.3} %", 100.0 * share);
    }
    format!("{:.1} %", 100.0 * share)
}
