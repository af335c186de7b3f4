use packtrain_units::ByteCount;
use proptest::prelude::*;

use super::*;
use packtrain_service::evidence::{
    Buffers, Cpu, End, HungryThread, LossVerdict, Net, PathPart, Race, Sample, TcpPart, Waits, Work,
};

const TEN: Duration = Duration::from_secs(10);

fn secs(s: f64) -> Duration {
    Duration::from_secs_f64(s)
}

fn work(count: u64, bytes: u64, wall: f64, busy: f64) -> Work {
    Work { count, bytes: ByteCount(bytes), wall: secs(wall), busy: secs(busy) }
}

fn end(bytes: u64) -> End {
    End {
        elapsed: TEN,
        data: work(300, bytes, 1.0, 0.9),
        hash: work(300, bytes, 1.0, 1.0),
        threads: 2,
        cpu: Cpu {
            cores: 8.0,
            used: secs(4.0),
            elapsed: TEN,
            machine: 0.1,
            hungriest: Some(HungryThread { name: "pt-send".into(), ran: 0.2, waited: 0.01 }),
            ..Cpu::default()
        },
        net: Some(Net { cpu: secs(2.0), bytes: ByteCount(bytes), elapsed: TEN }),
        sealing: Some(DataRate::from_mbps(40_000)),
        buffers: Some(Buffers {
            each: ByteCount(425_984),
            sockets: 8,
            limit: Some(ByteCount(212_992)),
            covers: Some(Duration::from_millis(30)),
            drops: 0,
        }),
        looks: 100,
        ..End::default()
    }
}

fn samples(count: usize, of: impl Fn(usize) -> (u64, u64, f64)) -> Vec<Sample> {
    (0..count)
        .map(|n| {
            let (sent, lost, queue) = of(n);
            Sample {
                span: Duration::from_millis(100),
                sent: ByteCount(sent),
                arrived: ByteCount(sent - lost),
                lost: ByteCount(lost),
                queue: secs(queue),
            }
        })
        .collect()
}

/// Ten seconds at 500 Mbit/s over a path of 520 Mbit/s, without a problem.
fn healthy() -> Evidence {
    let bytes = 625_000_000;
    Evidence {
        elapsed: TEN,
        bytes: ByteCount(bytes),
        files: 3,
        source: Some(end(bytes)),
        sink: Some(end(bytes)),
        path: Some(PathPart {
            race: Race {
                udp_tried: true,
                tcp_tried: true,
                on_for: TEN,
                udp_up: Some(Duration::from_millis(60)),
                ..Race::default()
            },
            transport: "native".into(),
            by_udp: ByteCount(bytes),
            waits: Waits { work: 3, bytes: 2, window: 120, pace: 75, room: 0, word: 0 },
            samples: samples(100, |_| (6_250_000, 0, 0.004)),
            sent_packets: 430_000,
            min_rtt: Some(Duration::from_millis(50)),
            capacity: Some(DataRate::from_mbps(520)),
            mtu: ByteCount(1472),
            mtu_begun: ByteCount(1472),
            ..PathPart::default()
        }),
        ..Evidence::default()
    }
}

fn with(change: impl FnOnce(&mut Evidence, &mut End, &mut End, &mut PathPart)) -> Diagnosis {
    let mut evidence = healthy();
    let (mut source, mut sink) = (evidence.source.take().unwrap(), evidence.sink.take().unwrap());
    let mut path = evidence.path.take().unwrap();
    change(&mut evidence, &mut source, &mut sink, &mut path);
    (evidence.source, evidence.sink) = (Some(source), Some(sink));
    evidence.path = Some(path);
    judge(&evidence)
}

#[track_caller]
fn is(diagnosis: &Diagnosis, cause: Limiter) {
    let first = diagnosis.first();
    assert_eq!(first.cause, cause, "{diagnosis:#?}");
    assert_eq!(first.how_sure, "likely", "{diagnosis:#?}");
    assert!(!first.evidence.is_empty() && !first.remedy.is_empty(), "{first:?}");
}

