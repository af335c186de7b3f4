//! The checks of another machine, and of the path to it: this program is started there over ssh,
//! checks that machine, and returns datagrams.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration as StdDuration;

use packtrain_os::{clock, entropy};
use packtrain_runtime::marker;
use packtrain_service::executor::spawn;
use packtrain_service::{PortRange, Reporter, SshSettings, StopHandle, host};
use packtrain_transfer::{Failure, FailureKind};
use packtrain_units::{Duration, Time};
use serde::{Deserialize, Serialize};

use super::{Check, VERSION, here};
use crate::ssh::bootstrap::{self, Service, Started};
use crate::ssh::child::Target;
use crate::ssh::resolve;

/// The line with which the other end answers begins so.
const PREFIX: &[u8] = b"PACKTRAIN-DOCTOR-1 ";
/// More checks are not those of an honest other end.
const MAX_CHECKS: usize = 64;
/// The longest text of a check that is shown, in bytes.
const MAX_TEXT: usize = 1000;
/// How long the other end returns datagrams, unless it is ended before.
const ECHO_TIME: Duration = Duration::from_secs(30);
/// How long datagrams are waited for, after each attempt.
const ECHO_WAIT: StdDuration = StdDuration::from_millis(500);
const ATTEMPTS: usize = 6;
/// Clocks that are further apart confuse `--update` and logs.
const CLOCKS_APART: Duration = Duration::from_secs(2);
/// Depots refuse clocks that are further apart.
const CLOCKS_REFUSED: Duration = Duration::from_secs(120);

/// What the other end says.
#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    version: String,
    checks: Vec<Check>,
    /// Nanoseconds since 1970 when it was sent.
    wall: u64,
    /// Where it returns datagrams that begin with `token`.
    port: Option<u16>,
    token: [u8; 16],
}

/// The ports and the address of the other end that copies will use.
#[derive(Clone, Copy, Debug, Default)]
pub struct DataPath<'a> {
    /// The range of `--ports`; any port without it.
    pub ports: Option<PortRange>,
    /// The name of `--data-addr`; that of the host without it.
    pub address: Option<&'a str>,
}

/// Answers a `doctor` at the other end of standard input and output, until `input` ends. It returns
/// datagrams at the first free port of `ports`.
///
/// # Errors
/// The output cannot be written.
pub fn answer(
    ports: Option<PortRange>,
    mut input: impl Read + Send + 'static,
    mut output: impl Write,
) -> io::Result<()> {
    let ports = ports.map_or(0..=0, |range| range.first..=range.last);
    let any = |ip: IpAddr| ports.clone().find_map(|port| UdpSocket::bind((ip, port)).ok());
    let socket = any(Ipv6Addr::UNSPECIFIED.into()).or_else(|| any(Ipv4Addr::UNSPECIFIED.into()));
    let answer = Answer {
        version: VERSION.to_owned(),
        checks: here::check(&std::env::current_dir().unwrap_or_default()),
        port: socket.as_ref().and_then(|socket| Some(socket.local_addr().ok()?.port())),
        token: entropy::bytes::<16>(),
        wall: clock::wall().as_nanos(),
    };
    let text = serde_json::to_vec(&answer)?;
    output.write_all(&[marker::MARKER, PREFIX, &text, b"\n"].concat())?;
    output.flush()?;
    let over = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&over);
    spawn("doctor-input", move || {
        let _ = io::copy(&mut input, &mut io::sink());
        ended.store(true, Ordering::Relaxed);
    });
    let until = clock::now() + ECHO_TIME;
    match socket {
        Some(socket) => echo(&socket, &answer.token, &over, until),
        None => Ok(()),
    }
}

/// Returns each datagram that begins with the token to its sender, as long as it is: nobody is sent
/// more than he sent.
fn echo(socket: &UdpSocket, token: &[u8], over: &AtomicBool, until: Time) -> io::Result<()> {
    socket.set_read_timeout(Some(StdDuration::from_millis(100)))?;
    let mut buffer = [0; 2048];
    while !over.load(Ordering::Relaxed) && clock::now() < until {
        if let Ok((n, from)) = socket.recv_from(&mut buffer)
            && let Some(datagram) = buffer.get(..n)
            && datagram.starts_with(token)
        {
            let _ = socket.send_to(datagram, from);
        }
    }
    Ok(())
}

