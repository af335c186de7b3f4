//! The sending end.
//!
//! What is to leave again leaves first, then new units as the flow window and the receiver's room
//! allow, all at the controller's pace. Every 16th unit's successor leaves at once, and the pace
//! makes up for it: the rate is the controller's in the mean.

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
use self::timers::Quiet;

/// How often units leave back to back to measure the path while the receiver cannot tell its
/// capacity, and how often when it can: in units.
const PROBE_EVERY: (u64, u64) = (64, 16_384);
/// How many they are at first, and at most: while they tell nothing it doubles.
const PROBE: (u32, u32) = (32, 512);
/// Trains further apart than a thread needs for one have not left back to back.
const BACK_TO_BACK: Duration = Duration::from_micros(100);
/// What a default socket buffer (264 joined datagrams) holds in any case.
const PROBE_SAFE: u32 = 128;
/// More than that only as far as the pace lets as many leave in this time.
const PROBE_SPAN: Duration = Duration::from_millis(1);
/// While the capacity is known, a run is no shorter than this.
const PROBE_KNOWN: u32 = 128;
/// Messages kept for an owner that does not ask for them.
const MAX_PENDING_MESSAGES: usize = 1_024;

/// The signals that this feedback provides.
pub(crate) fn signals(variant: Variant) -> Signals {
    let mut signals = vec![
        Signal::Rtt,
        Signal::DeliveryRate,
        Signal::ArrivalRate,
        Signal::Capacity,
        Signal::Losses,
        // Beside each acknowledgement, on our wire.
        Signal::HostDrops,
    ];
    if variant != Variant::Udt4 {
        signals.push(Signal::DelayTrend);
    }
    Signals::of(&signals)
}

/// How a sender is to be.
#[derive(Clone, Copy, Debug)]
pub struct SenderConfig {
    /// Whose rules: its receiver's; what the sender does by them is the controller's.
    pub variant: Variant,
    /// The first unit's number.
    pub first: u64,
    /// Wire bytes of a full datagram (UDP payload).
    pub datagram: ByteCount,
    /// Most units back to back: 1 is the paper's pacing by packet.
    pub train: u32,
    /// Most unacknowledged units that the owner can hold.
    pub window: u64,
    /// The messages are made of FOBS's bitmaps: nobody waits for ACK2s, and nobody measures pairs.
    pub bitmaps: bool,
}

/// Leave to send. What has not left, or not all, is offered again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// These units again.
    Again {
        /// The first of them.
        first: u64,
        /// How many at most.
        count: u32,
    },
    /// So many new units, from `Sender::next` on.
    Fresh {
        /// How many at most.
        count: u32,
        /// The first of them leaves right behind the unit before it, unpaced: a wire that can
        /// tells the receiver so (every other unit of a train follows at once anyhow).
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
    /// New units below this leave at once.
    at_once: u64,
    /// New units have left without a pause since the sender last had to wait; what leaves by this
    /// time does so right behind them.
    streak: Option<Time>,
    /// The next unit that begins such a run, and its length.
    probe: (u64, u32),
    limit: Limit,
    app_limited: bool,
    /// The flow window held it since the last full ACK.
    window_limited: bool,
    /// The receiver has room for units below this.
    room: u64,
    newest_ack: Option<u32>,
    rtt: Option<(Duration, Duration)>,
    min_rtt: Option<Duration>,
    arrival: Option<PacketRate>,
    capacity: Option<PacketRate>,
    delivery: Delivery,
    largest_acked: Option<u64>,
    quiet: Quiet,
    messages: VecDeque<Message>,
    lost_units: u64,
    /// What the receiving host told that the controller is still to hear.
    host: HostNews,
    /// How many units came, where the receiver tells.
    came: Option<u64>,
    /// The round trip as measured last, where an acknowledgement has a mean.
    latest: Option<Duration>,
}

/// What a receiving host told.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HostNews {
    /// Datagrams that it dropped since.
    pub(crate) drops: u64,
    /// Packets that it refused since.
    pub(crate) refused: u64,
    /// Packets marked since.
    pub(crate) ecn_ce: u64,
    /// What its application drains, where it says so.
    pub(crate) drain: Option<DataRate>,
}

