//! A flow through a pipe of given length and loss, for manual measurements
//! (`examples/udt_losses.rs`) and for the test that counts steps.

use std::collections::VecDeque;

use packtrain_cc::udt::Variant;
use packtrain_cc::{ControllerConfig, build};
use packtrain_units::{ByteCount, Duration, Rng, Time};

use super::{Message, Permit, Receiver, ReceiverConfig, Sender, SenderConfig, UnitStatus};

const DATAGRAM: ByteCount = ByteCount(1_472);
/// Interval between units.
const STEP: Duration = Duration::from_micros(1);

enum Thing {
    Unit(u64),
    Message(Message),
}

/// Moves `units` through a pipe that holds `length` of them and loses `loss` per million. Returns
/// how many packets were sent. The only state per unit is that of sender and receiver.
pub fn losses(units: u64, length: u64, loss: u64) -> u64 {
    let (window, mut now) = (length * 64, Time::ZERO);
    let config = ControllerConfig { mtu: DATAGRAM, seed: 1, now, ceiling: None, rtt: None };
    // The clock of this loop is the pace.
    let Ok(controller) = build("fixed:400gbit", &config) else { return 0 };
    let variant = Variant::Udt4;
    let sender =
        SenderConfig { variant, first: 0, datagram: DATAGRAM, train: 1, window, bitmaps: false };
    let mut sender = Sender::new(sender, controller, now);
    let mut receiver =
        Receiver::new(ReceiverConfig { variant, first: 0, window, train: 1, socket: None }, now);
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
                    if receiver.check(unit) == UnitStatus::New {
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
            Some(Permit::Retransmit { first, .. }) => (first, true),
            Some(Permit::Fresh { .. }) => (sender.next(), false),
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
