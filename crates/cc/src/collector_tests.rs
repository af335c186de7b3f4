use proptest::prelude::*;

use packtrain_units::ByteCount;

use super::*;
use crate::bottleneck::silence;
use crate::interface::LossRange;

fn ms(n: u64) -> Time {
    Time::ZERO + Duration::from_millis(n)
}

fn sent(now: Time, first: u64, count: u32) -> Sent {
    Sent {
        now,
        first,
        count,
        bytes: ByteCount(u64::from(count) * 1_472),
        in_flight: ByteCount::ZERO,
        retransmission: false,
        app_limited: false,
    }
}

fn lost(now: Time, ranges: &[(u64, u64)]) -> Vec<LossRange> {
    let range = |(a, b): &(u64, u64)| LossRange {
        first: *a,
        count: (b - a) as u32,
        bytes: ByteCount((b - a) * 1_472),
        sent_at: now,
    };
    ranges.iter().map(range).collect()
}

#[test]
fn windows_follow_each_other() {
    let mut collector = Collector::new(ms(0), 10, Duration::from_secs(5));
    collector.on_sent(&sent(ms(0), 0, 8));
    collector.on_sent(&sent(ms(1), 8, 8));
    assert!(collector.is_closing(), "ten were sent");
    let ranges = lost(ms(2), &[(3, 5), (9, 12)]);
    let feedback = Feedback { lost: &ranges, host_drops: 4, ..silence(ms(2)) };
    assert_eq!(collector.on_feedback(&feedback), None, "nothing is acknowledged yet");
    let feedback = Feedback { largest_acked: Some(12), ..silence(ms(3)) };
    assert_eq!(collector.on_feedback(&feedback), None, "late news may follow");
    let window = collector.on_feedback(&silence(ms(23))).unwrap();
    assert_eq!(window.signature.to_string(), "1110011110");
    assert_eq!((window.number, window.host_drops), (0, Some(3)), "all it lost");
    // The second begins with the part of the loss behind the end of the first.
    collector.cut();
    let feedback = Feedback { largest_acked: Some(15), ..silence(ms(30)) };
    collector.on_feedback(&feedback);
    let window = collector.on_feedback(&silence(ms(60))).unwrap();
    assert_eq!(window.signature.to_string(), "001111");
    assert_eq!((window.number, window.host_drops), (1, Some(1)), "told with the first");
}

#[test]
fn time_ends_a_window_and_a_restart_forgets() {
    let mut collector = Collector::new(ms(0), 1_000, Duration::from_secs(1));
    collector.on_sent(&sent(ms(5_000), 0, 5));
    collector.on_sent(&sent(ms(5_900), 5, 5));
    assert!(!collector.is_closing(), "it began when its first packet left");
    collector.restart(ms(5_900));
    let ranges = lost(ms(6_000), &[(2, 12)]);
    collector.on_sent(&sent(ms(6_000), 10, 5));
    collector.on_sent(&sent(ms(7_000), 15, 1));
    assert!(collector.is_closing());
    let feedback = Feedback { lost: &ranges, largest_acked: Some(15), ..silence(ms(7_001)) };
    collector.on_feedback(&feedback);
    let window = collector.on_feedback(&silence(ms(7_100))).unwrap();
    assert_eq!(window.signature.to_string(), "001111");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_loss_is_in_one_window_at_its_place(
        steps in prop::collection::vec((1u32..40, 0u64..40, 0u64..6), 1..80), size in 1u64..60,
    ) {
        let mut collector = Collector::new(ms(0), size, Duration::from_secs(100));
        let (mut next, mut at, mut told) = (0u64, 0u64, 0u64);
        let (mut truth, mut seen) = (Vec::new(), Vec::new());
        let mut take = |collector: &mut Collector, feedback: &Feedback<'_>| {
            while let Some(window) = collector.on_feedback(feedback) {
                seen.extend(window.signature.bits());
            }
        };
        for (count, gap, len) in steps {
            collector.on_sent(&sent(ms(at), next, count));
            next += u64::from(count);
            truth.resize(next as usize, true);
            let (a, b) = ((told + gap).min(next), (told + gap + len).min(next));
            told = b;
            truth[a as usize..b as usize].fill(false);
            let ranges = lost(ms(at), &[(a, b)]);
            let ranges = if a < b { &ranges[..] } else { &[] };
            at += 1;
            take(&mut collector, &Feedback { lost: ranges, ..silence(ms(at)) });
            // Only reported packets are acknowledged.
            let largest_acked = told.checked_sub(1);
            take(&mut collector, &Feedback { largest_acked, ..silence(ms(at)) });
            at += 100;
            take(&mut collector, &silence(ms(at)));
        }
        prop_assert_eq!(&seen[..], &truth[..seen.len()]);
    }
}
