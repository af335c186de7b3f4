//! The emulator in thirty lines: `cargo run --example emulate -- 1gbit 100ms COMMAND...` runs a
//! command on one of two hosts connected by such a path; `iperf3 -s` runs on the other.

use packtrain_emu::{Plan, Topology, child, supervise};
use packtrain_link::{Limit, LinkConfig, LossConfig, QueueConfig};
use packtrain_units::{ByteCount, parse_duration, parse_rate};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let Some(child) = child()? {
        let plan = plan()?;
        child.run(&plan);
        return Ok(());
    }
    let mut command = std::process::Command::new(std::env::current_exe()?);
    command.args(std::env::args_os().skip(1));
    let ended = supervise(command, "")?;
    eprintln!("{:#?}", ended.report);
    std::process::exit(ended.code);
}

fn plan() -> Result<Plan, Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().ok_or("usage: emulate RATE RTT COMMAND...");
    let (rate, rtt) = (parse_rate(&next()?)?, parse_duration(&next()?)?);
    let mut link = LinkConfig::new(rate, rtt / 2, 1);
    link.queue = QueueConfig::DropTail(Limit::Bytes(rate.bytes_in(rtt).max(ByteCount(65_536))));
    link.mtu = ByteCount(1_500);
    let loss = std::env::var("LOSS").ok().and_then(|text| text.parse().ok());
    link.loss = loss.map_or(LossConfig::None, LossConfig::Independent);
    Ok(Plan {
        topology: Topology::pair(link.clone(), link),
        per_packet: std::env::var_os("PER_PACKET").is_some(),
        device: std::env::var_os("PACKET").map(|_| packtrain_emu::DeviceKind::Packet),
        tick: std::env::var("TICK").ok().and_then(|text| parse_duration(&text).ok()),
        buffers: Some(rate.bytes_in(rtt * 8)),
        record: std::env::var_os("RECORD").map(Into::into),
        command: arguments.map(Into::into).collect(),
        on: "near".to_owned(),
        others: vec![("far".to_owned(), "exec iperf3 -s >/dev/null".to_owned())],
    })
}
