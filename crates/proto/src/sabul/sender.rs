//! The sending end: new units, then lost ones, at the controller's pace.

mod state;

use std::collections::VecDeque;

use packtrain_cc::{CongestionController, Sent, Signal, Signals};
use packtrain_units::{ByteCount, DataRate, Duration, Time};

use super::message::Message;
use crate::stats::{FlowStats, Limit};
use crate::udt::{Flight, HostUpdate, Pace, Permit};

use self::state::{Delivery, Trip};

/// Maximum messages kept for an owner that does not fetch them.
const MAX_PENDING_MESSAGES: usize = 1_024;
/// Minimum interval of `Buffer` messages while a sender waits for its window.
const ANNOUNCE_INTERVAL: Duration = Duration::from_millis(100);

/// The signals that this feedback provides.
pub(crate) fn signals() -> Signals {
    Signals::of(&[Signal::Rtt, Signal::DeliveryRate, Signal::Losses, Signal::HostDrops])
}

/// Configuration of a sender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SenderConfig {
    /// Wire bytes of a full datagram (UDP payload).
    pub(crate) datagram: ByteCount,
    /// Maximum units back to back: 1 is the paper's pacing by packet.
    pub(crate) train: u32,
    /// Maximum unacknowledged units that the owner can hold.
    pub(crate) window: u64,
    /// Units of one buffer.
    pub(crate) buffer: u64,
}

/// Retransmitted units whose outcome is unknown.
#[derive(Clone, Copy, Debug)]
struct Resent {
    at: Time,
    first: u64,
    end: u64,
    /// Send index of the first.
    index: u64,
}

/// The sending end of a flow.
#[derive(Debug)]
pub(crate) struct Sender {
    config: SenderConfig,
    controller: Box<dyn CongestionController>,
    ceiling: Option<DataRate>,
    /// The rate that the receiver requests.
    requested: Option<DataRate>,
    flight: Flight,
    pace: Pace,
    limit: Limit,
    app_limited: bool,
    /// The payload did not have what was allowed since the last units were sent.
    starved: bool,
    /// The first unit of the buffer in its first phase; those before are in their second phase.
    buffer: u64,
    /// The end of a buffer in the last `Buffer` message.
    announced_end: u64,
    announced_at: Time,
    /// Whether there are both retransmissions and new units.
    both: bool,
    /// If so: how many more units were retransmitted than sent for the first time.
    turn: i64,
    /// In the order of `at`.
    resent: VecDeque<Resent>,
    /// Some units before this one have been retransmitted.
    resent_below: u64,
    room: u64,
    received: u64,
    /// Number of missing units below `known`, from the last state.
    missing: u64,
    known: u64,
    lost_units: u64,
    largest_acked: Option<u64>,
    trip: Trip,
    delivery: Delivery,
    messages: VecDeque<Message>,
    /// Counters of the receiving host not yet passed to the controller.
    host: HostUpdate,
}

impl Sender {
    /// Creates a sender.
    pub(crate) fn new(
        config: SenderConfig,
        controller: Box<dyn CongestionController>,
        now: Time,
    ) -> Self {
        let window = config.window.max(2);
        let (train, buffer) = (config.train.max(1), config.buffer.max(1));
        let config = SenderConfig { window, train, buffer, ..config };
        Self {
            config,
            controller,
            ceiling: None,
            requested: None,
            flight: Flight::new(0, window),
            pace: Pace::default(),
            limit: Limit::Idle,
            app_limited: false,
            starved: false,
            buffer: 0,
            announced_end: 0,
            announced_at: now,
            both: false,
            turn: 0,
            resent: VecDeque::new(),
            resent_below: 0,
            room: window,
            received: 0,
            missing: 0,
            known: 0,
            lost_units: 0,
            largest_acked: None,
            trip: Trip::default(),
            delivery: Delivery::new(now),
            messages: VecDeque::new(),
            host: HostUpdate::default(),
        }
    }

    /// The units that may be sent now, if the owner has `fresh` new units ready. `None` means: wait
    /// for `poll_timeout`, a message or more units; `limit` is the reason.
    pub(crate) fn poll(&mut self, now: Time, fresh: u64) -> Option<Permit> {
        match self.permit(now, fresh) {
            Ok(leave) => Some(leave),
            Err(limit) => {
                self.limit = limit;
                if limit != Limit::Pacing {
                    self.pace.hold();
                }
                None
            }
        }
    }

