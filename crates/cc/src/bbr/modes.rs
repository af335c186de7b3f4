//! The modes startup, drain, probing of the rate and probing of the round trip: their transitions
//! and gains.

use packtrain_units::{Duration, Rng, Time};

use super::{Bbr, Event, HIGH_GAIN, MIN_IN_FLIGHT};

/// The gains of the rate probe, for one minimum round trip each: up, down, and six level.
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// The window during the rate probe, in multiples of rate times round trip.
const CWND_GAIN: f64 = 2.0;
/// The path is full when the rate grew by less than a quarter for three rounds.
const GROWTH: f64 = 1.25;
const FLAT_ROUNDS: u32 = 3;
/// Lifetime of the minimum round trip, and duration of its probe.
const MIN_RTT_AGE: Duration = Duration::from_secs(10);
const PROBE_RTT: Duration = Duration::from_millis(200);

/// The four modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Startup,
    Drain,
    ProbeBw,
    ProbeRtt,
}

impl Mode {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Drain => "drain",
            Self::ProbeBw => "probe bw",
            Self::ProbeRtt => "probe rtt",
        }
    }
}

/// The mode and the conditions of its end.
#[derive(Debug)]
pub(super) struct Modes {
    pub(super) mode: Mode,
    rng: Rng,
    /// The rate of the last growth, and the rounds since it.
    plateau: (f64, u32),
    full: bool,
    /// Position in `CYCLE`, and when it began.
    phase: usize,
    phase_at: Time,
    /// When the round-trip probe may end, once few enough packets are in flight.
    probe_end: Option<Time>,
    probe_round_done: bool,
    /// A pause ended: the first round trips after it contain no queue of this flow.
    pub(super) idle_restart: bool,
}

impl Modes {
    pub(super) fn new(now: Time, rng: Rng) -> Self {
        Self {
            mode: Mode::Startup,
            rng,
            plateau: (0.0, 0),
            full: false,
            phase: 0,
            phase_at: now,
            probe_end: None,
            probe_round_done: false,
            idle_restart: false,
        }
    }

    /// Whether startup reached the capacity of the path.
    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    pub(super) fn is_probing_up(&self) -> bool {
        self.mode == Mode::ProbeBw && self.phase == 0
    }

    pub(super) fn pacing_gain(&self, policed: bool) -> f64 {
        match self.mode {
            Mode::Startup => HIGH_GAIN,
            Mode::Drain => 1.0 / HIGH_GAIN,
            Mode::ProbeBw if policed => 1.0,
            Mode::ProbeBw => CYCLE[self.phase],
            Mode::ProbeRtt => 1.0,
        }
    }

    pub(super) fn cwnd_gain(&self) -> f64 {
        match self.mode {
            Mode::Startup | Mode::Drain => HIGH_GAIN,
            Mode::ProbeBw => CWND_GAIN,
            Mode::ProbeRtt => 1.0,
        }
    }

    /// Enters the cycle at a random phase other than the one with gain 0.75.
    pub(super) fn enter_probe_bw(&mut self, now: Time) {
        self.mode = Mode::ProbeBw;
        let back = self.rng.below(CYCLE.len() as u64 - 1) as usize;
        self.phase = (CYCLE.len() - back) % CYCLE.len();
        self.phase_at = now;
    }

    /// Continues after startup, which another controller has done.
    pub(super) fn resume(&mut self, now: Time) {
        self.full = true;
        self.enter_probe_bw(now);
    }

    /// Discards the rate seen so far.
    pub(super) fn reset_plateau(&mut self) {
        self.plateau.0 = 0.0;
    }

    fn on_round(&mut self, rate: f64) {
        if rate >= self.plateau.0 * GROWTH {
            self.plateau = (rate, 0);
        } else {
            self.plateau.1 += 1;
            self.full = self.plateau.1 >= FLAT_ROUNDS;
        }
    }

    fn leave_probe_rtt(&mut self, now: Time) {
        if self.full {
            self.enter_probe_bw(now);
        } else {
            self.mode = Mode::Startup;
        }
    }
}

impl Bbr {
    /// Changes the mode as the event requires.
    pub(super) fn advance(&mut self, event: &Event) {
        if self.modes.mode == Mode::ProbeBw && self.is_phase_over(event) {
            self.modes.phase = (self.modes.phase + 1) % CYCLE.len();
            self.modes.phase_at = event.now;
        }
        if !self.modes.full && self.model.round_started && !self.model.is_limited(event) {
            self.modes.on_round(self.model.max_rate());
        }
        if self.modes.mode == Mode::Startup && self.modes.full {
            self.modes.mode = Mode::Drain;
        }
        if self.modes.mode == Mode::Drain && event.in_flight <= self.target(1.0) {
            self.modes.enter_probe_bw(event.now);
        }
        self.advance_probe_rtt(event);
    }

    /// A phase lasts a minimum round trip. The phase up also continues until the path is full or a
    /// packet is lost; the phase down ends as soon as there is no queue.
    fn is_phase_over(&self, event: &Event) -> bool {
        let age = event.now.since(self.modes.phase_at).as_secs_f64();
        let full_length = age > self.model.min_rtt().unwrap_or(0.0);
        let before = event.in_flight + event.acked + event.lost;
        let gain = self.modes.pacing_gain(self.model.is_policed());
        if gain > 1.0 {
            let filled = before + self.burst() >= self.target(gain);
            full_length && (event.lost > 0.0 || filled)
        } else if gain < 1.0 {
            full_length || before <= self.target(1.0)
        } else {
            full_length
        }
    }

    fn advance_probe_rtt(&mut self, event: &Event) {
        let expired = event.now > self.model.min_rtt_at + MIN_RTT_AGE;
        if let Some(rtt) = event.rtt {
            self.model.on_rtt(event.now, rtt, expired);
        }
        if expired && !self.modes.idle_restart && self.modes.mode != Mode::ProbeRtt {
            self.save_cwnd();
            self.modes.mode = Mode::ProbeRtt;
            self.modes.probe_end = None;
        }
        if self.modes.mode == Mode::ProbeRtt {
            self.model.hold_back();
            self.on_probe_rtt(event);
        }
        if event.acked > 0.0 {
            self.modes.idle_restart = false;
        }
    }

    /// At most four packets are in flight for 200 ms and a round trip.
    fn on_probe_rtt(&mut self, event: &Event) {
        let Some(end) = self.modes.probe_end else {
            if event.in_flight <= MIN_IN_FLIGHT {
                self.modes.probe_end = Some(event.now + PROBE_RTT);
                self.modes.probe_round_done = false;
                self.model.start_round();
            }
            return;
        };
        self.modes.probe_round_done |= self.model.round_started;
        if self.modes.probe_round_done && event.now > end {
            self.model.min_rtt_at = event.now;
            self.cwnd = self.cwnd.max(self.prior_cwnd);
            self.modes.leave_probe_rtt(event.now);
        }
    }
}
