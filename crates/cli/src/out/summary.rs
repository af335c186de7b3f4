//! The last line for people.

use packtrain_service::{Options, Outcome};
use packtrain_units::{ByteCount, Duration};

use super::clean;
use super::progress::clock;

/// The purpose of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Move files.
    Copy,
    /// List what would move.
    DryRun,
    /// List what differs.
    Verify,
}

impl Work {
    /// The purpose that `options` describe.
    pub(crate) const fn of(options: &Options) -> Self {
        match (options.verify, options.dry_run) {
            (true, _) => Self::Verify,
            (false, true) => Self::DryRun,
            (false, false) => Self::Copy,
        }
    }
}

/// Amount, time, rate and transports; then resumed, repeated and failed parts if there are any;
/// what limited it, if that is likely; and what to do next.
pub(crate) fn sentence(outcome: &Outcome, work: Work) -> String {
    let summary = &outcome.summary;
    let took = time(outcome.elapsed);
    let files = count(summary.files_moved, "file", "files");
    let mut parts = vec![match work {
        Work::Verify if outcome.differing == 0 => {
            format!("all {} the same, in {took}", count(summary.entries, "entry", "entries"))
        }
        Work::Verify => {
            format!("differing or missing: {}, in {took}", outcome.differing)
        }
        Work::DryRun => {
            let bytes = ByteCount(summary.bytes_moved);
            format!("{files}, {bytes} to move; nothing was changed: leave out --dry-run to do it")
        }
        Work::Copy if summary.bytes_moved == 0 && summary.files_moved == 0 => {
            match summary.changed {
                0 => format!("nothing needed moving, in {took}"),
                n => format!(
                    "no data needed moving; links, directories and attributes changed: {n}, in {took}"
                ),
            }
        }
        Work::Copy => {
            let bytes = ByteCount(summary.bytes_moved);
            let over = over(outcome);
            let with = if over == CONTROL { "with" } else { "over" };
            format!("{files}, {bytes} in {took} ({}) {with} {over}", outcome.goodput())
        }
    }];
    let mut worth = |n: u64, text: String| {
        if n > 0 {
            parts.push(text);
        }
    };
    worth(summary.unchanged, format!("unchanged: {}", summary.unchanged));
    worth(summary.bytes_resumed, format!("resumed: {}", ByteCount(summary.bytes_resumed)));
    worth(
        summary.bytes_same,
        format!("unchanged pieces not sent: {}", ByteCount(summary.bytes_same)),
    );
    worth(
        summary.chunks_again,
        format!("moved again: {}", count(summary.chunks_again, "chunk", "chunks")),
    );
    let deleted = if work == Work::DryRun { "to delete" } else { "deleted" };
    worth(summary.deleted, format!("{deleted}: {}", summary.deleted));
    worth(summary.removed, format!("removed at the source: {}", summary.removed));
    worth(outcome.metadata, format!("mode or time to set: {}", outcome.metadata));
    worth(outcome.extra, format!("extra at the target: {}", outcome.extra));
    if work != Work::Verify {
        worth(summary.failed, format!("failed: {}", summary.failed));
    }
    worth(outcome.retransmitted.get(), format!("retransmitted: {}", outcome.retransmitted));
    let sure = outcome.verdict.as_deref().filter(|text| !text.starts_with(UNSURE));
    parts.extend(sure.map(clean));
    if !outcome.id.is_empty() && work != Work::DryRun {
        let unknown = sure.is_none() && outcome.elapsed >= LONG && summary.bytes_moved > 0;
        parts.push(match unknown {
            true => format!("what limited it: packtrain diagnose {}", outcome.id),
            false => format!("id {}", outcome.id),
        });
    }
    match work {
        Work::Verify if outcome.differing > 0 => {
            parts.push("cp --checksum copies what differs".to_owned());
        }
        Work::Copy if summary.failed > 0 => {
            parts.push("the same command tries the failed ones again".to_owned());
        }
        Work::Copy | Work::Verify | Work::DryRun => {}
    }
    parts.join("; ")
}

/// In place of a transport.
const CONTROL: &str = "the control messages";

/// How a diagnosis begins that is possible and not likely.
const UNSURE: &str = "perhaps: ";

