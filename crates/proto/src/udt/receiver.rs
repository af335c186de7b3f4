//! The receiving end.

mod acks;
mod socket_window;

use std::collections::VecDeque;

use packtrain_cc::udt::Variant;
use packtrain_units::{Duration, Time};

use super::arrival::Arrival;
use super::losslist::LossList;
use super::message::{Ack, Impossible, Message, PacketRate};
use super::pair::PacketPair;
use super::trend::Trend;
use crate::stats::FlowStats;

use self::acks::{Acks, RTT_GUESS};
use self::socket_window::SocketWindow;

/// Maximum ranges of one NAK. A datagram of UDT4 holds 182, twice 4 bytes each.
const MAX_NAK_RANGES: usize = 128;
/// UDT4 sends a light ACK every this many units.
const LIGHT_EVERY: u64 = 64;
/// Minimum units between full ACKs that are sent before their time.
const MIN_EARLY_UNITS: u64 = 8;
/// A capacity below this fraction of the arrival rate is not reported.
const MIN_CAPACITY_SHARE: f64 = 0.85;
/// Room below this fraction of the maximum seen counts as low.
const LOW_ROOM: u64 = 4;
/// Upper limit of the round trip, because timers depend on it.
const MAX_RTT: Duration = Duration::from_secs(10);

/// Configuration of a receiver.
#[derive(Clone, Copy, Debug)]
pub struct ReceiverConfig {
    /// The variant of the protocol.
    pub variant: Variant,
    /// The first unit's number.
    pub first: u64,
    /// Maximum units accepted beyond the first missing one.
    pub window: u64,
    /// Maximum units that the sender sends back to back, as far as known. With 1 the estimators are
    /// the paper's unless packets arrive in batches.
    pub train: u32,
    /// Packets that the buffer of the socket holds, if known: the receiver then advertises no more
    /// room than that and the path hold.
    pub socket: Option<u64>,
}

/// How a unit relates to what has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitStatus {
    /// New; to be placed.
    New,
    /// It has arrived before, or was dropped.
    Duplicate,
    /// Beyond the window.
    Outside,
}

/// The receiving end of a flow.
#[derive(Debug)]
pub struct Receiver {
    config: ReceiverConfig,
    /// All units below have arrived.
    next: u64,
    /// One past the highest unit that arrived.
    above: u64,
    losses: LossList,
    /// Losses to be reported, new or due again.
    naks: VecDeque<(u64, u64)>,
    nak_timer: NakTimer,
    acks: Acks,
    /// Units that arrived since the last full ACK, and the light ACKs since then.
    since_ack: u64,
    light: u64,
    room: u64,
    advertised_room: u64,
    /// All units below were acknowledged by full ACKs.
    acked_to: u64,
    max_room: u64,
    rtt: Rtt,
    socket: SocketWindow,
    trend: Trend,
    /// The newest round-trip sample.
    sampled: Option<Duration>,
    /// Trend tests, those that found a rise, and warnings.
    tests: u64,
    rises: u64,
    warnings: u64,
    warned_at: Option<Time>,
    warning: bool,
    arrival: Arrival,
    pair: PacketPair,
}

impl Receiver {
    /// Creates a receiver.
    pub fn new(config: ReceiverConfig, now: Time) -> Self {
        let window = config.window.max(2);
        let config = ReceiverConfig { window, ..config };
        let trains = config.train > 1;
        Self {
            config,
            next: config.first,
            above: config.first,
            losses: LossList::new(config.variant, window),
            naks: VecDeque::new(),
            nak_timer: NakTimer { fired: now },
            acks: Acks::new(now),
            since_ack: 0,
            light: 0,
            room: window,
            advertised_room: window,
            acked_to: config.first,
            max_room: 0,
            rtt: Rtt::new(config.variant),
            socket: SocketWindow::new(config.socket, now),
            trend: Trend::new(trains),
            sampled: None,
            tests: 0,
            rises: 0,
            warnings: 0,
            warned_at: None,
            warning: false,
            arrival: Arrival::new(config.variant, trains),
            pair: PacketPair::new(config.first, trains),
        }
    }

