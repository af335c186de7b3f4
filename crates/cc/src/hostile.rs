//! Invalid feedback that every controller must survive.

use packtrain_units::{ByteCount, DataRate, Duration, Time};
use proptest::prelude::*;

use crate::bottleneck::{MSS, config, silence};
use crate::config::Start;
use crate::interface::{Feedback, LossRange, RttSample, Sent};
use crate::registry::build_with;

/// The next step.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Send { count: u32, in_flight: u64 },
    Feedback { acked: u64, rtt: u64, rate: u64, lost: Option<(u64, u32)>, ahead: u64, flags: u8 },
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..10u64, 0..10_000_000u64, any::<u64>()]
}

fn step() -> impl Strategy<Value = Step> {
    let send = (any::<u32>(), number())
        .prop_map(|(count, in_flight)| Step::Send { count: count >> (count % 32), in_flight });
    let lost = proptest::option::weighted(0.2, (number(), any::<u32>()));
    let report = (number(), number(), number(), lost, number(), any::<u8>()).prop_map(
        |(acked, rtt, rate, lost, ahead, flags)| Step::Feedback {
            acked,
            rtt,
            rate,
            lost,
            ahead,
            flags,
        },
    );
    prop_oneof![1 => send, 3 => report]
}

/// Up to a few hundred steps, each with its delay.
pub(crate) fn script() -> impl Strategy<Value = Vec<(u64, Step)>> {
    proptest::collection::vec((prop_oneof![0..1_000u64, 0..3_000_000_000u64], step()), 1..300)
}

/// The window is never below a packet nor unreasonably large, the pace never zero, the burst never
/// less than a packet; nothing panics.
pub(crate) fn run(name: &str, script: &[(u64, Step)]) -> Result<(), TestCaseError> {
    let mut controller = build_with(name, &config(), &Start::default()).unwrap();
    let (mut now, mut next) = (Time::ZERO, 0u64);
    for (later, step) in script {
        now += Duration::from_nanos(*later);
        match step {
            Step::Send { count, in_flight } => {
                controller.on_sent(&Sent {
                    now,
                    first: next,
                    count: *count,
                    bytes: ByteCount(u64::from(*count) * MSS),
                    in_flight: ByteCount(*in_flight),
                    retransmission: count % 7 == 0,
                    app_limited: count % 5 == 0,
                });
                next += u64::from(*count);
            }
            Step::Feedback { acked, rtt, rate, lost, ahead, flags } => {
                let flag = |bit: u32| flags >> bit & 1 == 1;
                let latest = Duration::from_nanos(*rtt);
                let lost: Vec<_> = lost
                    .map(|(first, count)| LossRange {
                        first,
                        count,
                        bytes: ByteCount(u64::from(count) * MSS),
                        sent_at: now,
                    })
                    .into_iter()
                    .collect();
                controller.on_feedback(&Feedback {
                    largest_acked: flag(0).then_some(*ahead),
                    newest_acked_sent_at: flag(1).then_some(now),
                    acked: ByteCount(*acked),
                    acked_packets: *acked / MSS,
                    in_flight: ByteCount(*rate),
                    rtt: flag(2).then_some(RttSample {
                        latest,
                        smoothed: latest,
                        variation: latest,
                        min: latest,
                    }),
                    delivery_rate: flag(3).then_some(DataRate::from_bps(*rate)),
                    arrival_rate: flag(4).then_some(DataRate::from_bps(*rate)),
                    capacity: flag(6).then_some(DataRate::from_bps(*ahead)),
                    lost: &lost,
                    app_limited: flag(4),
                    round_ended: flag(5),
                    ecn_ce: u64::from(flags >> 6 == 3),
                    timeout: *flags > 250,
                    delay_rising: *flags % 7 == 3,
                    ..silence(now)
                });
            }
        }
        if let Some(at) = controller.poll_timeout().filter(|at| *at <= now) {
            controller.on_timeout(at);
        }
        let cwnd = controller.cwnd().get();
        prop_assert!((MSS..=1 << 45).contains(&cwnd), "{cwnd} {controller:?}");
        prop_assert!(controller.pacing_rate() != Some(DataRate::ZERO), "{controller:?}");
        prop_assert!(controller.send_quantum().get() >= MSS, "{controller:?}");
    }
    Ok(())
}
