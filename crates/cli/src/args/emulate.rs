//! `packtrain emulate`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use packtrain_units::{ByteCount, DataRate, Duration};

use super::values;

/// What `emulate` takes.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct EmulateArgs {
    /// Going into one that runs, instead of starting one.
    #[command(subcommand)]
    pub(crate) inside: Option<EmulateCommand>,
    /// Rate of the path in both directions, such as 1gbit.
    #[arg(long, value_name = "RATE", value_parser = values::rate)]
    #[arg(required_unless_present = "topology")]
    pub(crate) rate: Option<DataRate>,
    /// Round-trip time of the empty path, half of it each way.
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    #[arg(required_unless_present = "topology")]
    pub(crate) rtt: Option<Duration>,
    /// Probability that a packet is lost on the way, in each direction.
    #[arg(long, value_name = "P", default_value = "0", value_parser = probability)]
    pub(crate) loss: f64,
    /// What each queue holds: times the bandwidth-delay product (1bdp), bytes (4MiB) or packets
    /// (100packets).
    #[arg(long, value_name = "SIZE", default_value = "1bdp", value_parser = queue)]
    pub(crate) queue: Queue,
    /// Up to so much extra delay, at random; packets keep their order.
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) jitter: Option<Duration>,
    /// The largest packet, from the IP header on.
    #[arg(long, value_name = "BYTES", default_value = "1500", value_parser = mtu)]
    pub(crate) mtu: ByteCount,
    /// Seed of everything random.
    #[arg(long, value_name = "N", default_value = "1")]
    #[arg(value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    pub(crate) seed: u64,
    /// A network of hosts, routers and links, as `packtrain sim` reads it, in place of the path.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) topology: Option<PathBuf>,
    /// The host on which COMMAND runs [default: near, or the first].
    #[arg(long, value_name = "HOST")]
    pub(crate) on: Option<String>,
    /// Run this by a shell on the far host, before COMMAND and no longer than it.
    #[arg(long, value_name = "COMMAND", value_hint = ValueHint::CommandString)]
    pub(crate) far: Option<String>,
    /// Run this by a shell on another host, before COMMAND and no longer than it; may be repeated.
    #[arg(long, value_name = "HOST=COMMAND", value_parser = start)]
    pub(crate) start: Vec<(String, String)>,
    /// Pass every packet by itself: no segmentation offload in the hosts.
    #[arg(long)]
    pub(crate) per_packet: bool,
    /// How far apart the emulator wakes where there is much to do; 0s: every packet at its own
    /// time, for much processor time [default: 2 % of the shortest delay, at most 200us].
    #[arg(long, value_name = "TIME", value_parser = tick)]
    pub(crate) tick: Option<Duration>,
    /// What joins hosts and links.
    #[arg(long, value_name = "KIND", value_enum, default_value = "auto")]
    pub(crate) device: Device,
    /// TCP buffers in the hosts: large enough for the path, or as the system has them.
    #[arg(long, value_name = "KIND", value_enum, default_value = "path")]
    pub(crate) buffers: Buffers,
    /// Keep PREFIX.pcap, PREFIX.arrivals and PREFIX.drops.
    #[arg(long, value_name = "PREFIX", value_hint = ValueHint::FilePath)]
    pub(crate) record: Option<PathBuf>,
    /// End with COMMAND's exit code even when the emulator was the bottleneck.
    #[arg(long)]
    pub(crate) best_effort: bool,
    /// The report as JSON: the last line on stdout.
    #[arg(long)]
    pub(crate) json: bool,
    /// What to run, and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// Running emulations.
#[derive(Debug, Subcommand)]
pub(crate) enum EmulateCommand {
    /// Run a command on a host of an emulation that runs.
    Exec(EmulateExecArgs),
}

/// What `emulate exec` takes.
#[derive(Args, Debug)]
pub(crate) struct EmulateExecArgs {
    /// The host.
    #[arg(value_name = "HOST")]
    pub(crate) host: String,
    /// The process that runs `packtrain emulate`, where there are several.
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
    /// What to run, and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// What a queue holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Queue {
    /// So many times rate by round-trip time.
    Bdp(f64),
    /// Bytes.
    Bytes(ByteCount),
    /// Packets.
    Packets(u64),
}

/// What joins hosts and links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Device {
    /// TUN devices where they can be opened.
    Auto,
    /// TUN devices.
    Tun,
    /// Pairs of Ethernet devices with packet sockets.
    Packet,
}

/// How large TCP's buffers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Buffers {
    /// Large enough to fill the path.
    Path,
    /// As the system has them.
    System,
}

/// Up to a millisecond: later than that is late by the emulator's own measure.
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
        .ok_or_else(|| "a queue below a packet passes none: write 1500B or more".to_owned())
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
