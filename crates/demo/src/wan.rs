//! `demo --wan`: compares several programs with the same files over the same long fat path, each
//! alone.
//!
//! `packtrain emulate` emulates the path between two network namespaces, so that no root and no
//! second machine is needed. Each program gets an identical path with the same seed.

mod lane;
mod near;
mod plain;
mod report;
mod show;

use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use packtrain_transfer::FailureKind;
use packtrain_units::{DataRate, Duration};

use self::lane::{Lane, Moved, Mover, Wan};
pub use self::near::NearRequest;
use self::show::Bar;
use super::{Place, check_stop, failed, files, own_environment, print_line};
use packtrain_service::{RequestError, StopHandle};

/// The properties of the path.
const RTT: Duration = Duration::from_millis(100);
const LOSS: f64 = 1e-4;
const FAST: DataRate = DataRate::from_mbps(1_000);
const SLOW: DataRate = DataRate::from_mbps(300);
/// The share of `FAST` that the probe must reach on this machine.
const MIN_CARRIED_SHARE: f64 = 0.8;
const FAR: &str = "10.77.0.2";

/// One end of a program inside the emulation.
#[derive(Clone, Debug)]
pub enum EndRequest {
    /// Waits for the remote end, then runs a command.
    Near(NearRequest),
    /// Sends files over one TCP connection.
    PlainSend {
        /// The receiver's address.
        address: SocketAddr,
        /// The kernel's congestion control.
        cc: String,
        /// The directory to send.
        dir: PathBuf,
    },
    /// Receives them.
    PlainReceive {
        /// The address to listen at.
        address: SocketAddr,
        /// The kernel's congestion control.
        cc: String,
        /// The directory to receive into.
        dir: PathBuf,
    },
}

/// Runs one end; returns its exit code.
///
/// # Errors
/// The error of the system.
pub fn run_end(request: &EndRequest) -> Result<u8, RequestError> {
    let code = match request {
        EndRequest::Near(request) => near::run(request),
        EndRequest::PlainSend { address, cc, dir } => plain::send(*address, cc, dir).map(|()| 0),
        EndRequest::PlainReceive { address, cc, dir } => {
            plain::receive(*address, cc, dir).map(|()| 0)
        }
    };
    code.map(|code| u8::try_from(code).unwrap_or(7)).map_err(failed("an end of the demo"))
}

/// Runs the comparison and prints it to standard output.
///
/// # Errors
/// No namespaces, no disk space, files that differ at the end.
pub fn run(seed: u64, stop: &StopHandle) -> Result<(), RequestError> {
    let place = Place::new()?;
    let program = std::env::current_exe().map_err(failed("this program"))?;
    namespaces(&program, &place.0, stop)?;
    let rate = carried(&program, &place.0, stop)?;
    let wan = Wan { rate, rtt: RTT, loss: LOSS, seed };
    let source = place.0.join("files");
    let total = files::make_small(&source, rate)?;
    print_line(&format!(
        "packtrain demo --wan: {total} in 201 files over {rate}, {RTT} round trip, 0.01 % loss,\n\
         a queue of one bandwidth-delay product; near and far are network namespaces of this\n\
         machine, each program alone on an identical path (seed {seed})\n"
    ));
    let whole = files::digest_contents(&source)?;
    let lane = Lane { program: &program, place: &place.0, wan, total, stop };
    let mut rows = Vec::new();
    for mover in movers(&program, &place.0, &source) {
        let name = match &mover {
            Ok(mover) => mover.name,
            Err((name, _)) => name,
        };
        let mut bar = Bar::new(name, total.get());
        let mut moved = match mover {
            Ok(mover) => lane.run(&mover, &mut bar)?,
            Err((_, why)) => Err(why),
        };
        if let Ok(moved) = &mut moved
            && !moved.stopped
        {
            let digest = files::digest_contents(&files_of(&lane.target(name)))?;
            moved.whole = digest == whole;
        }
        bar.end(&moved);
        rows.push((name, moved));
        let _ = fs::remove_dir_all(lane.target(name));
    }
    print_line(&format!("\n{}", show::table(&rows)));
    verdict(&rows, &wan)
}

/// The files may be in a subdirectory: programs that copy a directory create it.
fn files_of(target: &Path) -> PathBuf {
    let below = target.join("files");
    if below.is_dir() { below } else { target.to_owned() }
}

