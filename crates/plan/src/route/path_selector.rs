//! Selects the path of a transfer while it runs: direct, or over depots.
//!
//! A transfer starts on the direct path, unless earlier transfers show that a path over depots is
//! faster. What limits the direct streams determines the gain from shorter hops ([`Limit::gain`]).
//! If that gain is large, or forecasts promise one, one or two streams are tried over the depots
//! beside the direct ones, with the transfer's own data. They are compared by the bytes that the
//! *other end* received, since bytes that a depot received have not arrived. Only a clearly faster
//! stream moves the others. All streams together must then be faster than before, and one stream
//! stays on the direct path for comparison. A path that is no faster than direct, breaks or stalls
//! is abandoned. No clock, no I/O.

use packtrain_units::{ByteCount, DataRate, Duration, Time};

use super::choice::{Comparison, Decision, Forecasted, choose};
use super::gain::Limit;

mod state;

use state::{Mark, State};

/// Round trips that a new stream needs to reach its share.
const RISE_RTTS: u64 = 12;
/// Rates are measured over this many round trips, and at least over `MIN_SPAN`.
const SPAN_RTTS: u64 = 10;
const MIN_SPAN: Duration = Duration::from_secs(1);
/// The total rate is compared over this many such spans.
const COMPARE_SPANS: u64 = 3;
/// Minimum expected gain for a trial.
const MIN_TRIAL_GAIN: f64 = 1.15;
/// Minimum remaining duration for a trial, in multiples of the trial.
const MIN_TRIAL_MULTIPLE: f64 = 1.5;
/// A stream over depots at this multiple of a direct one's rate moves the others.
const MIN_MOVE_RATIO: f64 = 1.25;
/// Minimum total rate over depots, in multiples of the direct rate; below it the streams return.
const MIN_TOTAL_RATIO: f64 = 1.05;
/// Minimum rate of a stream on a path that earlier transfers favour, as a fraction of a direct
/// stream's rate; below it the direct streams continue alone.
const MIN_PROVEN_RATIO: f64 = 0.3;
/// Relative error of a rate measured in the last seconds, and of a model's prediction.
const MEASURED_ERROR: f64 = 0.15;
const MODEL_ERROR: f64 = 0.5;
/// Time for a stream to be established.
const ESTABLISH_TIMEOUT: Duration = Duration::from_secs(10);
/// Assumed remaining size of a transfer of unknown size.
const UNKNOWN_SIZE: ByteCount = ByteCount(1 << 30);
/// Number of observations kept.
const MAX_OBSERVATIONS: usize = 400;
/// Maximum sentences of the explanation.
const MAX_REASONS: usize = 60;

/// A path, by its index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(u8);

impl PathId {
    /// End to end, without depots.
    pub const DIRECT: Self = Self(0);

    /// The path of this number; the direct one is 0.
    pub const fn numbered(number: u8) -> Self {
        Self(number)
    }

    /// Its number.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The streams of one path at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Number of streams.
    pub streams: u32,
    /// Bytes that the other end received over this path so far.
    pub delivered: ByteCount,
    /// Data is in flight and none of it arrives.
    pub frozen: bool,
}

/// The input of [`PathSelector::update`].
#[derive(Clone, Copy, Debug)]
pub struct PathReadings<'a> {
    /// Current time; never earlier than at the last call.
    pub now: Time,
    /// Each path's streams, in the order of the paths.
    pub paths: &'a [Seen],
    /// Desired number of streams.
    pub wanted: u32,
    /// The direct path's round trip.
    pub rtt: Duration,
    /// What limits the direct streams.
    pub limit: Limit,
    /// Remaining bytes, if known.
    pub left: Option<ByteCount>,
    /// The transfer is limited by the streams.
    pub busy: bool,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Direct,
    Trial {
        path: PathId,
        up: Option<Time>,
    },
    /// If only earlier transfers favour it, it is not `proven`: all direct streams stay for a
    /// while.
    Over {
        path: PathId,
        before: Option<DataRate>,
        proven: bool,
    },
}

/// Selects paths.
#[derive(Clone, Debug)]
pub struct PathSelector {
    paths: Vec<State>,
    phase: Phase,
    since: Time,
    began: Option<Time>,
    judged: Time,
    /// A path whose streams stay until others have taken over.
    leaving: Option<PathId>,
    cut: Vec<PathId>,
    rtt: Duration,
    last: Option<Time>,
    reasons: Vec<String>,
    last_reason: String,
}