impl Sender {
    /// A sender that starts now.
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
            window_limited: false,
            room: config.first.saturating_add(window),
            newest_ack: None,
            rtt: None,
            min_rtt: None,
            arrival: None,
            capacity: None,
            delivery: Delivery::new(now, config.first),
            largest_acked: None,
            quiet: Quiet::new(now),
            messages: VecDeque::new(),
            lost_units: 0,
            host: HostNews::default(),
            came: None,
            latest: None,
        }
    }

    /// What may leave now, if the owner has `fresh` new units ready. None: wait for
    /// `poll_timeout`, for a message or for more units; `limit` says why.
    pub fn poll(&mut self, now: Time, fresh: u64) -> Option<Leave> {
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

    fn permit(&mut self, now: Time, fresh: u64) -> Result<Leave, Limit> {
        if self.flight.lost() == 0 && fresh == 0 {
            return Err(Limit::Idle);
        }
        if self.frozen(now) {
            self.pace.hold();
            return Err(Limit::Pacing);
        }
        let next = self.flight.next();
        let room = self.room_for_fresh(now);
        self.app_limited = fresh == 0 || (room.is_ok() && fresh <= self.quantum());
        let probe = self.room_for_probe(room);
        if next < self.at_once && fresh > 0 && probe > 0 {
            let count = (self.at_once - next).min(probe).min(fresh);
            let count = count.min(u64::from(self.config.train.max(2))) as u32;
            return Ok(Leave::Fresh { count, joined: self.is_joined(now) });
        }
        let paced = now < self.pace.next();
        if let Some((first, count)) = self.flight.next_lost(self.quantum()) {
            let again = Leave::Again { first, count: count as u32 };
            return if paced { Err(Limit::Pacing) } else { Ok(again) };
        }
        let room = room?;
        if paced {
            return Err(Limit::Pacing);
        }
        let count = self.quantum().min(room).min(fresh) as u32;
        Ok(Leave::Fresh { count, joined: self.is_joined(now) })
    }

    /// Whether what leaves now does so right behind what left before.
    fn is_joined(&self, now: Time) -> bool {
        self.streak.is_some_and(|until| now <= until)
    }

    /// Until when it would, so many bytes having left now. A thread that was put aside in between
    /// was not back to back, nor one that was late and sends at the pace: that would measure itself.
    fn streak_until(&self, now: Time, wire: ByteCount) -> Time {
        let pace = self.pacing_rate().filter(|_| self.flight.next() >= self.at_once);
        let paced = pace.map_or(BACK_TO_BACK, |rate| rate.time_for(wire) / 2);
        now + paced.min(BACK_TO_BACK)
    }

    /// How many new units flow window and receiver allow, or which of them forbids any.
    fn room_for_fresh(&self, now: Time) -> Result<u64, Limit> {
        let datagram = self.config.datagram.get().max(1);
        // W need not be whole, and rounded down it would only ever shrink: what arrives in a
        // round trip of a flow that its window limits is no more than the window.
        let window = self.controller.cwnd().get().div_ceil(datagram).clamp(1, self.config.window);
        let window = window.max(self.least_window().min(self.config.window));
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

    /// How many new units may leave at once behind others to measure the path. Those of a sender
    /// of trains may exceed the flow window: cut to a small one they would tell nothing, and the
    /// window would stay small.
    fn room_for_probe(&self, room: Result<u64, Limit>) -> u64 {
        if self.config.train == 1 {
            return room.unwrap_or(0);
        }
        let open = self.flight.acked() + self.config.window;
        self.room.min(open).saturating_sub(self.flight.next())
    }

    /// A sender of trains needs a window of several: else one train would leave in a round trip,
    /// and the receiver could not tell the pause behind it from the pace.
    fn least_window(&self) -> u64 {
        let paced = self.config.train > 1 && self.controller.pacing_rate().is_some();
        if paced { (self.quantum() * 4).max(16) } else { 1 }
    }

    /// Units that may leave back to back.
    fn quantum(&self) -> u64 {
        let datagram = self.config.datagram.get().max(1);
        let quantum = self.controller.send_quantum().get() / datagram;
        quantum.clamp(1, u64::from(self.config.train))
    }

    fn frozen(&self, now: Time) -> bool {
        self.controller.frozen_until().is_some_and(|until| now < until)
    }

    /// Units left: `again`, or new ones, of so many wire bytes together.
    pub fn on_sent(&mut self, now: Time, first: u64, count: u32, wire: ByteCount, again: bool) {
        if count == 0 {
            return;
        }
        let index = if again {
            self.streak = None;
            self.flight.again(first, count)
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
        self.quiet.on_sent(now);
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
    }

    /// What is to follow these new units at once.
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

    /// What to tell the receiver.
    pub fn poll_message(&mut self, now: Time) -> Option<Message> {
        self.handle_timeout(now);
        self.messages.pop_front()
    }

    /// Sent units that are not to be sent again, since the owner cannot or must not; the receiver
    /// is told.
    pub fn drop_units(&mut self, first: u64, end: u64) {
        if let Some((first, end)) = self.flight.drop(first, end) {
            self.say(Message::Drop { first, end });
        }
    }

    fn say(&mut self, message: Message) {
        if self.messages.len() < MAX_PENDING_MESSAGES {
            self.messages.push_back(message);
        }
    }

    /// All units below have arrived, or were dropped.
    pub fn acked(&self) -> u64 {
        self.flight.acked()
    }

    /// The number that the next new unit gets.
    pub fn next(&self) -> u64 {
        self.flight.next()
    }

    /// When this unit, which is not acknowledged, left the first time.
    pub fn sent_at(&self, unit: u64) -> Option<Time> {
        self.flight.unit(unit).map(|unit| unit.sent_at)
    }

    /// The first of these units that waits to leave again.
    pub(crate) fn first_owed(&self, first: u64, end: u64) -> Option<u64> {
        self.flight.first_lost(first, end)
    }

    /// Behind the last of the units from `first` on that all wait to leave again.
    pub(crate) fn owed_end(&self, first: u64, end: u64) -> u64 {
        self.flight.lost_end(first, end)
    }

    /// These units came after all: they need not leave again.
    pub(crate) fn on_came(&mut self, first: u64, end: u64) {
        self.flight.came(first, end);
    }

    /// So many units came in all, those beyond a gap too, which acknowledgements leave out.
    pub(crate) fn set_came(&mut self, units: u64) {
        self.came = self.came.max(Some(units));
    }

    /// The next acknowledgement, whose round trip is a mean, measured this one.
    pub(crate) fn set_latest(&mut self, rtt: Option<Duration>) {
        self.latest = rtt;
    }

    /// How many came, where somebody told.
    pub(crate) fn came(&self) -> Option<u64> {
        self.came
    }

    /// The receiving host told this; the controller hears it with the next feedback.
    pub(crate) fn on_host(&mut self, news: HostNews) {
        self.host.drops = self.host.drops.saturating_add(news.drops);
        self.host.refused = self.host.refused.saturating_add(news.refused);
        self.host.ecn_ce = self.host.ecn_ce.saturating_add(news.ecn_ce);
        self.host.drain = news.drain;
    }

    /// The controller, for what is no feedback.
    pub(crate) fn controller_mut(&mut self) -> &mut dyn CongestionController {
        &mut *self.controller
    }

    /// How many units wait to leave again.
    pub fn owed(&self) -> u64 {
        self.flight.lost()
    }

    /// What keeps it from sending more.
    pub(crate) fn limit(&self) -> Limit {
        self.limit
    }

    /// The smoothed round trip, once known.
    pub fn rtt(&self) -> Option<Duration> {
        self.rtt.map(|(rtt, _)| rtt)
    }

    /// The owner's own limit on the rate.
    pub fn set_ceiling(&mut self, ceiling: Option<DataRate>) {
        self.ceiling = ceiling;
    }

    /// The rate in force.
    pub(crate) fn pacing_rate(&self) -> Option<DataRate> {
        [self.controller.pacing_rate(), self.ceiling].into_iter().flatten().min()
    }

    /// The controller's rate, whatever the ceiling.
    pub(crate) fn controller_rate(&self) -> Option<DataRate> {
        self.controller.pacing_rate()
    }

    /// Units that were reported lost so far, those lost again included.
    pub(crate) fn lost(&self) -> u64 {
        self.lost_units
    }

    /// How often so far nothing was heard for so long that something was repeated, and how often
    /// for so long that everything was taken for lost.
    pub(crate) fn silences(&self) -> (u64, u64) {
        self.quiet.times()
    }

    /// Not yet cumulatively acknowledged, each unit counted as a full datagram.
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