#[test]
fn a_full_path_is_no_verdict_for_the_last_line() {
    let diagnosis = judge(&healthy());
    is(&diagnosis, Limiter::PathRate);
    assert_eq!(diagnosis.verdict(), None);
    assert_eq!(diagnosis.lowest, Some(Stage::Path));
    let stages: Vec<Stage> = diagnosis.ceilings.iter().map(|c| c.stage).collect();
    use Stage::*;
    assert_eq!(stages, [Read, Encrypt, Path, Decrypt, Write]);
}

/// A disk that was slow to compare files, and no file differed.
#[test]
fn a_copy_that_moved_nothing_was_not_limited() {
    let mut evidence = healthy();
    evidence.path = None;
    (evidence.bytes, evidence.files) = (ByteCount::ZERO, 0);
    let sink = evidence.sink.as_mut().expect("an end");
    (sink.rest, sink.sync.wall) = (TEN, TEN);
    is(&judge(&evidence), Limiter::TargetDisk);
    let record = |over, compares, evidence: &Evidence| Record {
        over,
        compares,
        evidence: evidence.clone(),
        ..Record::default()
    };
    let diagnosis = judge_record(&record(true, false, &evidence));
    assert_eq!(diagnosis.first().cause, Limiter::Inconclusive, "{diagnosis:?}");
    assert_eq!(diagnosis.first().how_sure, "inconclusive");
    assert_eq!(diagnosis.verdict(), None);
    // Nothing went over the network.
    let unused = [Stage::Encrypt, Stage::Path, Stage::Decrypt];
    evidence.source.as_mut().expect("an end").net = None;
    evidence.sink.as_mut().expect("an end").net = None;
    let diagnosis = judge_record(&record(true, true, &evidence));
    assert!(!diagnosis.ceilings.iter().any(|c| unused.contains(&c.stage)), "{diagnosis:?}");
    // One that runs still, and a comparison.
    is(&judge_record(&record(false, false, &evidence)), Limiter::TargetDisk);
    is(&judge_record(&record(true, true, &evidence)), Limiter::TargetDisk);
}

#[test]
fn nothing_known_is_inconclusive() {
    for elapsed in [Duration::ZERO, Duration::from_millis(100), TEN] {
        let evidence = Evidence { elapsed, ..Evidence::default() };
        let diagnosis = judge(&evidence);
        assert_eq!(diagnosis.first().cause, Limiter::Inconclusive);
        assert_eq!(diagnosis.first().how_sure, "inconclusive");
        assert_eq!(diagnosis.verdict(), None);
    }
}

#[test]
fn disks() {
    let slow = with(|_, source, _, path| {
        source.data = work(300, 625_000_000, 18.0, 0.9);
        path.capacity = Some(DataRate::from_mbps(900));
        path.waits = Waits { bytes: 180, pace: 20, ..Waits::default() };
    });
    is(&slow, Limiter::SourceDisk);
    assert_eq!(slow.lowest, Some(Stage::Read));
    is(
        &with(|_, _, sink, path| {
            sink.data = work(3000, 625_000_000, 17.0, 1.0);
            sink.full = 80;
            path.waits = Waits { room: 150, pace: 50, ..Waits::default() };
        }),
        Limiter::TargetDisk,
    );
    let syncing = |rest| {
        with(move |_, _, sink, _| {
            sink.sync = work(9, 0, 8.0, 0.1);
            sink.rest = secs(rest);
        })
    };
    let synced = syncing(6.0);
    is(&synced, Limiter::TargetDisk);
    // Concurrent syncs delay nothing.
    is(&syncing(0.1), Limiter::PathRate);
    assert!(synced.verdict().unwrap().contains("disk"), "{synced:?}");
}

