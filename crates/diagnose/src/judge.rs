//! Derives findings from measurements, without a clock or a file.
//!
//! Each cause has a rule that computes its likelihood, from 0 to 1, from the measurements. A cause
//! that explains another one (a quota that makes a processor slow) takes precedence over it. If no
//! rule reaches at least `POSSIBLE`, the diagnosis is inconclusive.

mod ends;
mod path;
mod series;
mod stages;
mod transport;

use packtrain_units::{DataRate, Duration};
use serde::Serialize;

use packtrain_service::evidence::{Evidence, Record};
pub use stages::{Ceiling, Stage};

/// Likelihood from which a finding is called likely.
const LIKELY: f64 = 0.7;
/// Likelihood from which it is called possible; below it is not reported.
const POSSIBLE: f64 = 0.45;
/// Maximum likelihood of a cause that another cause explains.
const MAX_EXPLAINED: f64 = 0.65;
/// Shorter transfers give too few measurements.
const MIN_MEASURED: Duration = Duration::from_millis(700);

/// The causes that can limit a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limiter {
    /// The requested rate limit.
    RateAsked,
    /// All data went through the pipe of ssh, because nothing else works.
    SshPipe,
    /// UDP datagrams do not arrive.
    UdpBlocked,
    /// A policer on the path drops UDP above a rate.
    UdpPoliced,
    /// No data arrived for some time.
    Outage,
    /// Large datagrams are dropped without an ICMP message.
    MtuBlackHole,
    /// A cgroup's processor quota.
    CgroupQuota,
    /// Encryption.
    Encryption,
    /// Receive buffers that are too small for the machine's scheduling latency.
    SocketBuffer,
    /// The sending machine's processor.
    SenderCpu,
    /// The receiving machine's processor.
    ReceiverCpu,
    /// The sending end's disk.
    SourceDisk,
    /// The receiving end's disk.
    TargetDisk,
    /// Operations on names at the sending end: list and open.
    SourceMetadata,
    /// Operations on names at the receiving end: create and rename.
    TargetMetadata,
    /// Many small files: the work per file, not per byte.
    SmallFiles,
    /// A window smaller than the bandwidth-delay product.
    Window,
    /// Other traffic fills the path.
    Congestion,
    /// The path loses packets although it is not full.
    LinkErrors,
    /// The path is full.
    PathRate,
    /// No cause was found.
    Inconclusive,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The cause.
    pub cause: Limiter,
    /// Its likelihood, from 0 to 1.
    pub sure: f64,
    /// The likelihood as a word.
    pub how_sure: &'static str,
    /// A message without a full stop.
    pub says: String,
    /// The measurements behind it.
    pub evidence: Vec<Fact>,
    /// The remedy: a command, a setting, or the person to ask.
    pub remedy: String,
}

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fact {
    /// Its name.
    pub what: &'static str,
    /// Its value with the unit.
    pub value: String,
}

/// All findings about one transfer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diagnosis {
    /// The most likely finding first; never empty.
    pub findings: Vec<Finding>,
    /// The highest rate of each stage, if known.
    pub ceilings: Vec<Ceiling>,
    /// The stage with the lowest rate.
    pub lowest: Option<Stage>,
}

impl Limiter {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::RateAsked => "rate-asked",
            Self::SshPipe => "ssh-pipe",
            Self::UdpBlocked => "udp-blocked",
            Self::UdpPoliced => "udp-policed",
            Self::Outage => "outage",
            Self::MtuBlackHole => "mtu-black-hole",
            Self::CgroupQuota => "cgroup-quota",
            Self::Encryption => "encryption",
            Self::SocketBuffer => "socket-buffer",
            Self::SenderCpu => "sender-cpu",
            Self::ReceiverCpu => "receiver-cpu",
            Self::SourceDisk => "source-disk",
            Self::TargetDisk => "target-disk",
            Self::SourceMetadata => "source-metadata",
            Self::TargetMetadata => "target-metadata",
            Self::SmallFiles => "small-files",
            Self::Window => "window",
            Self::Congestion => "congestion",
            Self::LinkErrors => "link-errors",
            Self::PathRate => "path-rate",
            Self::Inconclusive => "inconclusive",
        }
    }
}

impl Finding {
    fn new(cause: Limiter, sure: f64, says: impl Into<String>, remedy: impl Into<String>) -> Self {
        let (says, remedy) = (says.into(), remedy.into());
        Self { cause, sure, how_sure: "", says, evidence: Vec::new(), remedy }
    }

    fn fact(mut self, what: &'static str, value: impl ToString) -> Self {
        self.evidence.push(Fact { what, value: value.to_string() });
        self
    }
}

impl Diagnosis {
    /// The most likely finding.
    pub fn first(&self) -> &Finding {
        // `judge` never returns an empty list.
        &self.findings[0]
    }

    /// The message for the end of a copy; `None` if the path was full, the requested rate was
    /// reached, or no cause was found.
    pub fn verdict(&self) -> Option<String> {
        let first = self.first();
        let silent =
            matches!(first.cause, Limiter::PathRate | Limiter::RateAsked | Limiter::Inconclusive);
        let maybe = if first.sure >= LIKELY { "" } else { "perhaps: " };
        (!silent).then(|| format!("{maybe}{}", first.says))
    }
}

