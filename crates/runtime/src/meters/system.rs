//! Processor use of this process: processor time, the quota of its cgroup, and threads that wait
//! for a processor. The values come from `/proc` and `/sys`, as an unprivileged user reads them;
//! missing values are left out.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use packtrain_os::clock;
use packtrain_units::{ByteCount, DataRate, Duration, Time};

use packtrain_service::CpuUse;
use packtrain_service::evidence::{Cpu, HungryThread};

/// Maximum threads to examine.
const MAX_THREADS: usize = 256;
/// How long sealing is tried.
const SEALING: Duration = Duration::from_millis(4);

/// Measures processor use from its creation on.
#[derive(Debug)]
pub(crate) struct CpuWatch {
    begun: Time,
    used: Duration,
    quota: Option<Quota>,
    throttling: (u64, u64, u64),
    machine: (u64, u64),
    threads: HashMap<u32, Thread>,
    hungriest: Option<(u32, HungryThread)>,
    network: Option<(u32, HungryThread)>,
    data_waited: Option<f64>,
}

#[derive(Clone, Debug)]
struct Thread {
    ran: u64,
    waited: u64,
    since: Time,
}

#[derive(Clone, Debug)]
struct Quota {
    dir: PathBuf,
    cores: f64,
}

impl CpuWatch {
    pub(crate) fn new() -> Self {
        let quota = quota();
        let throttling = quota.as_ref().map_or((0, 0, 0), |q| throttling(&q.dir));
        let mut watch = Self {
            begun: clock::now(),
            used: used(),
            quota,
            throttling,
            machine: machine(),
            threads: HashMap::new(),
            hungriest: None,
            network: None,
            data_waited: None,
        };
        watch.sample();
        watch
    }

    /// Processor use since the creation.
    pub(crate) fn read(&mut self) -> Cpu {
        self.sample();
        let elapsed = clock::now().since(self.begun);
        let now = self.quota.as_ref().map_or((0, 0, 0), |q| throttling(&q.dir));
        let before = self.throttling;
        let (busy, all) = machine();
        let (busy, all) = (busy.saturating_sub(self.machine.0), all.saturating_sub(self.machine.1));
        Cpu {
            cores: cores(),
            used: used() - self.used,
            elapsed,
            quota: self.quota.as_ref().map(|q| q.cores),
            periods: now.0.saturating_sub(before.0),
            throttled_periods: now.1.saturating_sub(before.1),
            throttled: Duration::from_nanos(now.2.saturating_sub(before.2)),
            machine: if all == 0 { 0.0 } else { busy as f64 / all as f64 },
            hungriest: self.hungriest.as_ref().map(|(_, thread)| thread.clone()),
            network: self.network.as_ref().map(|(_, thread)| thread.clone()),
            data_waited: self.data_waited,
        }
    }

    /// Samples all threads. A thread that has ended keeps the values of its last sample.
    fn sample(&mut self) {
        let now = clock::now();
        let mut seen = Vec::new();
        for (id, name, ran, waited) in threads() {
            let first = Thread { ran, waited, since: now };
            let thread = self.threads.entry(id).or_insert(first);
            let span = now.since(thread.since).as_secs_f64();
            if span < 0.2 {
                continue;
            }
            let share = |now: u64, then: u64| now.saturating_sub(then) as f64 / 1e9 / span;
            let (ran, waited) = (share(ran, thread.ran), share(waited, thread.waited));
            let hungry = HungryThread { name, ran: ran.min(1.0), waited: waited.min(1.0) };
            seen.push((id, hungry));
        }
        let data = |name: &str| name.starts_with("read-") || name.starts_with("write-");
        let waits: Vec<f64> =
            seen.iter().filter(|(_, h)| data(&h.name)).map(|(_, h)| h.waited).collect();
        // The data threads may have ended before the last sample of a transfer; the sample before
        // it counts then.
        if !waits.is_empty() {
            self.data_waited = Some(waits.iter().sum::<f64>() / waits.len() as f64);
        }
        let network = |name: &str| name == "pt-send" || name == "pt-recv";
        keep_hungriest(&mut self.network, seen.iter().filter(|(_, h)| network(&h.name)));
        keep_hungriest(&mut self.hungriest, seen.iter());
    }
}

