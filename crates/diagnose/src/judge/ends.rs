//! Rules about the two ends: processors, disks, operations on names.

use packtrain_units::Duration;

use super::{Finding, Limiter, goodput, percent, ramp, seconds};
use packtrain_service::evidence::{Cpu, End, Evidence, PartRole, Waits, Work};

/// A slower operation on a name needs a file server, not a disk's cache.
const SLOW_NAME_OPERATION: Duration = Duration::from_micros(700);
/// Files with a smaller mean size, in bytes, count as small.
const SMALL_FILE_MEAN: u64 = 128 << 10;

/// What the sender waited for, as shares of the time.
pub(super) struct WaitShares {
    /// No data was requested.
    pub(super) work: f64,
    /// Data from its disk.
    pub(super) bytes: f64,
    /// Window and pacer: the path, or TCP's window.
    pub(super) path: f64,
    /// Free buffer at the receiver, or any message of it.
    pub(super) room: f64,
    /// How much of the time the sink's memory was full.
    pub(super) full: f64,
    /// Unused capacity of the path (1: much, or unknown).
    pub(super) spare: f64,
    /// The share of the time in which a network thread waited for a core, at the worse end. The
    /// measurements of the path then also depend on the machine.
    pub(super) blurred: f64,
}

impl WaitShares {
    pub(super) fn of(evidence: &Evidence) -> Self {
        // Each sample has one of the two reasons.
        let waits = evidence.path.as_ref().map_or(Waits::default(), |p| p.waits.and(&p.mover));
        let share = |n: u64| n as f64 / waits.total().max(1) as f64;
        let full = evidence.sink.as_ref().map_or(0.0, |s| s.full as f64 / s.looks.max(1) as f64);
        let spare = evidence.path.as_ref().map_or(1.0, super::path::spare);
        Self {
            work: share(waits.work),
            bytes: share(waits.bytes),
            path: share(waits.window.saturating_add(waits.pace)),
            room: share(waits.room.saturating_add(waits.word)),
            full,
            spare,
            blurred: [&evidence.source, &evidence.sink]
                .into_iter()
                .flatten()
                .filter_map(|end| end.cpu.network.as_ref().or(end.cpu.hungriest.as_ref()))
                .map(|thread| thread.waited)
                .fold(0.0, f64::max),
        }
    }

    /// How much the receiving end delayed the sender.
    pub(super) fn by_sink(&self) -> f64 {
        self.room.max(self.full)
    }
}

/// Applies the rules to both ends.
pub(super) fn apply(evidence: &Evidence, found: &mut Vec<Finding>) {
    let held = WaitShares::of(evidence);
    if let Some(end) = &evidence.source {
        quota(end, PartRole::Source, found);
        encryption(evidence, end, PartRole::Source, found);
        source_disk(end, &held, found);
        source_names(end, &held, found);
        let kept = held.room.max(held.path * 0.5);
        processor(evidence, end, PartRole::Source, (1.0 - kept, held.spare), found);
    }
    if let Some(end) = &evidence.sink {
        quota(end, PartRole::Sink, found);
        encryption(evidence, end, PartRole::Sink, found);
        target_disk(evidence, end, &held, found);
        target_names(end, &held, found);
        let drops = evidence.path.as_ref().map_or(0.0, super::path::host_share);
        let weight = held.by_sink().max(drops).max(held.work);
        processor(evidence, end, PartRole::Sink, (weight, held.spare), found);
    }
    small_files(evidence, &held, found);
}

fn place(role: PartRole) -> &'static str {
    match role {
        PartRole::Source => "sending",
        PartRole::Sink => "receiving",
    }
}

