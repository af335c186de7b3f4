//! Whole flows: every unit arrives exactly once, always.

use packtrain_units::{Duration, Rng, Time};
use proptest::prelude::*;

use super::network::Pair;
use crate::sabul::{Message, Receiver, State};
use crate::test_network::Path;
use crate::udt::UnitStatus;

fn path() -> impl Strategy<Value = Path> {
    let outage = prop::option::of((0..400u64, 1..1_500u64));
    let loss = prop_oneof![Just(0), 0..60u64, 0..500u64];
    let jitter = || prop_oneof![Just(0), 0..20u64];
    let late = prop_oneof![Just(0), 0..300u64];
    (0..80u64, jitter(), loss, 0..200u64, outage, late).prop_map(
        |(delay, jitter, loss, repeats, outage, late)| Path {
            jitter: Duration::from_millis(jitter),
            loss,
            repeats,
            outage: outage
                .map(|(from, span)| (Duration::from_millis(from), Duration::from_millis(span))),
            late: Duration::from_millis(late),
            ..Path::clean(Duration::from_micros(50 + delay * 1_000))
        },
    )
}

fn controller() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["sabul", "sabul:proportional+reduce", "fixed:50mbit"])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn every_unit_arrives_exactly_once(
        cc in controller(),
        path in path(),
        total in 1..1_500u64,
        window in 2..3_000u64,
        buffer in 1..2_000u64,
        train in prop::sample::select(vec![1u32, 2, 16, 44]),
        seed in any::<u64>(),
    ) {
        let mut pair = Pair::new(cc, (total, window, buffer), train, path, seed);
        pair.run(Duration::from_secs(3_600));
        prop_assert!(pair.is_done(), "{:?} of {}", pair.sender.acked(), total);
        prop_assert!(pair.all_placed());
        prop_assert_eq!(pair.sender.received(), total);
        // The receiver is silent once the sender knows that all has arrived.
        prop_assert!(pair.settle(Duration::from_secs(3_600)));
        // The message that announces the end may have been in flight until now.
        let end = |(_, said): &(Time, Message)| matches!(said, Message::State(s) if s.end);
        prop_assert!(pair.messages.iter().any(end), "END was said");
    }

    #[test]
    fn dropped_units_do_not_hold_the_others_up(path in path(), seed in any::<u64>()) {
        let mut pair = Pair::new("sabul", (1_000, 500, 300), 2, path, seed);
        let mut rng = Rng::new(seed);
        let end = pair.now + Duration::from_secs(3_600);
        while !pair.is_done() && pair.now < end {
            pair.step();
            if rng.below(20) == 0 {
                let (a, b) = (pair.sender.acked(), pair.sender.next());
                let first = a + rng.below(b - a + 1);
                pair.sender.drop_units(first, first + 1 + rng.below(5));
            }
        }
        prop_assert!(pair.is_done());
    }

    #[test]
    fn hostile_messages_to_a_sender_are_refused_or_harmless(
        messages in prop::collection::vec(message(), 1..60),
        seed in any::<u64>(),
    ) {
        let path = Path::clean(Duration::from_millis(5));
        let mut pair = Pair::new("sabul", (3_000, 300, 100), 2, path, seed);
        for message in messages {
            let open = pair.sender.acked()..=pair.sender.next();
            let told = pair.sender.on_message(pair.now, &message);
            match &message {
                Message::State(state) if state.next > *open.end() => prop_assert!(told.is_err()),
                Message::State(_) => {}
                _ => prop_assert!(told.is_err()),
            }
            prop_assert!(open.contains(&pair.sender.acked()));
            // The receiver of the pair does not know of these units, so the pair cannot run on.
            while let Some(leave) = pair.sender.poll(pair.now, 10) {
                let (first, count, again) = match leave {
                    crate::udt::Permit::Retransmit { first, count } => (first, count, true),
                    crate::udt::Permit::Fresh { count, .. } => (pair.sender.next(), count, false),
                };
                let wire = packtrain_units::ByteCount(u64::from(count) * 1_472);
                pair.sender.on_sent(pair.now, first, count, wire, again);
                pair.now += Duration::from_micros(50);
            }
            while pair.sender.poll_message().is_some() {}
        }
    }

    #[test]
    fn hostile_messages_and_units_to_a_receiver_are_refused_or_harmless(
        messages in prop::collection::vec((message(), any::<u64>(), 0..2_000u64, 0..50u64), 1..60),
    ) {
        let mut now = Time::ZERO;
        let mut receiver = Receiver::new(300, None, now);
        for (message, wild, near, wait) in messages {
            now += Duration::from_millis(wait);
            for unit in [wild, near] {
                if receiver.check(unit) == UnitStatus::New {
                    receiver.take(now, unit, 1);
                    prop_assert_ne!(receiver.check(unit), UnitStatus::New);
                }
                receiver.take(now, unit, wild as u32);
            }
            let _ = receiver.on_message(now, &message);
            let mut said = 0;
            while receiver.poll_message(now).is_some() {
                said += 1;
                prop_assert!(said < 1_000);
            }
            prop_assert!(receiver.missing() <= 300);
        }
    }
}

fn message() -> impl Strategy<Value = Message> {
    let unit = || prop_oneof![0..3_000u64, any::<u64>()];
    let head = (unit(), unit(), unit(), prop::option::of((unit(), any::<u64>())), unit());
    let lost = prop::collection::vec((0..2_000u64, 0..50u64), 0..5);
    let whole = prop::option::of(unit());
    prop_oneof![
        6 => (head, lost, whole, any::<bool>()).prop_map(
            |((missing, received, next, top, room), mut lost, whole, sort)| {
                if sort {
                    lost.sort_unstable();
                }
                let lost = lost.into_iter().map(|(a, n)| (a, a + n)).collect();
                let top = top.map(|(top, ns)| (top, Duration::from_nanos(ns)));
                let (requested, end) = (None, sort);
                let state =
                    State { lost, whole, missing, received, next, top, room, requested, end };
                Message::State(state)
            }
        ),
        1 => unit().prop_map(|end| Message::Buffer { end }),
        1 => (unit(), unit()).prop_map(|(first, end)| Message::Drop { first, end }),
    ]
}