    fn permit(&mut self, now: Time, fresh: u64) -> Result<Permit, Limit> {
        let room = self.room_for_fresh();
        self.advance_phase(now, fresh, room.err());
        let quantum = self.quantum();
        let again = self.flight.next_lost_below(quantum, self.buffer);
        let few = again.is_none() && (fresh == 0 || (room.is_ok() && fresh <= quantum));
        self.app_limited = few || self.starved;
        if again.is_none() && fresh == 0 {
            return Err(Limit::Idle);
        }
        if now < self.pace.next() {
            return Err(Limit::Pacing);
        }
        let anew = room.map(|room| room.min(fresh).min(quantum));
        self.both = again.is_some() && anew.is_ok_and(|count| count > 0);
        match (again, anew) {
            (Some((first, count)), _) if !self.both || self.turn <= 0 => {
                Ok(Permit::Retransmit { first, count: count as u32 })
            }
            (_, Ok(0)) => Err(Limit::Idle),
            (_, Ok(count)) => {
                // As many new units as there were retransmissions before.
                let max = if self.both { self.turn as u64 } else { self.left_of_buffer() };
                Ok(Permit::Fresh { count: count.min(max) as u32, joined: false })
            }
            (_, Err(limit)) => Err(limit),
        }
    }

    /// Ends the first phase of a buffer: at its end, or when there is nothing more to send or no
    /// room for it. The receiver detects losses at the end of a buffer only if it knows the end.
    fn advance_phase(&mut self, now: Time, fresh: u64, held: Option<Limit>) {
        let next = self.flight.next();
        // A window that opens packet by packet does not need a message each time.
        let tell = fresh == 0
            || held == Some(Limit::Credit)
            || held.is_some() && now >= self.announced_at + ANNOUNCE_INTERVAL;
        if tell && self.announced_end < next {
            (self.announced_end, self.announced_at) = (next, now);
            self.queue_message(Message::Buffer { end: next });
        }
        if fresh == 0 || held.is_some() || next >= self.buffer + self.config.buffer {
            self.buffer = next;
        }
    }

    fn left_of_buffer(&self) -> u64 {
        (self.buffer + self.config.buffer).saturating_sub(self.flight.next()).max(1)
    }

    /// Number of new units that receiver and controller allow, or the limit that allows none.
    fn room_for_fresh(&self) -> Result<u64, Limit> {
        let next = self.flight.next();
        let open = self.flight.acked() + self.config.window;
        let room = self.room.min(open).saturating_sub(next);
        if room == 0 {
            return Err(Limit::Credit);
        }
        let datagram = self.config.datagram.get().max(1);
        let window = self.controller.cwnd().get().div_ceil(datagram).max(1);
        match window.saturating_sub(self.under_way()) {
            0 => Err(Limit::Window),
            window => Ok(window.min(room)),
        }
    }

    /// Maximum units back to back.
    fn quantum(&self) -> u64 {
        let datagram = self.config.datagram.get().max(1);
        let quantum = self.controller.send_quantum().get() / datagram;
        quantum.clamp(1, u64::from(self.config.train))
    }

    /// Units of `wire` bytes together were sent: for the second time or later (`again`), or new.
    pub(crate) fn on_sent(
        &mut self,
        now: Time,
        first: u64,
        count: u32,
        wire: ByteCount,
        again: bool,
    ) {
        if count == 0 {
            return;
        }
        let end = first + u64::from(count);
        let index = if again {
            let index = self.flight.on_retransmitted(first, count);
            self.resent.push_back(Resent { at: now, first, end, index });
            self.resent_below = self.resent_below.max(end);
            index
        } else {
            debug_assert_eq!(first, self.flight.next(), "new units are numbered in turn");
            self.flight.push(now, count)
        };
        let turn = i64::from(count) * if again { 1 } else { -1 };
        self.turn = if self.both { self.turn + turn } else { 0 };
        self.pace.sent(now, wire, self.pacing_rate());
        self.controller.on_sent(&Sent {
            now,
            first: index,
            count,
            bytes: wire,
            in_flight: self.in_flight(),
            retransmission: again,
            app_limited: self.app_limited,
        });
        self.starved = false;
    }

