//! The sending end.
//!
//! Retransmissions are sent first, then new units as the flow window and the receiver's room allow,
//! all at the controller's pace. The unit after every 16th is sent at once, and the pacer
//! compensates: the mean rate is the controller's.

mod feedback;
mod flight;
mod hole;
mod timers;

use std::collections::VecDeque;

use packtrain_cc::udt::Variant;
use packtrain_cc::{CongestionController, Sent, Signal, Signals};
use packtrain_units::{ByteCount, DataRate, Duration, Time};

use super::message::{Ack, Impossible, Message, PacketRate};
use super::pace::Pace;
use super::pair::PAIR_EVERY;
use crate::stats::{FlowStats, Limit};

use self::feedback::Delivery;
pub(crate) use self::flight::Flight;
use self::hole::Hole;
use self::timers::SilenceTimer;

/// Interval of measuring runs, in units: while the receiver has no estimate of the capacity, and
/// when it has one.
const PROBE_EVERY: (u64, u64) = (64, 16_384);
/// First and maximum length of a measuring run, in units; it doubles while the runs give no
/// estimate.
const PROBE: (u32, u32) = (32, 512);
/// Maximum time between trains that count as back to back.
const BACK_TO_BACK: Duration = Duration::from_micros(100);
/// Length of a run that a default socket buffer (264 coalesced datagrams) always holds.
const PROBE_SAFE: u32 = 128;
/// A longer run is limited to the units that the pace allows in this time.
const PROBE_SPAN: Duration = Duration::from_millis(1);
/// Minimum length of a run while the capacity is known.
const PROBE_KNOWN: u32 = 128;
/// Maximum messages kept for an owner that does not fetch them.
const MAX_PENDING_MESSAGES: usize = 1_024;

/// The signals that this feedback provides.
pub(crate) fn signals(variant: Variant) -> Signals {
    let mut signals = vec![
        Signal::Rtt,
        Signal::DeliveryRate,
        Signal::ArrivalRate,
        Signal::Capacity,
        Signal::Losses,
        // In each acknowledgement of the native wire.
        Signal::HostDrops,
    ];
    if variant != Variant::Udt4 {
        signals.push(Signal::DelayTrend);
    }
    Signals::of(&signals)
}

/// Configuration of a sender.
#[derive(Clone, Copy, Debug)]
pub struct SenderConfig {
    /// The variant of its receiver. The sender's own rules are the controller's.
    pub variant: Variant,
    /// The first unit's number.
    pub first: u64,
    /// Wire bytes of a full datagram (UDP payload).
    pub datagram: ByteCount,
    /// Maximum units back to back: 1 is the paper's pacing by packet.
    pub train: u32,
    /// Maximum unacknowledged units that the owner can hold.
    pub window: u64,
    /// The messages are derived from FOBS's bitmaps: no ACK2s and no packet pairs are needed.
    pub bitmaps: bool,
}

/// Permission to send. Units that are not sent are offered again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permit {
    /// Retransmit these units.
    Retransmit {
        /// The first of them.
        first: u64,
        /// Maximum number.
        count: u32,
    },
    /// Send new units, from `Sender::next` on.
    Fresh {
        /// Maximum number.
        count: u32,
        /// The first of them is sent right behind the unit before it, unpaced. A wire that can
        /// marks this for the receiver; all other units of a train follow at once anyway.
        joined: bool,
    },
}

/// The sending end of a flow.
#[derive(Debug)]
pub struct Sender {
    config: SenderConfig,
    controller: Box<dyn CongestionController>,
    ceiling: Option<DataRate>,
    flight: Flight,
    hole: Hole,
    pace: Pace,
    /// New units below this are sent at once.
    at_once: u64,
    /// Set while new units have been sent without a pause since the sender last had to wait: units
    /// sent by this time are right behind them.
    streak: Option<Time>,
    /// The next unit that begins a measuring run, and its length.
    probe: (u64, u32),
    limit: Limit,
    app_limited: bool,
    /// The payload did not have what was allowed since the last units were sent.
    starved: bool,
    /// Whether the flow window limited it since the last full ACK.
    window_limited: bool,
    /// The receiver has room for units below this.
    room: u64,
    newest_ack: Option<u32>,
    /// When the last ACK2 was sent.
    answered_at: Option<Time>,
    rtt: Option<(Duration, Duration)>,
    min_rtt: Option<Duration>,
    arrival: Option<PacketRate>,
    capacity: Option<PacketRate>,
    delivery: Delivery,
    largest_acked: Option<u64>,
    silence_timer: SilenceTimer,
    messages: VecDeque<Message>,
    lost_units: u64,
    /// Counters of the receiving host not yet passed to the controller.
    host: HostUpdate,
    /// Number of units that arrived, where the receiver reports it.
    received: Option<u64>,
    /// The newest round-trip sample, where an acknowledgement carries a mean.
    latest: Option<Duration>,
}

