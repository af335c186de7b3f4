//! The process generator of FOBS (Dickens, section 3.1.4), with real processes that are busy all
//! the time: none to seven processes for 1 to 7 seconds, then none for 0 to 20 seconds, and so on.

use std::os::unix::process::parent_id;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// The argument of `cargo xtask bench` that runs the generator.
pub(super) const VERB: &str = "rivals";
/// Maximum number of concurrent processes.
const MAX_PROCESSES: u64 = 7;
/// The nice value (setpriority(2)) of preferred processes, and the weight of one of them relative
/// to a process at 0 in the kernel's fair scheduler (sched_prio_to_weight: 3121 to 1024).
const NICE: &str = "-5";
const WEIGHT: f64 = 3_121.0 / 1_024.0;
/// Timeout of the wait for the start.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A number of processes during an interval, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Phase {
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) count: u64,
    /// The weight of one of them relative to a process that is not preferred.
    pub(super) weight: f64,
}

impl Phase {
    /// The share of the core for one other process.
    pub(super) fn share(&self) -> f64 {
        1.0 / (1.0 + self.count as f64 * self.weight)
    }
}

/// The competitors for the receiver's core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rivals {
    /// None.
    None,
    /// The paper's generator with this seed.
    Generator(u64),
    /// The maximum number of processes, all the time.
    Always,
    /// The same, preferred by the scheduler.
    Before,
}

impl Rivals {
    /// The argument for [`run`].
    pub(super) fn word(self) -> String {
        match self {
            Self::None => "none".to_owned(),
            Self::Generator(seed) => seed.to_string(),
            Self::Always => "always".to_owned(),
            Self::Before => "before".to_owned(),
        }
    }

    fn of_word(word: &str) -> Result<Self> {
        Ok(match word {
            "none" => Self::None,
            "always" => Self::Always,
            "before" => Self::Before,
            seed => Self::Generator(seed.parse().context("a seed")?),
        })
    }

    /// The paper's generator for a round, with the next seed that gives at least one process within
    /// the run.
    pub(super) fn generator(round: usize, seconds: f64) -> Self {
        let draws = |seed: &u64| generate(*seed, seconds).iter().any(|phase| phase.count > 0);
        Self::Generator((3..).filter(draws).nth(round).unwrap_or(3))
    }

    /// The phases within this many seconds. The generator starts with processes.
    pub(super) fn phases(self, seconds: f64) -> Vec<Phase> {
        match self {
            Self::None => Vec::new(),
            Self::Always => {
                vec![Phase { from: 0.0, to: seconds, count: MAX_PROCESSES, weight: 1.0 }]
            }
            Self::Before => {
                vec![Phase { from: 0.0, to: seconds, count: MAX_PROCESSES, weight: WEIGHT }]
            }
            Self::Generator(seed) => generate(seed, seconds),
        }
    }
}

fn generate(seed: u64, seconds: f64) -> Vec<Phase> {
    let mut state = seed;
    let mut unit = || {
        // SplitMix64 (Steele, Lea, Flood 2014).
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (state ^ state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ z >> 31) >> 11) as f64 / (1u64 << 53) as f64
    };
    let (mut at, mut phases) = (0.0, Vec::new());
    while at < seconds {
        let count = (unit() * (MAX_PROCESSES + 1) as f64) as u64;
        let to = (at + 1.0 + 6.0 * unit()).min(seconds);
        phases.push(Phase { from: at, to, count, weight: 1.0 });
        at = to + 20.0 * unit();
    }
    phases
}

/// Runs the generator: `rivals WORD SECONDS START`. It starts when the file START exists, and ends
/// with its parent, as do its processes, soon after at the latest.
pub(super) fn run(args: &[String]) -> Result<()> {
    let [word, seconds, start] = args else { bail!("rivals WORD SECONDS START") };
    let phases = Rivals::of_word(word)?.phases(seconds.parse().context("seconds")?);
    let parent = parent_id();
    let orphaned = || parent_id() != parent;
    let waited = Instant::now();
    while !Path::new(start).exists() {
        if orphaned() || waited.elapsed() > TIMEOUT {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let began = Instant::now();
    let until = |at: f64| {
        while began.elapsed().as_secs_f64() < at && !orphaned() {
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    for phase in &phases {
        until(phase.from);
        if orphaned() {
            break;
        }
        let busy = (0..phase.count).map(|_| Busy::start(phase));
        let busy = busy.collect::<Result<Vec<_>>>()?;
        until(phase.to);
        drop(busy);
    }
    // Its processor time must not be added to the receiver's: it ends after that was read.
    until(f64::INFINITY);
    Ok(())
}

/// A process that never sleeps.
struct Busy(Child);

impl Busy {
    /// Starts a process, which ends itself soon after its phase in any case.
    fn start(phase: &Phase) -> Result<Self> {
        let mut command = Command::new("timeout");
        let seconds = phase.to - phase.from + 0.5;
        let nice = if phase.weight > 1.0 { NICE } else { "0" };
        command.arg(format!("{seconds:.3}"));
        command.args(["nice", "-n", nice, "sh", "-c", "while :; do :; done"]);
        Ok(Self(command.spawn().context("starting a busy process")?))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        // `timeout` forwards SIGTERM to its child.
        let pid = self.0.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_of_the_generator_has_processes() {
        let rounds: Vec<Rivals> = (0..20).map(|round| Rivals::generator(round, 16.0)).collect();
        for (round, rivals) in rounds.iter().enumerate() {
            assert!(rivals.phases(16.0).iter().any(|phase| phase.count > 0));
            assert!(!rounds[..round].contains(rivals), "each has a seed of its own");
        }
    }

    #[test]
    fn the_generator_keeps_the_papers_bounds() {
        let phases = Rivals::Generator(3).phases(10_000.0);
        let counts: std::collections::BTreeSet<_> = phases.iter().map(|p| p.count).collect();
        assert_eq!(counts.into_iter().collect::<Vec<_>>(), (0..=7).collect::<Vec<_>>());
        for pair in phases.windows(2) {
            let (alive, sleep) = (pair[0].to - pair[0].from, pair[1].from - pair[0].to);
            assert!((1.0..7.0).contains(&alive) && (0.0..20.0).contains(&sleep), "{pair:?}");
        }
        assert_eq!(phases, Rivals::of_word("3").unwrap().phases(10_000.0));
    }
}