/// Prints the last lines: the ratios of the rates, and the reason.
fn verdict(rows: &[(&'static str, Result<Moved, String>)], wan: &Wan) -> Result<(), RequestError> {
    let find =
        |name: &str| rows.iter().find(|(n, _)| *n == name).and_then(|(_, m)| m.as_ref().ok());
    let Some(ours) = find("native") else {
        let text = "the native transport did not run: see the line above";
        return Err(RequestError::new(FailureKind::Fatal, text));
    };
    if !ours.whole && !ours.stopped {
        let text = "what the native transport moved differs from its source: a bug, report it";
        return Err(RequestError::new(FailureKind::Integrity, text));
    }
    if rows.iter().any(|(_, m)| m.as_ref().is_ok_and(|m| !m.honest)) {
        print_line(
            "The emulator itself was late in at least one run: take the figures as a sketch.",
        );
    }
    let best = rows
        .iter()
        .filter(|(name, _)| *name != "native")
        .filter_map(|(name, m)| m.as_ref().ok().map(|m| (*name, m)))
        .max_by(|a, b| a.1.goodput().total_cmp(&b.1.goodput()));
    let Some((name, peer)) = best else {
        print_line("No peer ran here, so there is nothing to compare with.");
        return Ok(());
    };
    let ratio = |m: &Moved| ours.goodput() / m.goodput().max(1.0);
    let cubic = find("tcp cubic").filter(|_| name != "tcp cubic");
    let times = cubic
        .map_or_else(String::new, |c| format!(" and {:.1} times as fast as tcp cubic", ratio(c)));
    print_line(&format!("native was {:.2} times as fast as {name}{times}.", ratio(peer)));
    print_line(&why(ours, find("tcp cubic"), wan));
    Ok(())
}

/// The observations, and the reactions of the algorithms to them.
fn why(ours: &Moved, cubic: Option<&Moved>, wan: &Wan) -> String {
    let share = |m: &Moved| m.goodput() * 100.0 / wan.rate.as_bps() as f64;
    let random = ours.lost.saturating_sub(ours.overflow);
    let full = match ours.overflow {
        0 => "none were dropped by a full queue".to_owned(),
        1 => "1 was dropped by a full queue".to_owned(),
        n => format!("{n} were dropped by a full queue"),
    };
    let mut text = format!(
        "It used {:.0} % of the path from start to sync. The path lost {random} of its packets at random, and it\n\
         kept its rate; {full}.",
        share(ours),
    );
    if let Some(verdict) = &ours.verdict {
        text += &format!(" Its own verdict: {verdict}.");
    }
    if let Some(cubic) = cubic {
        text += &format!(
            "\ntcp cubic takes each lost packet for a full queue and slows down: it lost {} and used {:.0} %.",
            cubic.lost,
            share(cubic)
        );
    }
    text
}

/// Checks whether network namespaces can be created here.
fn namespaces(program: &Path, place: &Path, stop: &StopHandle) -> Result<(), RequestError> {
    let mut command = Command::new(program);
    command.args(["emulate", "--rate", "100mbit", "--rtt", "2ms", "--", "true"]);
    own_environment(&mut command, place);
    let log = place.join("namespaces.log");
    let trouble = fs::File::create(&log).map_err(failed("a log"))?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(trouble);
    if wait(command, "the emulator", stop)? {
        return Ok(());
    }
    let said = fs::read_to_string(&log).unwrap_or_default();
    let said = said.trim();
    Err(RequestError::new(FailureKind::Fatal, format!("demo --wan cannot run here: {said}")))
}

/// Runs a command; returns whether it succeeded. A request to stop kills it.
fn wait(mut command: Command, what: &'static str, stop: &StopHandle) -> Result<bool, RequestError> {
    let mut running = lane::Running(command.spawn().map_err(failed(what))?);
    loop {
        check_stop(stop)?;
        if let Some(status) = running.0.try_wait().map_err(failed(what))? {
            return Ok(status.success());
        }
        std::thread::sleep(lane::SAMPLE_INTERVAL);
    }
}

/// The rate that this machine can emulate, measured with about a second of data over a short path.
fn carried(program: &Path, place: &Path, stop: &StopHandle) -> Result<DataRate, RequestError> {
    let ticket = place.join("probe.ticket");
    let out = place.join("probe.out");
    let mut command = Command::new(program);
    command.args(["emulate", "--json", "--queue", "1bdp", "--rtt", "10ms", "--rate"]);
    command.arg(format!("{}bit", FAST.as_bps()));
    let far = format!(
        "{} perf server --listen {FAR}:7876 --ticket-file {} --tests 1",
        quoted(program),
        quoted(&ticket)
    );
    command.arg("--far").arg(far).arg("--").arg(program);
    command.args(["demo", "near", "--address", &format!("{FAR}:7876"), "--file"]).arg(&ticket);
    command.arg("--out").arg(&out).arg("--").arg(program);
    command.args(["perf", "client", &format!("{FAR}:7876"), "--accept-new-host", "--seconds", "2"]);
    command.args(["--json", "--ticket", &format!("@{}", ticket.display())]);
    own_environment(&mut command, place);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let ended_well = wait(command, "the probe", stop)?;
    let text = fs::read_to_string(&out).unwrap_or_default();
    let last: serde_json::Value =
        text.lines().last().and_then(|l| serde_json::from_str(l).ok()).unwrap_or_default();
    let goodput = last["goodput_bps"].as_f64().unwrap_or(0.0);
    if ended_well && goodput >= MIN_CARRIED_SHARE * FAST.as_bps() as f64 {
        return Ok(FAST);
    }
    print_line(&format!(
        "This machine carried {:.0} Mbit/s over an emulated {FAST}: the demo runs at {SLOW} instead.",
        goodput / 1e6
    ));
    Ok(SLOW)
}

fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

type Entrant = Result<Mover, (&'static str, String)>;

fn movers(program: &Path, place: &Path, source: &Path) -> Vec<Entrant> {
    vec![
        Ok(plain("tcp cubic", "cubic", 5_001, program, place, source)),
        Ok(plain("tcp bbr", "bbr", 5_002, program, place, source)),
        rsync(place, source),
        Ok(native(program, place, source)),
    ]
}

fn plain(
    name: &'static str,
    cc: &str,
    port: u16,
    program: &Path,
    place: &Path,
    source: &Path,
) -> Mover {
    let end = |word: &str, dir: &Path| -> Vec<OsString> {
        let address = format!("{FAR}:{port}");
        let words = ["demo", word, "--address", &address, "--cc", cc, "--dir"];
        let mut all: Vec<OsString> = words.map(OsString::from).to_vec();
        all.push(dir.as_os_str().to_owned());
        all
    };
    let target = place.join("targets").join(name);
    let far = end("plain-receive", &target)
        .iter()
        .map(|word| quoted(Path::new(word)))
        .collect::<Vec<_>>()
        .join(" ");
    let mut near = vec![program.as_os_str().to_owned()];
    near.extend(end("plain-send", source));
    Mover { name, far: format!("{} {far}", quoted(program)), near, port, wait_for: None }
}

fn native(program: &Path, place: &Path, source: &Path) -> Mover {
    let ticket = place.join("native.ticket");
    let target = place.join("targets").join("native");
    let far = format!(
        "{} serve --listen {FAR}:7876 --root {} --ticket-file {}",
        quoted(program),
        quoted(&target),
        quoted(&ticket)
    );
    let ticket_arg = format!("@{}", ticket.display());
    let to = format!("pt://{FAR}:7876/");
    let mut near = vec![program.as_os_str().to_owned()];
    let words = ["cp", "-r", "--transport", "native", "--retries", "0", "--json", "--ticket"];
    near.extend(words.map(OsString::from));
    near.push(ticket_arg.into());
    near.push(source.as_os_str().to_owned());
    near.push(to.into());
    Mover { name: "native", far, near, port: 7_876, wait_for: Some(ticket) }
}

/// rsync over ssh, with a server, keys and configuration of the demo.
fn rsync(place: &Path, source: &Path) -> Entrant {
    const NAME: &str = "rsync ssh";
    let no = |why: String| (NAME, why);
    let need =
        |program: &str| which(program).ok_or_else(|| no(format!("{program} is not installed")));
    need("rsync")?;
    need("ssh")?;
    let sshd = need("sshd")?;
    let dir = place.join("ssh");
    fs::create_dir_all(&dir).map_err(|e| no(e.to_string()))?;
    for key in ["host", "user"] {
        let mut keygen = Command::new("ssh-keygen");
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(dir.join(key));
        let made = keygen.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !made.is_ok_and(|status| status.success()) {
            return Err(no("ssh-keygen made no key".to_owned()));
        }
    }
    let at = dir.display();
    let config = format!(
        "Port 2222\nListenAddress {FAR}\nHostKey {at}/host\nPidFile none\n\
         AuthorizedKeysFile {at}/user.pub\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n\
         KbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n"
    );
    fs::write(dir.join("config"), config).map_err(|e| no(e.to_string()))?;
    let ssh = format!(
        "ssh -p 2222 -i {at}/user -o IdentitiesOnly=yes -o BatchMode=yes -o LogLevel=ERROR \
         -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
    );
    let words = ["rsync", "-r", "--whole-file", "--fsync", "-e", &ssh];
    let mut near: Vec<OsString> = words.map(OsString::from).to_vec();
    let mut from = source.as_os_str().to_owned();
    from.push("/");
    near.push(from);
    near.push(format!("{FAR}:{}/", place.join("targets").join(NAME).display()).into());
    // Only as root, sshd requires an empty directory that is created at boot.
    let far = format!(
        "[ \"$(id -u)\" = 0 ] && mkdir -p /run/sshd; exec {} -D -e -f {at}/config",
        quoted(&sshd)
    );
    Ok(Mover { name: NAME, far, near, port: 2_222, wait_for: None })
}

fn which(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
}
