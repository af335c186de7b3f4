//! `packtrain emulate`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use packtrain_units::{ByteCount, DataRate, Duration};

use super::values;

/// Arguments of `emulate`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct EmulateArgs {
    /// Enters a running emulation instead of starting one.
    #[command(subcommand)]
    pub(crate) inside: Option<EmulateCommand>,
    /// Rate of the path in both directions, such as 1gbit. Required without --topology and
    /// --rate-trace.
    #[arg(long, value_name = "RATE", value_parser = values::rate)]
    #[arg(required_unless_present_any = ["topology", "rate_trace"])]
    pub(crate) rate: Option<DataRate>,
    /// Rate of the path in both directions by a trace in mahimahi's format: each line is the
    /// millisecond of a delivery of 1500 bytes; the trace repeats.
    #[arg(long, value_name = "FILE", conflicts_with = "rate", value_hint = ValueHint::FilePath)]
    pub(crate) rate_trace: Option<PathBuf>,
    /// Round-trip time of the empty path, such as 100ms; half of it in each direction. Required
    /// without --topology.
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    #[arg(required_unless_present = "topology")]
    pub(crate) rtt: Option<Duration>,
    /// Probability that the path loses a packet, in each direction, such as 1e-4 or 0.01%.
    #[arg(long, value_name = "P", default_value = "0", value_parser = probability)]
    pub(crate) loss: f64,
    /// Capacity of the queue in each direction: a multiple of the bandwidth-delay product (1bdp),
    /// bytes (4MiB) or packets (100packets).
    #[arg(long, value_name = "SIZE", default_value = "1bdp", value_parser = queue)]
    pub(crate) queue: Queue,
    /// Maximum random extra delay; packets keep their order [default: none].
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) jitter: Option<Duration>,
    /// Largest packet in bytes, IP header included.
    #[arg(long, value_name = "BYTES", default_value = "1500", value_parser = mtu)]
    pub(crate) mtu: ByteCount,
    /// Random seed. The same seed loses the same packets by number [default: 1, or the seed of
    /// the topology's file].
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    pub(crate) seed: Option<u64>,
    /// Emulate the hosts, routers and links of this scenario file of `packtrain sim` instead of one
    /// path.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) topology: Option<PathBuf>,
    /// The host that runs COMMAND [default: near, or the first of the topology].
    #[arg(long, value_name = "HOST")]
    pub(crate) on: Option<String>,
    /// Shell command to start on the host `far` before COMMAND. It is killed when COMMAND ends.
    #[arg(long, value_name = "COMMAND", value_hint = ValueHint::CommandString)]
    pub(crate) far: Option<String>,
    /// Shell command to start on another host before COMMAND. It is killed when COMMAND ends. May
    /// be repeated.
    #[arg(long, value_name = "HOST=COMMAND", value_parser = start)]
    pub(crate) start: Vec<(String, String)>,
    /// Pass each packet separately: no segmentation offload on the hosts.
    #[arg(long)]
    pub(crate) per_packet: bool,
    /// Time between two wake-ups of a busy emulator, at most 1ms. 0s delivers each packet at its
    /// own time and uses much processor time [default: 2 % of the shortest delay, at most 200us].
    #[arg(long, value_name = "TIME", value_parser = tick)]
    pub(crate) tick: Option<Duration>,
    /// Devices that connect hosts and links.
    #[arg(long, value_name = "KIND", value_enum, default_value = "auto")]
    pub(crate) device: Device,
    /// TCP buffers on the hosts: large enough for the path, or the system's defaults.
    #[arg(long, value_name = "KIND", value_enum, default_value = "path")]
    pub(crate) buffers: Buffers,
    /// Write PREFIX.pcap, PREFIX.arrivals and PREFIX.drops.
    #[arg(long, value_name = "PREFIX", value_hint = ValueHint::FilePath)]
    pub(crate) record: Option<PathBuf>,
    /// Exit with COMMAND's exit code even if the emulator was the bottleneck. Without the option
    /// the exit code is 5 if COMMAND succeeds while the emulator is the bottleneck.
    #[arg(long)]
    pub(crate) best_effort: bool,
    /// Print the report as JSON in the last line on stdout.
    #[arg(long)]
    pub(crate) json: bool,
    /// The command to run, and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// Commands for running emulations.
#[derive(Debug, Subcommand)]
pub(crate) enum EmulateCommand {
    /// Run a command on a host of a running emulation.
    Exec(EmulateExecArgs),
}

