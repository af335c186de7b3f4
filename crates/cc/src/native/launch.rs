//! The launch: measures the capacity in a few round trips instead of doubling from ten packets.
//!
//! It goes in steps. A step sends at one rate and is judged by its own packets: from the first
//! acknowledgement of one of them, for an eighth to a half of a round trip. Late reports about
//! the step before do not count, so the next rate can follow after 1.1 to 1.5 round trips.

use packtrain_units::Time;

use crate::interface::{Feedback, SavedPath, Sent};
use crate::native::saved::Saved;
use crate::native::signals::{QUEUE_NOISE, seconds};

/// Minimum and maximum packets of the first round trip, and packets of it per second of round trip:
/// on a path of 50 Mbit/s and 10 ms 32 packets are less than it takes.
const FIRST_PACKETS: (f64, f64) = (32.0, 64.0);
const FIRST_PACKETS_PER_SECOND: f64 = 640.0;
/// Minimum round trip used, in seconds.
const MIN_RTT: f64 = 2e-3;
/// Minimum time over which a step is judged, in seconds, and minimum number of reports in it.
const MIN_SPAN: f64 = 4e-3;
const MIN_REPORTS: u32 = 3;
/// Minimum bytes that a step sends in the time over which it is judged, if pings showed the capacity
/// before: several trains.
const MIN_STEP_BYTES: f64 = 64.0 * 1_500.0;
/// The share of the capacity at which the launch ends if only bursts of data measured it, and if
/// pings measured it too.
const MEASURED_SHARE: f64 = 0.95;
const CONFIRMED_SHARE: f64 = 0.97;
/// A step at this share of the capacity or more confirms it: the next one goes to most of it.
const CONFIRMING_SHARE: f64 = 0.4;
/// Loss above this beside a queue, and loss above this without one, end the launch.
const RETREAT_LOSS: f64 = 0.05;
const RETREAT_LOSS_ALONE: f64 = 0.2;
/// Consecutive reports of a queue that is too long, or of loss above `ALARM_LOSS` beside a queue,
/// that end a step at once.
const ALARM_REPORTS: u32 = 3;
const ALARM_LOSS: f64 = 0.1;
/// The delivery rate has reached its limit when it grows by less than this factor.
const GROWTH: f64 = 1.25;
/// A step is delivered as fast as it was sent if it takes at most 1/0.7 of the time: reports and
/// trains make the measurement coarse.
const KEPT_UP: f64 = 0.7;
/// A delivery rate may exceed the measured capacity by this factor: both are measured coarsely.
const CAPACITY_NOISE: f64 = 1.25;
/// Growth of the rate in one step, without and with a measured capacity.
const BLIND_GROWTH: f64 = 3.0;
const MAX_LEAP: f64 = 384.0;
/// The launch goes on if it ended below this share of a capacity that was measured later.
const RESUME_BELOW: f64 = 0.4;
/// Steps without growth and without a queue, after which an end host counts as the limit.
const MAX_FLAT_STEPS: u32 = 3;
/// Steps in a row limited by the application, after which the launch ends at a little more than
/// what was delivered.
const MAX_LIMITED_STEPS: u32 = 12;
/// Share of the losses that the receiving host must have counted to be their cause.
const HOST_SHARE: f64 = 0.8;

/// The launch of one flow.
#[derive(Debug)]
pub(super) struct Launch {
    rate: f64,
    /// Highest delivery rate so far.
    delivered: f64,
    /// Whether a measured capacity has set the rate.
    leapt: bool,
    /// The capacity that pings showed before the first data.
    pinged: Option<f64>,
    /// What an earlier flow measured, until the path shows that it is another one.
    saved: Option<Saved>,
    /// Whether anything was lost.
    lossy: bool,
    flat: u32,
    queued: u32,
    limited: u32,
    alarms: u32,
    retreating: bool,
    step: Step,
}

/// A time at one rate.
#[derive(Debug, Default)]
struct Step {
    /// Send index of its first packet, and when that was sent.
    first: Option<(u64, Time)>,
    sent: f64,
    measured: Option<Measured>,
}