impl Default for PathSelector {
    fn default() -> Self {
        Self::new()
    }
}

impl PathSelector {
    /// A selector that knows only the direct path.
    pub fn new() -> Self {
        Self {
            paths: vec![State::new("direct".to_owned(), Vec::new())],
            phase: Phase::Direct,
            since: Time::ZERO,
            began: None,
            judged: Time::ZERO,
            leaving: None,
            cut: Vec::new(),
            rtt: Duration::ZERO,
            last: None,
            reasons: Vec::new(),
            last_reason: String::new(),
        }
    }

    /// Adds a path over depots. There are at most 255; further calls return the direct one.
    pub fn add(&mut self, name: String) -> PathId {
        let Ok(number) = u8::try_from(self.paths.len()) else { return PathId::DIRECT };
        self.paths.push(State::new(name, Vec::new()));
        PathId(number)
    }

    /// Sets the round trips of the hops of a path.
    pub fn set_hops(&mut self, path: PathId, hops: Vec<Duration>) {
        if let Some(state) = self.paths.get_mut(path.index()) {
            state.hops = hops;
        }
    }

    /// Sets after how many failures and useless trials a path is not tried again; by default it
    /// always is, ever later.
    pub fn set_max_failures(&mut self, path: PathId, failures: u32) {
        if let Some(state) = self.paths.get_mut(path.index()) {
            state.max_failures = failures;
        }
    }

    /// Sets the expected total rate of all streams over a path.
    pub fn set_forecast(&mut self, path: PathId, forecast: Forecasted) {
        if let Some(state) = self.paths.get_mut(path.index()) {
            state.forecast = Some(forecast);
        }
    }

    /// Sets the measured rate of a part of a path, for all streams of an earlier transfer and for
    /// one of them. It bounds the expectation, but more streams may each have the rate of one.
    pub fn set_cap(&mut self, path: PathId, all: Forecasted, each: DataRate) {
        if let Some(state) = self.paths.get_mut(path.index()) {
            state.cap = Some((all, each));
        }
    }

    /// Number of paths.
    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// Whether the direct path is the only one.
    pub fn is_empty(&self) -> bool {
        self.paths.len() == 1
    }

    /// The path that most streams should take.
    pub fn current(&self) -> PathId {
        match self.phase {
            Phase::Over { path, .. } => path,
            Phase::Direct | Phase::Trial { .. } => PathId::DIRECT,
        }
    }

    /// Number of streams that a path should have, of `wanted` in total.
    pub fn target(&self, path: PathId, wanted: u32) -> u32 {
        let there = |path: PathId| self.paths.get(path.index()).map_or(0, |state| state.streams);
        let wanted = wanted.max(1);
        match self.phase {
            Phase::Direct | Phase::Trial { .. } if path == PathId::DIRECT => wanted,
            Phase::Trial { path: tried, .. } if path == tried => trial(wanted),
            Phase::Over { path: taken, .. } if path == taken => wanted,
            Phase::Over { proven: false, .. } if path == PathId::DIRECT => wanted,
            // One stays for comparison, the others as long as they are needed.
            Phase::Over { path: taken, .. } if path == PathId::DIRECT => {
                wanted.saturating_sub(there(taken)).max(1)
            }
            _ if self.leaving == Some(path) => {
                wanted.saturating_sub(there(self.current())).min(there(path))
            }
            _ => 0,
        }
    }

    /// A path whose streams are to be closed now, even with data in flight.
    pub fn poll_cut(&mut self) -> Option<PathId> {
        self.cut.pop()
    }

    /// The decisions so far with their reasons, as sentences.
    pub fn reasons(&self) -> &[String] {
        &self.reasons
    }

    /// The rate over a path while no streams were starting, and its duration.
    pub fn steady(&self, path: PathId) -> Option<(DataRate, Duration)> {
        let (bytes, span) = self.paths.get(path.index())?.steady;
        let some = span >= MIN_SPAN && bytes > 0;
        some.then(|| (DataRate::from_bytes_over(ByteCount(bytes), span), span))
    }

    /// The name of a path: `direct`, or its depots.
    pub fn name(&self, path: PathId) -> &str {
        self.paths.get(path.index()).map_or("", |state| &state.name)
    }

