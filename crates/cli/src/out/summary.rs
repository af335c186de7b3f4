//! The line for people at the end.

use packtrain_node::api::Outcome;
use packtrain_units::ByteCount;

use super::clean;

/// What moved, how long it took, at what rate and over what; then only what is worth a word.
pub(crate) fn sentence(outcome: &Outcome, verify: bool) -> String {
    let summary = &outcome.summary;
    let mut parts = Vec::new();
    if verify {
        parts.push(match outcome.differing {
            0 => format!("all {} the same", count(summary.entries, "entry", "entries")),
            n => format!("{} or missing", count(n, "entry differs", "entries differ")),
        });
        parts.push(format!("in {}", outcome.elapsed));
    } else if summary.bytes_moved == 0 && summary.files_moved == 0 {
        parts.push(format!("nothing needed moving, in {}", outcome.elapsed));
    } else {
        parts.push(format!(
            "{}, {} in {} ({}) over {}",
            count(summary.files_moved, "file", "files"),
            ByteCount(summary.bytes_moved),
            outcome.elapsed,
            outcome.goodput(),
            over(outcome),
        ));
    }
    let mut worth = |n: u64, text: String| {
        if n > 0 {
            parts.push(text);
        }
    };
    worth(summary.unchanged, format!("unchanged: {}", summary.unchanged));
    worth(summary.bytes_resumed, format!("resumed: {}", ByteCount(summary.bytes_resumed)));
    worth(
        summary.chunks_again,
        format!("moved again: {}", count(summary.chunks_again, "chunk", "chunks")),
    );
    worth(summary.deleted, format!("deleted: {}", summary.deleted));
    worth(summary.failed, format!("failed: {}", summary.failed));
    worth(outcome.retransmitted.get(), format!("retransmitted: {}", outcome.retransmitted));
    parts.extend(outcome.verdict.as_deref().map(clean));
    parts.join("; ")
}

/// Every transport that moved something, most first.
fn over(outcome: &Outcome) -> String {
    let names: Vec<&str> = outcome
        .shares
        .iter()
        .filter(|share| share.bytes.get() > 0)
        .map(|share| share.name.as_str())
        .collect();
    if names.is_empty() { outcome.transport.clone() } else { names.join(" and ") }
}

fn count(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use packtrain_node::api::{Summary, TransportShare};
    use packtrain_units::Duration;

    use super::*;

    #[test]
    fn it_says_what_is_worth_a_word() {
        let nothing = Outcome { elapsed: Duration::from_secs(2), ..Outcome::default() };
        assert!(sentence(&nothing, false).starts_with("nothing needed moving, in 2"));
        let share = |name: &str, n| TransportShare { name: name.into(), bytes: ByteCount(n) };
        let outcome = Outcome {
            summary: Summary {
                bytes_moved: 1 << 30,
                files_moved: 2,
                chunks_again: 1,
                bytes_resumed: 1 << 20,
                ..Summary::default()
            },
            elapsed: Duration::from_secs(2),
            transport: "native".into(),
            shares: vec![share("native", 9), share("tcp", 1), share("pipe", 0)],
            verdict: Some("bounded by the disk".into()),
            ..Outcome::default()
        };
        let said = sentence(&outcome, false);
        assert!(said.starts_with("2 files, 1.0 GiB in 2"), "{said}");
        let end = "(4.29 Gbit/s) over native and tcp; resumed: 1.0 MiB; moved again: 1 chunk; \
                   bounded by the disk";
        assert!(said.ends_with(end), "{said}");
        let differs = Outcome { differing: 2, ..nothing };
        assert!(sentence(&differs, true).starts_with("2 entries differ or missing"));
    }
}