fn quota(end: &End, role: PartRole, found: &mut Vec<Finding>) {
    let cpu = &end.cpu;
    let Some(quota) = cpu.quota else { return };
    let periods = cpu.throttled_periods as f64 / cpu.periods.max(1) as f64;
    let stood = Work::share(cpu.throttled, cpu.elapsed, 1).min(1.0);
    let sure = 0.96 * ramp(periods, 0.05, 0.35).max(ramp(stood, 0.02, 0.15));
    let says = format!(
        "the processor quota of the cgroup at the {} end ({quota:.2} cores) was the limit",
        place(role)
    );
    let remedy = "raise cpu.max of the cgroup (`docker update --cpus 2 NAME`, resources.limits.cpu \
                  of a pod, `systemctl set-property UNIT CPUQuota=200%`)";
    found.push(
        Finding::new(Limiter::CgroupQuota, sure, says, remedy)
            .fact("quota", format!("{quota:.2} cores"))
            .fact("periods in which it ran out", percent(periods))
            .fact("stood still", seconds(cpu.throttled)),
    );
}

/// How much a thread of this end needed a processor, and how much it waited for one.
fn demand(cpu: &Cpu) -> (f64, f64) {
    cpu.hungriest.as_ref().map_or((0.0, 0.0), |h| (h.ran + h.waited, h.waited))
}

fn encryption(evidence: &Evidence, end: &End, role: PartRole, found: &mut Vec<Finding>) {
    let Some(sealing) = end.sealing.filter(|_| !evidence.local) else { return };
    let (bytes, cpu, elapsed) = match &end.net {
        Some(net) if net.bytes.get() >= evidence.bytes.get() / 2 => {
            (net.bytes, net.cpu, net.elapsed)
        }
        _ => (evidence.bytes, end.cpu.used, end.cpu.elapsed),
    };
    if sealing.as_bps() == 0 || cpu.is_zero() {
        return;
    }
    let sealed = sealing.time_for(bytes);
    let of_cpu = Work::share(sealed, cpu, 1);
    // Time in which other processes had the core is subtracted, within limits.
    let had = (1.0 - demand(&end.cpu).1).clamp(0.3, 1.0);
    let of_time = Work::share(sealed, elapsed, 1) / had;
    let sure = 0.92 * ramp(of_cpu, 0.3, 0.55).min(ramp(of_time, 0.2, 0.4));
    let says = format!("encryption at the {} end was the limit", place(role));
    let remedy = "use a machine whose processor shows AES instructions (`grep -m1 -w aes \
                  /proc/cpuinfo`); a virtual one may hide those of its host (qemu: `-cpu host`)";
    found.push(
        Finding::new(Limiter::Encryption, sure, says, remedy)
            .fact("one thread here seals", sealing)
            .fact("of the network's processor time", percent(of_cpu.min(1.0)))
            .fact("of the time that it had a core", percent(of_time.min(1.0))),
    );
}

fn processor(
    evidence: &Evidence,
    end: &End,
    role: PartRole,
    (weight, spare): (f64, f64),
    found: &mut Vec<Finding>,
) {
    let cpu = &end.cpu;
    let (want, waited) = demand(cpu);
    let used = Work::share(cpu.used, cpu.elapsed, 1) / cpu.cores.max(1.0);
    // A thread that often sleeps is limited by something other than the processor, even if it waits
    // for a core at each wake-up.
    let strength = (ramp(want, 0.6, 0.9))
        .max(ramp(waited, 0.15, 0.4) * ramp(want, 0.5, 0.75))
        .max(ramp(used, 0.6, 0.9));
    // High demand is a limit only if other parts of the transfer wait for this end. A network
    // thread without a core delays them in several ways, except when the path is full anyway.
    // Threads that read and write have a lower priority than it.
    let network = cpu.network.as_ref().map_or(waited, |thread| thread.waited);
    let kept = ramp(network, 0.3, 0.6) * spare;
    let runs = cpu.hungriest.as_ref().map_or(0.0, |thread| thread.ran);
    let weight = (ramp(weight, 0.1, 0.5) * spare.max(ramp(runs, 0.6, 0.8))).max(kept);
    let sure = strength * (0.55 + 0.37 * weight);
    let cause = match role {
        PartRole::Source => Limiter::SenderCpu,
        PartRole::Sink => Limiter::ReceiverCpu,
    };
    let others = waited >= 0.15;
    let says = match others {
        true => format!("the {} machine was busy with other work", place(role)),
        false => format!("the processor of the {} machine was the limit", place(role)),
    };
    let remedy = if others {
        "end or move the other work there (`top` shows it), or give this one precedence (`nice -n \
         -5 packtrain ...`, cpu.weight of its cgroup)"
    } else {
        "use faster cores; `--transport tcp --streams 4`, or several copies of parts of the tree \
         side by side, use more of them"
    };
    let mut finding = Finding::new(cause, sure, says, remedy)
        .fact("cores", format!("{:.0}", cpu.cores))
        .fact("used by this copy", percent(used))
        .fact("busy with anything", percent(cpu.machine));
    if let Some(thread) = &cpu.hungriest {
        let text = format!(
            "{} ran {} of the time and waited for a core {}",
            thread.name,
            percent(thread.ran),
            percent(thread.waited)
        );
        finding = finding.fact("busiest thread", text);
    }
    if role == PartRole::Sink
        && let Some(path) = &evidence.path
        && path.host_drops > 0
    {
        finding = finding.fact("datagrams dropped by that machine", path.host_drops);
    }
    found.push(finding);
}