/// From this duration on, a person asks why a transfer took so long.
const LONG: Duration = Duration::from_secs(10);

/// The message about owners that could not be set.
pub(crate) fn not_owned(entries: u64) -> String {
    let entries = count(entries, "entry", "entries");
    format!(
        "owner or group of {entries} could not be set, nor set-user-id and set-group-id bits: that \
         takes root at the receiving end, and --allow-owner at a server"
    )
}

/// Every transport that moved data, most first.
fn over(outcome: &Outcome) -> String {
    let names: Vec<&str> = outcome
        .shares
        .iter()
        .filter(|share| share.bytes.get() > 0)
        .map(|share| share.name.as_str())
        .collect();
    match names.is_empty() {
        false => names.join(" and "),
        // Holes, empty files and names need no data.
        true if outcome.transport == "none" => CONTROL.to_owned(),
        true => outcome.transport.clone(),
    }
}

/// `850 us`, `21 ms`, `2.16 s`, `12:05`.
pub(crate) fn time(span: Duration) -> String {
    let seconds = span.as_secs_f64();
    match seconds {
        s if s < 0.001 => format!("{:.0} us", s * 1e6),
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s if s < 10.0 => format!("{s:.2} s"),
        s if s < 60.0 => format!("{s:.1} s"),
        _ => clock(span),
    }
}

fn count(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use packtrain_service::{Summary, TransportShare};

    use super::*;

    #[test]
    fn it_says_what_is_worth_a_word() {
        let nothing = Outcome { elapsed: Duration::from_secs(2), ..Outcome::default() };
        assert!(sentence(&nothing, Work::Copy) == "nothing needed moving, in 2.00 s");
        let share = |name: &str, n| TransportShare { name: name.into(), bytes: ByteCount(n) };
        let outcome = Outcome {
            summary: Summary {
                bytes_moved: 1 << 30,
                files_moved: 2,
                chunks_again: 1,
                bytes_resumed: 1 << 20,
                bytes_same: 8 << 20,
                ..Summary::default()
            },
            elapsed: Duration::from_secs(2),
            transport: "native".into(),
            shares: vec![share("native", 9), share("tcp", 1), share("pipe", 0)],
            verdict: Some("bounded by the disk".into()),
            ..Outcome::default()
        };
        let said = sentence(&outcome, Work::Copy);
        assert!(said.starts_with("2 files, 1.0 GiB in 2.00 s"), "{said}");
        let end = "(4.29 Gbit/s) over native and tcp; resumed: 1.0 MiB; unchanged pieces not \
                   sent: 8.0 MiB; moved again: 1 chunk; bounded by the disk";
        assert!(said.ends_with(end), "{said}");
        let empty = Outcome {
            summary: Summary { files_moved: 1, ..Summary::default() },
            transport: "none".into(),
            ..nothing.clone()
        };
        let said = sentence(&empty, Work::Copy);
        assert!(said.ends_with(" with the control messages"), "{said}");
        let differs = Outcome { differing: 2, ..nothing };
        let said = sentence(&differs, Work::Verify);
        assert_eq!(said, "differing or missing: 2, in 2.00 s; cp --checksum copies what differs");
        let dry = sentence(&outcome, Work::DryRun);
        assert!(dry.starts_with("2 files, 1.0 GiB to move; nothing was changed"), "{dry}");
        let unsure = Outcome {
            elapsed: Duration::from_secs(20),
            verdict: Some("perhaps: the disk".into()),
            id: "4f21c09a".into(),
            summary: Summary { failed: 1, ..outcome.summary },
            ..outcome
        };
        let said = sentence(&unsure, Work::Copy);
        let end = "failed: 1; what limited it: packtrain diagnose 4f21c09a; the same command tries \
                   the failed ones again";
        assert!(said.ends_with(end) && !said.contains("perhaps"), "{said}");
    }

    #[test]
    fn times_are_short() {
        let shown = [850_000, 21_246_912, 2_156_412_973, 59_940_000_000, 725_000_000_000]
            .map(|ns| time(Duration::from_nanos(ns)));
        assert_eq!(shown, ["850 us", "21 ms", "2.16 s", "59.9 s", "12:05"]);
    }
}