    /// How this unit relates to what has arrived.
    pub fn check(&self, unit: u64) -> UnitStatus {
        if unit < self.next {
            UnitStatus::Duplicate
        } else if unit >= self.end() {
            UnitStatus::Outside
        } else if unit >= self.above || self.losses.contains(unit) {
            UnitStatus::New
        } else {
            UnitStatus::Duplicate
        }
    }

    /// One past the last unit that the window admits.
    fn end(&self) -> u64 {
        self.next.saturating_add(self.config.window)
    }

    /// These units arrived and were placed. Units that they show to be missing are reported at
    /// once.
    pub fn take(&mut self, now: Time, first: u64, count: u32) {
        let end = first.saturating_add(u64::from(count)).min(self.end());
        let before = self.next;
        if first >= end || end <= before {
            return;
        }
        if first > self.above {
            self.losses.insert(now, self.next, self.above, first);
            self.naks.push_back((self.above, first));
        }
        self.resolve(first, end);
        if self.next > before {
            self.acks.on_change(now);
        }
        self.since_ack += u64::from(count);
    }

    /// The receiver need not wait for `first..end` any longer.
    fn resolve(&mut self, first: u64, end: u64) {
        self.losses.remove(first, end.min(self.above));
        self.above = self.above.max(end);
        self.losses.cover(self.next, self.above);
        if first <= self.next {
            self.next = self.losses.first_in(self.next, self.above).unwrap_or(self.above);
        }
    }

    /// `packets` packets arrived in one batch, `first` and `last` being its first and last unit,
    /// the last at `at`. `joined` if the wire marks that each was sent right behind the unit before
    /// it; a wire without that mark passes `first % 16 == 1`. Call it once per batch, also for a
    /// single packet; duplicates count too.
    pub fn on_batch(&mut self, at: Time, first: u64, last: u64, packets: u32, joined: bool) {
        self.arrival.on_batch(at, packets);
        self.pair.on_batch(at, first, last, packets, joined);
    }

    /// Handles a message of the sender.
    ///
    /// # Errors
    /// The message names impossible units, or only a receiver sends it; nothing has changed.
    pub fn on_message(&mut self, now: Time, message: &Message) -> Result<(), Impossible> {
        match *message {
            Message::Ack2 { number } => {
                self.on_ack2(now, number);
                Ok(())
            }
            Message::Drop { first, end } => self.on_drop(now, first, end),
            // A receiver gets none of these.
            Message::Ack(_) | Message::Nak { .. } | Message::Warning => Err(Impossible),
        }
    }

    fn on_ack2(&mut self, now: Time, number: u32) {
        let Some(sample) = self.acks.answered(now, number) else { return };
        self.rtt.sample(sample);
        self.socket.sample(now, sample);
        let delay = self.delay(sample);
        let rises = self.trend.sample(delay);
        self.tests += 1;
        self.rises += u64::from(rises);
        let wait = self.rtt.get() * 2;
        let quiet = self.warned_at.is_none_or(|at| now >= at + wait);
        if rises && quiet && self.config.variant != Variant::Udt4 {
            self.warned_at = Some(now);
            self.warning = true;
            self.warnings += 1;
        }
    }

    /// The sample of the trend test. A late host, or a train in flight, increases single samples;
    /// one or two of those at the end of 16 would pass for a trend, and each costs a ninth of the
    /// rate. Where the sender sends trains, the sample is therefore the minimum of two: a growing
    /// queue shows in both.
    fn delay(&mut self, sample: Duration) -> Duration {
        let before = self.sampled.replace(sample).filter(|_| self.config.train > 1);
        before.map_or(sample, |before| before.min(sample))
    }

    fn on_drop(&mut self, now: Time, first: u64, end: u64) -> Result<(), Impossible> {
        if first >= end || end > self.end() {
            return Err(Impossible);
        }
        let before = self.next;
        if end <= before {
            return Ok(());
        }
        if first > self.above {
            self.losses.insert(now, self.next, self.above, first);
            self.naks.push_back((self.above, first));
        }
        self.resolve(first.max(before), end);
        if self.next > before {
            self.acks.on_change(now);
        }
        Ok(())
    }