    /// Reports that a path could not be established, broke or stalled.
    pub fn failed(&mut self, now: Time, path: PathId, why: &str) {
        let Some(state) = self.paths.get_mut(path.index()) else { return };
        if now < state.retry_at {
            return;
        }
        state.back_off(now);
        self.cut.push(path);
        if self.leaving == Some(path) {
            self.leaving = None;
        }
        match self.phase {
            Phase::Trial { path: tried, .. } if tried == path => self.phase = Phase::Direct,
            Phase::Over { path: taken, .. } if taken == path => self.phase = Phase::Direct,
            _ if path != PathId::DIRECT => {}
            Phase::Direct | Phase::Trial { .. } => {
                // Any path is better than one that does not work.
                let other = self.candidates(now).next();
                if let Some(other) = other {
                    self.phase = Phase::Over { path: other, before: None, proven: true };
                }
            }
            Phase::Over { .. } => {}
        }
        self.since = now;
        let (name, current) = (self.name(path).to_owned(), self.name(self.current()).to_owned());
        self.log_decision(now, format!("{name}: {why}; going on: {current}"));
    }

    /// Takes the state of all paths, a few times per second.
    pub fn update(&mut self, readings: &PathReadings<'_>) {
        let now = readings.now;
        self.rtt = readings.rtt;
        self.note(readings);
        let began = *self.began.get_or_insert(now);
        if self.since == Time::ZERO {
            self.since = began;
        }
        let frozen = self.tried().filter(|path| seen(readings, *path).frozen);
        if let Some(path) = frozen {
            return self.failed(now, path, "nothing comes through");
        }
        if !readings.busy {
            // A rate that a disk or the pace limits gives no information about the path.
            for path in &mut self.paths {
                path.marks.clear();
            }
            if matches!(self.phase, Phase::Trial { .. }) {
                self.phase = Phase::Direct;
            }
            self.since = now;
            return;
        }
        match self.phase {
            Phase::Direct => self.direct(readings),
            Phase::Trial { path, up } => self.trial(readings, path, up),
            Phase::Over { path, proven: false, .. } => self.prove(readings, path),
            Phase::Over { path, before, .. } => self.over(readings, path, before),
        }
    }

    fn tried(&self) -> Option<PathId> {
        match self.phase {
            Phase::Direct => None,
            Phase::Trial { path, .. } | Phase::Over { path, .. } => Some(path),
        }
    }

    fn note(&mut self, readings: &PathReadings<'_>) {
        let now = readings.now;
        let step = self.last.map_or(Duration::ZERO, |last| now.since(last));
        self.last = Some(now);
        let steady = readings.busy && now.since(self.since) >= self.rise();
        let current = self.current();
        for (n, state) in self.paths.iter_mut().enumerate() {
            let Some(seen) = readings.paths.get(n) else { continue };
            let bytes = seen.delivered.get();
            let before = state.marks.back().copied();
            let more = bytes.saturating_sub(before.map_or(bytes, |mark| mark.bytes));
            let seconds = step.as_secs_f64() * f64::from(state.streams);
            let stream_seconds = before.map_or(0.0, |mark| mark.stream_seconds) + seconds;
            state.marks.push_back(Mark { at: now, bytes, stream_seconds });
            if state.marks.len() > MAX_OBSERVATIONS {
                state.marks.pop_front();
            }
            state.streams = seen.streams;
            if steady && n == current.index() {
                state.steady.0 += more;
                state.steady.1 += step;
            }
        }
    }

    fn rise(&self) -> Duration {
        self.rtt * RISE_RTTS
    }

    fn span(&self) -> Duration {
        (self.rtt * SPAN_RTTS).max(MIN_SPAN)
    }