    /// The next message to the receiver.
    pub(crate) fn poll_message(&mut self) -> Option<Message> {
        self.messages.pop_front()
    }

    /// Drops sent units that the owner cannot or must not send again; the receiver is notified.
    pub(crate) fn drop_units(&mut self, first: u64, end: u64) {
        if let Some((first, end)) = self.flight.drop(first, end) {
            self.queue_message(Message::Drop { first, end });
        }
    }

    fn queue_message(&mut self, message: Message) {
        if self.messages.len() < MAX_PENDING_MESSAGES {
            self.messages.push_back(message);
        }
    }

    /// Takes the receiving host's counters; the controller gets them with the next feedback.
    pub(crate) fn on_host(&mut self, update: HostUpdate) {
        self.host.drops = self.host.drops.saturating_add(update.drops);
        self.host.refused = self.host.refused.saturating_add(update.refused);
        self.host.ecn_ce = self.host.ecn_ce.saturating_add(update.ecn_ce);
        self.host.drain = update.drain;
    }

    /// The controller, for calls other than feedback.
    pub(crate) fn controller_mut(&mut self) -> &mut dyn CongestionController {
        &mut *self.controller
    }

    /// Runs the timers that are due.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        if self.controller.poll_timeout().is_some_and(|at| at <= now) {
            self.controller.on_timeout(now);
        }
    }

    /// When the next timer is due, pacing included.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let pace = (self.limit == Limit::Pacing).then(|| self.pace.next());
        pace.into_iter().chain(self.timers()).min()
    }

    /// When the next timer is due, without pacing: for an owner that has nothing to send.
    pub(crate) fn timers(&self) -> Option<Time> {
        let unannounced = self.limit == Limit::Window && self.announced_end < self.flight.next();
        let tell = unannounced.then(|| self.announced_at + ANNOUNCE_INTERVAL);
        let waits = (!self.messages.is_empty()).then_some(Time::ZERO);
        [self.controller.poll_timeout(), tell, waits].into_iter().flatten().min()
    }

    /// All units below have arrived or were dropped.
    pub(crate) fn acked(&self) -> u64 {
        self.flight.acked()
    }

    /// The number that the next new unit gets.
    pub(crate) fn next(&self) -> u64 {
        self.flight.next()
    }

    /// The units that were allowed are not in memory: what limits the flow is the application.
    pub(crate) fn app_limited(&mut self) {
        (self.app_limited, self.starved) = (true, true);
    }

    /// What limits it.
    pub(crate) fn limit(&self) -> Limit {
        self.limit
    }

    /// The smoothed round trip, once known: forward by datagram, back by TCP.
    pub(crate) fn rtt(&self) -> Option<Duration> {
        self.trip.smoothed()
    }

    /// Sets the owner's limit on the rate.
    pub(crate) fn set_ceiling(&mut self, ceiling: Option<DataRate>) {
        self.ceiling = ceiling;
    }

    /// The rate in force.
    fn pacing_rate(&self) -> Option<DataRate> {
        let rates = [self.controller.pacing_rate(), self.ceiling, self.requested];
        rates.into_iter().flatten().min()
    }

    /// The controller's rate, without the ceiling.
    pub(crate) fn controller_rate(&self) -> Option<DataRate> {
        self.controller.pacing_rate()
    }

    /// Units reported lost so far, repeated losses included.
    pub(crate) fn lost(&self) -> u64 {
        self.lost_units
    }

    /// Number of units that arrived, from the last state.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// Sent units whose outcome is unknown.
    fn under_way(&self) -> u64 {
        let unannounced = self.flight.next().saturating_sub(self.known);
        unannounced + self.missing.saturating_sub(self.flight.lost())
    }

    fn in_flight(&self) -> ByteCount {
        ByteCount(self.under_way() * self.config.datagram.get())
    }

    /// Writes its gauges.
    pub(crate) fn gauges(&self, stats: &mut FlowStats) {
        self.trip.gauges(stats);
        stats.cwnd = self.controller.cwnd();
        stats.in_flight = self.in_flight();
        stats.pacing_rate = self.pacing_rate();
        stats.delivery_rate = self.delivery.rate();
        stats.lost_packets = self.lost_units;
        stats.limit = self.limit;
        let state = self.controller.state();
        stats.controller = format!("{} {state}", self.controller.name());
    }
}