/// Counters of a receiving host since the last feedback.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HostUpdate {
    /// Datagrams dropped.
    pub(crate) drops: u64,
    /// Packets refused.
    pub(crate) refused: u64,
    /// Packets marked congestion-experienced.
    pub(crate) ecn_ce: u64,
    /// The drain rate of its application, where reported.
    pub(crate) drain: Option<DataRate>,
}

impl Sender {
    /// Creates a sender.
    pub fn new(config: SenderConfig, controller: Box<dyn CongestionController>, now: Time) -> Self {
        let window = config.window.max(2);
        let config = SenderConfig { window, train: config.train.max(1), ..config };
        Self {
            config,
            controller,
            ceiling: None,
            flight: Flight::new(config.first, window),
            hole: Hole::default(),
            pace: Pace::default(),
            at_once: config.first,
            streak: None,
            probe: (config.first + PROBE_EVERY.0, PROBE.0),
            limit: Limit::Idle,
            app_limited: false,
            starved: false,
            window_limited: false,
            room: config.first.saturating_add(window),
            newest_ack: None,
            answered_at: None,
            rtt: None,
            min_rtt: None,
            arrival: None,
            capacity: None,
            delivery: Delivery::new(now, config.first),
            largest_acked: None,
            silence_timer: SilenceTimer::new(now),
            messages: VecDeque::new(),
            lost_units: 0,
            host: HostUpdate::default(),
            received: None,
            latest: None,
        }
    }

    /// The units that may be sent now, if the owner has `fresh` new units ready. `None` means: wait
    /// for `poll_timeout`, a message or more units; `limit` is the reason.
    pub fn poll(&mut self, now: Time, fresh: u64) -> Option<Permit> {
        match self.permit(now, fresh) {
            Ok(leave) => Some(leave),
            Err(limit) => {
                self.limit = limit;
                self.window_limited |= limit == Limit::Window;
                self.streak = None;
                if limit != Limit::Pacing {
                    self.pace.hold();
                }
                None
            }
        }
    }

    fn permit(&mut self, now: Time, fresh: u64) -> Result<Permit, Limit> {
        if self.flight.lost() == 0 && fresh == 0 {
            return Err(Limit::Idle);
        }
        if self.frozen(now) {
            self.pace.hold();
            return Err(Limit::Pacing);
        }
        let next = self.flight.next();
        let room = self.room_for_fresh(now);
        let few = fresh == 0 || (room.is_ok() && fresh <= self.quantum());
        self.app_limited = few || self.starved;
        let probe = self.room_for_probe(room);
        if next < self.at_once && fresh > 0 && probe > 0 {
            let count = (self.at_once - next).min(probe).min(fresh);
            let count = count.min(u64::from(self.config.train.max(2))) as u32;
            return Ok(Permit::Fresh { count, joined: self.is_joined(now) });
        }
        let paced = now < self.pace.next();
        if let Some((first, count)) = self.flight.next_lost(self.quantum()) {
            let again = Permit::Retransmit { first, count: count as u32 };
            return if paced { Err(Limit::Pacing) } else { Ok(again) };
        }
        let room = room?;
        if paced {
            return Err(Limit::Pacing);
        }
        let count = self.quantum().min(room).min(fresh) as u32;
        Ok(Permit::Fresh { count, joined: self.is_joined(now) })
    }

    /// Whether a packet sent now is right behind the previous one.
    fn is_joined(&self, now: Time) -> bool {
        self.streak.is_some_and(|until| now <= until)
    }

    /// Until when the next packet counts as back to back, after `wire` bytes were sent now. A
    /// thread that was descheduled in between did not send back to back. Nor did a late thread that
    /// sends at the pace: it would measure the pace itself.
    fn streak_until(&self, now: Time, wire: ByteCount) -> Time {
        let pace = self.pacing_rate().filter(|_| self.flight.next() >= self.at_once);
        let paced = pace.map_or(BACK_TO_BACK, |rate| rate.time_for(wire) / 2);
        now + paced.min(BACK_TO_BACK)
    }

