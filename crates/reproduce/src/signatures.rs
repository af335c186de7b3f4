//! Labelled loss signatures: the received packets of a window, and the cause of each loss.
//!
//! A family is a model of losses: by queues that overflow or drop early, by wires, or by a
//! receiving host whose process does not get the processor in time. Its parameters are drawn from a
//! seed. One of them is varied until the loss rate approximates the drawn one, and one window is
//! recorded with the cause that the model knows. The same seed gives the same windows.
//!
//! Regions separate training from testing: rates, time slices, bursts and spells of
//! [`Region::Test`] do not occur in [`Region::Train`], and some families are only for tests
//! ([`Family::trains`]). The FOBS paper trained and tested on the same hosts: in
//! [`Region::PaperTrain`] and [`Region::PaperTest`] only the draws differ.

mod draft;
mod host;
mod network;
mod play;
mod random;
mod record;
mod source;

use packtrain_units::Rng;

use draft::{Brief, Draft, Kind, note};
use host::Rivals;
use network::Traffic;
use play::{Played, play};
pub use record::{Delay, Lost, Record, Rise, rise, runs};
use source::Sending;

/// Target loss rates, from the minimum of the paper's classifier.
const TARGETS: (f64, f64) = (8e-5, 5e-2);
/// Accepted loss rates.
const KEPT: (f64, f64) = (6e-5, 6e-2);

/// Loss rates of windows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossRates {
    targets: (f64, f64),
    kept: (f64, f64),
}

impl LossRates {
    /// Those that the paper's classifier is for, and a little beyond.
    pub const ALL: Self = Self { targets: TARGETS, kept: KEPT };

    /// Only these, from `low` to `high`. Draws with other losses are repeated.
    pub fn within(low: f64, high: f64) -> Self {
        Self { targets: (low, high), kept: (low, high) }
    }
}
/// Maximum number of changes of the free parameter, and the accepted deviation.
const MOVES: u32 = 6;
const CLOSE: f64 = 1.4;
/// Maximum draws of parameters for a window.
const DRAWS: u64 = 30;

/// The range of the drawn parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Region {
    /// The range for training.
    Train,
    /// The range for testing.
    Test,
    /// The rates and slices of the FOBS paper, for training. Only the families of
    /// [`Family::is_of_paper`] have them.
    PaperTrain,
    /// The same rates and slices, for testing.
    PaperTest,
}

impl Region {
    fn of<T>(self, train: T, test: T) -> T {
        match self {
            Self::Train | Self::PaperTrain => train,
            Self::Test | Self::PaperTest => test,
        }
    }

    /// Whether it is the paper's range.
    pub fn is_of_paper(self) -> bool {
        matches!(self, Self::PaperTrain | Self::PaperTest)
    }

    /// What makes the draws of this region differ from those of the others.
    fn key(self) -> u64 {
        self.of(0, 1 << 63) | u64::from(self.is_of_paper()) << 62
    }

    /// The split in records.
    pub fn name(self) -> &'static str {
        self.of("train", "test")
    }
}

/// A model of losses.
#[derive(Debug)]
pub struct Family {
    /// Its name.
    pub name: &'static str,
    /// `network`, `cpu`, `link` or `hybrid`.
    pub cause: &'static str,
    /// Whether it is used for training too.
    pub trains: bool,
    /// Its description.
    pub about: &'static str,
    draw: fn(&mut Rng, &Brief) -> Draft,
}

impl Family {
    /// Whether it has the paper's own rates and slices ([`Region::PaperTrain`]).
    pub fn is_of_paper(&self) -> bool {
        matches!(self.name, "net-paper" | "cpu-paper")
    }
}

macro_rules! families {
    ($($name:literal $cause:literal $trains:literal $about:literal $draw:expr;)*) => {
        /// All families.
        pub const FAMILIES: &[Family] = &[$(Family {
            name: $name, cause: $cause, trains: $trains, about: $about, draw: $draw,
        }),*];
    };
}

