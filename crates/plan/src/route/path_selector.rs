//! Which way a transfer takes while it runs: directly, or over one of some depots.
//!
//! It begins directly, unless earlier transfers say surely that a way over depots is faster. What
//! holds the direct streams back says what shorter hops would give ([`Limit::gain`]); where that
//! is much, or forecasts promise it, a stream or two are tried over the depots beside the direct
//! ones, with the transfer's own bytes. They are compared by what the *other end* took, since what
//! a depot took is not there yet. Only a stream that is clearly faster moves the others, all
//! together must then be faster than before, and one stays on the direct way to compare with. What
//! is as fast as direct, breaks or stands still is left. No clock, no I/O.

use packtrain_units::{ByteCount, DataRate, Duration, Time};

use super::choice::{Choice, Forecasted, Way, choose};
use super::gain::Limit;

mod state;

use state::{Mark, State};

/// How many round trips a new stream takes until it carries its share.
const RISE_RTTS: u64 = 12;
/// What is compared is measured over so many round trips, and this long at least.
const SPAN_RTTS: u64 = 10;
const SPAN_LEAST: Duration = Duration::from_secs(1);
/// Whether all together are faster is judged over so many times that.
const JUDGE: u64 = 3;
/// What is expected to gain less is not tried.
const TRY: f64 = 1.15;
/// A trial pays only if the transfer lasts so many times as long.
const LASTS: f64 = 1.5;
/// A stream over depots that has so many times what a direct one has moves the others.
const MOVE: f64 = 1.25;
/// All together must have so many times what they had directly, or they go back.
const WORTH: f64 = 1.05;
/// A stream of a way that earlier transfers speak for has this part of what a direct one beside it
/// has, or the direct ones go on alone at once.
const PROVEN: f64 = 0.3;
/// How far off a rate of the last seconds is, and what a model makes of it.
const LIVE: f64 = 0.15;
const MODEL: f64 = 0.5;
/// A stream that is not there by then does not come.
const COMES: Duration = Duration::from_secs(10);
/// A transfer whose size is not known is taken to have this left.
const LEFT: ByteCount = ByteCount(1 << 30);
/// Looks kept.
const LOOKS: usize = 400;
/// Sentences kept.
const MAX_WORDS: usize = 60;

/// A way, by its place in the list of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(u8);

impl PathId {
    /// From end to end.
    pub const DIRECT: Self = Self(0);

    /// The way of this number, the direct one being 0.
    pub const fn numbered(number: u8) -> Self {
        Self(number)
    }

    /// Its number.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The streams of one way, now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// How many there are.
    pub streams: u32,
    /// What the other end took of all there ever were.
    pub delivered: ByteCount,
    /// They have something under way and none of it arrives.
    pub frozen: bool,
}

/// What is known now.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    /// Never earlier than the last one.
    pub now: Time,
    /// Each way's streams, in the order of the ways.
    pub ways: &'a [Seen],
    /// How many streams there are to be.
    pub wanted: u32,
    /// The direct path's round trip.
    pub rtt: Duration,
    /// What holds direct streams back.
    pub limit: Limit,
    /// What is left to move, if that is known.
    pub left: Option<ByteCount>,
    /// The streams are what the transfer waits for.
    pub busy: bool,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Direct,
    Trial {
        way: PathId,
        up: Option<Time>,
    },
    /// What only earlier transfers speak for is not `proven`: all direct streams stay for a while.
    Over {
        way: PathId,
        before: Option<DataRate>,
        proven: bool,
    },
}

/// The chooser.
#[derive(Clone, Debug)]
pub struct PathSelector {
    ways: Vec<State>,
    phase: Phase,
    since: Time,
    began: Option<Time>,
    judged: Time,
    /// A way whose streams stay until others have taken over.
    leaving: Option<PathId>,
    cut: Vec<PathId>,
    rtt: Duration,
    last: Option<Time>,
    words: Vec<String>,
    said: String,
}