    /// The next message to the sender: losses first.
    pub fn poll_message(&mut self, now: Time) -> Option<Message> {
        self.handle_timeout(now);
        if let Some(nak) = self.next_nak() {
            return Some(nak);
        }
        if std::mem::take(&mut self.warning) {
            return Some(Message::Warning);
        }
        if self.acks.due(self.rtt.get()).is_some_and(|at| at <= now) {
            return Some(Message::Ack(self.ack(now)));
        }
        // A light ACK does not carry the room, and a window that is used up within SYN needs full
        // ACKs.
        let is_udt4 = self.config.variant == Variant::Udt4;
        let window = if is_udt4 { self.config.window } else { u64::MAX };
        let window = window.min(self.socket_window());
        // A window of few units is full before that many have arrived.
        let least = MIN_EARLY_UNITS.min(window / 2).max(1);
        if self.since_ack >= (window / 4).max(least) {
            let ack = self.ack(now);
            return Some(Message::Ack(Ack { early: true, arrival: None, capacity: None, ..ack }));
        }
        if !is_udt4 {
            return None;
        }
        (self.since_ack >= LIGHT_EVERY * (self.light + 1)).then(|| {
            self.light = self.since_ack / LIGHT_EVERY;
            Message::Ack(Ack { light: true, ..self.head() })
        })
    }

    /// As many losses as a message may have, without units that arrived meanwhile.
    fn next_nak(&mut self) -> Option<Message> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        while ranges.len() < MAX_NAK_RANGES
            && let Some((first, end)) = self.naks.pop_front()
        {
            for run in self.losses.runs(first, end) {
                if ranges.len() == MAX_NAK_RANGES {
                    // The rest of a range that was split waits for the next message.
                    self.naks.push_front((run.0, end));
                    break;
                }
                ranges.push(run);
            }
        }
        ranges.sort_unstable();
        (!ranges.is_empty()).then_some(Message::Nak { ranges })
    }

    fn ack(&mut self, now: Time) -> Ack {
        let number = self.acks.sent(now);
        (self.since_ack, self.light) = (0, 0);
        (self.advertised_room, self.acked_to) = (self.room, self.next);
        let (arrival, capacity) = (self.arrival(), self.capacity());
        Ack { number, arrival, capacity, ..self.head() }
    }

    fn head(&self) -> Ack {
        Ack {
            number: 0,
            next: self.next,
            light: false,
            early: false,
            rtt: self.rtt.reported(),
            rtt_var: self.rtt.variation(),
            room: self.room.min(self.config.window).min(self.socket_window()),
            arrival: None,
            capacity: None,
        }
    }

    /// What path and socket hold; no limit if it is not known.
    fn socket_window(&self) -> u64 {
        self.socket.get(|| self.arrival()).unwrap_or(u64::MAX)
    }

    /// The owner has room for this many units from `next` on. An ACK is due when room returns after
    /// it was low.
    pub fn set_room(&mut self, now: Time, units: u64) {
        self.max_room = self.max_room.max(units);
        let low = (self.max_room / LOW_ROOM).max(1);
        if self.advertised_room < low && units >= low {
            self.acks.on_change(now);
        }
        self.room = units;
    }

    /// The sender asks for feedback: an ACK is due if the owner's room may have stopped it.
    pub(crate) fn request_feedback(&mut self, now: Time) {
        if self.room.min(self.advertised_room) < self.config.window {
            self.acks.on_change(now);
        }
    }

    /// Runs the timers that are due.
    pub fn handle_timeout(&mut self, now: Time) {
        if !self.naks.is_empty() {
            // Messages that wait are sent first.
            return;
        }
        let Some(due) = self.nak_due() else { return };
        if due > now {
            return;
        }
        self.nak_timer.fired = now;
        let mut due = Vec::new();
        self.losses.report(now, self.rtt.get(), &mut due);
        self.naks.extend(due);
    }

    /// When the next timer is due; the epoch, which has passed, if a message waits.
    pub fn poll_timeout(&self) -> Option<Time> {
        let at_once = !self.naks.is_empty() || self.warning;
        let at_once = at_once.then_some(Time::ZERO);
        let times = [at_once, self.acks.due(self.rtt.get()), self.nak_due()];
        times.into_iter().flatten().min()
    }

    /// The first tick of the NAK timer at which a loss is old enough.
    fn nak_due(&self) -> Option<Time> {
        let rtt = self.rtt.get();
        let period = rtt.max(self.arrival.mean_interval());
        Some(self.nak_timer.tick(self.losses.due(rtt)?, period))
    }

    /// The first unit that has not arrived. Dropped units count as arrived.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// All units below were acknowledged by full ACKs.
    pub fn acked_to(&self) -> u64 {
        self.acked_to
    }

    /// Number of missing units below the highest that arrived.
    #[cfg(test)]
    pub(crate) fn missing(&self) -> u64 {
        self.losses.len()
    }

    /// One past the highest unit that arrived.
    pub(crate) fn top(&self) -> u64 {
        self.above
    }

    /// Number of units that arrived beyond a missing one.
    pub(crate) fn held(&self) -> u64 {
        self.above - self.next - self.losses.len()
    }

    /// The smoothed round trip, once measured.
    pub fn rtt(&self) -> Option<Duration> {
        self.rtt.measured()
    }

    /// The packet arrival speed reported in ACKs.
    pub(crate) fn arrival(&self) -> Option<PacketRate> {
        self.arrival.estimate()
    }

    /// The capacity of the path reported in ACKs.
    pub(crate) fn capacity(&self) -> Option<PacketRate> {
        // A capacity below the arrival rate cannot be right. The paper has no such check; its
        // packet pairs do not need it.
        let capacity = self.pair.estimate()?;
        let doubtful = |arrival: PacketRate| arrival.get() * MIN_CAPACITY_SHARE > capacity.get();
        let trains = self.config.train > 1;
        (!trains || !self.arrival().is_some_and(doubtful)).then_some(capacity)
    }

    /// Writes its gauges.
    pub fn gauges(&self, stats: &mut FlowStats) {
        stats.rtt = self.rtt();
        stats.trend_tests = self.tests;
        stats.trend_rises = self.rises;
        stats.delay_warnings = self.warnings;
    }
}