#[test]
fn a_probe_names_the_slowest_stage_if_it_knows_the_path() {
    let probe = |path: Option<DataRate>| {
        let probed = Evidence { probed: true, ..healthy() };
        let part = probed.path.clone().unwrap();
        let part = PathPart { capacity: path, samples: Vec::new(), tcp: None, ..part };
        let mut sink = end(100_000_000);
        // 200 Mbit/s.
        sink.data = work(30, 100_000_000, 8.0, 0.5);
        judge(&Evidence { path: Some(part), sink: Some(sink), ..probed })
    };
    let first = |diagnosis: &Diagnosis| diagnosis.findings[0].cause;
    assert_eq!(first(&probe(Some(DataRate::from_mbps(10_000)))), Limiter::TargetDisk);
    let unknown = probe(None);
    let named = unknown.findings.iter().any(|f| f.says.contains("would be the limit"));
    assert!(!named, "{unknown:?}");
}

#[test]
fn names_and_small_files() {
    is(
        &with(|e, source, _, path| {
            (e.bytes, e.files) = (ByteCount(8_000_000), 2000);
            source.names = work(2000, 0, 9.0, 0.2);
            path.waits = Waits { work: 180, pace: 20, ..Waits::default() };
        }),
        Limiter::SourceMetadata,
    );
    is(
        &with(|e, _, sink, path| {
            (e.bytes, e.files) = (ByteCount(8_000_000), 2000);
            sink.small = work(2000, 8_000_000, 18.0, 0.4);
            sink.names = work(4000, 0, 8.0, 0.4);
            path.waits = Waits { work: 180, pace: 20, ..Waits::default() };
        }),
        Limiter::TargetMetadata,
    );
    is(
        &with(|e, source, sink, path| {
            (e.bytes, e.files) = (ByteCount(200_000_000), 100_000);
            source.names = work(200_000, 0, 6.0, 5.0);
            sink.small = work(100_000, 200_000_000, 12.0, 11.0);
            path.waits = Waits { work: 160, pace: 20, bytes: 20, ..Waits::default() };
        }),
        Limiter::SmallFiles,
    );
}

#[test]
fn processors() {
    let hungry = |ran, waited| Some(HungryThread { name: "pt-recv".into(), ran, waited });
    is(
        &with(|_, _, sink, path| {
            sink.cpu.hungriest = hungry(0.3, 0.6);
            path.lost_packets = 9000;
            path.host_drops = 8000;
            path.capacity = Some(DataRate::from_mbps(900));
        }),
        Limiter::ReceiverCpu,
    );
    // Other processes have the cores, and the path is full anyway.
    let waits = with(|_, _, sink, _| {
        sink.cpu.hungriest = Some(HungryThread { name: "write-1".into(), ran: 0.02, waited: 0.96 });
        sink.cpu.network = hungry(0.05, 0.65);
    });
    is(&waits, Limiter::PathRate);
    assert_eq!(waits.verdict(), None);
    is(
        &with(|_, source, _, path| {
            source.cpu.hungriest = hungry(0.97, 0.01);
            path.waits = Waits { pace: 180, bytes: 20, ..Waits::default() };
            path.capacity = Some(DataRate::from_mbps(9000));
        }),
        Limiter::SenderCpu,
    );
    let starved = with(|_, _, sink, path| {
        sink.cpu.hungriest = hungry(0.03, 0.95);
        sink.cpu.network = hungry(0.03, 0.95);
        sink.net = Some(Net { cpu: secs(0.3), bytes: ByteCount(50_000_000), elapsed: TEN });
        path.capacity = Some(DataRate::from_mbps(200));
        path.samples = samples(100, |_| (500_000, 0, 0.004));
        path.waits = Waits { pace: 180, window: 20, ..Waits::default() };
    });
    is(&starved, Limiter::ReceiverCpu);
    assert_eq!(starved.lowest, Some(Stage::Decrypt), "{starved:#?}");
    let quota = with(|_, _, sink, _| {
        sink.cpu.quota = Some(0.2);
        (sink.cpu.periods, sink.cpu.throttled_periods) = (100, 80);
        sink.cpu.throttled = secs(7.0);
        sink.cpu.hungriest = hungry(0.2, 0.7);
    });
    is(&quota, Limiter::CgroupQuota);
    is(
        &with(|_, source, _, _| {
            source.sealing = Some(DataRate::from_mbps(600));
            source.net = Some(Net { cpu: secs(9.5), bytes: ByteCount(625_000_000), elapsed: TEN });
            source.cpu.hungriest = hungry(0.95, 0.01);
        }),
        Limiter::Encryption,
    );
}