/// Keeps the thread with the largest share of running and waiting.
fn keep_hungriest<'a>(
    kept: &mut Option<(u32, HungryThread)>,
    seen: impl Iterator<Item = &'a (u32, HungryThread)> + Clone,
) {
    let want = |(_, h): &(u32, HungryThread)| h.ran + h.waited;
    let old = kept.take().filter(|(id, _)| seen.clone().all(|(now, _)| now != id));
    *kept = seen.cloned().chain(old).max_by(|a, b| want(a).total_cmp(&want(b)));
}

/// Threads of this process, with nanoseconds run and waited (`schedstat`).
fn threads() -> Vec<(u32, String, u64, u64)> {
    let Ok(dir) = fs::read_dir("/proc/self/task") else { return Vec::new() };
    dir.flatten()
        .take(MAX_THREADS)
        .filter_map(|entry| {
            let id = entry.file_name().to_str()?.parse().ok()?;
            let text = fs::read_to_string(entry.path().join("schedstat")).ok()?;
            let mut numbers = text.split_whitespace().map_while(|word| word.parse().ok());
            let (ran, waited) = (numbers.next()?, numbers.next()?);
            let name = fs::read_to_string(entry.path().join("comm")).ok()?;
            Some((id, name.trim().to_owned(), ran, waited))
        })
        .collect()
}

fn used() -> Duration {
    let used = CpuUse::now();
    used.user + used.system
}

/// Number of cores that this process may run on, without the quota of its cgroup.
fn cores() -> f64 {
    let set = rustix::thread::sched_getaffinity(None);
    set.map_or(1.0, |set| f64::from(set.count().max(1)))
}

/// Busy ticks and all ticks, summed over all cores.
fn machine() -> (u64, u64) {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let first = text.lines().next().unwrap_or_default();
    let ticks: Vec<u64> =
        first.split_whitespace().skip(1).take(8).map_while(|w| w.parse().ok()).collect();
    let all: u64 = ticks.iter().sum();
    // The fourth and fifth values are idle time and idle time during disk I/O.
    let idle = ticks.get(3).unwrap_or(&0) + ticks.get(4).unwrap_or(&0);
    (all - idle, all)
}

/// The smallest quota of the cgroups of this process, of either version.
fn quota() -> Option<Quota> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    groups
        .lines()
        .filter_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            let second = controllers.is_empty();
            if !second && !controllers.split(',').any(|c| c == "cpu") {
                return None;
            }
            let (base, root) = mount(&mounts, second)?;
            let path = path.strip_prefix(root.as_str()).unwrap_or(path);
            tightest(&base, path.trim_start_matches('/'), second)
        })
        .min_by(|a, b| a.cores.total_cmp(&b.cores))
}

/// The mount point of a cgroup hierarchy, and the cgroup directory at its root.
fn mount(mounts: &str, second: bool) -> Option<(PathBuf, String)> {
    mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut kind = after.split(' ');
        let fits = match (kind.next()?, second) {
            ("cgroup2", true) => true,
            ("cgroup", false) => after.rsplit(' ').next()?.split(',').any(|o| o == "cpu"),
            _ => false,
        };
        let mut fields = before.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        fits.then(|| (PathBuf::from(point), root.trim_end_matches('/').to_owned()))
    })
}

fn tightest(base: &Path, path: &str, second: bool) -> Option<Quota> {
    let mut dir = base.join(path);
    let mut found: Option<Quota> = None;
    loop {
        if let Some(cores) = limit(&dir, second)
            && found.as_ref().is_none_or(|f| cores < f.cores)
        {
            found = Some(Quota { dir: dir.clone(), cores });
        }
        if dir == base || !dir.pop() || !dir.starts_with(base) {
            return found;
        }
    }
}

fn limit(dir: &Path, second: bool) -> Option<f64> {
    let read = |name: &str| fs::read_to_string(dir.join(name)).ok();
    let (quota, period) = if second {
        let text = read("cpu.max")?;
        let (quota, period) = text.trim().split_once(' ')?;
        (quota.parse::<f64>().ok()?, period.parse::<f64>().ok()?)
    } else {
        let number = |name: &str| read(name)?.trim().parse::<f64>().ok();
        (number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?)
    };
    (quota > 0.0 && period > 0.0).then_some(quota / period)
}

