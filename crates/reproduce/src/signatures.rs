//! Labelled loss signatures: the received packets of a window, and the cause of each loss.
//!
//! A family is a model of losses: by queues that overflow or drop early, by wires, or by a
//! receiving host whose process does not get the processor in time. Its parameters are drawn from a
//! seed. One of them is varied until the loss rate approximates the drawn one, and one window is
//! recorded with the cause that the model knows. The same seed gives the same windows.
//!
//! Regions separate training from testing: rates, time slices, bursts and spells of
//! [`Region::Test`] do not occur in [`Region::Train`], and some families are only for tests
//! ([`Family::trains`]).

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

/// Target loss rates, from the minimum of the paper's classifier.
const TARGETS: (f64, f64) = (8e-5, 5e-2);
/// Accepted loss rates.
const KEPT: (f64, f64) = (6e-5, 6e-2);
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
}

impl Region {
    fn of<T>(self, train: T, test: T) -> T {
        match self {
            Self::Train => train,
            Self::Test => test,
        }
    }

    /// The name in records.
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
    (0..DRAWS).find_map(|draw| {
        let mut key = Rng::new(seed ^ fold(family.name) ^ region.of(0, 1 << 63));
        let drawn = key.next_u64() ^ Rng::new(number << 8 | draw).next_u64();
        one(family, region, drawn, packets).map(|found| Record { seed, window: number, ..found })
    })
}

/// A hash of a name (FNV-1a).
fn fold(name: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

fn one(family: &Family, region: Region, drawn: u64, packets: usize) -> Option<Record> {
    let mut rng = Rng::new(drawn);
    let target = random::scale(&mut rng, TARGETS.0, TARGETS.1);
    let draft = (family.draw)(&mut rng, &Brief { region, target, window: packets });
    let (parameter, played) = search(&draft, target, packets, rng.next_u64())?;
    let lost = played.lost();
    let p = lost.all() as f64 / packets as f64;
    if !(KEPT.0..=KEPT.1).contains(&p) || lost.all() < 5 || lost.cause() != family.cause {
        return None;
    }
    let mut meta = draft.meta.clone();
    note(&mut meta, "knob", parameter);
    let buffer = (draft.setup)(parameter).host.buffer.get();
    if buffer < 1 << 40 {
        note(&mut meta, "buffer", buffer);
    }
    let mut delay = played.delay();
    if draft.policed {
        delay = Delay { arrival: Rise::default(), read: Rise::default() };
    }
    Some(Record {
        family: family.name.to_owned(),
        cause: family.cause.to_owned(),
        split: region.name().to_owned(),
        seed: 0,
        window: 0,
        packets: packets as u64,
        runs: played.runs(),
        lost,
        host_drops: Some(lost.host),
        delay: Some(delay),
        rate_bps: draft.flow.rate as u64,
        packet_bytes: u64::from(draft.flow.size),
        meta,
    })
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
