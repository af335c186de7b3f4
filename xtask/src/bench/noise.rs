//! What the machine did during a run besides the run: stalls, other programs, stolen time, and how
//! late the emulator was.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::raw::number;

/// Ticks per second in which the kernel counts processor time.
const TICKS: f64 = 100.0;
/// How long the stall probe sleeps.
const NAP: Duration = Duration::from_millis(1);
/// A run is doubtful if other programs used more of a core than this, on average.
const MAX_OTHERS: f64 = 0.10;
/// A run is doubtful if the hypervisor took more of a core than this, on average.
const MAX_STOLEN: f64 = 0.05;
/// A run is doubtful if the probe slept longer than this once, in seconds.
const MAX_STALL: f64 = 0.1;

/// The noise of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Noise {
    /// The longest time by which the probe overslept, and the 99th percentile, in seconds.
    pub(super) stall: f64,
    pub(super) stall_p99: f64,
    /// Cores used by programs that are not part of the run, on average.
    pub(super) others: f64,
    /// Cores taken by the hypervisor, on average.
    pub(super) stolen: f64,
    /// The emulator's lateness, 99th percentile, in seconds.
    pub(super) late_p99: Option<f64>,
    /// Why the emulator says that the run is not to be trusted.
    pub(super) bottleneck: Option<String>,
}

impl Noise {
    /// Takes over what the emulator reports of itself.
    pub(super) fn add_emulator(&mut self, report: &Value) {
        self.late_p99 = number(report, "/delay_error/p99_seconds").ok();
        if report["ok"] == false {
            let why = report["bottleneck"].as_str().unwrap_or("it did not keep up");
            self.bottleneck = Some(why.to_owned());
        }
    }

    /// Why the run is doubtful; empty if it is not.
    pub(super) fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        if let Some(why) = &self.bottleneck {
            doubts.push(format!("the emulator: {why}"));
        }
        if self.others > MAX_OTHERS {
            doubts.push(format!("other programs used {:.2} cores", self.others));
        }
        if self.stolen > MAX_STOLEN {
            doubts.push(format!("the hypervisor took {:.2} cores", self.stolen));
        }
        if self.stall > MAX_STALL {
            doubts.push(format!("a stall of {:.0} ms", self.stall * 1e3));
        }
        doubts
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "stall_ms": self.stall * 1e3, "stall_p99_ms": self.stall_p99 * 1e3,
            "others_cores": self.others, "stolen_cores": self.stolen,
            "emulator_late_p99_ms": self.late_p99.map(|late| late * 1e3),
            "doubts": self.doubts(),
        })
    }
}

/// A run of a program in a round, the first or its repetition.
pub(super) trait Attempt {
    fn round(&self) -> usize;

    fn noise(&self) -> Option<&Noise>;

    /// Why the run is doubtful; empty if it is not.
    fn doubts(&self) -> Vec<String> {
        self.noise().map(Noise::doubts).unwrap_or_default()
    }
}

/// The runs that count, one for each round: the first one without doubts, or else the last one.
pub(super) fn counted<'a, R: Attempt>(runs: impl Iterator<Item = &'a R>) -> Vec<&'a R> {
    let mut counted: Vec<&'a R> = Vec::new();
    for run in runs {
        match counted.iter_mut().find(|known| known.round() == run.round()) {
            Some(known) if !known.doubts().is_empty() => *known = run,
            Some(_) => {}
            None => counted.push(run),
        }
    }
    counted
}

/// A running observation.
pub(super) struct Watch {
    began: Instant,
    machine: Machine,
    own: f64,
    stop: Arc<AtomicBool>,
    probe: JoinHandle<Vec<Duration>>,
}

impl Watch {
    pub(super) fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let probe = std::thread::spawn(move || {
            let mut stalls = Vec::with_capacity(1 << 14);
            while !seen.load(Ordering::Relaxed) {
                let asleep = Instant::now();
                std::thread::sleep(NAP);
                stalls.push(asleep.elapsed().saturating_sub(NAP));
            }
            stalls
        });
        Self { began: Instant::now(), machine: Machine::now(), own: own(), stop, probe }
    }

    /// Ends it. All children of this process must have been waited for.
    pub(super) fn stop(self) -> Noise {
        let seconds = self.began.elapsed().as_secs_f64();
        let (machine, own) = (Machine::now(), own() - self.own);
        self.stop.store(true, Ordering::Relaxed);
        let mut stalls = self.probe.join().unwrap_or_default();
        stalls.sort_unstable();
        let at = |share: f64| {
            let index = (stalls.len() as f64 * share) as usize;
            stalls.get(index.min(stalls.len().saturating_sub(1))).map_or(0.0, Duration::as_secs_f64)
        };
        Noise {
            stall: at(1.0),
            stall_p99: at(0.99),
            others: ((machine.busy - self.machine.busy - own) / seconds).max(0.0),
            stolen: ((machine.stolen - self.machine.stolen) / seconds).max(0.0),
            ..Noise::default()
        }
    }
}

