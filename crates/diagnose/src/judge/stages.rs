//! The highest rate of each stage.

use packtrain_units::{ByteCount, DataRate, Duration};
use serde::Serialize;

use super::ends::WaitShares;
use super::series::Series;
use super::{Finding, Limiter, percent, ramp};
use packtrain_service::evidence::{End, Evidence, Net, PathPart, Work};

/// Less data gives no rate.
const MIN_MEASURED: ByteCount = ByteCount(1 << 20);

/// A stage of the data path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Read from the source's disk and hashed.
    Read,
    /// Encrypted and sent.
    Encrypt,
    /// Over the network.
    Path,
    /// Received and decrypted.
    Decrypt,
    /// Hashed, written, synced.
    Write,
}

/// The highest rate of a stage.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ceiling {
    /// The stage.
    pub stage: Stage,
    /// The approximate rate.
    #[serde(rename = "rate_bps")]
    pub rate: DataRate,
    /// How it was measured.
    pub by: String,
    /// The stage was not at its limit, so it may be faster.
    pub at_least: bool,
}

impl Stage {
    /// The name of the stage.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Encrypt => "encrypt",
            Self::Path => "path",
            Self::Decrypt => "decrypt",
            Self::Write => "write",
        }
    }
}

/// The highest rates that the measurements show, in the order of the stages.
pub(super) fn ceilings(evidence: &Evidence) -> Vec<Ceiling> {
    let mut found = Vec::new();
    if let Some(end) = &evidence.source {
        let by = format!("by the time that {} readers spent", end.threads.max(1));
        let work = end.data.wall + end.hash.wall;
        found.extend(rate(end.data.bytes, work / end.threads.max(1), Stage::Read, by));
        if !evidence.local {
            found.extend(network(evidence, end, Stage::Encrypt));
        }
    }
    found.extend(path(evidence));
    if let Some(end) = &evidence.sink {
        if !evidence.local {
            found.extend(network(evidence, end, Stage::Decrypt));
        }
        let bytes = end.data.bytes + end.small.bytes;
        let work = (end.data.wall + end.small.wall + end.hash.wall) / end.threads.max(1);
        let synced = end.sync.wall > work;
        let by = if synced {
            "by the time that syncing took".to_owned()
        } else {
            format!("by the time that {} writers spent", end.threads.max(1))
        };
        // Concurrent syncs would take longer with more data.
        let beside = synced && Work::share(end.rest, end.elapsed, 1) < 0.2;
        let write = rate(bytes, work.max(end.sync.wall), Stage::Write, by);
        found.extend(write.map(|ceiling| Ceiling { at_least: beside, ..ceiling }));
    }
    found
}

fn rate(bytes: ByteCount, span: Duration, stage: Stage, by: String) -> Option<Ceiling> {
    let known = bytes >= MIN_MEASURED && !span.is_zero();
    known.then(|| Ceiling {
        stage,
        rate: DataRate::from_bytes_over(bytes, span),
        by,
        at_least: false,
    })
}

/// The share of the time in which the network thread had a core, as far as other processes took it.
fn given(end: &End) -> f64 {
    let thread = end.cpu.network.as_ref().filter(|thread| thread.waited >= 0.15);
    let given = thread.map_or(1.0, |thread| thread.ran / (thread.ran + thread.waited));
    // NaN gives 1.
    if given > 0.0 { given.min(1.0) } else { 1.0 }
}

/// The network thread encrypts or decrypts, and makes the system calls. With TCP the work is
/// distributed over threads, so only the encryption rate is known.
fn network(evidence: &Evidence, end: &End, stage: Stage) -> Option<Ceiling> {
    let alone = |rate: DataRate| format!("sealing alone {rate}");
    let quota = end.cpu.quota.filter(|q| *q < 1.0).unwrap_or(1.0);
    match &end.net {
        Some(Net { cpu, bytes, elapsed }) if *bytes >= MIN_MEASURED && !cpu.is_zero() => {
            let given = given(end);
            let mut by = match percent(given) {
                share if given < 1.0 => {
                    format!("its network thread, given a core {share} of the time")
                }
                _ => "if its network thread worked all the time".to_owned(),
            };
            if let Some(rate) = end.sealing {
                by = format!("{by}; {}", alone(rate));
            }
            let quota = quota.min(given);
            let rate = DataRate::from_bytes_over(*bytes, *cpu).mul_f64(quota);
            // At low rates each wake-up handles few packets, so the cost per packet is higher than
            // at high rates.
            let at_least = Work::share(*cpu, *elapsed, 1) < 0.5 * quota;
            Some(Ceiling { stage, rate, by, at_least })
        }
        // Nothing was encrypted.
        _ if evidence.bytes < MIN_MEASURED && !evidence.probed => None,
        _ => {
            let rate = end.sealing?.mul_f64(quota);
            let by = "one thread that does nothing else".to_owned();
            Some(Ceiling { stage, rate, by, at_least: false })
        }
    }
}