    /// Paths over depots that may be tried now.
    fn candidates(&self, now: Time) -> impl Iterator<Item = PathId> + '_ {
        let paths = self.paths.iter().enumerate().skip(1);
        let there = paths
            .filter(move |(_, state)| now >= state.retry_at && state.failures < state.max_failures);
        there.filter_map(|(n, _)| u8::try_from(n).ok().map(PathId))
    }

    /// The expected rate of the direct path, and whether it was measured just now.
    fn expected_direct(&self, readings: &PathReadings<'_>) -> Option<(Forecasted, bool)> {
        let state = &self.paths[0];
        let settled = readings.now.since(self.since) >= self.rise() + self.span();
        if let Some(rate) = settled.then(|| state.rate(readings.now, self.span())).flatten() {
            return Some((Forecasted { rate, error: MEASURED_ERROR }, true));
        }
        state.forecast.map(|forecast| (forecast, false))
    }

    /// The expected rate of a path over depots, given the direct one's, and whether it rests on
    /// measurements and not only on a model.
    fn expected(
        &self,
        readings: &PathReadings<'_>,
        path: PathId,
        direct: Forecasted,
    ) -> Option<(Forecasted, bool)> {
        let state = self.paths.get(path.index())?;
        if let Some(forecast) = state.forecast {
            // Both were measured before: use their ratio.
            let Some(was) = self.paths[0].forecast.filter(|was| was.rate > DataRate::ZERO) else {
                return Some((forecast, true));
            };
            let ratio = forecast.rate.as_bps() as f64 / was.rate.as_bps() as f64;
            let error = libm::hypot(forecast.error, was.error);
            return Some((Forecasted { rate: direct.rate.mul_f64(ratio), error }, true));
        }
        let gain = readings.limit.gain(readings.rtt, &state.hops);
        let model = Forecasted { rate: direct.rate.mul_f64(gain), error: MODEL_ERROR };
        let expected = match state.cap {
            None => model,
            Some((all, each)) => {
                let many = each.mul_f64(f64::from(readings.wanted));
                let cap = Forecasted { rate: all.rate.max(many), ..all };
                Forecasted::min_of(&[model, cap]).unwrap_or(model)
            }
        };
        (expected.rate > direct.rate).then_some((expected, false))
    }

    fn direct(&mut self, readings: &PathReadings<'_>) {
        let now = readings.now;
        let Some((direct, live)) = self.expected_direct(readings) else { return };
        let left = readings.left.unwrap_or(UNKNOWN_SIZE);
        let mut best: Option<(PathId, Forecasted, bool, Comparison)> = None;
        for path in self.candidates(now) {
            let Some((expected, known)) = self.expected(readings, path, direct) else { continue };
            let hop = self.paths[path.index()].hops.first().copied().unwrap_or(readings.rtt);
            let choice = choose(direct, expected, left, hop);
            if best.as_ref().is_none_or(|(_, than, ..)| expected.rate > than.rate) {
                best = Some((path, expected, known, choice));
            }
        }
        let Some((path, expected, known, choice)) = best else { return };
        let told = format!(
            "{}: {} expected, directly {}; {:.0} % likely faster",
            self.name(path),
            between(expected),
            between(direct),
            choice.faster * 100.0
        );
        if known && choice.decision == Decision::Depots {
            self.log_decision(now, format!("{told}: taken"));
            self.go_over(now, path, Some(direct.rate), false);
            return;
        }
        let trial = self.rise() + self.span() + readings.rtt * 2;
        let lasts = choice.direct[1] >= trial.mul_f64(MIN_TRIAL_MULTIPLE);
        let gains = expected.rate >= direct.rate.mul_f64(MIN_TRIAL_GAIN) && choice.faster >= 0.5;
        // Without a current measurement, wait for one.
        if !live {
            return;
        }
        match (gains, lasts) {
            (true, true) => {
                self.log_decision(now, format!("{told}: tried with a part of the streams"));
                (self.phase, self.since) = (Phase::Trial { path, up: None }, now);
            }
            (true, false) => {
                self.log_decision_once(now, told, "the end comes before a trial pays: direct")
            }
            (false, _) => self.log_decision_once(now, told, "direct"),
        }
    }

    fn trial(&mut self, readings: &PathReadings<'_>, path: PathId, up: Option<Time>) {
        let now = readings.now;
        let Some(up) = up.or_else(|| (seen(readings, path).streams > 0).then_some(now)) else {
            if now.since(self.since) >= ESTABLISH_TIMEOUT {
                self.failed(now, path, "does not come about");
            }
            return;
        };
        self.phase = Phase::Trial { path, up: Some(up) };
        let span = self.span();
        if now.since(up) < self.rise() + span {
            return;
        }
        let each = |path: PathId| self.paths[path.index()].each(now, span).unwrap_or(0.0);
        // A stream that was fast only at first does not count at its mean.
        let lately = self.paths[path.index()].each(now, span / 2).unwrap_or(0.0);
        let (tried, direct) = (each(path).min(lately), each(PathId::DIRECT));
        let told = format!(
            "{}: a stream had {}, a direct one {}",
            self.name(path),
            mbit(tried),
            mbit(direct)
        );
        if tried >= direct * MIN_MOVE_RATIO {
            let before = self.paths[0].rate(now, span);
            self.log_decision(now, format!("{told}: all take it"));
            self.go_over(now, path, before, true);
        } else {
            self.log_decision(now, format!("{told}: direct"));
            self.paths[path.index()].back_off(now);
            self.go_direct(now, path);
        }
    }

    /// Checks whether a path still has the rate of earlier transfers. Until then the direct streams
    /// stay.
    fn prove(&mut self, readings: &PathReadings<'_>, path: PathId) {
        let (now, span) = (readings.now, self.span());
        let waited = now.since(self.since);
        if seen(readings, path).streams == 0 && waited >= ESTABLISH_TIMEOUT {
            return self.failed(now, path, "does not come about");
        }
        let each = |path: PathId| self.paths[path.index()].each(now, span);
        let (Some(taken), Some(direct)) = (each(path), each(PathId::DIRECT)) else { return };
        if waited < self.rise() + span {
            return;
        }
        if let Phase::Over { proven, .. } = &mut self.phase
            && taken >= direct * MIN_PROVEN_RATIO
        {
            *proven = true;
            return;
        }
        let name = self.name(path);
        let told = format!("{name}: a stream has {}, a direct one {}", mbit(taken), mbit(direct));
        self.log_decision(now, format!("{told}: direct again"));
        self.paths[path.index()].back_off(now);
        self.go_direct(now, path);
    }

    fn over(&mut self, readings: &PathReadings<'_>, path: PathId, before: Option<DataRate>) {
        let now = readings.now;
        let span = self.span() * COMPARE_SPANS;
        if now.since(self.since) < self.rise() + span || now.since(self.judged) < span {
            return;
        }
        self.judged = now;
        let (taken, direct) = (&self.paths[path.index()], &self.paths[0]);
        let Some(here) = taken.rate(now, span) else { return };
        let watch = direct.rate(now, span).unwrap_or_default();
        let each = direct.each(now, span).unwrap_or(0.0);
        // On a full path one stream takes the rate of many; with losses each stream has its own
        // rate.
        let many = DataRate::from_bps((each * f64::from(readings.wanted.max(1))) as u64);
        let directly = before.map_or(many, |before| before.min(many)).max(watch);
        let all = DataRate::from_bps(here.as_bps().saturating_add(watch.as_bps()));
        if all >= directly.mul_f64(MIN_TOTAL_RATIO) {
            return;
        }
        let told = format!("{}: {all} with all streams, directly {directly}", self.name(path));
        self.log_decision(now, format!("{told}: direct again"));
        self.paths[path.index()].back_off(now);
        self.go_direct(now, path);
    }

    fn go_over(&mut self, now: Time, path: PathId, before: Option<DataRate>, proven: bool) {
        (self.phase, self.since, self.leaving) = (Phase::Over { path, before, proven }, now, None);
    }

    fn go_direct(&mut self, now: Time, from: PathId) {
        (self.phase, self.since, self.leaving) = (Phase::Direct, now, Some(from));
    }

    fn log_decision_once(&mut self, now: Time, told: String, what: &str) {
        if self.last_reason != what {
            what.clone_into(&mut self.last_reason);
            self.log_decision(now, format!("{told}: {what}"));
            what.clone_into(&mut self.last_reason);
        }
    }

    fn log_decision(&mut self, now: Time, text: String) {
        self.last_reason.clear();
        if self.reasons.len() < MAX_REASONS {
            let at = self.began.map_or(0.0, |began| now.since(began).as_secs_f64());
            self.reasons.push(format!("after {at:.1} s: {text}"));
        }
    }
}

fn seen(readings: &PathReadings<'_>, path: PathId) -> Seen {
    readings.paths.get(path.index()).copied().unwrap_or_default()
}

/// Number of streams of a trial.
fn trial(wanted: u32) -> u32 {
    (wanted / 4).clamp(1, 2)
}

/// A forecast with its 80 % interval.
fn between(forecast: Forecasted) -> String {
    let [low, _, high] = forecast.bounds();
    format!("{} ({low} to {high})", forecast.rate)
}

fn mbit(bps: f64) -> DataRate {
    DataRate::from_bps(bps as u64)
}

#[cfg(test)]
#[path = "path_selector_tests.rs"]
mod tests;