/// What was reported since the first packet of a step was acknowledged.
#[derive(Debug)]
struct Measured {
    /// When that was, and when the newest packet acknowledged by then was sent.
    since: Time,
    sent_at: Option<Time>,
    newest_sent_at: Option<Time>,
    reports: u32,
    limited: u32,
    acked: f64,
    arrived: f64,
    lost: f64,
    host: f64,
    refused: f64,
    /// Minimum queue, in seconds.
    queue: Option<f64>,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Judgement {
    /// Another step follows.
    Next,
    /// The path is full: half of the delivered rate for a round trip, so that the queue drains.
    Retreat,
    /// The rate is the cruising rate.
    Over,
}

impl Launch {
    /// Starts with `FIRST_PACKETS` in a round trip of `rtt` seconds.
    pub(super) fn new(mtu: f64, rtt: f64) -> Self {
        Self {
            rate: first_rate(mtu, rtt),
            delivered: 0.0,
            leapt: false,
            pinged: None,
            saved: None,
            lossy: false,
            flat: 0,
            queued: 0,
            limited: 0,
            alarms: 0,
            retreating: false,
            step: Step::default(),
        }
    }

    /// Goes on at half of a capacity that was measured after the launch had ended at `rate`, if
    /// that is much more.
    pub(super) fn resumed(rate: f64, capacity: f64) -> Option<Self> {
        (rate < RESUME_BELOW * capacity).then(|| {
            let mut launch = Self { rate, ..Self::new(1.0, 1.0) };
            launch.leap(capacity);
            launch
        })
    }

    /// Whether a measured capacity has set the rate.
    pub(super) fn has_leapt(&self) -> bool {
        self.leapt
    }

    /// Bytes per second.
    pub(super) fn rate(&self) -> f64 {
        self.rate
    }

    /// Whether the path took a step without losses, so that it takes trains. They are not needed
    /// after a train of pings, and a short step cannot be judged by them.
    pub(super) fn may_send_trains(&self) -> bool {
        self.leapt && self.delivered > 0.0 && !self.lossy && self.pinged.is_none()
    }

    pub(super) fn on_sent(&mut self, sent: &Sent) {
        self.step.first.get_or_insert((sent.first, sent.now));
        self.step.sent += sent.bytes.get() as f64;
    }

    /// The path answered a probe in `rtt` seconds; before data was acknowledged.
    pub(super) fn on_path(&mut self, mtu: f64, rtt: f64) {
        if !self.leapt && self.delivered <= 0.0 && self.step.measured.is_none() {
            self.rate = first_rate(mtu, rtt);
        }
    }

    /// An earlier flow measured this.
    pub(super) fn on_saved_path(&mut self, saved: SavedPath) {
        self.saved = Some(Saved::new(saved));
    }

    /// Pings before the first data show this capacity: there is nothing to wait for.
    pub(super) fn on_capacity(&mut self, capacity: f64) {
        let begins = self.delivered <= 0.0 && self.step.measured.is_none();
        if begins && !self.leapt && 0.5 * capacity > self.rate {
            self.pinged = Some(capacity);
            self.leap(capacity);
            self.step = Step::default();
        }
    }