impl Default for PathSelector {
    fn default() -> Self {
        Self::new()
    }
}

impl PathSelector {
    /// One that knows the direct way only.
    pub fn new() -> Self {
        Self {
            ways: vec![State::new("direct".to_owned(), Vec::new())],
            phase: Phase::Direct,
            since: Time::ZERO,
            began: None,
            judged: Time::ZERO,
            leaving: None,
            cut: Vec::new(),
            rtt: Duration::ZERO,
            last: None,
            words: Vec::new(),
            said: String::new(),
        }
    }

    /// A way over depots. There are 255 at most; more are not taken, and are the direct one.
    pub fn add(&mut self, name: String) -> PathId {
        let Ok(number) = u8::try_from(self.ways.len()) else { return PathId::DIRECT };
        self.ways.push(State::new(name, Vec::new()));
        PathId(number)
    }

    /// Says how long a round trip of each hop of a way is.
    pub fn set_hops(&mut self, way: PathId, hops: Vec<Duration>) {
        if let Some(state) = self.ways.get_mut(way.index()) {
            state.hops = hops;
        }
    }

    /// Says what all streams of a transfer together are expected to move over a way.
    pub fn set_forecast(&mut self, way: PathId, forecast: Forecasted) {
        if let Some(state) = self.ways.get_mut(way.index()) {
            state.forecast = Some(forecast);
        }
    }

    /// Says what a part of a way gave all streams of somebody, and one of them: what more streams
    /// had there each. No more is expected of the way.
    pub fn set_cap(&mut self, way: PathId, all: Forecasted, each: DataRate) {
        if let Some(state) = self.ways.get_mut(way.index()) {
            state.cap = Some((all, each));
        }
    }

    /// How many ways there are.
    pub fn len(&self) -> usize {
        self.ways.len()
    }

    /// Whether there is no way but the direct one.
    pub fn is_empty(&self) -> bool {
        self.ways.len() == 1
    }

    /// The way that most streams are to take.
    pub fn current(&self) -> PathId {
        match self.phase {
            Phase::Over { way, .. } => way,
            Phase::Direct | Phase::Trial { .. } => PathId::DIRECT,
        }
    }

    /// How many streams a way is to have, of so many wanted.
    pub fn target(&self, way: PathId, wanted: u32) -> u32 {
        let there = |way: PathId| self.ways.get(way.index()).map_or(0, |state| state.streams);
        let wanted = wanted.max(1);
        match self.phase {
            Phase::Direct | Phase::Trial { .. } if way == PathId::DIRECT => wanted,
            Phase::Trial { way: tried, .. } if way == tried => trial(wanted),
            Phase::Over { way: taken, .. } if way == taken => wanted,
            Phase::Over { proven: false, .. } if way == PathId::DIRECT => wanted,
            // One stays to compare with, the others as long as they are needed.
            Phase::Over { way: taken, .. } if way == PathId::DIRECT => {
                wanted.saturating_sub(there(taken)).max(1)
            }
            _ if self.leaving == Some(way) => {
                wanted.saturating_sub(there(self.current())).min(there(way))
            }
            _ => 0,
        }
    }

    /// A way whose streams are to be given up now, whatever they have under way.
    pub fn poll_cut(&mut self) -> Option<PathId> {
        self.cut.pop()
    }

    /// Why it did what it did, in sentences.
    pub fn reasons(&self) -> &[String] {
        &self.words
    }

    /// What a way moved while nothing was rising, and in how long.
    pub fn steady(&self, way: PathId) -> Option<(DataRate, Duration)> {
        let (bytes, span) = self.ways.get(way.index())?.steady;
        let some = span >= SPAN_LEAST && bytes > 0;
        some.then(|| (DataRate::from_bytes_over(ByteCount(bytes), span), span))
    }

    /// What a way is called: `direct`, or its depots.
    pub fn name(&self, way: PathId) -> &str {
        self.ways.get(way.index()).map_or("", |state| &state.name)
    }