fn path(evidence: &Evidence) -> Option<Ceiling> {
    let path = evidence.path.as_ref().filter(|_| !evidence.local)?;
    let long = path.samples.iter().filter(|s| s.span >= Duration::from_millis(50));
    let mut rates: Vec<_> = long.map(|s| DataRate::from_bytes_over(s.arrived, s.span)).collect();
    rates.sort_unstable();
    // One interval in twenty may contain data that a pause delayed.
    let best = rates.len().checked_sub(1).map(|last| rates[last - rates.len() / 20]);
    let tcp = path.tcp.as_ref().and_then(|t| Some(t.best_rate?.mul_f64(t.streams.max(1) as f64)));
    let seen = best.max(tcp);
    let (rate, by) = match (path.capacity, seen) {
        (Some(capacity), Some(seen)) if capacity.mul_f64(1.2) >= seen => {
            (capacity, "by how trains of packets spread")
        }
        (_, Some(seen)) => (seen, "the best tenth of a second seen"),
        (Some(capacity), None) => (capacity, "by how trains of packets spread"),
        (None, None) => return None,
    };
    let at_least = path.capacity.is_none() && WaitShares::of(evidence).path < 0.5;
    (rate > DataRate::ZERO).then(|| Ceiling {
        stage: Stage::Path,
        rate,
        by: by.to_owned(),
        at_least,
    })
}

/// If UDP is policed, the policer's rate is the highest rate of the path.
pub(super) fn police(ceilings: &mut [Ceiling], path: &PathPart) {
    let through = DataRate::from_bps(Series::of(path).arrived as u64);
    for ceiling in ceilings.iter_mut().filter(|c| c.stage == Stage::Path) {
        ceiling.rate = ceiling.rate.min(through);
        ceiling.by = "what is let through of UDP".to_owned();
    }
}

/// The finding for the slowest stage of a probe. None without the rate of the path, which only UDP
/// shows: it may be far below what the ends can do.
pub(super) fn probed(ceilings: &[Ceiling]) -> Option<Finding> {
    if !ceilings.iter().any(|ceiling| ceiling.stage == Stage::Path) {
        return None;
    }
    let mut sorted: Vec<&Ceiling> = ceilings.iter().collect();
    sorted.sort_by_key(|c| c.rate);
    let lowest = *sorted.first()?;
    let second = sorted.get(1).map_or(DataRate::MAX, |c| c.rate);
    let ratio = second.as_bps() as f64 / lowest.rate.as_bps().max(1) as f64;
    let sure = 0.5 + 0.45 * ramp(ratio, 1.1, 2.0);
    let (cause, says, remedy) = match lowest.stage {
        Stage::Read => (
            Limiter::SourceDisk,
            "the disk here would be the limit",
            "read from a faster disk or from more of them (`iostat -x 1` shows how busy it is)",
        ),
        Stage::Encrypt => (
            Limiter::SenderCpu,
            "this machine's processor would be the limit",
            "send from a machine with faster cores; `--transport tcp --streams 4` uses more of them",
        ),
        Stage::Path => (
            Limiter::PathRate,
            "the path would be the limit",
            "a faster path, or fewer bytes (`tar -cf - DIR | zstd -T0 | packtrain cp - \
             HOST:DIR.tar.zst`); no setting at the ends would",
        ),
        Stage::Decrypt => (
            Limiter::ReceiverCpu,
            "the other machine's processor would be the limit",
            "receive on a machine with faster cores; `--transport tcp --streams 4` uses more of them",
        ),
        Stage::Write => (
            Limiter::TargetDisk,
            "the disk there would be the limit",
            "write to a faster disk or to more of them (`iostat -x 1` there shows how busy it is)",
        ),
    };
    let mut finding = Finding::new(cause, sure, says, remedy);
    for ceiling in sorted {
        finding = finding.fact(ceiling.stage.name(), ceiling.rate);
    }
    Some(finding)
}