    /// Takes feedback; returns true when the launch is over and `rate` is the cruising rate. `base`
    /// is the minimum round trip in seconds, and `in_force` the launch's rate within the ceiling.
    pub(super) fn on_feedback(
        &mut self,
        feedback: &Feedback<'_>,
        base: f64,
        in_force: f64,
    ) -> bool {
        let capacity = feedback.capacity.map(|c| c.as_bps() as f64 / 8.0).or(self.pinged);
        let now = feedback.now;
        self.watch_queue(feedback, base);
        self.lossy |= !feedback.lost.is_empty();
        self.step.on_feedback(feedback);
        // A burst fills a short queue and may overflow it: most of the first step is one.
        let lossy = self.step.measured.as_ref().is_some_and(|m| m.loss() >= RETREAT_LOSS_ALONE);
        let first = self.delivered <= 0.0;
        if !self.leapt
            && !self.retreating
            && (first || (self.alarms == 0 && !lossy))
            && let Some(capacity) = capacity.filter(|c| 0.5 * c > self.rate)
        {
            // There is nothing to wait for: trains have shown what the path takes.
            self.leap(capacity);
            return self.go_on(Judgement::Next);
        }
        let Some(measured) = &self.step.measured else { return false };
        if self.retreating {
            let near = |c: &f64| *c > 0.5 * self.delivered && *c < 2.0 * self.delivered;
            self.rate = 0.95 * capacity.filter(near).unwrap_or(self.delivered);
            return true;
        }
        let span = seconds(now) - seconds(measured.since);
        if self.alarms >= ALARM_REPORTS && span >= MIN_SPAN {
            self.delivered = self.delivered.max(measured.delivered(span));
            return self.go_on(Judgement::Retreat);
        }
        if span < self.judged_span(base) || measured.reports < MIN_REPORTS {
            return false;
        }
        let judgement = self.judge(now, capacity, base, in_force);
        self.go_on(judgement)
    }

    /// Counts reports in a row that show an overshoot: by the end of the step it would have grown.
    fn watch_queue(&mut self, feedback: &Feedback<'_>, base: f64) {
        let Some(queue) = feedback.queueing_delay else { return };
        let queue = queue.as_secs_f64();
        let lost: u64 = feedback.lost.iter().map(|l| u64::from(l.count)).sum();
        let seen = queue > 2e-3 + base / 50.0;
        let lossy = seen && lost as f64 > ALARM_LOSS * feedback.acked_packets as f64;
        let alarming = queue > overfull(base) || lossy;
        self.alarms = if alarming { self.alarms + 1 } else { 0 };
    }

    fn judge(&mut self, now: Time, capacity: Option<f64>, base: f64, in_force: f64) -> Judgement {
        let Some(measured) = &self.step.measured else { return Judgement::Next };
        let span = seconds(now) - seconds(measured.since);
        let delivered = measured.delivered(span);
        let sent = self.step.sent_rate(now);
        let before = self.delivered;
        self.delivered = before.max(delivered);
        let queue = measured.queue.unwrap_or(0.0);
        if measured.is_host() {
            self.rate = self.delivered;
            return Judgement::Over;
        }
        let loss = measured.loss();
        let seen = queue > 2e-3 + base / 50.0;
        let queued = queue > base / 8.0 + 2e-3;
        if queued || loss > RETREAT_LOSS_ALONE || (seen && loss > RETREAT_LOSS) {
            return Judgement::Retreat;
        }
        if measured.limited * 2 > measured.reports || sent < 0.7 * in_force {
            // The application, or this host's processor, sends less than allowed.
            self.rate = self.rate.min(sent * 4.0).max(self.rate / 2.0);
            self.limited += 1;
            if self.limited > MAX_LIMITED_STEPS {
                self.rate = self.rate.min(self.delivered * 1.25);
                return Judgement::Over;
            }
            return Judgement::Next;
        }
        self.limited = 0;
        if in_force < 0.9 * self.rate {
            // The ceiling is the limit.
            self.rate = in_force;
            return Judgement::Over;
        }
        let flat = delivered < before * GROWTH;
        self.flat = if flat { self.flat + 1 } else { 0 };
        let standing = queue > (base / 16.0).max(2e-3);
        self.queued = if flat && standing { self.queued + 1 } else { 0 };
        if self.queued >= 2 || self.flat > MAX_FLAT_STEPS {
            self.rate = self.delivered * 0.95;
            return Judgement::Over;
        }
        let keeps_up = measured.speed(span).is_none_or(|speed| speed > KEPT_UP);
        // A capacity far below what is delivered was measured wrongly.
        match capacity.filter(|c| CAPACITY_NOISE * c > self.delivered) {
            Some(capacity) if keeps_up && self.rate > 0.9 * capacity => {
                self.rate = self.most() * capacity;
                return Judgement::Over;
            }
            Some(capacity) if keeps_up => self.leap(capacity),
            None if keeps_up => return self.rise(base),
            _ => {}
        }
        Judgement::Next
    }