    /// Number of new units that flow window and receiver allow, or the limit that allows none.
    fn room_for_fresh(&self, now: Time) -> Result<u64, Limit> {
        let datagram = self.config.datagram.get().max(1);
        // W is rounded up. Rounded down it would only shrink: in a window-limited flow no more than
        // the window arrives in a round trip.
        let window = self.controller.cwnd().get().div_ceil(datagram).clamp(1, self.config.window);
        let window = window.max(self.min_window().min(self.config.window));
        let window = match self.config.train {
            1 => window,
            _ => (window + self.repair_room(now, window)).min(self.config.window),
        };
        let next = self.flight.next();
        let window = (self.flight.acked() + window).saturating_sub(next);
        let room = self.room.saturating_sub(next);
        match window.min(room) {
            0 if window == 0 => Err(Limit::Window),
            0 => Err(Limit::Credit),
            count => Ok(count),
        }
    }

    fn repair_room(&self, now: Time, window: u64) -> u64 {
        let (rate, datagram) = (self.controller.pacing_rate(), self.config.datagram);
        self.hole.room(now, self.flight.acked(), window, rate, datagram)
    }

    /// Number of new units that may be sent at once behind others to measure the path. With a
    /// sender of trains they may exceed the flow window: a run cut to a small window would give no
    /// estimate, and the window would stay small.
    fn room_for_probe(&self, room: Result<u64, Limit>) -> u64 {
        if self.config.train == 1 {
            return room.unwrap_or(0);
        }
        let open = self.flight.acked() + self.config.window;
        self.room.min(open).saturating_sub(self.flight.next())
    }

    /// A sender of trains needs a window of several trains. Otherwise one train would be sent per
    /// round trip, and the receiver could not distinguish the pause after it from the pace.
    fn min_window(&self) -> u64 {
        let paced = self.config.train > 1 && self.controller.pacing_rate().is_some();
        if paced { (self.quantum() * 4).max(16) } else { 1 }
    }

    /// Maximum units back to back.
    fn quantum(&self) -> u64 {
        let datagram = self.config.datagram.get().max(1);
        let quantum = self.controller.send_quantum().get() / datagram;
        quantum.clamp(1, u64::from(self.config.train))
    }

    fn frozen(&self, now: Time) -> bool {
        self.controller.frozen_until().is_some_and(|until| now < until)
    }