/// The checks of `host`, and of the path to it. If no compatible packtrain is installed there, this
/// program is sent, as for a copy.
///
/// # Errors
/// ssh does not reach it, or no packtrain runs there.
pub fn check(
    settings: &SshSettings,
    user: Option<&str>,
    host: &str,
    path: DataPath<'_>,
    reporter: &dyn Reporter,
    stop: &StopHandle,
) -> Result<Vec<Check>, Failure> {
    let target = Target::new(user, host)?;
    let Started { running, input, mut output, .. } =
        bootstrap::start(settings, &target, Service::Doctor(path.ports), reporter, stop)?;
    let answer = marker::find(&mut output, |line| {
        line.strip_prefix(PREFIX).map(serde_json::from_slice::<Answer>)
    });
    let received = clock::wall();
    let Ok(Some(answer)) = answer else {
        drop((input, output));
        let status = running.wait()?;
        let text = format!("the packtrain at {target} ended without an answer ({status})");
        return Err(Failure::new(FailureKind::Fatal, text));
    };
    let answer = answer.map_err(|error| {
        let text = format!("{target} answers what this version does not read: {error}");
        Failure::new(FailureKind::Protocol, text)
    })?;
    let mut checks = vec![versions(&answer.version), clocks(received, answer.wall)];
    checks.extend(answer.checks.into_iter().take(MAX_CHECKS).map(bounded));
    let addresses = match path.address {
        Some(name) => host::lookup(name),
        None => resolve(settings, &target, host),
    };
    checks.push(match (answer.port, path.ports) {
        (Some(port), ports) => datagrams(&addresses, port, ports.is_some(), &answer.token),
        (None, Some(PortRange { first, last })) => {
            let says = format!("no UDP port from {first} to {last} is free at the other machine");
            Check::fault("UDP path", says, MORE_PORTS)
        }
        (None, None) => Check::fault("UDP path", "the other machine opens no UDP port", BLOCKED),
    });
    drop((input, output));
    let _ = running.wait();
    Ok(checks)
}

const BLOCKED: &str = "open UDP ports of that machine, 8 for each transfer at a time, and give them \
                       to doctor and cp by --ports A-B; until then transfers use TCP";
const CLOSED: &str = "open these ports for UDP at that machine; until then transfers use TCP";
const MORE_PORTS: &str = "choose another range: a transfer over UDP takes 8 ports";

fn versions(there: &str) -> Check {
    let shown = packtrain_units::escape::text(&short(there));
    if there == VERSION {
        Check::ok("versions", format!("both are {shown}"))
    } else {
        let says = format!("this one is {VERSION}, the other one is {shown}");
        Check::advice("versions", says, "install the newer one at both ends")
    }
}

/// Compares the clocks. The answer was under way for a moment, by which the difference is wrong.
fn clocks(here: Duration, there: u64) -> Check {
    let there = Duration::from_nanos(there);
    let apart = here.saturating_sub(there).max(there.saturating_sub(here));
    let remedy = "set them, and run chronyd or systemd-timesyncd at both";
    let says = format!("they differ by {}", apart.to_readable());
    if apart <= CLOCKS_APART {
        Check::ok("clocks", format!("they agree within {}", CLOCKS_APART.to_readable()))
    } else if apart <= CLOCKS_REFUSED {
        Check::advice("clocks", says, remedy)
    } else {
        Check::fault("clocks", format!("{says}: depots refuse that"), remedy)
    }
}

/// Sends datagrams to the other end, which returns them.
fn datagrams(addresses: &[IpAddr], port: u16, chosen: bool, token: &[u8; 16]) -> Check {
    if addresses.is_empty() {
        let says = "the host's name has no address here, so UDP cannot be tried";
        return Check::advice("UDP path", says, "name the address by --data-addr, also in copies");
    }
    let mut last = None;
    for &address in addresses {
        match returned(SocketAddr::new(address, port), token) {
            Ok(true) => {
                let says = format!("datagrams to UDP port {port} of {address} come back");
                return Check::ok("UDP path", says);
            }
            Ok(false) => {}
            Err(error) => last = Some(error),
        }
    }
    let why = last.map_or_else(String::new, |error| format!(" ({error})"));
    let says = format!("no datagram to UDP port {port} there comes back{why}");
    Check::advice("UDP path", says, if chosen { CLOSED } else { BLOCKED })
}

fn returned(to: SocketAddr, token: &[u8; 16]) -> io::Result<bool> {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(to)?;
    socket.set_read_timeout(Some(ECHO_WAIT))?;
    // As long as a datagram of a transfer: some paths drop those alone.
    let mut datagram = [0; 1400];
    datagram[..16].copy_from_slice(token);
    let mut buffer = [0; 2048];
    let mut failed = None;
    for _ in 0..ATTEMPTS {
        if let Err(error) = socket.send(&datagram) {
            failed = Some(error);
            continue;
        }
        match socket.recv(&mut buffer) {
            Ok(n) if buffer.get(..n) == Some(&datagram[..]) => return Ok(true),
            // The time is over, or somebody else's datagram.
            Ok(_) => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock) => failed = None,
            Err(error) => failed = Some(error),
        }
    }
    failed.map_or(Ok(false), Err)
}