    /// No capacity is known. Goes to half of what an earlier flow was delivered, and from there to
    /// most of it, or else to three times the rate.
    fn rise(&mut self, base: f64) -> Judgement {
        let (lossy, delivered) = (self.lossy, self.delivered / CAPACITY_NOISE);
        let usable = |saved: &&mut Saved| saved.is_usable(base, lossy) && delivered < saved.rate;
        let mut next = self.rate * BLIND_GROWTH;
        if let Some(saved) = self.saved.as_mut().filter(usable) {
            let most = MEASURED_SHARE * saved.rate;
            let part =
                if self.rate < CONFIRMING_SHARE * saved.rate { 0.5 * saved.rate } else { most };
            if self.rate < part {
                saved.in_force = true;
                next = part.min(self.rate * MAX_LEAP);
            } else if saved.in_force {
                return Judgement::Over;
            }
            // Otherwise it was hardly faster than the first packets, which says nothing.
        }
        self.rate = next;
        Judgement::Next
    }

    /// Trains are spread by the narrowest link: goes to half of the measured capacity, or from
    /// there to most of it.
    fn leap(&mut self, capacity: f64) {
        let share = if self.rate < CONFIRMING_SHARE * capacity { 0.5 } else { self.most() };
        self.rate = (capacity * share).min(self.rate * MAX_LEAP).max(self.rate);
        self.leapt = true;
    }

    /// How long a step is judged, in seconds. Where pings and data measured the capacity, a shorter
    /// time suffices, but packets leave in trains.
    fn judged_span(&self, base: f64) -> f64 {
        let least = match self.pinged {
            Some(_) => (base / 8.0).max(MIN_STEP_BYTES / self.rate).min(base / 4.0),
            None if self.leapt => base / 4.0,
            None => base / 2.0,
        };
        least.max(MIN_SPAN)
    }

    /// The share of the capacity at which the launch ends: more if pings and data measured it.
    fn most(&self) -> f64 {
        if self.pinged.is_some() { CONFIRMED_SHARE } else { MEASURED_SHARE }
    }

    fn go_on(&mut self, judgement: Judgement) -> bool {
        if judgement == Judgement::Retreat {
            self.retreating = true;
            self.saved = None;
            self.rate = self.delivered / 2.0;
        }
        self.step = Step::default();
        self.alarms = 0;
        judgement == Judgement::Over
    }
}

impl Step {
    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        let Some((first, _)) = self.first else { return };
        let measured = match &mut self.measured {
            Some(measured) => measured,
            None if feedback.largest_acked.is_some_and(|largest| largest >= first) => {
                self.measured = Some(Measured::new(feedback));
                return;
            }
            None => return,
        };
        measured.reports += u32::from(feedback.acked_packets > 0);
        measured.limited += u32::from(feedback.acked_packets > 0 && feedback.app_limited);
        measured.acked += feedback.acked.get() as f64;
        measured.arrived += feedback.acked_packets as f64;
        // Losses of the step before are reported later than its acknowledgements.
        let own = feedback.lost.iter().filter(|l| l.first >= first);
        measured.lost += own.map(|l| f64::from(l.count)).sum::<f64>();
        measured.host += feedback.host_drops as f64;
        measured.refused += feedback.refused as f64;
        measured.newest_sent_at = measured.newest_sent_at.max(feedback.newest_acked_sent_at);
        if let Some(queue) = feedback.queueing_delay {
            let queue = (queue.as_secs_f64() - QUEUE_NOISE).max(0.0);
            measured.queue = Some(measured.queue.map_or(queue, |least| least.min(queue)));
        }
    }

