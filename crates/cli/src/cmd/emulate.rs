//! `packtrain emulate`.

mod print;

use std::io::Read as _;
use std::os::unix::process::CommandExt;
use std::process::Command;

use clap::ArgMatches;
use clap::parser::ValueSource;
use packtrain_emu::{Child, DeviceKind, EmuError, Plan, Topology};
use packtrain_link::{DelayVariation, Limit, LinkConfig, LossConfig, QueueConfig, RateSchedule};
use packtrain_service::{FailureKind, RequestError};
use packtrain_units::{ByteCount, DataRate, Duration};

use crate::args::{Buffers, Device, EmulateArgs, EmulateCommand, EmulateExecArgs, Queue};
use crate::exit::{Code, Exit};

/// The command succeeded, but the emulator was too slow for a valid result.
const BOTTLENECK: Code = Code(5);
/// Exit codes of shells: no such program, and a program that cannot be run.
const NO_PROGRAM: Code = Code(127);
const NOT_A_PROGRAM: Code = Code(126);
/// Bytes that are read of a trace of rates: one more than it may have.
const TRACE_READ: u64 = (RateSchedule::MAX_TRACE_BYTES + 1) as u64;
/// TCP buffers hold this multiple of a path's capacity: the data in flight, the data in the queue,
/// and twice that for the kernel's own bookkeeping.
const BUFFER_SHARE: u64 = 4;

/// `packtrain emulate`; `line` is the whole command line.
pub(super) fn run(
    args: &EmulateArgs,
    matches: &ArgMatches,
    line: &[std::ffi::OsString],
) -> Result<Code, Exit> {
    if let Some(EmulateCommand::Exec(args)) = &args.inside {
        return exec(args);
    }
    if let Some(child) = packtrain_emu::child().map_err(failed)? {
        return inner(child, args);
    }
    let json = args.json;
    let result = outer(args, matches, line);
    result.map_err(|exit| {
        let error = exit.into_error();
        if json {
            print::failed(&error.text, error.exit_code());
        }
        Exit::from(error)
    })
}

/// The child process, which emulates.
fn inner(child: Child, args: &EmulateArgs) -> Result<Code, Exit> {
    child.run(&plan(args)?);
    Ok(Code::DONE)
}

/// The parent process, which the user started.
fn outer(
    args: &EmulateArgs,
    matches: &ArgMatches,
    line: &[std::ffi::OsString],
) -> Result<Code, Exit> {
    let typed = |name: &str| matches.value_source(name) == Some(ValueSource::CommandLine);
    if typed("topology") {
        for name in ["rate", "rate_trace", "rtt", "loss", "queue", "jitter", "mtu"] {
            if typed(name) {
                return Err(Exit::usage(format!(
                    "--{} does not apply to --topology: write it in the file",
                    name.replace('_', "-")
                )));
            }
        }
    }
    // Reports errors here, before the child process starts.
    plan(args)?;
    let own = std::env::current_exe()
        .map_err(|error| fatal(format!("the path of this program: {error}")))?;
    let mut command = Command::new(own);
    command.args(line.iter().skip(1));
    let ended = match packtrain_emu::supervise(command, "") {
        Err(EmuError::Start { program, source }) => {
            crate::exit::print_message(&format!("{program}: {source}"));
            let missing = source.kind() == std::io::ErrorKind::NotFound;
            let code = if missing { NO_PROGRAM } else { NOT_A_PROGRAM };
            if args.json {
                print::failed(&format!("{program}: {source}"), code.0);
            }
            return Ok(code);
        }
        ended => ended.map_err(failed)?,
    };
    let own = u8::try_from(ended.code).map_or(Code(255), Code);
    let bad = ended.report.bottleneck.is_some() && !args.best_effort;
    let code = if own == Code::DONE && bad { BOTTLENECK } else { own };
    if args.json {
        print::json(&ended, code);
    }
    print::text(&ended);
    Ok(code)
}

/// `packtrain emulate exec`.
fn exec(args: &EmulateExecArgs) -> Result<Code, Exit> {
    let environment = packtrain_emu::enter(&args.host, args.pid).map_err(failed)?;
    let [program, arguments @ ..] = &args.command[..] else {
        return Err(Exit::usage("no command was given"));
    };
    let error = Command::new(program).args(arguments).envs(environment).exec();
    crate::exit::print_message(&format!("{}: {error}", program.to_string_lossy()));
    let missing = error.kind() == std::io::ErrorKind::NotFound;
    Ok(if missing { NO_PROGRAM } else { NOT_A_PROGRAM })
}

