//! Starts programs on hosts, supervises them, and ends them with all their descendants.

use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};

use packtrain_os::clock;
use packtrain_units::Duration;
use rustix::process::wait as wait_child;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, kill_process_group};

use crate::channel::wait;
use crate::error::EmuError;
use crate::hosts::Host;
use crate::parent::VARIABLE;
use crate::sys::{self, Start};
use crate::topology::Topology;

/// Maximum time for programs to end after SIGTERM.
const TERMINATION_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum time to reap the killed programs.
const REAP_TIMEOUT: Duration = Duration::from_secs(2);

/// The environment of programs.
#[derive(Clone, Debug)]
pub(crate) struct Environment {
    common: Vec<(String, String)>,
}

impl Environment {
    /// Addresses of all hosts: `PACKTRAIN_HOST_NAME`, and `PACKTRAIN_NEAR` and `PACKTRAIN_FAR` for
    /// hosts of these names; with a 6, such as `PACKTRAIN_FAR6` and `PACKTRAIN_HOST6_NAME`, those
    /// of IPv6.
    pub(crate) fn new(topology: &Topology) -> Self {
        let mut common = Vec::new();
        for node in topology.hosts() {
            let address = topology.address(node).unwrap_or(Ipv4Addr::UNSPECIFIED).to_string();
            let address6 = topology.address6(node).unwrap_or(Ipv6Addr::UNSPECIFIED).to_string();
            let name = variable(&topology.nodes[node].name);
            if name == "NEAR" || name == "FAR" {
                common.push((format!("PACKTRAIN_{name}"), address.clone()));
                common.push((format!("PACKTRAIN_{name}6"), address6.clone()));
            }
            common.push((format!("PACKTRAIN_HOST_{name}"), address));
            common.push((format!("PACKTRAIN_HOST6_{name}"), address6));
        }
        Self { common }
    }

    /// The complete environment of a program on a host, as pairs.
    pub(crate) fn of(&self, host: &Host) -> Vec<(String, String)> {
        let mut all = self.common.clone();
        all.push(("PACKTRAIN_EMU_HOST".to_owned(), host.name.clone()));
        all
    }
}

/// A host's name as part of a variable's name.
fn variable(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    name.chars().map(plain).collect()
}

/// All programs of an emulation.
pub(crate) struct Programs {
    environment: Environment,
    capable: bool,
    foreground: Option<Pid>,
    background: Vec<Background>,
}

struct Background {
    pid: Pid,
    host: String,
    line: String,
    ended: bool,
}

impl Programs {
    /// Empty. `capable`: programs get the network capabilities of the emulator's user namespace.
    pub(crate) fn new(environment: Environment, capable: bool) -> Self {
        Self { environment, capable, foreground: None, background: Vec::new() }
    }

    /// The environment of programs.
    pub(crate) fn environment(&self) -> &Environment {
        &self.environment
    }

    /// Starts the main program; its end is the end of the emulation.
    pub(crate) fn foreground(&mut self, host: &Host, line: &[OsString]) -> Result<(), EmuError> {
        let [program, arguments @ ..] = line else {
            return Err(EmuError::Topology("there is no command to run".to_owned()));
        };
        let mut command = Command::new(program);
        command.args(arguments);
        self.foreground = Some(self.start(command, host, false)?);
        Ok(())
    }

    /// Starts a shell command with its output on stderr and returns its process id.
    pub(crate) fn background(&mut self, host: &Host, line: &str) -> Result<u32, EmuError> {
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(line).stdin(Stdio::null());
        if let Ok(stderr) = std::io::stderr().as_fd_clone() {
            command.stdout(stderr);
        }
        let pid = self.start(command, host, true)?;
        let (host, line) = (host.name.clone(), line.to_owned());
        self.background.push(Background { pid, host, line, ended: false });
        Ok(pid.as_raw_nonzero().get() as u32)
    }

    fn start(&self, mut command: Command, host: &Host, group: bool) -> Result<Pid, EmuError> {
        let program = command.get_program().to_string_lossy().into_owned();
        command.env_remove(VARIABLE).envs(self.environment.of(host));
        let namespace = host.namespace.as_raw_fd();
        sys::start_so(&mut command, Start { namespace, capable: self.capable, group, dies: true });
        let child = command.spawn().map_err(|source| EmuError::Start { program, source })?;
        Pid::from_raw(child.id() as i32)
            .ok_or_else(|| EmuError::Died("a program without a number".to_owned()))
    }