    /// Units of `wire` bytes together were sent: for the second time or later (`again`), or new.
    pub fn on_sent(&mut self, now: Time, first: u64, count: u32, wire: ByteCount, again: bool) {
        if count == 0 {
            return;
        }
        let index = if again {
            self.streak = None;
            self.flight.on_retransmitted(first, count)
        } else {
            debug_assert_eq!(first, self.flight.next(), "new units are numbered in turn");
            self.flight.push(now, count)
        };
        if !again {
            if !self.config.bitmaps {
                self.plan_pairs(first, count);
            }
            self.streak = Some(self.streak_until(now, wire));
        }
        self.silence_timer.on_sent(now);
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

    /// Schedules the units that follow these new units at once.
    fn plan_pairs(&mut self, first: u64, count: u32) {
        let last = first + u64::from(count) - 1;
        if last.is_multiple_of(PAIR_EVERY) {
            self.at_once = self.at_once.max(last + 2);
        }
        let (at, length) = self.probe;
        if self.config.train > 1 && last >= at && self.pacing_rate().is_some() {
            self.at_once = self.at_once.max(last + u64::from(length));
            let paced = self.pacing_rate().map_or(0, |rate| rate.bytes_in(PROBE_SPAN).get());
            let paced = (paced / self.config.datagram.get().max(1)).min(PROBE.1.into()) as u32;
            let length = length.min(paced.max(PROBE_SAFE));
            self.probe = match self.capacity {
                Some(_) => (last + PROBE_EVERY.1, length.max(PROBE_KNOWN)),
                None => (
                    last + u64::from(length) + PROBE_EVERY.0,
                    (length * 2).min(paced.max(PROBE_SAFE)),
                ),
            };
        }
    }

    /// The next message to the receiver.
    pub fn poll_message(&mut self, now: Time) -> Option<Message> {
        self.handle_timeout(now);
        self.messages.pop_front()
    }

    /// Drops sent units that the owner cannot or must not send again; the receiver is notified.
    pub fn drop_units(&mut self, first: u64, end: u64) {
        if let Some((first, end)) = self.flight.drop(first, end) {
            self.queue_message(Message::Drop { first, end });
        }
    }

    fn queue_message(&mut self, message: Message) {
        if self.messages.len() < MAX_PENDING_MESSAGES {
            self.messages.push_back(message);
        }
    }

    /// All units below have arrived or were dropped.
    pub fn acked(&self) -> u64 {
        self.flight.acked()
    }

    /// The number that the next new unit gets.
    pub fn next(&self) -> u64 {
        self.flight.next()
    }

    /// When this unacknowledged unit was first sent.
    pub fn sent_at(&self, unit: u64) -> Option<Time> {
        self.flight.unit(unit).map(|unit| unit.sent_at)
    }

    /// The first of these units that waits for retransmission.
    pub(crate) fn first_pending(&self, first: u64, end: u64) -> Option<u64> {
        self.flight.first_lost(first, end)
    }

    /// One past the last of the units from `first` on that all wait for retransmission.
    pub(crate) fn pending_end(&self, first: u64, end: u64) -> u64 {
        self.flight.lost_end(first, end)
    }

    /// These units arrived: they need no retransmission.
    pub(crate) fn on_received(&mut self, first: u64, end: u64) {
        self.flight.mark_arrived(first, end);
    }

    /// Sets the number of units that arrived in total, including those beyond a gap, which
    /// acknowledgements leave out.
    pub(crate) fn set_received(&mut self, units: u64) {
        self.received = self.received.max(Some(units));
    }

    /// Sets the round-trip sample of the next acknowledgement, which itself carries a mean.
    pub(crate) fn set_latest(&mut self, rtt: Option<Duration>) {
        self.latest = rtt;
    }

    /// Number of units that arrived, if known.
    pub(crate) fn received(&self) -> Option<u64> {
        self.received
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

    /// Number of units that wait for retransmission.
    pub fn pending_retransmissions(&self) -> u64 {
        self.flight.lost()
    }

    /// The units that were allowed are not in memory: what limits the flow is the application.
    pub(crate) fn app_limited(&mut self) {
        (self.app_limited, self.starved) = (true, true);
    }

    /// What limits it.
    pub(crate) fn limit(&self) -> Limit {
        self.limit
    }

    /// The smoothed round trip, once known.
    pub fn rtt(&self) -> Option<Duration> {
        self.rtt.map(|(rtt, _)| rtt)
    }

    /// Sets the owner's limit on the rate.
    pub fn set_ceiling(&mut self, ceiling: Option<DataRate>) {
        self.ceiling = ceiling;
    }

    /// The rate in force.
    pub(crate) fn pacing_rate(&self) -> Option<DataRate> {
        [self.controller.pacing_rate(), self.ceiling].into_iter().flatten().min()
    }

    /// The controller's rate, without the ceiling.
    pub(crate) fn controller_rate(&self) -> Option<DataRate> {
        self.controller.pacing_rate()
    }

    /// Units reported lost so far, repeated losses included.
    pub(crate) fn lost(&self) -> u64 {
        self.lost_units
    }

    /// How often silence caused a retransmission of the last unit, and how often all units were
    /// taken for lost.
    pub(crate) fn silences(&self) -> (u64, u64) {
        self.silence_timer.times()
    }

    /// Not yet cumulatively acknowledged; each unit counts as a full datagram.
    fn in_flight(&self) -> ByteCount {
        ByteCount(self.flight.len() * self.config.datagram.get())
    }

    /// Writes its gauges.
    pub fn gauges(&self, stats: &mut FlowStats) {
        stats.rtt = self.rtt();
        stats.min_rtt = self.min_rtt;
        stats.cwnd = self.controller.cwnd();
        stats.in_flight = self.in_flight();
        stats.pacing_rate = self.pacing_rate();
        stats.delivery_rate = self.delivery.rate();
        stats.arrival_rate = self.arrival.map(|rate| rate.times(self.config.datagram));
        stats.capacity = self.capacity.map(|rate| rate.times(self.config.datagram));
        stats.lost_packets = self.lost_units;
        stats.limit = self.limit;
        let state = self.controller.state();
        stats.controller = format!("{} {state}", self.controller.name());
    }
}