fn source_disk(end: &End, held: &WaitShares, found: &mut Vec<Finding>) {
    let waiting = without_cores(end, Work::share(end.data.idle(), end.elapsed, end.threads));
    let mut sure = 0.94 * ramp(waiting, 0.2, 0.6);
    // The sender waits for a slow disk. Without such counts (a local copy) only the time is used.
    sure *= 0.6 + 0.4 * ramp(held.bytes.max(held.work), 0.15, 0.4);
    found.push(
        Finding::new(
            Limiter::SourceDisk,
            sure,
            "the disk of the sending end was the limit",
            "see how busy it is (`iostat -x 1`, `nfsiostat 1`); read from a faster disk or from \
             more of them; a network file system may gain by `mount -o nconnect=8` or by several \
             copies side by side",
        )
        .fact("readers waited for the disk", percent(waiting))
        .fact("sender waited for bytes", percent(held.bytes))
        .fact("a read took", format!("{} of {}", seconds(end.data.each()), mean(&end.data))),
    );
}

/// The share of the time in which the threads waited for data, without the time in which they
/// waited for a core.
fn without_cores(end: &End, share: f64) -> f64 {
    (share - end.cpu.data_waited.unwrap_or(0.0)).max(0.0)
}

fn mean(work: &Work) -> String {
    packtrain_units::ByteCount(work.bytes.get() / work.count.max(1)).to_string()
}

fn target_disk(evidence: &Evidence, end: &End, held: &WaitShares, found: &mut Vec<Finding>) {
    let writing = Work::share(end.data.idle(), end.elapsed, end.threads);
    let writing = without_cores(end, writing);
    let syncing = Work::share(end.sync.idle(), end.elapsed, 1).min(1.0);
    // Concurrent syncs delay nothing; those at the end do.
    let rest = Work::share(end.rest, end.elapsed, 1).min(syncing);
    // A sender that has sent everything waits for the remaining writes.
    let waiting = held.by_sink().max(held.work);
    let weight = if evidence.local { 1.0 } else { ramp(waiting, 0.1, 0.35) };
    let sure =
        (0.94 * ramp(writing, 0.2, 0.6) * (0.5 + 0.5 * weight)).max(0.92 * ramp(rest, 0.25, 0.5));
    found.push(
        Finding::new(
            Limiter::TargetDisk,
            sure,
            "the disk of the receiving end was the limit",
            "see how busy it is (`iostat -x 1`, `nfsiostat 1`); write to a faster disk or to more \
             of them; a network file system may gain by `mount -o nconnect=8`; nothing saves the \
             syncs: cp ends when everything is on stable storage",
        )
        .fact("writers waited for the disk", percent(writing))
        .fact("syncing went on", percent(syncing))
        .fact("syncing at the end, with nothing left to write", percent(rest))
        .fact("a sync took", seconds(end.sync.each()))
        .fact("sender waited for room there", percent(held.by_sink())),
    );
}