/// Periods, throttled periods, and nanoseconds throttled.
fn throttling(dir: &Path) -> (u64, u64, u64) {
    let text = fs::read_to_string(dir.join("cpu.stat")).unwrap_or_default();
    let number = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|n| n.trim().parse::<u64>().ok())
    };
    let micros = number("throttled_usec").map(|us| us.saturating_mul(1000));
    let time = micros.or(number("throttled_time")).unwrap_or(0);
    (number("nr_periods").unwrap_or(0), number("nr_throttled").unwrap_or(0), time)
}

/// The rate at which this thread seals datagrams, per processor time; none if it cannot.
pub(crate) fn sealing(suite: packtrain_proto::Suite) -> Option<DataRate> {
    use aws_lc_rs::aead::{AES_128_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
    let algorithm = match suite {
        packtrain_proto::Suite::Aes128Gcm => &AES_128_GCM,
        packtrain_proto::Suite::ChaCha20Poly1305 => &CHACHA20_POLY1305,
    };
    // A fixed key is safe here, because the sealed datagrams are discarded.
    let key = LessSafeKey::new(UnboundKey::new(algorithm, &[7; 32][..algorithm.key_len()]).ok()?);
    let mut datagram = [0u8; 1440];
    let (begun, mut count) = (packtrain_os::thread::cpu(), 0u64);
    loop {
        for _ in 0..64 {
            let nonce = Nonce::assume_unique_for_key([0; 12]);
            let _tag = key.seal_in_place_separate_tag(nonce, Aad::empty(), &mut datagram).ok()?;
        }
        count += 64;
        let used = packtrain_os::thread::cpu() - begun;
        if used >= SEALING {
            return Some(DataRate::from_bytes_over(ByteCount(count * 1440), used));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_seen() {
        let mut watch = CpuWatch::new();
        let until = clock::now() + Duration::from_millis(300);
        while clock::now() < until {
            std::hint::spin_loop();
        }
        let cpu = watch.read();
        assert!(cpu.cores >= 1.0 && cpu.elapsed >= Duration::from_millis(300), "{cpu:?}");
        if Path::new("/proc/self/schedstat").exists() {
            let hungriest = cpu.hungriest.expect("this thread was busy");
            assert!(hungriest.ran + hungriest.waited > 0.1, "{hungriest:?}");
        }
        assert!(sealing(packtrain_proto::Suite::Aes128Gcm).is_some());
    }

    #[test]
    fn the_hungriest_thread_is_kept_by_what_is_seen_last() {
        let thread = |id: u32, ran| (id, HungryThread { ran, ..HungryThread::default() });
        let mut kept = None;
        keep_hungriest(&mut kept, [thread(1, 0.5), thread(2, 0.4)].iter());
        assert_eq!(kept.as_ref().map(|k| k.0), Some(1));
        // A thread that still exists is replaced by its latest sample; one that ended keeps its
        // last.
        keep_hungriest(&mut kept, [thread(1, 0.3), thread(2, 0.4)].iter());
        assert_eq!(kept.as_ref().map(|k| k.0), Some(2));
        keep_hungriest(&mut kept, [thread(3, 0.1)].iter());
        assert_eq!(kept.as_ref().map(|k| k.0), Some(2));
    }

    #[test]
    fn mounts_of_both_versions_are_found() {
        let mounts = "25 20 0:22 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                      26 20 0:23 /a /sys/fs/cgroup/unified rw,relatime shared:4 - cgroup2 c rw";
        let first = mount(mounts, false).expect("there");
        assert_eq!(first, (PathBuf::from("/sys/fs/cgroup/cpu"), String::new()));
        let second = mount(mounts, true).expect("there");
        assert_eq!(second, (PathBuf::from("/sys/fs/cgroup/unified"), "/a".to_owned()));
    }

    #[test]
    fn the_tightest_quota_counts() {
        let dir = tempfile::tempdir().expect("a directory");
        let inner = dir.path().join("a/b");
        fs::create_dir_all(&inner).expect("directories");
        fs::write(dir.path().join("a/cpu.max"), "50000 100000\n").expect("a file");
        fs::write(inner.join("cpu.max"), "max 100000\n").expect("a file");
        fs::write(
            dir.path().join("a/cpu.stat"),
            "nr_periods 9\nnr_throttled 3\nthrottled_usec 5\n",
        )
        .expect("a file");
        let quota = tightest(dir.path(), "a/b", true).expect("limited");
        assert_eq!((quota.cores, throttling(&quota.dir)), (0.5, (9, 3, 5000)));
    }
}