#[test]
fn buffers_and_windows() {
    is(
        &with(|_, _, sink, path| {
            path.lost_packets = 9000;
            path.host_drops = 8000;
            sink.buffers.as_mut().unwrap().covers = Some(Duration::from_millis(3));
        }),
        Limiter::SocketBuffer,
    );
    is(
        &with(|_, _, _, path| {
            (path.by_tcp, path.by_udp) = (path.by_udp, ByteCount::ZERO);
            path.transport = "tcp".into();
            path.mover = Waits { window: 200, ..Waits::default() };
            path.waits = Waits::default();
            path.capacity = None;
            path.tcp = Some(TcpPart {
                streams: 1,
                busy: TEN,
                receiver_limited: secs(9.0),
                sent: ByteCount(600_000_000),
                ..TcpPart::default()
            });
        }),
        Limiter::Window,
    );
}

#[test]
fn small_buffers_are_blamed_on_what_keeps_them_small() {
    let remedy = |each: u64, limit: u64, sockets: u64| {
        let diagnosis = with(|_, _, sink, path| {
            path.lost_packets = 9000;
            path.host_drops = 8000;
            let (each, limit) = (ByteCount(each), Some(ByteCount(limit)));
            let covers = Some(Duration::from_millis(3));
            sink.buffers = Some(Buffers { each, sockets, limit, covers, drops: 8000 });
        });
        is(&diagnosis, Limiter::SocketBuffer);
        diagnosis.first().remedy.clone()
    };
    const MIB: u64 = 1 << 20;
    let default = remedy(425_984, 212_992, 8);
    assert_eq!(default, "there, as root: `sysctl -w net.core.rmem_max=8388608`");
    assert_eq!(remedy(8 * MIB, 4 * MIB, 8), default);
    // A flow requests 8 MiB and gets 16 MiB. A higher limit changes nothing.
    for limit in [8 * MIB, 64 * MIB] {
        let ports = remedy(16 * MIB, limit, 1);
        assert!(ports.starts_with("let it use 8 ports"), "{ports}");
        let none = remedy(16 * MIB, limit, 8);
        assert!(none.starts_with("a lower rate"), "{none}");
    }
    for limit in [8 * MIB, 64 * MIB] {
        assert!(remedy(425_984, limit, 8).contains("seccomp"));
    }
    assert!(remedy(212_992, 212_993, 8).contains("seccomp"));
}