/// A check of the other end, which may say anything, on one short line.
fn bounded(check: Check) -> Check {
    let one = |text: &str| packtrain_units::escape::text(&short(text));
    Check {
        what: one(&check.what),
        says: one(&check.says),
        remedy: check.remedy.as_deref().map(one),
        ..check
    }
}

fn short(text: &str) -> String {
    let mut end = text.len().min(MAX_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn the_other_end_answers_and_returns_datagrams_with_the_token_alone() {
        let (reading, writing) = io::pipe().unwrap();
        let (mut answers, output) = io::pipe().unwrap();
        let thread = std::thread::spawn(move || super::answer(None, reading, output));
        let found = marker::find(&mut answers, |line| {
            line.strip_prefix(PREFIX).map(serde_json::from_slice::<Answer>)
        });
        let answer = found.unwrap().unwrap().unwrap();
        assert_eq!(answer.version, VERSION);
        assert!(!answer.checks.is_empty());
        let local = [IpAddr::V4(Ipv4Addr::LOCALHOST)];
        let port = answer.port.expect("this machine has UDP");
        assert_eq!(datagrams(&local, port, false, &answer.token).state, State::Ok);
        assert_eq!(clocks(clock::wall(), answer.wall).state, State::Ok);
        drop(writing);
        thread.join().unwrap().unwrap();
        // Now nothing is there.
        assert_eq!(datagrams(&local, port, false, &answer.token).state, State::Advice);
    }

    #[test]
    fn the_other_end_takes_a_free_port_of_the_range_or_none() {
        let answered = |first, last| {
            let (mut answers, output) = io::pipe().unwrap();
            super::answer(Some(PortRange { first, last }), io::empty(), output).unwrap();
            let found = marker::find(&mut answers, |line| {
                line.strip_prefix(PREFIX).map(serde_json::from_slice::<Answer>)
            });
            found.unwrap().unwrap().unwrap().port
        };
        // As the other end binds: on both families where the machine has both.
        let any = |ip: IpAddr| UdpSocket::bind((ip, 0));
        let taken =
            any(Ipv6Addr::UNSPECIFIED.into()).or_else(|_| any(Ipv4Addr::UNSPECIFIED.into()));
        let taken = taken.unwrap();
        let port = taken.local_addr().unwrap().port();
        assert_eq!(answered(port, port), None);
        let wide = answered(port.saturating_sub(50), port.saturating_add(50)).unwrap();
        assert!(wide != port && wide.abs_diff(port) <= 50, "{wide}");
        drop(taken);
        assert_eq!(answered(port, port), Some(port));
    }

    #[test]
    fn a_wrong_token_is_not_answered() {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = socket.local_addr().unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        let until = clock::now() + ECHO_TIME;
        let thread = std::thread::spawn(move || echo(&socket, &[1; 16], &ended, until));
        assert!(!returned(to, &[2; 16]).unwrap_or(false));
        assert!(returned(to, &[1; 16]).unwrap());
        over.store(true, Ordering::Relaxed);
        thread.join().unwrap().unwrap();
    }

    #[test]
    fn clocks_and_versions_are_compared() {
        let at = |seconds: u64| clocks(Duration::from_secs(1000), seconds * 1_000_000_000).state;
        assert_eq!(
            [1000, 1001, 990, 1119, 1121, 0].map(at),
            [State::Ok, State::Ok, State::Advice, State::Advice, State::Fault, State::Fault]
        );
        assert_eq!(clocks(Duration::ZERO, u64::MAX).state, State::Fault);
        assert_eq!(versions(VERSION).state, State::Ok);
        let other = versions("9\u{1b}[2J");
        assert!(other.state == State::Advice && !other.says.contains('\u{1b}'), "{}", other.says);
    }

    #[test]
    fn what_a_hostile_end_says_is_short_and_on_one_line() {
        let says = format!("\u{1b}]0;x\u{7}\n{}", "é".repeat(5000));
        let check = bounded(Check::fault("a\nb", says, "run\r\nthis"));
        let remedy = check.remedy.clone().unwrap();
        for text in [&check.what, &check.says, &remedy] {
            assert!(!text.chars().any(char::is_control), "{text:?}");
            assert!(text.len() < 6 * MAX_TEXT);
        }
    }
}