families! {
    "net-paper" "network" true "ten senders saturate 10 Gbit/s, drop-tail, as in the paper"
        network::paper;
    "net-paced" "network" true "paced flows beside ours, drop-tail"
        |rng, brief| network::shared(rng, brief, Kind::DropTail, Traffic::Paced);
    "net-poisson" "network" true "Poisson traffic beside ours, drop-tail"
        |rng, brief| network::shared(rng, brief, Kind::DropTail, Traffic::Poisson);
    "net-bursts" "network" true "bursts of 64 KiB and more beside ours, drop-tail"
        |rng, brief| network::shared(rng, brief, Kind::DropTail, Traffic::Bursts);
    "net-pareto" "network" false "on/off sources with Pareto spans beside ours, drop-tail"
        |rng, brief| network::shared(rng, brief, Kind::DropTail, Traffic::Pareto);
    "net-slowstart" "network" true "TCP flows that begin, and Poisson traffic, beside ours, drop-tail"
        |rng, brief| network::shared(rng, brief, Kind::DropTail, Traffic::SlowStart);
    "net-self" "network" true "our own rate is above the bottleneck's, drop-tail: periodic losses"
        |rng, brief| network::own(rng, brief, Kind::DropTail);
    "net-policer" "network" false "the same at a policer: no queue, no delay"
        network::policed;
    "net-probe" "network" false "our own rate grows beyond the bottleneck's and falls, drop-tail"
        network::probing;
    "red-poisson" "network" true "Poisson traffic beside ours, RED"
        |rng, brief| network::shared(rng, brief, Kind::Red, Traffic::Poisson);
    "red-bursts" "network" false "bursts beside ours, RED"
        |rng, brief| network::shared(rng, brief, Kind::Red, Traffic::Bursts);
    "red-pareto" "network" false "on/off sources with Pareto spans beside ours, RED"
        |rng, brief| network::shared(rng, brief, Kind::Red, Traffic::Pareto);
    "red-self" "network" false "our own rate is above the bottleneck's, RED"
        |rng, brief| network::own(rng, brief, Kind::Red);
    "codel-poisson" "network" false "Poisson traffic beside ours, CoDel"
        |rng, brief| network::shared(rng, brief, Kind::CoDel, Traffic::Poisson);
    "link-bit" "link" true "independent bit errors"
        |rng, brief| network::wire(rng, brief, false);
    "link-spells" "link" true "errors in bad spells (Gilbert and Elliott)"
        |rng, brief| network::wire(rng, brief, true);
    "cpu-paper" "cpu" true "the paper's generator of processes at 1 Gbit/s of 1024-byte packets"
        host::paper;
    "cpu-generator" "cpu" true "the paper's generator of processes"
        |rng, brief| host::starved(rng, brief, Rivals::Generator, false);
    "cpu-joined" "cpu" true "the same with receive offload, which loses whole joined buffers"
        |rng, brief| host::starved(rng, brief, Rivals::Generator, true);
    "cpu-onoff" "cpu" true "spans with and without the processor, exponential"
        |rng, brief| host::starved(rng, brief, Rivals::OnOff, false);
    "cpu-fair" "cpu" false "competitors that never sleep, in turn"
        |rng, brief| host::starved(rng, brief, Rivals::Fair, false);
    "cpu-slow" "cpu" false "the process has the processor, and is too slow for the rate"
        host::slow;
    "hybrid-poisson" "hybrid" true "Poisson traffic at the bottleneck and a starved process"
        |rng, brief| host::both(rng, brief, Some(Traffic::Poisson));
    "hybrid-self" "hybrid" true "our own rate above the bottleneck's and a starved process"
        |rng, brief| host::both(rng, brief, None);
    "hybrid-bursts" "hybrid" false "bursts at the bottleneck and a starved process"
        |rng, brief| host::both(rng, brief, Some(Traffic::Bursts));
}

/// The family of this name.
pub fn find(name: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| family.name == name)
}

/// Window `number` of a family: the same for the same seed. None if thirty draws gave no window
/// with the accepted losses.
pub fn generate(
    family: &Family,
    region: Region,
    seed: u64,
    number: u64,
    packets: usize,
) -> Option<Record> {
    generate_all(family, region, seed, number, packets, LossRates::ALL).into_iter().next()
}