#[test]
fn what_a_path_does() {
    let pipe = |_: &mut Evidence, _: &mut End, _: &mut End, path: &mut PathPart| {
        (path.by_pipe, path.by_udp) = (path.by_udp, ByteCount::ZERO);
        path.race.udp_up = None;
        path.race.piped = Some(Duration::from_secs(2));
        path.ssh = true;
    };
    is(&with(pipe), Limiter::SshPipe);
    is(
        &with(|_, _, _, path| {
            (path.by_tcp, path.by_udp) = (path.by_udp, ByteCount::ZERO);
            path.race.udp_up = None;
            path.race.tcp_up = Some(Duration::from_millis(90));
            path.mover = Waits { window: 200, ..Waits::default() };
        }),
        Limiter::UdpBlocked,
    );
    // The receiver's datagrams arrive, but the sender's do not.
    let one_way = |_: &mut Evidence, _: &mut End, _: &mut End, path: &mut PathPart| {
        (path.by_tcp, path.by_udp) = (path.by_udp, ByteCount::ZERO);
        path.race.tcp_up = Some(Duration::from_millis(90));
        path.sent_packets = 4_000;
        (path.mtu, path.mtu_falls) = (ByteCount(1200), 1);
        path.mover = Waits { window: 200, ..Waits::default() };
    };
    is(&with(one_way), Limiter::UdpBlocked);
    // UDP moved a part of it, so it gets through.
    let both = with(|evidence, source, sink, path| {
        one_way(evidence, source, sink, path);
        (path.mtu, path.by_udp) = (ByteCount(1472), ByteCount(1_000_000));
    });
    assert!(both.findings.iter().all(|f| f.cause != Limiter::UdpBlocked), "{both:#?}");
    is(
        &with(|_, _, _, path| {
            path.mtu = ByteCount(1200);
            path.mtu_falls = 1;
        }),
        Limiter::MtuBlackHole,
    );
    // The MTU was reduced in an outage of 4 of 10 seconds.
    let away = with(|_, _, _, path| {
        path.mtu = ByteCount(1200);
        path.mtu_falls = 1;
        path.outage = secs(4.0);
    });
    is(&away, Limiter::Outage);
    assert!(away.findings.iter().all(|f| f.cause != Limiter::MtuBlackHole));
    assert!(away.verdict().expect("a sentence").contains("4.0 s"));
    let asked = with(|_, _, _, path| path.asked_rate = Some(DataRate::from_mbps(510)));
    is(&asked, Limiter::RateAsked);
    assert_eq!(asked.verdict(), None);
}

fn lossy(path: &mut PathPart, share: f64) {
    path.lost_packets = (path.sent_packets as f64 * share) as u64;
    path.capacity = Some(DataRate::from_mbps(2000));
}

fn word(cause: &str, p_cpu: f64) -> LossVerdict {
    LossVerdict { cause: cause.into(), p_cpu, share: 0.95, lost: 3000, windows: 40 }
}