/// What `emulate exec` takes.
#[derive(Args, Debug)]
pub(crate) struct EmulateExecArgs {
    /// The name of the host.
    #[arg(value_name = "HOST")]
    pub(crate) host: String,
    /// Process id of the `packtrain emulate`. Required if several run.
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
    /// The command to run, and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// Capacity of a queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Queue {
    /// Multiple of rate times round-trip time.
    Bdp(f64),
    /// Bytes.
    Bytes(ByteCount),
    /// Packets.
    Packets(u64),
}

/// Devices that connect hosts and links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Device {
    /// TUN devices if they can be opened, else pairs of Ethernet devices.
    Auto,
    /// TUN devices.
    Tun,
    /// Pairs of Ethernet devices with packet sockets.
    Packet,
}

/// Sizes of the TCP buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Buffers {
    /// Large enough to fill the path.
    Path,
    /// The system's defaults.
    System,
}

/// At most 1 ms: the emulator's own measure counts later deliveries as late.
fn tick(text: &str) -> Result<Duration, String> {
    let tick = values::duration(text)?;
    if tick > Duration::from_millis(1) {
        return Err("a tick is at most 1ms".to_owned());
    }
    Ok(tick)
}

fn probability(text: &str) -> Result<f64, String> {
    let share = text.strip_suffix('%');
    let value: Option<f64> = share.unwrap_or(text).trim().parse().ok();
    let value = value.map(|value| if share.is_some() { value / 100.0 } else { value });
    value
        .filter(|p| (0.0..=1.0).contains(p))
        .ok_or_else(|| "write a probability from 0 to 1, such as 1e-4 or 0.01%".to_owned())
}

fn queue(text: &str) -> Result<Queue, String> {
    let wrong = || "write 1bdp, bytes such as 4MiB, or packets such as 100packets".to_owned();
    if let Some(times) = text.strip_suffix("bdp") {
        let times: f64 = times.trim().parse().map_err(|_| wrong())?;
        return (times > 0.0 && times <= 1_000.0)
            .then_some(Queue::Bdp(times))
            .ok_or_else(|| "write more than 0 and at most 1000 times the product".to_owned());
    }
    let packets = text.strip_suffix("packets").or_else(|| text.strip_suffix("packet"));
    if let Some(packets) = packets {
        let packets: u64 = packets.trim().parse().map_err(|_| wrong())?;
        return (1..=100_000_000)
            .contains(&packets)
            .then_some(Queue::Packets(packets))
            .ok_or_else(|| "write 1 to 100000000 packets".to_owned());
    }
    let bytes =
        packtrain_units::parse_bytes(text).map_err(|error| format!("{error}; {}", wrong()))?;
    (bytes.get() >= 1_500)
        .then_some(Queue::Bytes(bytes))
        .ok_or_else(|| "a queue smaller than a packet passes none: write 1500B or more".to_owned())
}

fn mtu(text: &str) -> Result<ByteCount, String> {
    let bytes = values::bytes(text)?;
    (576..=65_521)
        .contains(&bytes.get())
        .then_some(bytes)
        .ok_or_else(|| "write 576 to 65521 bytes".to_owned())
}

fn start(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((host, line)) if !host.is_empty() && !line.trim().is_empty() => {
            Ok((host.to_owned(), line.to_owned()))
        }
        _ => Err("write a host and what to run there, such as far='iperf3 -s'".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_read() {
        assert_eq!(queue("1bdp"), Ok(Queue::Bdp(1.0)));
        assert_eq!(queue("0.25bdp"), Ok(Queue::Bdp(0.25)));
        assert_eq!(queue("64KiB"), Ok(Queue::Bytes(ByteCount(65_536))));
        assert_eq!(queue("100packets"), Ok(Queue::Packets(100)));
        assert_eq!(queue("100 packets"), Ok(Queue::Packets(100)));
        for wrong in ["0bdp", "-1bdp", "bdp", "100", "0packets", "1KB", "much", "-5MB"] {
            assert!(queue(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn probabilities_are_read() {
        assert_eq!(probability("1e-4"), Ok(1e-4));
        assert_eq!(probability("50%"), Ok(0.5));
        for wrong in ["-0.1", "1.1", "nan", "often", "101%", ""] {
            assert!(probability(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn programs_on_hosts_are_read() {
        assert_eq!(start("b=x -y=z"), Ok(("b".to_owned(), "x -y=z".to_owned())));
        assert!(start("b").is_err() && start("=x").is_err() && start("b=").is_err());
    }
}