/// What to emulate.
fn plan(args: &EmulateArgs) -> Result<Plan, Exit> {
    let topology = match &args.topology {
        Some(path) => from_file(path, args.seed)?,
        None => pair(args)?,
    };
    topology.check().map_err(failed)?;
    let named = |name: &str| topology.host(name).is_some();
    let mut others = args.start.clone();
    if let Some(far) = &args.far {
        if !named("far") {
            return Err(Exit::usage(
                "this topology has no host `far`: name the host with --start HOST=COMMAND",
            ));
        }
        others.insert(0, ("far".to_owned(), far.clone()));
    }
    let first =
        || topology.hosts().next().map_or(String::new(), |h| topology.nodes[h].name.clone());
    let usual = || if named("near") { "near".to_owned() } else { first() };
    let on = args.on.clone().unwrap_or_else(usual);
    for name in others.iter().map(|(host, _)| host).chain([&on]) {
        if !named(name) {
            let names: Vec<_> = topology.hosts().map(|h| &topology.nodes[h].name[..]).collect();
            return Err(Exit::usage(format!(
                "there is no host `{name}`: the hosts are {}",
                names.join(", ")
            )));
        }
    }
    let buffers = (args.buffers == Buffers::Path).then(|| room(&topology));
    Ok(Plan {
        per_packet: args.per_packet,
        device: match args.device {
            Device::Auto => None,
            Device::Tun => Some(DeviceKind::Tun),
            Device::Packet => Some(DeviceKind::Packet),
        },
        tick: args.tick,
        buffers,
        record: args.record.clone(),
        command: args.command.clone(),
        on,
        others,
        topology,
    })
}

/// Two hosts and one path.
fn pair(args: &EmulateArgs) -> Result<Topology, Exit> {
    let schedule = match (&args.rate_trace, args.rate) {
        (Some(path), _) => Some(rate_trace(path)?),
        (None, rate) => rate.map(RateSchedule::constant),
    };
    let (Some(schedule), Some(rtt)) = (schedule, args.rtt) else {
        return Err(Exit::usage("give --rate or --rate-trace, and --rtt; or --topology"));
    };
    let rate = schedule.mean();
    let packet = args.mtu.get();
    let limit = match args.queue {
        Queue::Packets(packets) => Limit::Packets(packets),
        Queue::Bytes(bytes) => Limit::Bytes(bytes),
        // Without delay the product is zero, but the queue still holds a few packets.
        Queue::Bdp(times) => {
            let product = rate.bytes_in(rtt).get() as f64 * times;
            Limit::Bytes(ByteCount((product as u64).max(4 * packet)))
        }
    };
    if let Limit::Bytes(bytes) = limit
        && bytes.get() < packet
    {
        return Err(Exit::usage(format!(
            "--queue {bytes} is below a packet of {packet} bytes: nothing would wait in it"
        )));
    }
    let direction = |seed: u64| {
        let mut link = LinkConfig::new(rate, rtt / 2, 1);
        link.rate.clone_from(&schedule);
        link.queue = QueueConfig::DropTail(limit);
        link.mtu = args.mtu;
        link.seed = seed;
        if args.loss > 0.0 {
            link.loss = LossConfig::Independent(args.loss);
        }
        link.jitter = args.jitter.filter(|j| !j.is_zero()).map(DelayVariation::Uniform);
        link
    };
    let seed = args.seed.unwrap_or(1);
    let (forth, back) = (direction(seed), direction(!seed));
    forth.check().map_err(|error| Exit::usage(format!("--{error}")))?;
    Ok(Topology::pair(forth, back))
}

/// Reads a trace of rates.
fn rate_trace(path: &std::path::Path) -> Result<RateSchedule, Exit> {
    let wrong = |error: &dyn std::fmt::Display| Exit::usage(format!("{}: {error}", path.display()));
    // One byte more than a trace may have, so that the check of the size sees it.
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(TRACE_READ).read_to_string(&mut text))
        .map_err(|error| wrong(&error))?;
    RateSchedule::from_trace(&text).map_err(|error| wrong(&error))
}