/// Window `number` of a family, and the windows of those flows beside it that are like it: paced,
/// with packets of the same size, on the same link at the same time. Their delays are not recorded.
/// Only the family `net-paper` has such flows. None if thirty draws gave no window with the
/// accepted losses.
pub fn generate_all(
    family: &Family,
    region: Region,
    seed: u64,
    number: u64,
    packets: usize,
    losses: LossRates,
) -> Vec<Record> {
    let found = (0..DRAWS).find_map(|draw| {
        let mut key = Rng::new(seed ^ fold(family.name) ^ region.key());
        let drawn = key.next_u64() ^ Rng::new(number << 8 | draw).next_u64();
        one(family, region, drawn, packets, losses)
    });
    let all = found.unwrap_or_default().into_iter();
    all.map(|record| Record { seed, window: number, ..record }).collect()
}

/// A hash of a name (FNV-1a).
fn fold(name: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

fn one(
    family: &Family,
    region: Region,
    drawn: u64,
    packets: usize,
    losses: LossRates,
) -> Option<Vec<Record>> {
    let mut rng = Rng::new(drawn);
    let target = random::scale(&mut rng, losses.targets.0, losses.targets.1);
    let draft = (family.draw)(&mut rng, &Brief { region, target, window: packets });
    let (parameter, mut played) = search(&draft, target, packets, rng.next_u64())?;
    let others = std::mem::take(&mut played.beside);
    let setup = (draft.setup)(parameter);
    let mut meta = draft.meta.clone();
    note(&mut meta, "knob", parameter);
    if region.is_of_paper() {
        note(&mut meta, "conditions", "paper");
    }
    let buffer = setup.host.buffer.get();
    if buffer < 1 << 40 {
        note(&mut meta, "buffer", buffer);
    }
    let mut delay = played.delay();
    if draft.policed {
        delay = Delay { arrival: Rise::default(), read: Rise::default() };
    }
    let record = |played: &Played, rate_bps, delay| {
        let lost = played.lost();
        let p = lost.all() as f64 / packets as f64;
        let kept = (losses.kept.0..=losses.kept.1).contains(&p) && lost.all() >= 5;
        (kept && lost.cause() == family.cause).then(|| Record {
            family: family.name.to_owned(),
            cause: family.cause.to_owned(),
            split: region.name().to_owned(),
            seed: 0,
            window: 0,
            packets: packets as u64,
            runs: played.runs(),
            lost,
            host_drops: Some(lost.host),
            delay,
            rate_bps,
            packet_bytes: u64::from(draft.flow.size),
            meta: meta.clone(),
        })
    };
    let mut records = vec![record(&played, draft.flow.rate as u64, Some(delay))?];
    if family.name != "net-paper" {
        return Some(records);
    }
    for ((size, sending), outcomes) in setup.others.iter().zip(others) {
        let Sending::Paced { rate, .. } = sending else { continue };
        if *size == draft.flow.size && outcomes.len() == packets {
            let played = Played { outcomes, ..Played::default() };
            records.extend(record(&played, rate.as_bps(), None));
        }
    }
    Some(records)
}

/// Varies the free parameter until the loss rate is about `target`, and returns the closest window.
fn search(draft: &Draft, target: f64, packets: usize, seed: u64) -> Option<(f64, Played)> {
    let (mut low, mut high, mut parameter) = draft.parameter;
    let warm = (packets as f64 * draft.warm) as usize;
    let mut best: Option<(f64, f64, Played)> = None;
    for _ in 0..if draft.steady { 1 } else { MOVES } {
        let played = play(&(draft.setup)(parameter), warm, packets, &mut Rng::new(seed));
        let p = played.lost().all() as f64 / packets as f64;
        let off = libm::log(p.max(1e-9) / target).abs();
        if best.as_ref().is_none_or(|best| off < best.0) {
            best = Some((off, parameter, played));
        }
        if off < libm::log(CLOSE) {
            break;
        }
        if p < target {
            low = parameter;
        } else {
            high = parameter;
        }
        parameter = if low > 0.0 { (low * high).sqrt() } else { (low + high) / 2.0 };
    }
    best.map(|(_, parameter, played)| (parameter, played))
}

#[cfg(test)]
#[path = "signatures/tests.rs"]
mod tests;