/// Diagnoses a transfer from its record. Nothing limited a copy that ended without moving data,
/// but something may have prevented it from moving any.
pub fn judge_record(record: &Record) -> Diagnosis {
    let evidence = &record.evidence;
    let mut diagnosis = judge(evidence);
    let is_moving = !record.over || record.compares || evidence.probed;
    if is_moving || evidence.bytes.get() > 0 || evidence.files > 0 {
        return diagnosis;
    }
    let obstacles = [Limiter::UdpBlocked, Limiter::Outage, Limiter::MtuBlackHole];
    diagnosis.findings.retain(|finding| obstacles.contains(&finding.cause));
    if diagnosis.findings.is_empty() {
        let (says, remedy) = ("no data was moved, so nothing limited it", "none is needed");
        let mut finding = Finding::new(Limiter::Inconclusive, 0.0, says, remedy);
        finding.how_sure = "inconclusive";
        diagnosis.findings.push(finding.fact("lasted", seconds(evidence.elapsed)));
    }
    diagnosis
}

/// Diagnoses a transfer from its measurements.
pub fn judge(evidence: &Evidence) -> Diagnosis {
    let mut ceilings = stages::ceilings(evidence);
    let mut found = Vec::new();
    if evidence.elapsed >= MIN_MEASURED {
        ends::apply(evidence, &mut found);
        if let Some(path) = evidence.path.as_ref().filter(|_| !evidence.local) {
            path::apply(evidence, path, &mut found);
            let policed = |f: &Finding| f.cause == Limiter::UdpPoliced && f.sure >= LIKELY;
            if found.iter().any(policed) {
                stages::police(&mut ceilings, path);
            }
        }
        if evidence.probed {
            found.extend(stages::probed(&ceilings));
        }
    }
    let lowest = ceilings.iter().min_by_key(|c| (c.at_least, c.rate)).map(|c| c.stage);
    order_findings(&mut found);
    found.retain(|f| f.sure >= POSSIBLE);
    found.sort_by(|a, b| b.sure.total_cmp(&a.sure).then(a.cause.cmp(&b.cause)));
    if found.is_empty() {
        found.push(nothing(evidence));
    }
    for finding in &mut found {
        finding.sure = (finding.sure * 100.0).round() / 100.0;
        finding.how_sure = match finding.sure {
            _ if finding.cause == Limiter::Inconclusive => "inconclusive",
            s if s >= LIKELY => "likely",
            _ => "possible",
        };
    }
    Diagnosis { findings: found, ceilings, lowest }
}

/// Puts causes before those that they explain.
fn order_findings(found: &mut [Finding]) {
    use Limiter::*;
    let sure = |found: &[Finding], cause: Limiter| {
        found.iter().filter(|f| f.cause == cause).map(|f| f.sure).fold(0.0, f64::max)
    };
    let explains: &[(Limiter, &[Limiter])] = &[
        (RateAsked, &[PathRate, Congestion, Window]),
        (SshPipe, &[PathRate, UdpBlocked, Window, Congestion, Encryption]),
        (CgroupQuota, &[Encryption, SenderCpu, ReceiverCpu, SocketBuffer, SmallFiles]),
        (CgroupQuota, &[SourceDisk, TargetDisk, PathRate, Window, Congestion, LinkErrors]),
        (Encryption, &[SenderCpu, ReceiverCpu, PathRate]),
        (SocketBuffer, &[PathRate]),
        (SenderCpu, &[PathRate, SmallFiles, Congestion]),
        (ReceiverCpu, &[SocketBuffer, PathRate, SmallFiles, Window, Congestion]),
        (SourceMetadata, &[SourceDisk, SmallFiles, PathRate]),
        (TargetMetadata, &[TargetDisk, SmallFiles, PathRate]),
        (SourceDisk, &[PathRate]),
        (TargetDisk, &[PathRate, Window, SmallFiles]),
        (SmallFiles, &[PathRate]),
        (UdpPoliced, &[LinkErrors, Congestion, PathRate]),
        (UdpBlocked, &[PathRate, Window]),
        (Outage, &[LinkErrors, PathRate, Congestion, Window, UdpPoliced, UdpBlocked]),
        (MtuBlackHole, &[LinkErrors, PathRate]),
        (Window, &[PathRate, Congestion]),
        (Congestion, &[PathRate]),
        (LinkErrors, &[PathRate]),
    ];
    for (cause, others) in explains {
        let most = sure(found, *cause);
        if most < LIKELY {
            continue;
        }
        for finding in found.iter_mut().filter(|f| others.contains(&f.cause)) {
            finding.sure = finding.sure.min(MAX_EXPLAINED);
        }
    }
}

fn nothing(evidence: &Evidence) -> Finding {
    let (says, remedy) = if evidence.elapsed < MIN_MEASURED {
        ("it was over before anything could be measured", "measure with more data")
    } else {
        (
            "nothing measured stands out as the limit",
            "run it again with more data, or ask `packtrain diagnose user@host` for each stage",
        )
    };
    Finding::new(Limiter::Inconclusive, 0.0, says, remedy).fact("lasted", seconds(evidence.elapsed))
}

/// `37 %`.
fn percent(share: f64) -> String {
    match share * 100.0 {
        p if p >= 9.95 => format!("{p:.0} %"),
        p if p >= 0.1 => format!("{p:.1} %"),
        p => format!("{p:.3} %"),
    }
}

/// `2.1 ms`, `12.3 s`.
fn seconds(span: Duration) -> String {
    match span.as_secs_f64() {
        s if s < 1e-3 => format!("{:.0} us", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.1} s"),
    }
}

/// The rate of the whole transfer.
fn goodput(evidence: &Evidence) -> DataRate {
    match evidence.elapsed {
        Duration::ZERO => DataRate::ZERO,
        span => DataRate::from_bytes_over(evidence.bytes, span),
    }
}

/// Linear from `low` (0) to `high` (1), clamped.
fn ramp(value: f64, low: f64, high: f64) -> f64 {
    let part = (value - low) / (high - low);
    // NaN gives 0.
    if part > 0.0 { part.min(1.0) } else { 0.0 }
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "judge/recorded_tests.rs"]
mod recorded;