    /// Reaps ended processes and returns the exit code of the main program if it is among them.
    pub(crate) fn reap(&mut self) -> Option<i32> {
        let mut code = None;
        while let Ok(Some((pid, status))) = wait_child(WaitOptions::NOHANG) {
            if Some(pid) == self.foreground {
                self.foreground = None;
                code = Some(exit_code(status));
            }
            for other in self.background.iter_mut().filter(|other| other.pid == pid) {
                other.ended = true;
                if code.is_none() && exit_code(status) != 0 {
                    let (host, line) = (&other.host, &other.line);
                    eprintln!("packtrain: on {host}, {line:?} ended: {}", exit_code(status));
                }
            }
        }
        code
    }

    /// Whether a socket listens in the namespace of the background program `pid`, or that program
    /// has ended.
    pub(crate) fn is_ready(&self, pid: u32) -> bool {
        let ended =
            self.background.iter().any(|b| b.pid.as_raw_nonzero().get() as u32 == pid && b.ended);
        // In the kernel's tables 0A is a listening TCP socket, 07 a UDP socket without a peer.
        let tables = [("tcp", " 0A "), ("tcp6", " 0A "), ("udp", " 07 "), ("udp6", " 07 ")];
        ended
            || tables.iter().any(|(table, state)| {
                let text = fs::read_to_string(format!("/proc/{pid}/net/{table}"));
                text.is_ok_and(|text| text.lines().skip(1).any(|line| line.contains(state)))
            })
    }

    /// Sends a signal to the main program.
    pub(crate) fn signal(&self, number: i32) {
        if let (Some(pid), Some(signal)) = (self.foreground, Signal::from_named_raw(number)) {
            let _ = kill_process(pid, signal);
        }
    }

    /// Ends the running programs: SIGTERM first, then SIGKILL, for all their descendants too.
    pub(crate) fn end_all(&mut self) {
        for other in self.background.iter().filter(|other| !other.ended) {
            let _ = kill_process_group(other.pid, Signal::TERM);
        }
        let start = clock::now();
        while self.background.iter().any(|other| !other.ended) {
            while let Ok(Some((pid, _))) = wait_child(WaitOptions::NOHANG) {
                for other in self.background.iter_mut().filter(|other| other.pid == pid) {
                    other.ended = true;
                }
            }
            if clock::now().since(start) > TERMINATION_TIMEOUT {
                break;
            }
            wait([], Some(2));
        }
        // Orphans become children of this process, so killing children until there are none ends
        // all.
        let start = clock::now();
        loop {
            match wait_child(WaitOptions::NOHANG) {
                Err(_) => return,
                Ok(Some(_)) => continue,
                Ok(None) => {}
            }
            for pid in children() {
                let _ = kill_process(pid, Signal::KILL);
            }
            if clock::now().since(start) > REAP_TIMEOUT {
                return;
            }
            wait([], Some(2));
        }
    }
}

fn exit_code(status: WaitStatus) -> i32 {
    status.exit_status().or_else(|| status.terminating_signal().map(|s| 128 + s)).unwrap_or(1)
}

/// Child processes of this process.
fn children() -> Vec<Pid> {
    let own = std::process::id().to_string();
    let Ok(all) = fs::read_dir("/proc") else { return Vec::new() };
    let child = |entry: fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        // The name, in parentheses, may contain anything; state and parent follow it.
        let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?;
        (parent == own).then(|| Pid::from_raw(pid)).flatten()
    };
    all.flatten().filter_map(child).collect()
}

/// A duplicate descriptor for another process.
trait CloneFd {
    fn as_fd_clone(&self) -> std::io::Result<std::os::fd::OwnedFd>;
}

impl<T: std::os::fd::AsFd> CloneFd for T {
    fn as_fd_clone(&self) -> std::io::Result<std::os::fd::OwnedFd> {
        self.as_fd().try_clone_to_owned()
    }
}
