//! A flow through a pipe of given length and loss, for measurements by hand
//! (`examples/udt_losses.rs`) and for the test that counts steps.

use std::collections::VecDeque;

use packtrain_cc::udt::Variant;
use packtrain_cc::{ControllerConfig, build};
use packtrain_units::{ByteCount, Duration, Rng, Time};

use super::{Leave, Message, Receiver, ReceiverConfig, Seen, Sender, SenderConfig};

const DATAGRAM: ByteCount = ByteCount(1_472);
/// A unit leaves each microsecond.
const STEP: Duration = Duration::from_micros(1);

enum Thing {
    Unit(u64),
    Message(Message),
}

/// Moves `units` through a pipe that holds `length` of them and loses `loss` of a million; gives
/// how many packets left. Nothing is kept for a unit but what sender and receiver keep.
pub fn losses(units: u64, length: u64, loss: u64) -> u64 {
    let (window, mut now) = (length * 64, Time::ZERO);
    let config = ControllerConfig { mtu: DATAGRAM, seed: 1, now, ceiling: None, rtt: None };
    // The drill's clock is the pace.
    let Ok(controller) = build("fixed:400gbit", &config) else { return 0 };
    let variant = Variant::Udt4;
    let sender =
        SenderConfig { variant, first: 0, datagram: DATAGRAM, train: 1, window, bitmaps: false };
    let mut sender = Sender::new(sender, controller, now);
    let mut receiver = Receiver::new(ReceiverConfig { variant, first: 0, window, train: 1 }, now);
    let (mut forth, mut back) = (VecDeque::new(), VecDeque::new());
    let (mut rng, mut sent) = (Rng::new(1), 0);
    let delay = STEP * length;
    while sender.acked() < units {
        now += STEP;
        while let Some((at, _)) = forth.front()
            && *at <= now
        {
            match forth.pop_front() {
                Some((_, Thing::Unit(unit))) => {
                    if receiver.check(unit) == Seen::New {
                        receiver.take(now, unit, 1);
                    }
                    receiver.on_batch(now, unit, unit, 1, unit % 16 == 1);
                }
                Some((_, Thing::Message(message))) => {
                    let _ = receiver.on_message(now, &message);
                }
                None => {}
            }
        }
        while let Some((at, _)) = back.front()
            && *at <= now
            && let Some((_, message)) = back.pop_front()
        {
            let _ = sender.on_message(now, &message);
        }
        while let Some(message) = receiver.poll_message(now) {
            back.push_back((now + delay, message));
        }
        while let Some(message) = sender.poll_message(now) {
            forth.push_back((now + delay, Thing::Message(message)));
        }
        sender.handle_timeout(now);
        let (first, again) = match sender.poll(now, units - sender.next()) {
            Some(Leave::Again { first, .. }) => (first, true),
            Some(Leave::Fresh { .. }) => (sender.next(), false),
            None => continue,
        };
        sender.on_sent(now, first, 1, DATAGRAM, again);
        sent += 1;
        if rng.below(1_000_000) >= loss {
            forth.push_back((now + delay, Thing::Unit(first)));
        }
    }
    sent
}