    fn sent_rate(&self, now: Time) -> f64 {
        self.first
            .map_or(0.0, |(_, begun)| self.sent / (seconds(now) - seconds(begun)).max(MIN_SPAN))
    }
}

impl Measured {
    fn new(feedback: &Feedback<'_>) -> Self {
        Self {
            since: feedback.now,
            sent_at: feedback.newest_acked_sent_at,
            newest_sent_at: feedback.newest_acked_sent_at,
            reports: 0,
            limited: 0,
            acked: 0.0,
            arrived: 0.0,
            lost: 0.0,
            host: 0.0,
            refused: 0.0,
            queue: None,
        }
    }

    /// Share of packets lost in the network.
    fn loss(&self) -> f64 {
        let lost = (self.lost - self.refused - self.host).max(0.0);
        lost / (self.arrived + self.lost).max(1.0)
    }

    /// Whether the receiving host dropped or refused what was lost.
    fn is_host(&self) -> bool {
        let lost = (self.lost - self.refused).max(0.0);
        (self.host > 0.0 && lost > 0.0 && self.host >= HOST_SHARE * lost)
            || (self.refused > 0.0 && lost < self.refused / 4.0)
    }

    /// Bytes per second that arrived within `span`, but no more than were sent in that time: what a
    /// late thread takes at once did not arrive at once.
    fn delivered(&self, span: f64) -> f64 {
        self.acked / span.max(self.speed(span).unwrap_or(0.0) * span)
    }

    /// The time that the sender took for the packets that were acknowledged within `span`, in
    /// relation to it.
    fn speed(&self, span: f64) -> Option<f64> {
        let (from, to) = (self.sent_at?, self.newest_sent_at?);
        Some((seconds(to) - seconds(from)) / span)
    }
}

fn first_rate(mtu: f64, rtt: f64) -> f64 {
    let (min, max) = FIRST_PACKETS;
    (FIRST_PACKETS_PER_SECOND * rtt).clamp(min, max) * mtu / rtt.max(MIN_RTT)
}

/// The queue, in seconds, that counts as too long.
fn overfull(base: f64) -> f64 {
    (base / 4.0).max(5e-3)
}

#[cfg(test)]
mod tests {
    use packtrain_units::{ByteCount, DataRate, Duration};

    use super::*;
    use crate::interface::LossRange;

    const BASE: f64 = 0.01;

    fn at(ms: f64) -> Time {
        Time::ZERO + Duration::from_secs_f64(1.0 + ms / 1e3)
    }