#[test]
fn losses_by_their_pattern() {
    // The same share of losses at every rate, without a queue.
    is(
        &with(|_, _, _, path| {
            lossy(path, 0.01);
            path.transport = "udt".into();
            path.samples = samples(100, |n| {
                let sent = 2_000_000 + (n as u64 % 10) * 300_000;
                (sent, sent / 100, 0.001)
            });
        }),
        Limiter::LinkErrors,
    );
    // 5 MB arrive per second at every sending rate.
    is(
        &with(|_, _, _, path| {
            lossy(path, 0.05);
            path.samples = samples(100, |n| {
                let sent = 400_000 + (n as u64 % 10) * 30_000;
                (sent, sent.saturating_sub(500_000), 0.001)
            });
        }),
        Limiter::UdpPoliced,
    );
    // Other traffic fills a queue.
    is(
        &with(|_, _, _, path| {
            lossy(path, 0.01);
            path.samples = samples(100, |n| {
                let full = n % 10 == 9;
                let lost = if full { 300_000 } else { 0 };
                (3_000_000, lost, 0.004 * (n % 10) as f64 + 0.01)
            });
        }),
        Limiter::Congestion,
    );
    // A policer that passes a burst first.
    is(
        &with(|_, _, _, path| {
            lossy(path, 0.2);
            path.samples = samples(100, |n| match n {
                0..12 => (1_200_000, 0, 0.001),
                _ => {
                    let sent = 280_000 + (n as u64 % 7) * 20_000;
                    (sent, sent - 250_000, 0.001)
                }
            });
        }),
        Limiter::UdpPoliced,
    );
    // The same at a constant rate; a requested rate has no meaning for it.
    let even = |asked| {
        with(move |_, _, _, path| {
            lossy(path, 0.16);
            path.asked_rate = asked;
            path.samples = samples(100, |n| {
                let sent = 300_000 + (n as u64 % 3) * 2_000;
                (sent, sent * 16 / 100, 0.001)
            });
        })
    };
    let policed = even(None);
    is(&policed, Limiter::UdpPoliced);
    let through = policed.ceilings.iter().find(|c| c.stage == Stage::Path).expect("a path");
    assert!(through.rate < DataRate::from_mbps(25), "{through:?}");
    let asked = even(Some(DataRate::from_mbps(25)));
    assert!(asked.findings.iter().all(|f| f.cause != Limiter::UdpPoliced), "{asked:#?}");
    // Other traffic fills a queue, and this flow yields to it. The queue existed at the start.
    is(
        &with(|_, _, _, path| {
            path.samples = samples(100, |n| (2_000_000, 0, if n < 12 { 0.025 } else { 0.003 }));
        }),
        Limiter::Congestion,
    );
    // The verdict `network` may mean either cause. The verdict `cpu` is not the path, and `link` is
    // not a queue.
    let random = |cause: &'static str, p_cpu: f64, queue: f64| {
        with(move |_, _, _, path| {
            lossy(path, 0.01);
            path.transport = "udt".into();
            path.samples = samples(100, |n| {
                let sent = 2_000_000 + (n as u64 % 10) * 300_000;
                let lost = n % 3 == 0;
                (sent, if lost { sent / 33 } else { 0 }, if lost { queue } else { queue / 2.0 })
            });
            path.loss = Some(word(cause, p_cpu));
        })
    };
    is(&random("network", 0.0, 0.001), Limiter::LinkErrors);
    is(&random("link", 0.0, 0.007), Limiter::LinkErrors);
    assert_ne!(random("network", 0.0, 0.007).first().cause, Limiter::LinkErrors);
    assert_ne!(random("cpu", 0.99, 0.001).first().cause, Limiter::LinkErrors);
}

proptest! {
    #[test]
    fn any_numbers_give_a_diagnosis(
        n in proptest::collection::vec(any::<u64>(), 30),
        f in proptest::collection::vec(any::<f64>(), 6),
    ) {
        let some = |i: usize| Duration::from_nanos(n[i]);
        let diagnosis = with(|evidence, source, sink, path| {
            evidence.elapsed = some(0);
            evidence.bytes = ByteCount(n[1]);
            evidence.files = n[2];
            source.elapsed = some(3);
            source.names = Work { count: n[4], bytes: ByteCount(n[5]), wall: some(6), busy: some(7) };
            source.data = source.names;
            source.cpu.quota = Some(f[0]);
            source.cpu.throttled = some(8);
            source.cpu.cores = f[1];
            sink.threads = n[9];
            sink.small = source.names;
            sink.sync = source.names;
            sink.cpu.hungriest = Some(HungryThread { ran: f[2], waited: f[3], ..Default::default() });
            sink.sealing = Some(DataRate::from_bps(n[10]));
            sink.net = Some(Net { cpu: some(11), bytes: ByteCount(n[12]), elapsed: some(13) });
            path.waits = Waits { work: n[14], bytes: n[15], ..Waits::default() };
            path.lost_packets = n[16];
            (path.host_drops, path.refused_packets) = (n[17], n[18]);
            path.sent_packets = n[18];
            path.asked_rate = Some(DataRate::from_bps(n[19]));
            path.capacity = Some(DataRate::from_bps(n[20]));
            path.samples = samples(20, |i| {
                let sent = n[20 + i % 10] / 64;
                (sent, sent / (i as u64 + 1), (n[i] % 1000) as f64 / 1e3)
            });
        });
        prop_assert!(!diagnosis.findings.is_empty());
        for finding in &diagnosis.findings {
            prop_assert!((0.0..=1.0).contains(&finding.sure), "{finding:?}");
        }
    }
}