    /// A way does not come about, breaks or stands still.
    pub fn failed(&mut self, now: Time, way: PathId, why: &str) {
        let Some(state) = self.ways.get_mut(way.index()) else { return };
        if now < state.away_until {
            return;
        }
        state.put_away(now);
        self.cut.push(way);
        if self.leaving == Some(way) {
            self.leaving = None;
        }
        match self.phase {
            Phase::Trial { way: tried, .. } if tried == way => self.phase = Phase::Direct,
            Phase::Over { way: taken, .. } if taken == way => self.phase = Phase::Direct,
            _ if way != PathId::DIRECT => {}
            Phase::Direct | Phase::Trial { .. } => {
                // Whatever there is is better than a way that does not work.
                let other = self.candidates(now).next();
                if let Some(other) = other {
                    self.phase = Phase::Over { way: other, before: None, proven: true };
                }
            }
            Phase::Over { .. } => {}
        }
        self.since = now;
        let (name, current) = (self.name(way).to_owned(), self.name(self.current()).to_owned());
        self.say(now, format!("{name}: {why}; going on: {current}"));
    }

    /// Looks at all ways, a few times a second.
    pub fn look(&mut self, look: &Look<'_>) {
        let now = look.now;
        self.rtt = look.rtt;
        self.note(look);
        let began = *self.began.get_or_insert(now);
        if self.since == Time::ZERO {
            self.since = began;
        }
        let frozen = self.tried().filter(|way| seen(look, *way).frozen);
        if let Some(way) = frozen {
            return self.failed(now, way, "nothing comes through");
        }
        if !look.busy {
            // A rate that a disk or the pace makes says nothing of the path.
            for way in &mut self.ways {
                way.marks.clear();
            }
            if matches!(self.phase, Phase::Trial { .. }) {
                self.phase = Phase::Direct;
            }
            self.since = now;
            return;
        }
        match self.phase {
            Phase::Direct => self.direct(look),
            Phase::Trial { way, up } => self.trial(look, way, up),
            Phase::Over { way, proven: false, .. } => self.prove(look, way),
            Phase::Over { way, before, .. } => self.over(look, way, before),
        }
    }

    fn tried(&self) -> Option<PathId> {
        match self.phase {
            Phase::Direct => None,
            Phase::Trial { way, .. } | Phase::Over { way, .. } => Some(way),
        }
    }

