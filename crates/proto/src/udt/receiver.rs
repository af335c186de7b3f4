//! The receiving end.

mod acks;

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

/// Most ranges of one NAK: what a datagram of UDT4 holds, twice 4 bytes each, is 182.
const MAX_NAK_RANGES: usize = 128;
/// UDT4 sends a light ACK every so many units.
const LIGHT_EVERY: u64 = 64;
/// Full ACKs before their time leave no more often than every so many units.
const LEAST_EARLY: u64 = 8;
/// A capacity below this share of the rate of arrival is not told.
const DOUBT: f64 = 0.85;
/// Room below this share of the most ever seen is low.
const LOW_ROOM: u64 = 4;
/// A round trip longer than this is not believed: timers depend on it.
const MAX_RTT: Duration = Duration::from_secs(10);

/// How a receiver is to be.
#[derive(Clone, Copy, Debug)]
pub struct ReceiverConfig {
    /// Whose rules.
    pub variant: Variant,
    /// The first unit's number.
    pub first: u64,
    /// Most units accepted beyond the first that is missing.
    pub window: u64,
    /// Most units that the sender sends back to back, as far as known: with 1 the estimators are
    /// the paper's unless packets come in batches.
    pub train: u32,
}

/// What a unit's number says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// To be placed.
    New,
    /// It is here already, or was dropped.
    Again,
    /// Beyond what the window admits.
    Outside,
}

/// The receiving end of a flow.
#[derive(Debug)]
pub struct Receiver {
    config: ReceiverConfig,
    /// All below have come.
    next: u64,
    /// Behind the highest that came.
    above: u64,
    losses: LossList,
    /// Losses just seen, or due again, to be told.
    naks: VecDeque<(u64, u64)>,
    nak_timer: NakTimer,
    acks: Acks,
    /// Units that came since the last full ACK, and the light ones that told of them.
    since_ack: u64,
    light: u64,
    room: u64,
    told_room: u64,
    /// All below was told by full ACKs.
    told: u64,
    most_room: u64,
    rtt: Rtt,
    trend: Trend,
    /// The newest round trip that was measured.
    sampled: Option<Duration>,
    /// The trend's samples, those at which it rose, and warnings.
    tests: u64,
    rises: u64,
    warnings: u64,
    warned_at: Option<Time>,
    warning: bool,
    arrival: Arrival,
    pair: PacketPair,
}

impl Receiver {
    /// A receiver that starts now.
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
            told_room: window,
            told: config.first,
            most_room: window,
            rtt: Rtt::new(config.variant),
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

    /// What this unit is to it.
    pub fn check(&self, unit: u64) -> Seen {
        if unit < self.next {
            Seen::Again
        } else if unit >= self.end() {
            Seen::Outside
        } else if unit >= self.above || self.losses.contains(unit) {
            Seen::New
        } else {
            Seen::Again
        }
    }

    /// Behind the last unit that the window admits.
    fn end(&self) -> u64 {
        self.next.saturating_add(self.config.window)
    }

