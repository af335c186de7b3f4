//! The programs that move data from memory to memory, and their command lines.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::cells::{Cell, Extra, Programs, SECONDS};
use super::parse;
use crate::bench::growth;
use crate::bench::lab::Lab;
use crate::bench::wan::{FAR, quoted};
use crate::sh;

/// The address of the near host.
const NEAR: &str = "10.77.0.1";
/// Windows that do not limit SRT on any path of the grid: the product of 1 Gbit/s and 300 ms is
/// 37.5 MB. Its defaults are 12 MB.
pub(super) const SRT: &str = "fc=102400&sndbuf=150000000&rcvbuf=150000000";
/// The variable with quinn's window.
pub(super) const WINDOW: &str = "QUINN_WINDOW";
/// What SRT sends, as a file without blocks: more than the fastest path carries in a run.
const SRT_BYTES: u64 = 2_000_000_000;

/// What a program is in the judgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Native,
    Auto,
    Tcp,
    /// Another program, with so many connections.
    Peer(u32),
}

/// A program, ready to run.
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) role: Role,
    /// The smallest set that it belongs to.
    pub(crate) set: Programs,
    /// Whether it runs with raised limits of socket buffers.
    pub(crate) raised: bool,
    /// Commands for both ends.
    pub(crate) far: Vec<String>,
    pub(crate) near: String,
    /// Goodput in bit/s from the text that the program left.
    pub(crate) read: fn(&str) -> Result<f64>,
    /// Why it cannot run here.
    pub(crate) missing: Option<String>,
}

/// The files of the peers.
pub(crate) struct Tools {
    quinn: Result<PathBuf>,
    udt: Result<PathBuf>,
    /// This program, for its watch of a growing file.
    own: PathBuf,
    /// A folder in memory for what SRT sends and receives.
    memory: PathBuf,
}

impl Tools {
    /// Builds the peers that come as source.
    pub(crate) fn new(lab: &Lab, memory: &Path) -> Result<Self> {
        let own = std::env::current_exe().context("finding this program")?;
        let memory = memory.to_owned();
        Ok(Self { quinn: lab.quinn(), udt: lab.udt(), own, memory })
    }

    /// The file that SRT sends, and the folder that it receives into, emptied.
    pub(crate) fn prepare_srt(&self) -> Result<()> {
        let (source, target) = (self.memory.join("srt-source"), self.memory.join("srt-target"));
        let _ = std::fs::remove_dir_all(&target);
        std::fs::create_dir_all(&target)?;
        std::fs::create_dir_all(&source)?;
        std::fs::File::create(source.join("zeros"))?.set_len(SRT_BYTES)?;
        Ok(())
    }

    /// Removes what SRT has received.
    pub(crate) fn clear_srt(&self) {
        let _ = std::fs::remove_dir_all(self.memory.join("srt-target"));
    }
}

/// Every program, in the order in which they take turns.
pub(crate) fn all(lab: &Lab, tools: &Tools) -> Vec<Program> {
    let mut all = vec![
        packtrain(lab, "native", Role::Native, Programs::Few),
        packtrain(lab, "tcp", Role::Tcp, Programs::Single),
    ];
    for (streams, set) in [(1, Programs::Few), (4, Programs::Many), (16, Programs::Many)] {
        all.extend(["cubic", "bbr"].map(|cc| kernel(cc, streams, set)));
    }
    for raised in [false, true] {
        let set = |small| if raised { Programs::All } else { small };
        all.push(quinn(tools, "cubic", set(Programs::Single), raised));
        all.push(quinn(tools, "bbr", set(Programs::Few), raised));
        all.push(udt(tools, set(Programs::Single), raised));
        all.push(srt(tools, set(Programs::Single), raised));
    }
    all
}

/// The window with which quinn is fastest on a path, in bytes: three times the bandwidth-delay
/// product, but not less than its own default. With four times, it gives up after a burst of losses
/// ("too many gaps in stream buffer"); with twice, the window limits it while losses are repaired.
pub(crate) fn quinn_window(cell: &Cell) -> u64 {
    let product = u64::from(cell.rate) * 125 * u64::from(cell.rtt);
    (3 * product).max(1_250_000)
}

/// What a path with traffic in the reverse direction runs besides.
pub(crate) fn reverse_traffic(cell: &Cell) -> Option<(String, String)> {
    if cell.extra != Extra::ReverseCongestion {
        return None;
    }
    let far = format!(
        "until iperf3 -c {NEAR} -p 7420 -C cubic -t 120 > /dev/null 2>&1; do sleep 0.1; done"
    );
    Some((far, "iperf3 -s -p 7420 > /dev/null 2>&1 & sleep 1.5; ".to_owned()))
}

/// Sets the congestion control of connections that do not choose one.
pub(super) fn default_control(name: &str) -> String {
    format!("echo {name} > /proc/sys/net/ipv4/tcp_congestion_control; ")
}