    fn note(&mut self, look: &Look<'_>) {
        let now = look.now;
        let step = self.last.map_or(Duration::ZERO, |last| now.since(last));
        self.last = Some(now);
        let steady = look.busy && now.since(self.since) >= self.rise();
        let current = self.current();
        for (n, state) in self.ways.iter_mut().enumerate() {
            let Some(seen) = look.ways.get(n) else { continue };
            let bytes = seen.delivered.get();
            let before = state.marks.back().copied();
            let more = bytes.saturating_sub(before.map_or(bytes, |mark| mark.bytes));
            let seconds = step.as_secs_f64() * f64::from(state.streams);
            let stream_seconds = before.map_or(0.0, |mark| mark.stream_seconds) + seconds;
            state.marks.push_back(Mark { at: now, bytes, stream_seconds });
            if state.marks.len() > LOOKS {
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
        (self.rtt * SPAN_RTTS).max(SPAN_LEAST)
    }

    /// Ways over depots that may be tried now.
    fn candidates(&self, now: Time) -> impl Iterator<Item = PathId> + '_ {
        let ways = self.ways.iter().enumerate().skip(1);
        let there = ways.filter(move |(_, state)| now >= state.away_until);
        there.filter_map(|(n, _)| u8::try_from(n).ok().map(PathId))
    }

    /// What the direct way is expected to move, and whether it was seen doing so just now.
    fn expected_direct(&self, look: &Look<'_>) -> Option<(Forecasted, bool)> {
        let state = &self.ways[0];
        let settled = look.now.since(self.since) >= self.rise() + self.span();
        if let Some(rate) = settled.then(|| state.rate(look.now, self.span())).flatten() {
            return Some((Forecasted { rate, error: LIVE }, true));
        }
        state.forecast.map(|forecast| (forecast, false))
    }

    /// What a way over depots is expected to move, `direct` being what the direct one does, and
    /// whether that is more than a model's word.
    fn expected(
        &self,
        look: &Look<'_>,
        way: PathId,
        direct: Forecasted,
    ) -> Option<(Forecasted, bool)> {
        let state = self.ways.get(way.index())?;
        if let Some(forecast) = state.forecast {
            // Both were measured before: what counts is how they compare.
            let Some(was) = self.ways[0].forecast.filter(|was| was.rate > DataRate::ZERO) else {
                return Some((forecast, true));
            };
            let ratio = forecast.rate.as_bps() as f64 / was.rate.as_bps() as f64;
            let error = libm::hypot(forecast.error, was.error);
            return Some((Forecasted { rate: direct.rate.mul_f64(ratio), error }, true));
        }
        let gain = look.limit.gain(look.rtt, &state.hops);
        let model = Forecasted { rate: direct.rate.mul_f64(gain), error: MODEL };
        let expected = match state.cap {
            None => model,
            Some((all, each)) => {
                let many = each.mul_f64(f64::from(look.wanted));
                let cap = Forecasted { rate: all.rate.max(many), ..all };
                Forecasted::least_of(&[model, cap]).unwrap_or(model)
            }
        };
        (expected.rate > direct.rate).then_some((expected, false))
    }

    fn direct(&mut self, look: &Look<'_>) {
        let now = look.now;
        let Some((direct, live)) = self.expected_direct(look) else { return };
        let left = look.left.unwrap_or(LEFT);
        let mut best: Option<(PathId, Forecasted, bool, Choice)> = None;
        for way in self.candidates(now) {
            let Some((expected, known)) = self.expected(look, way, direct) else { continue };
            let hop = self.ways[way.index()].hops.first().copied().unwrap_or(look.rtt);
            let choice = choose(direct, expected, left, hop);
            if best.as_ref().is_none_or(|(_, than, ..)| expected.rate > than.rate) {
                best = Some((way, expected, known, choice));
            }
        }
        let Some((way, expected, known, choice)) = best else { return };
        let told = format!(
            "{}: {} expected, directly {}; {:.0} % likely faster",
            self.name(way),
            between(expected),
            between(direct),
            choice.faster * 100.0
        );
        if known && choice.way == Way::Depots {
            self.say(now, format!("{told}: taken"));
            self.go_over(now, way, Some(direct.rate), false);
            return;
        }
        let trial = self.rise() + self.span() + look.rtt * 2;
        let lasts = choice.direct[1] >= trial.mul_f64(LASTS);
        let gains = expected.rate >= direct.rate.mul_f64(TRY) && choice.faster >= 0.5;
        // What is not seen yet is waited for.
        if !live {
            return;
        }
        match (gains, lasts) {
            (true, true) => {
                self.say(now, format!("{told}: tried with a part of the streams"));
                (self.phase, self.since) = (Phase::Trial { way, up: None }, now);
            }
            (true, false) => self.say_once(now, told, "the end comes before a trial pays: direct"),
            (false, _) => self.say_once(now, told, "direct"),
        }
    }

    fn trial(&mut self, look: &Look<'_>, way: PathId, up: Option<Time>) {
        let now = look.now;
        let Some(up) = up.or_else(|| (seen(look, way).streams > 0).then_some(now)) else {
            if now.since(self.since) >= COMES {
                self.failed(now, way, "does not come about");
            }
            return;
        };
        self.phase = Phase::Trial { way, up: Some(up) };
        let span = self.span();
        if now.since(up) < self.rise() + span {
            return;
        }
        let each = |way: PathId| self.ways[way.index()].each(now, span).unwrap_or(0.0);
        // One that was lucky at first and is slow now does not count as what it was.
        let lately = self.ways[way.index()].each(now, span / 2).unwrap_or(0.0);
        let (tried, direct) = (each(way).min(lately), each(PathId::DIRECT));
        let told = format!(
            "{}: a stream had {}, a direct one {}",
            self.name(way),
            mbit(tried),
            mbit(direct)
        );
        if tried >= direct * MOVE {
            let before = self.ways[0].rate(now, span);
            self.say(now, format!("{told}: all take it"));
            self.go_over(now, way, before, true);
        } else {
            self.say(now, format!("{told}: direct"));
            self.ways[way.index()].put_away(now);
            self.go_direct(now, way);
        }
    }

    /// Whether a way is now what it was for earlier transfers. Until that is seen nothing is given
    /// up for it.
    fn prove(&mut self, look: &Look<'_>, way: PathId) {
        let (now, span) = (look.now, self.span());
        let waited = now.since(self.since);
        if seen(look, way).streams == 0 && waited >= COMES {
            return self.failed(now, way, "does not come about");
        }
        let each = |way: PathId| self.ways[way.index()].each(now, span);
        let (Some(taken), Some(direct)) = (each(way), each(PathId::DIRECT)) else { return };
        if waited < self.rise() + span {
            return;
        }
        if let Phase::Over { proven, .. } = &mut self.phase
            && taken >= direct * PROVEN
        {
            *proven = true;
            return;
        }
        let name = self.name(way);
        let told = format!("{name}: a stream has {}, a direct one {}", mbit(taken), mbit(direct));
        self.say(now, format!("{told}: direct again"));
        self.ways[way.index()].put_away(now);
        self.go_direct(now, way);
    }

    fn over(&mut self, look: &Look<'_>, way: PathId, before: Option<DataRate>) {
        let now = look.now;
        let span = self.span() * JUDGE;
        if now.since(self.since) < self.rise() + span || now.since(self.judged) < span {
            return;
        }
        self.judged = now;
        let (taken, direct) = (&self.ways[way.index()], &self.ways[0]);
        let Some(here) = taken.rate(now, span) else { return };
        let watch = direct.rate(now, span).unwrap_or_default();
        let each = direct.each(now, span).unwrap_or(0.0);
        // Of a full path one stream takes what many did; of losses each has its own.
        let many = DataRate::from_bps((each * f64::from(look.wanted.max(1))) as u64);
        let directly = before.map_or(many, |before| before.min(many)).max(watch);
        let all = DataRate::from_bps(here.as_bps().saturating_add(watch.as_bps()));
        if all >= directly.mul_f64(WORTH) {
            return;
        }
        let told = format!("{}: {all} with all streams, directly {directly}", self.name(way));
        self.say(now, format!("{told}: direct again"));
        self.ways[way.index()].put_away(now);
        self.go_direct(now, way);
    }

    fn go_over(&mut self, now: Time, way: PathId, before: Option<DataRate>, proven: bool) {
        (self.phase, self.since, self.leaving) = (Phase::Over { way, before, proven }, now, None);
    }

    fn go_direct(&mut self, now: Time, from: PathId) {
        (self.phase, self.since, self.leaving) = (Phase::Direct, now, Some(from));
    }

    fn say_once(&mut self, now: Time, told: String, what: &str) {
        if self.said != what {
            what.clone_into(&mut self.said);
            self.say(now, format!("{told}: {what}"));
            what.clone_into(&mut self.said);
        }
    }

    fn say(&mut self, now: Time, text: String) {
        self.said.clear();
        if self.words.len() < MAX_WORDS {
            let at = self.began.map_or(0.0, |began| now.since(began).as_secs_f64());
            self.words.push(format!("after {at:.1} s: {text}"));
        }
    }
}

fn seen(look: &Look<'_>, way: PathId) -> Seen {
    look.ways.get(way.index()).copied().unwrap_or_default()
}

/// How many streams a trial has.
fn trial(wanted: u32) -> u32 {
    (wanted / 4).clamp(1, 2)
}

/// An expectation, four times in five within its bounds.
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