/// Processor seconds of the whole machine since its start.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Machine {
    /// User, nice and system time. Interrupts are left out: the processes that they serve are not
    /// charged for them.
    busy: f64,
    stolen: f64,
}

impl Machine {
    fn now() -> Self {
        Self::parse(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    /// The first line of proc_stat(5): user, nice, system, idle, iowait, irq, softirq, steal.
    fn parse(text: &str) -> Self {
        let line = text.lines().next().unwrap_or_default();
        let ticks: Vec<f64> =
            line.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
        let at = |index: usize| ticks.get(index).copied().unwrap_or_default() / TICKS;
        Self { busy: at(0) + at(1) + at(2), stolen: at(7) }
    }
}

/// Processor seconds of this process and of its children that have ended.
fn own() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    ticks(&stat) / TICKS
}

/// Fields 14 to 17 of proc_pid_stat(5). The name before them may contain spaces and parentheses.
fn ticks(stat: &str) -> f64 {
    let fields = stat.rsplit(')').next().unwrap_or_default();
    fields.split_whitespace().skip(11).take(4).filter_map(|field| field.parse::<f64>().ok()).sum()
}

/// What the machine does when nothing of the bench runs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Idle {
    /// Share of the time in which a program that never sleeps did not run, on the worse core.
    pub(super) lost: f64,
    /// The longest time in which it did not run, in seconds.
    pub(super) gap: f64,
    /// Cores used by other programs.
    pub(super) others: f64,
}

impl Idle {
    /// Measures for a second, with one spinning thread per core.
    pub(super) fn measure() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let watch = Watch::start();
        let spins: Vec<_> =
            (0..cores).map(|_| std::thread::spawn(|| spin(Duration::from_secs(1)))).collect();
        let seen: Vec<(f64, f64)> = spins.into_iter().filter_map(|spin| spin.join().ok()).collect();
        let worst = |of: fn(&(f64, f64)) -> f64| seen.iter().map(of).fold(0.0, f64::max);
        Self { lost: worst(|one| one.0), gap: worst(|one| one.1), others: watch.stop().others }
    }

    pub(super) fn text(&self) -> String {
        format!(
            "a spinning program on each core lost {:.1} % of a second, at most {:.1} ms at once; \
             other programs used {:.2} cores",
            self.lost * 100.0,
            self.gap * 1e3,
            self.others
        )
    }

    pub(super) fn json(&self) -> Value {
        json!({"lost_share": self.lost, "longest_gap_ms": self.gap * 1e3,
               "others_cores": self.others})
    }
}

/// Reads the clock for this long. Returns the share of the time in gaps of more than 50 us between
/// two readings, and the longest gap in seconds.
fn spin(duration: Duration) -> (f64, f64) {
    const GAP: Duration = Duration::from_micros(50);
    let began = Instant::now();
    let (mut last, mut lost, mut longest) = (began, Duration::ZERO, Duration::ZERO);
    while last.duration_since(began) < duration {
        let now = Instant::now();
        let gap = now.duration_since(last);
        if gap > GAP {
            lost += gap;
            longest = longest.max(gap);
        }
        last = now;
    }
    (lost.as_secs_f64() / duration.as_secs_f64(), longest.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_time_leaves_out_interrupts_and_waits() {
        let text = "cpu  100 20 30 4000 500 60 70 8 0 0\ncpu0 1 1 1\n";
        assert_eq!(Machine::parse(text), Machine { busy: 1.5, stolen: 0.08 });
        assert_eq!(Machine::parse(""), Machine { busy: 0.0, stolen: 0.0 });
    }

    #[test]
    fn own_time_counts_ended_children() {
        let stat = "7 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 100 200 30 40 20 0";
        assert!((ticks(stat) - 370.0).abs() < 1e-9);
    }

    #[test]
    fn each_kind_of_noise_is_a_doubt() {
        assert!(Noise::default().doubts().is_empty());
        let noise = Noise { others: 0.5, stolen: 0.2, stall: 0.25, ..Noise::default() };
        assert_eq!(noise.doubts().len(), 3);
        let mut noise = Noise::default();
        let report =
            json!({"ok": false, "bottleneck": "late", "delay_error": {"p99_seconds": 0.01}});
        noise.add_emulator(&report);
        assert_eq!(noise.doubts(), ["the emulator: late"]);
        assert_eq!(noise.late_p99, Some(0.01));
    }
}