    /// These units came and were placed; what they show to be missing is asked for at once.
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
        self.came(first, end);
        if self.next > before {
            self.acks.news(now);
        }
        self.since_ack += u64::from(count);
    }

    /// `first..end` need not be waited for any more.
    fn came(&mut self, first: u64, end: u64) {
        self.losses.remove(first, end.min(self.above));
        self.above = self.above.max(end);
        self.losses.cover(self.next, self.above);
        if first <= self.next {
            self.next = self.losses.first_in(self.next, self.above).unwrap_or(self.above);
        }
    }

    /// Packets came that the host gave in one batch: so many, the first and the last of them
    /// these units, the last at `at`. `joined` if the wire tells that the sender sent each
    /// of them right behind the unit before it; a wire that cannot tell says `first % 16 == 1`. Once a
    /// batch, a lone packet being one; repeats count too.
    pub fn on_batch(&mut self, at: Time, first: u64, last: u64, packets: u32, joined: bool) {
        self.arrival.on_batch(at, packets);
        self.pair.on_batch(at, first, last, packets, joined);
    }

    /// The sender said this.
    ///
    /// # Errors
    /// It spoke of units that cannot be, or said what only a receiver says; nothing has changed.
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

    /// What the trend is told of a round trip. A host that is late, or a train that is under way,
    /// adds to single samples, and one or two of those at the end of 16 pass for a trend, each time
    /// for a ninth of the rate. So where the sender sends trains it is the less of two: a queue
    /// that grows shows in both.
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
        self.came(first.max(before), end);
        if self.next > before {
            self.acks.news(now);
        }
        Ok(())
    }

    /// What to tell the sender: losses first.
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
        if self.config.variant != Variant::Udt4 {
            return None;
        }
        // A light ACK says nothing of room: a window that is used up within SYN needs full ones.
        if self.since_ack >= (self.config.window / 4).max(LEAST_EARLY) {
            let ack = self.ack(now);
            return Some(Message::Ack(Ack { arrival: None, capacity: None, ..ack }));
        }
        (self.since_ack >= LIGHT_EVERY * (self.light + 1)).then(|| {
            self.light = self.since_ack / LIGHT_EVERY;
            Message::Ack(Ack { light: true, ..self.head() })
        })
    }

    /// As many losses as a message may have, those that came meanwhile left out.
    fn next_nak(&mut self) -> Option<Message> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        while ranges.len() < MAX_NAK_RANGES
            && let Some((first, end)) = self.naks.pop_front()
        {
            for run in self.losses.runs(first, end) {
                if ranges.len() == MAX_NAK_RANGES {
                    // The rest of a range that fell apart waits for the next message.
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
        (self.told_room, self.told) = (self.room, self.next);
        let (arrival, capacity) = (self.arrival(), self.capacity());
        Ack { number, arrival, capacity, ..self.head() }
    }

    fn head(&self) -> Ack {
        Ack {
            number: 0,
            next: self.next,
            light: false,
            rtt: self.rtt.told(),
            rtt_var: self.rtt.variation(),
            room: self.room.min(self.config.window),
            arrival: None,
            capacity: None,
        }
    }

    /// The owner has room for so many units from `next` on. Room that comes back after it was low
    /// is told with the next ACK, which is due then.
    pub fn set_room(&mut self, now: Time, units: u64) {
        self.most_room = self.most_room.max(units);
        let low = (self.most_room / LOW_ROOM).max(1);
        if self.told_room < low && units >= low {
            self.acks.news(now);
        }
        self.room = units;
    }

    /// Runs the timers that are due.
    pub fn handle_timeout(&mut self, now: Time) {
        if !self.naks.is_empty() {
            // What is to be told already goes first.
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

    /// When something happens by itself; the epoch, which is past, if a message waits.
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

    /// The first unit that has not come: all below have, or were dropped.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// All below was told by full ACKs.
    pub fn told(&self) -> u64 {
        self.told
    }

    /// How many units are missing below the highest that came.
    #[cfg(test)]
    pub(crate) fn missing(&self) -> u64 {
        self.losses.len()
    }

    /// Behind the highest unit that came.
    pub(crate) fn top(&self) -> u64 {
        self.above
    }

    /// How many units came that are beyond a missing one.
    pub(crate) fn held(&self) -> u64 {
        self.above - self.next - self.losses.len()
    }

    /// The smoothed round trip, once measured.
    pub fn rtt(&self) -> Option<Duration> {
        self.rtt.measured()
    }

    /// How fast packets arrive, as ACKs tell it.
    pub(crate) fn arrival(&self) -> Option<PacketRate> {
        self.arrival.estimate()
    }

    /// The capacity of the path, as ACKs tell it.
    pub(crate) fn capacity(&self) -> Option<PacketRate> {
        // What has arrived faster than a path can be is not its capacity. The paper has no such
        // doubt, and its pairs no such reason.
        let capacity = self.pair.estimate()?;
        let doubtful = |arrival: PacketRate| arrival.get() * DOUBT > capacity.get();
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

/// max(RTT, mean arrival interval), over and over (section III.E).
#[derive(Debug)]
struct NakTimer {
    fired: Time,
}

impl NakTimer {
    /// The first time it runs out at or after `at` and after it last did.
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
    /// UDT4 tells its guess while it has measured nothing, and averages from there on.
    tells_guess: bool,
}

impl Rtt {
    fn new(variant: Variant) -> Self {
        let tells_guess = variant == Variant::Udt4;
        let variation = if tells_guess { RTT_GUESS / 2 } else { Duration::ZERO };
        Self { smoothed: None, variation, tells_guess }
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

    /// For timers.
    fn get(&self) -> Duration {
        self.smoothed.unwrap_or(RTT_GUESS)
    }

    /// For ACKs.
    fn told(&self) -> Duration {
        let unknown = if self.tells_guess { RTT_GUESS } else { Duration::ZERO };
        self.smoothed.unwrap_or(unknown)
    }

    fn variation(&self) -> Duration {
        self.variation
    }
}