    /// Feedback at `now` that acknowledges `packets` up to `largest`, sent until `sent_at`.
    fn feedback(now: f64, packets: u64, largest: u64, sent_at: f64) -> Feedback<'static> {
        Feedback {
            now: at(now),
            largest_acked: Some(largest),
            newest_acked_sent_at: Some(at(sent_at)),
            acked: ByteCount(packets * 1_000),
            acked_packets: packets,
            in_flight: ByteCount(0),
            rtt: None,
            queueing_delay: Some(Duration::ZERO),
            reverse_queue: None,
            delivery_rate: None,
            arrival_rate: None,
            capacity: None,
            lost: &[],
            spurious: 0,
            ecn_ce: 0,
            host_drops: 0,
            refused: 0,
            drain_rate: None,
            app_limited: false,
            round_ended: false,
            timeout: false,
            delay_rising: false,
            bunched: Duration::ZERO,
            held: None,
        }
    }

    fn send(launch: &mut Launch, ms: f64, first: u64, count: u32) {
        launch.on_sent(&Sent {
            now: at(ms),
            first,
            count,
            bytes: ByteCount(u64::from(count) * 1_000),
            in_flight: ByteCount(0),
            retransmission: false,
            app_limited: false,
        });
    }

    /// A step of 100 packets a millisecond, reported every millisecond from 10 ms on. Each report
    /// is taken `late` after it came.
    fn step(launch: &mut Launch, late: impl Fn(u64) -> f64) -> bool {
        launch.rate = 100e6;
        for ms in 0..20 {
            send(launch, ms as f64, ms * 100, 100);
        }
        (0..8u64).any(|ms| {
            let sent = ms as f64 + 0.99;
            let report = feedback(11.0 + ms as f64 + late(ms), 100, ms * 100 + 99, sent);
            let known = Feedback { capacity: Some(DataRate::from_mbps(800)), ..report };
            launch.on_feedback(&known, BASE, 100e6)
        })
    }

    #[test]
    fn a_late_thread_does_not_make_the_path_look_faster() {
        let mut launch = Launch::new(1_000.0, BASE);
        launch.leapt = true;
        // The first report is taken 3 ms late, together with the three after it.
        let over = step(&mut launch, |ms| 3.0_f64.max(ms as f64) - ms as f64);
        assert!(over && launch.rate() < 101e6, "{launch:?}");
    }

    #[test]
    fn a_ceiling_ends_it() {
        let mut launch = Launch::new(1_000.0, BASE);
        launch.rate = 100e6;
        for ms in 0..20 {
            send(&mut launch, ms as f64, ms * 10, 10);
        }
        let over = (0..10u64).any(|ms| {
            let report = feedback(11.0 + ms as f64, 10, ms * 10 + 9, ms as f64);
            launch.on_feedback(&report, BASE, 10e6)
        });
        assert!(over, "{launch:?}");
        assert_eq!(launch.rate(), 10e6, "the ceiling, not what the launch wanted");
    }

    #[test]
    fn losses_of_the_step_before_do_not_count() {
        let mut launch = Launch::new(1_000.0, BASE);
        send(&mut launch, 0.0, 500, 100);
        launch.on_feedback(&feedback(11.0, 10, 509, 0.5), BASE, 6.4e6);
        let lost = [400, 520].map(lost_from);
        launch.on_feedback(&Feedback { lost: &lost, ..feedback(12.0, 10, 530, 0.6) }, BASE, 6.4e6);
        assert_eq!(launch.step.measured.as_ref().map(|m| m.lost), Some(7.0));
    }

    #[test]
    fn a_burst_that_overflows_a_short_queue_does_not_hide_the_capacity() {
        let mut launch = Launch::new(1_000.0, BASE);
        send(&mut launch, 0.0, 0, 16);
        launch.on_feedback(&feedback(10.5, 4, 3, 0.0), BASE, launch.rate());
        let (lost, capacity) = ([lost_from(8)], Some(DataRate::from_mbps(80)));
        let report = Feedback { lost: &lost, capacity, ..feedback(11.5, 2, 15, 0.0) };
        assert!(!launch.on_feedback(&report, BASE, launch.rate()));
        assert_eq!(launch.rate(), 5e6, "half of it");
    }

    #[test]
    fn a_later_step_that_loses_much_does_not_leap() {
        let mut launch = Launch::new(1_000.0, BASE);
        launch.delivered = 1e6;
        send(&mut launch, 0.0, 0, 16);
        launch.on_feedback(&feedback(10.5, 4, 3, 0.0), BASE, launch.rate());
        let (lost, capacity) = ([lost_from(8)], Some(DataRate::from_mbps(80)));
        let report = Feedback { lost: &lost, capacity, ..feedback(11.5, 2, 15, 0.0) };
        let before = launch.rate();
        launch.on_feedback(&report, BASE, before);
        assert_eq!(launch.rate(), before);
    }

    #[test]
    fn a_launch_goes_on_only_far_below_a_capacity_that_was_measured_later() {
        let launch = Launch::resumed(1e5, 1e6).expect("a tenth");
        assert_eq!((launch.rate(), launch.has_leapt()), (5e5, true));
        assert!(Launch::resumed(5e5, 1e6).is_none());
        assert!(Launch::resumed(2e6, 1e6).is_none(), "measured wrongly");
    }

    fn lost_from(first: u64) -> LossRange {
        LossRange { first, count: 7, bytes: ByteCount(7_000), sent_at: at(0.0) }
    }
}