#[cfg(feature = "laboratory")]
/// The nodes and links of a scenario file. Every node becomes a host, also routers and depots.
fn from_file(path: &std::path::Path, seed: Option<u64>) -> Result<Topology, Exit> {
    use packtrain_emu::{Node, Wire};
    use packtrain_sim::file::ScenarioFile;
    let usage = |error: &dyn std::fmt::Display| Exit::usage(error.to_string());
    // As `sim run --seed` does it: both lose the same packets.
    let sets: Vec<String> = seed.iter().map(|seed| format!("seed={seed}")).collect();
    let file = ScenarioFile::load(path, &sets).map_err(|error| usage(&error))?;
    let scenario = file.scenario(0).map_err(|error| usage(&error))?;
    let configs: Vec<_> = (0..scenario.links.len()).map(|i| scenario.link_config(i)).collect();
    let nodes = scenario.nodes.into_iter().map(|node| Node { name: node.name, host: true });
    let links = scenario.links.into_iter().zip(configs);
    let wires =
        links.map(|(link, config)| Wire { name: link.name, from: link.from, to: link.to, config });
    let topology = Topology { nodes: nodes.collect(), wires: wires.collect() };
    if topology.wires.is_empty() {
        return Err(Exit::usage(format!("{}: there is no [[link]]", path.display())));
    }
    Ok(topology)
}

#[cfg(not(feature = "laboratory"))]
fn from_file(_: &std::path::Path, _: Option<u64>) -> Result<Topology, Exit> {
    Err(Exit::usage("--topology is not in this build: it was made without the feature laboratory"))
}

/// Size of TCP's buffers at which no path of this network waits for them.
fn room(topology: &Topology) -> ByteCount {
    let delay = topology.wires.iter().fold(Duration::ZERO, |sum, wire| sum + wire.config.delay);
    let rates = topology.wires.iter().flat_map(|wire| &wire.config.rate.steps);
    let limited = rates.map(|(_, rate)| *rate).filter(|rate| *rate != DataRate::MAX);
    let fastest = limited.max().unwrap_or(DataRate::ZERO);
    let queues = topology.wires.iter().map(|wire| match wire.config.queue {
        QueueConfig::DropTail(Limit::Bytes(bytes)) => bytes.get(),
        QueueConfig::DropTail(Limit::Packets(packets)) => packets.saturating_mul(1_500),
        _ => 0,
    });
    let queue = queues.max().unwrap_or(0);
    let flight = fastest.bytes_in(delay).get();
    ByteCount(flight.saturating_add(queue).saturating_mul(BUFFER_SHARE))
}

fn failed(error: EmuError) -> Exit {
    match error {
        EmuError::Topology(_) | EmuError::NotFound(_) => Exit::usage(error.to_string()),
        error => fatal(error.to_string()),
    }
}

fn fatal(text: String) -> Exit {
    Exit::from(RequestError::new(FailureKind::Fatal, text))
}

#[cfg(all(test, feature = "laboratory"))]
mod tests {
    use super::*;

    #[test]
    fn the_seed_of_a_topology_can_be_replaced() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("t.toml");
        let text = "seed = 5\n[[link]]\nfrom = \"a\"\nto = \"b\"\nrate = \"1mbit\"\n\
                    delay = \"1ms\"\nloss = 0.1\n";
        std::fs::write(&file, text).expect("writable");
        let seeds = |seed| {
            let topology = from_file(&file, seed).expect("it is right");
            topology.wires.iter().map(|wire| wire.config.seed).collect::<Vec<_>>()
        };
        assert_eq!(seeds(Some(7)), seeds(Some(7)));
        assert_ne!(seeds(Some(7)), seeds(Some(8)));
        // The simulator with the same seed loses the same packets: its links have these seeds.
        let sets = ["seed=7".to_owned()];
        let scenario = packtrain_sim::file::ScenarioFile::load(&file, &sets).expect("it is right");
        let scenario = scenario.scenario(0).expect("it is right");
        assert_eq!(seeds(Some(7)), [scenario.link_config(0).seed, scenario.link_config(1).seed]);
        assert_eq!(seeds(None), seeds(Some(5)), "the file's");
    }

    #[test]
    fn a_path_has_the_rate_of_a_trace_in_both_directions() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("t.txt");
        std::fs::write(&file, "1\n2\n2\n10\n").expect("writable");
        let schedule = rate_trace(&file).expect("it is right");
        assert_eq!(schedule.mean(), DataRate::from_bps(4 * 12_000 * 100));
        std::fs::write(&file, "1\n2\n1\n").expect("writable");
        let error = rate_trace(&file).expect_err("not in order").into_error();
        assert!(error.text.contains("line 3"), "{}", error.text);
        let error = rate_trace(&dir.path().join("none")).expect_err("no file").into_error();
        assert!(error.text.contains("none"), "{}", error.text);
    }
}