/// The NAK timer: max(RTT, mean arrival interval), repeated (section III.E).
#[derive(Debug)]
struct NakTimer {
    fired: Time,
}

impl NakTimer {
    /// The first time it fires at or after `at` and after it last fired.
    fn tick(&self, at: Time, period: Duration) -> Time {
        let period = period.as_nanos().max(1);
        let periods = at.since(self.fired).as_nanos().div_ceil(period).max(1);
        self.fired + Duration::from_nanos(period.saturating_mul(periods))
    }
}

/// The round trip that ACK2s measure, with UDT's averages: 7/8 of the old, 3/4 of the deviation.
#[derive(Debug)]
struct Rtt {
    smoothed: Option<Duration>,
    variation: Duration,
    /// UDT4 reports its initial guess while it has no sample, and averages from there.
    reports_guess: bool,
}

impl Rtt {
    fn new(variant: Variant) -> Self {
        let reports_guess = variant == Variant::Udt4;
        let variation = if reports_guess { RTT_GUESS / 2 } else { Duration::ZERO };
        Self { smoothed: None, variation, reports_guess }
    }

    fn sample(&mut self, sample: Duration) {
        let sample = sample.clamp(Duration::from_micros(1), MAX_RTT);
        match self.smoothed {
            None => (self.smoothed, self.variation) = (Some(sample), sample / 2),
            Some(smoothed) => {
                let off = sample.max(smoothed) - sample.min(smoothed);
                self.variation = (self.variation * 3 + off) / 4;
                self.smoothed = Some((smoothed * 7 + sample) / 8);
            }
        }
    }

    fn measured(&self) -> Option<Duration> {
        self.smoothed
    }

    /// The round trip for timers.
    fn get(&self) -> Duration {
        self.smoothed.unwrap_or(RTT_GUESS)
    }

    /// The round trip for ACKs.
    fn reported(&self) -> Duration {
        let unknown = if self.reports_guess { RTT_GUESS } else { Duration::ZERO };
        self.smoothed.unwrap_or(unknown)
    }

    fn variation(&self) -> Duration {
        self.variation
    }
}