fn source_names(end: &End, held: &WaitShares, found: &mut Vec<Finding>) {
    let share = Work::share(end.names.idle(), end.elapsed, 1).min(1.0);
    let slow = end.names.each() >= SLOW_NAME_OPERATION && end.names.count >= 20;
    let starved = ramp(held.work + held.bytes, 0.2, 0.5);
    let sure = if slow { 0.93 * ramp(share, 0.25, 0.6) * (0.6 + 0.4 * starved) } else { 0.0 };
    found.push(
        Finding::new(
            Limiter::SourceMetadata,
            sure,
            "listing and opening files at the sending end was the limit",
            "the file system's metadata server is slow: copy from a client near to it, name what \
             to copy with --files-from, or send small files as one: `tar -cf - DIR | packtrain cp \
             - HOST:DIR.tar`",
        )
        .fact("operations on names", end.names.count)
        .fact("each took", seconds(end.names.each()))
        .fact("of the whole time", percent(share)),
    );
}

fn target_names(end: &End, held: &WaitShares, found: &mut Vec<Finding>) {
    // Small files are created, written and closed in one step, which is mostly spent on names.
    let names = Work::share(end.names.idle(), end.elapsed, 1);
    let small = Work::share(end.small.idle(), end.elapsed, end.threads);
    let count = end.names.count.saturating_add(end.small.count);
    let wall = end.names.wall + end.small.wall;
    let each = if count == 0 { Duration::ZERO } else { wall / count };
    let slow = each >= SLOW_NAME_OPERATION && count >= 20;
    let share = names.max(small).min(1.0);
    let weight = 0.6 + 0.4 * ramp(held.by_sink().max(held.work), 0.15, 0.4).max(share);
    let sure = if slow { 0.93 * ramp(share, 0.25, 0.6) * weight } else { 0.0 };
    found.push(
        Finding::new(
            Limiter::TargetMetadata,
            sure,
            "making and naming files at the receiving end was the limit",
            "the file system's metadata server is slow: write through a client near to it, or keep \
             small files as one: `tar -cf - DIR | packtrain cp - HOST:DIR.tar`",
        )
        .fact("operations on names", count)
        .fact("each took", seconds(each))
        .fact("of the whole time", percent(share)),
    );
}

fn small_files(evidence: &Evidence, held: &WaitShares, found: &mut Vec<Finding>) {
    let files = evidence.files;
    let mean = evidence.bytes.get() / files.max(1);
    if files < 200 || mean > SMALL_FILE_MEAN {
        return;
    }
    let at = |end: &Option<End>| {
        end.as_ref().map_or(0.0, |end| {
            let names = Work::share(end.names.wall, end.elapsed, 1);
            let small = Work::share(end.small.wall, end.elapsed, end.threads);
            // First their bytes are written, then they are renamed.
            (names + small).min(1.0)
        })
    };
    let share = at(&evidence.source).max(at(&evidence.sink));
    let idle = held.work.max(held.bytes).max(held.by_sink());
    let sure = 0.9 * ramp(share.max(idle), 0.15, 0.5);
    let rate = files as f64 / evidence.elapsed.as_secs_f64().max(1e-3);
    found.push(
        Finding::new(
            Limiter::SmallFiles,
            sure,
            "many small files were the limit: work for each of them, not their bytes",
            "send them as one if they are read as one anyway: `tar -cf - DIR | packtrain cp - \
             HOST:DIR.tar`; several copies of parts of the tree side by side use more cores",
        )
        .fact("files", files)
        .fact("mean size", packtrain_units::ByteCount(mean))
        .fact("files a second", format!("{rate:.0}"))
        .fact("goodput", goodput(evidence))
        .fact("time with names and small files", percent(share)),
    );
}
