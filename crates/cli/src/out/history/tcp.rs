//! The kernel's statistics of TCP streams for people: all together, then the streams, of which many
//! are shown as the fastest and the slowest.

use packtrain_service::StreamReport;
use packtrain_units::ByteCount;
use serde_json::Value;

use crate::out::summary::time;

/// Up to so many streams are shown each; of more, this many of the fastest and of the slowest.
const SHOWN: usize = 8;

/// The lines about the column `tcp_info`; empty if it holds nothing that is known.
pub(super) fn lines(column: &str) -> Vec<String> {
    let Ok(Value::Object(info)) = serde_json::from_str::<Value>(column) else { return Vec::new() };
    let each = info.get("each").cloned().unwrap_or_default();
    let mut streams: Vec<StreamReport> = serde_json::from_value(each).unwrap_or_default();
    streams.sort_by_key(|stream| std::cmp::Reverse(stream.rate));
    let all = streams.len();
    let mut lines = Vec::new();
    if all > 1 {
        let sent: ByteCount = streams.iter().fold(ByteCount::ZERO, |sum, one| sum + one.acked);
        let again = streams.iter().fold(ByteCount::ZERO, |sum, one| sum + one.retransmitted);
        lines.push(format!("{all} streams sent {sent}, {again} of it retransmitted"));
    }
    let few = all <= SHOWN;
    for (n, stream) in streams.iter().enumerate() {
        let rank = match few {
            true => "stream",
            false if n < SHOWN / 2 => "fastest",
            false if n >= all - SHOWN / 2 => "slowest",
            false => continue,
        };
        lines.push(format!("{rank}: {}", one(stream)));
    }
    lines
}

/// `104.1 Mbit/s for 12 s, RTT 40 ms, 1.2 MiB retransmitted, receiver-limited 80 %`.
fn one(stream: &StreamReport) -> String {
    let mut parts = vec![
        format!("{} for {}", stream.rate, time(stream.age)),
        format!("RTT {}", time(stream.srtt)),
    ];
    if stream.retransmitted > ByteCount::ZERO {
        parts.push(format!("{} retransmitted", stream.retransmitted));
    }
    for (share, what) in
        [(stream.receiver_limited, "receiver-limited"), (stream.buffer_limited, "buffer-limited")]
    {
        if share >= 0.01 {
            parts.push(format!("{what} {:.0} %", share * 100.0));
        }
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use packtrain_units::{DataRate, Duration};

    use super::*;

    fn column(streams: u64) -> String {
        let stream = |n| StreamReport {
            age: Duration::from_secs(12),
            acked: ByteCount(1 << 20),
            rate: DataRate::from_mbps(n),
            srtt: Duration::from_millis(40),
            min_rtt: None,
            retransmitted: ByteCount(if n == 1 { 4096 } else { 0 }),
            cwnd: ByteCount(1 << 16),
            receiver_limited: 0.8,
            buffer_limited: 0.0,
            end: Default::default(),
        };
        let each: Vec<_> = (1..=streams).map(stream).collect();
        serde_json::json!({ "each": each, "congestion": "cubic" }).to_string()
    }

    #[test]
    fn any_number_of_streams_fits_a_screen() {
        let one = lines(&column(1));
        assert_eq!(
            one,
            [
                "stream: 1.0 Mbit/s for 12.0 s, RTT 40 ms, 4.0 KiB retransmitted, receiver-limited 80 %"
            ]
        );
        assert_eq!(lines(&column(8)).len(), 9);
        let many = lines(&column(64));
        assert_eq!(many.len(), 9);
        assert_eq!(many[0], "64 streams sent 64.0 MiB, 4.0 KiB of it retransmitted");
        assert!(many[1].starts_with("fastest: 64.0 Mbit/s"), "{}", many[1]);
        assert!(many[8].starts_with("slowest: 1.0 Mbit/s"), "{}", many[8]);
        assert!(many.iter().all(|line| line.len() < 100), "{many:?}");
    }

    #[test]
    fn a_column_of_another_version_is_no_mistake() {
        for text in ["", "[]", "{}", "{\"each\":3}", "{\"each\":[3]}"] {
            assert_eq!(lines(text), Vec::<String>::new(), "{text}");
        }
    }
}