fn packtrain(lab: &Lab, transport: &str, role: Role, set: Programs) -> Program {
    let program = quoted(&lab.packtrain);
    Program {
        name: format!("packtrain {transport}"),
        role,
        set,
        raised: false,
        far: vec![format!(
            "{program} perf server --listen {FAR}:7411 --ticket-file \"$OUT.ticket\""
        )],
        near: format!(
            "{}until test -s \"$OUT.ticket\"; do sleep 0.05; done; {program} perf client \
             {FAR}:7411 --ticket \"@$OUT.ticket\" --transport {transport} --seconds {SECONDS} \
             --json > \"$OUT\"",
            default_control("bbr")
        ),
        read: parse::goodput,
        missing: None,
    }
}

/// The kernel's TCP. The hosts' default is set too: iperf3 selects the controller after it has
/// connected, and a default of BBR leaves its pacing on.
fn kernel(cc: &str, streams: u32, set: Programs) -> Program {
    let name = match streams {
        1 => format!("kernel {cc}"),
        _ => format!("kernel {cc} x {streams}"),
    };
    Program {
        name,
        role: Role::Peer(streams),
        set,
        raised: false,
        far: vec!["iperf3 -s -1 -p 7412 > /dev/null".to_owned()],
        near: format!(
            "{}iperf3 -c {FAR} -p 7412 -C {cc} -P {streams} -J -t {SECONDS} > \"$OUT\"",
            default_control(cc)
        ),
        read: parse::iperf,
        missing: missing("iperf3"),
    }
}

fn quinn(tools: &Tools, cc: &str, set: Programs, raised: bool) -> Program {
    let (program, missing) = built(&tools.quinn);
    Program {
        name: with_buffers(&format!("quinn {cc}"), raised),
        role: Role::Peer(1),
        set,
        raised,
        far: vec![format!("{program} server {FAR}:7413 ${WINDOW}")],
        near: format!("sleep 0.5; {program} client {FAR}:7413 {SECONDS} {cc} ${WINDOW} > \"$OUT\""),
        read: parse::goodput,
        missing,
    }
}

fn udt(tools: &Tools, set: Programs, raised: bool) -> Program {
    let (program, missing) = built(&tools.udt);
    Program {
        name: with_buffers("stock UDT4", raised),
        role: Role::Peer(1),
        set,
        raised,
        far: vec![format!("{program} server 7414 > \"$OUT\"")],
        near: format!(
            "sleep 0.5; {program} client {FAR} 7414 {SECONDS} && \
             until test -s \"$OUT\"; do sleep 0.05; done"
        ),
        read: parse::goodput,
        missing,
    }
}

/// SRT in file mode. Its receiver reports nothing: the growth of its file is measured, in memory.
fn srt(tools: &Tools, set: Programs, raised: bool) -> Program {
    let own = quoted(&tools.own);
    let source = quoted(&tools.memory.join("srt-source/zeros"));
    let target = quoted(&tools.memory.join("srt-target"));
    Program {
        name: with_buffers("SRT file mode", raised),
        role: Role::Peer(1),
        set,
        raised,
        far: vec![format!(
            "srt-file-transmit -q \"srt://{FAR}:7417?mode=listener&{SRT}\" {target}/x > /dev/null"
        )],
        near: format!(
            "sleep 0.5; srt-file-transmit -q {source} \"srt://{FAR}:7417?{SRT}\" > /dev/null & \
             pid=$!; {own} bench {} {target} {SECONDS} > \"$OUT\"; code=$?; \
             kill -9 $pid 2> /dev/null; exit $code",
            growth::VERB
        ),
        read: parse::goodput,
        missing: missing("srt-file-transmit"),
    }
}

fn with_buffers(name: &str, raised: bool) -> String {
    if raised { format!("{name}, 64 MiB buffers") } else { name.to_owned() }
}

fn built(program: &Result<PathBuf>) -> (String, Option<String>) {
    match program {
        Ok(path) => (quoted(path), None),
        Err(error) => (String::new(), Some(format!("{error:#}"))),
    }
}

/// Why a program of the system cannot run.
pub(super) fn missing(program: &str) -> Option<String> {
    sh::find(program).is_none().then(|| format!("no {program} on this machine"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::grid::cells::CELLS;

    #[test]
    fn quinns_window_follows_the_path() {
        let of = |change: &str, rate| {
            quinn_window(CELLS.iter().find(|c| c.change == change && c.rate == rate).unwrap())
        };
        assert_eq!(of("", 1000), 37_500_000);
        assert_eq!(of("RTT 300 ms", 1000), 112_500_000);
        assert_eq!(of("RTT 10 ms", 100), 1_250_000, "quinn's default");
    }

    #[test]
    fn only_a_congested_reverse_direction_has_traffic() {
        for cell in CELLS {
            let congested = cell.change.contains("congested");
            assert_eq!(reverse_traffic(cell).is_some(), congested, "{}", cell.name());
        }
    }
}
