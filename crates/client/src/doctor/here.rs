//! The checks of one machine. They change nothing.

use std::net::{Ipv4Addr, UdpSocket};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration as StdDuration;

use packtrain_identity::config::Dirs;
use packtrain_os::{clock, entropy};
use packtrain_units::ByteCount;
use rustix::process::geteuid;

use super::{Check, VERSION};

/// Socket buffers of this size hold 6 ms of 10 Gbit/s, with the kernel's own overhead: an ordinary
/// scheduler lets a thread wait for 4 ms.
const WANTED_BUFFER: ByteCount = ByteCount(4 << 20);
/// What the remedy sets: what `native` asks the kernel for.
const SET_BUFFER: u64 = 8 << 20;
/// A TCP stream with less cannot fill 1 Gbit/s at 30 ms.
const WANTED_TCP: ByteCount = ByteCount(4 << 20);
/// A disk with less room is worth a word.
const LITTLE_ROOM: ByteCount = ByteCount(1 << 30);
/// How long a datagram may take within this machine.
const LOOPBACK_TIMEOUT: StdDuration = StdDuration::from_secs(5);

/// Checks this machine, for a user who works in `directory`.
pub fn check(directory: &Path) -> Vec<Check> {
    let mut checks = vec![Check::ok("program", format!("packtrain {VERSION}"))];
    checks.push(udp());
    checks.extend(buffers(&|name| std::fs::read_to_string(format!("/proc/sys/net/{name}")).ok()));
    checks.push(clock_kept(clock::is_kept()));
    let mut places = vec![directory.to_owned(), std::env::temp_dir()];
    match Dirs::from_env() {
        Ok(dirs) => {
            checks.extend(key_files(&dirs, geteuid().as_raw()));
            places.push(dirs.state);
        }
        Err(error) => checks.push(Check::fault("home", error.to_string(), "set HOME")),
    }
    checks.extend(disks(&places));
    checks
}

/// Whether datagrams pass from this machine to itself.
fn udp() -> Check {
    let told = entropy::seed().to_be_bytes();
    let passed = || -> std::io::Result<bool> {
        let (from, to) = (
            UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?,
            UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?,
        );
        to.set_read_timeout(Some(LOOPBACK_TIMEOUT))?;
        from.send_to(&told, to.local_addr()?)?;
        let mut buffer = [0; 64];
        let (n, _) = to.recv_from(&mut buffer)?;
        Ok(buffer.get(..n) == Some(&told[..]))
    };
    match passed() {
        Ok(true) => Check::ok("UDP", "datagrams pass within this machine"),
        Ok(false) => Check::fault("UDP", "a datagram was changed within this machine", FILTER),
        Err(error) => {
            let says = format!("no datagram passes within this machine: {error}");
            Check::fault("UDP", says, FILTER)
        }
    }
}

const FILTER: &str = "look for a packet filter on the loopback interface (nft list ruleset); until \
                      then transfers use TCP";

/// The limits on socket buffers. `read` reads a setting below `/proc/sys/net`.
fn buffers(read: &dyn Fn(&str) -> Option<String>) -> Vec<Check> {
    let last = |name: &str| {
        let text = read(name)?;
        text.split_whitespace().last()?.parse().ok().map(ByteCount)
    };
    let mut checks = Vec::new();
    let core = ["core/rmem_max", "core/wmem_max"];
    let small: Vec<_> = core
        .into_iter()
        .filter_map(|name| Some((name, last(name)?)))
        .filter(|(_, size)| *size < WANTED_BUFFER)
        .collect();
    let named = |name: &str| format!("net.{}", name.replace('/', "."));
    if small.is_empty() {
        let known = core.iter().all(|name| last(name).is_some());
        let says = if known { "large enough for 10 Gbit/s" } else { "this system does not tell" };
        checks.push(Check::ok("UDP buffers", says));
    } else {
        let limits = small.iter().map(|(name, size)| format!("{} is {}", named(name), size.get()));
        let says = limits.collect::<Vec<_>>().join(" and ");
        let settings = small.iter().map(|(name, _)| format!("{}={SET_BUFFER}", named(name)));
        let remedy = format!(
            "as root: sysctl -w {} (and the same in /etc/sysctl.d/packtrain.conf)",
            settings.collect::<Vec<_>>().join(" ")
        );
        let says = format!("{says}: a busy machine drops packets at high rates");
        checks.push(Check::advice("UDP buffers", says, remedy));
    }
    for (name, set) in
        [("ipv4/tcp_rmem", "4096 131072 67108864"), ("ipv4/tcp_wmem", "4096 65536 67108864")]
    {
        if let Some(size) = last(name).filter(|size| *size < WANTED_TCP) {
            let name = named(name);
            let says = format!("{name} allows {size}: a TCP stream is slow on long paths");
            let remedy = format!("as root: sysctl -w {name}='{set}'");
            checks.push(Check::advice("TCP buffers", says, remedy));
        }
    }
    if checks.len() == 1 {
        checks.push(Check::ok("TCP buffers", "large enough"));
    }
    checks
}

fn clock_kept(kept: Option<bool>) -> Check {
    match kept {
        Some(true) => Check::ok("clock", "kept right by a time service"),
        Some(false) => Check::advice(
            "clock",
            "no time service keeps it right",
            "run chronyd or systemd-timesyncd: depots refuse clocks that are two minutes apart",
        ),
        None => Check::ok("clock", "this system does not tell whether it is kept right"),
    }
}

/// The room on the file systems of these directories; each file system once.
fn disks(places: &[PathBuf]) -> Vec<Check> {
    let (mut seen, mut checks) = (Vec::new(), Vec::new());
    for place in places {
        // The state directory is made when it is first needed.
        let Some(there) = place.ancestors().find(|place| place.is_dir()) else { continue };
        let Ok(device) = there.metadata().map(|metadata| metadata.dev()) else { continue };
        if seen.contains(&device) {
            continue;
        }
        seen.push(device);
        let shown = place.display();
        match rustix::fs::statvfs(there) {
            Ok(room) => {
                let free = ByteCount(room.f_bavail.saturating_mul(room.f_frsize));
                checks.push(if free == ByteCount::ZERO {
                    Check::fault("disk", format!("{shown}: full"), "remove something there")
                } else if free < LITTLE_ROOM {
                    let says = format!("{shown}: only {free} are free");
                    Check::advice("disk", says, "remove something there before a large copy")
                } else {
                    Check::ok("disk", format!("{shown}: {free} free"))
                });
            }
            Err(error) => {
                let says = format!("{shown}: {error}");
                checks.push(Check::fault("disk", says, "check the file system"));
            }
        }
    }
    checks
}

/// The files of keys, as far as they exist: secrets are the user's alone, and nobody else may
/// change who is trusted.
fn key_files(dirs: &Dirs, user: u32) -> Vec<Check> {
    let files = [
        (dirs.config.join("key"), 0o077, "chmod go="),
        (dirs.config.clone(), 0o022, "chmod go-w"),
        (dirs.authorized_keys(), 0o022, "chmod go-w"),
        (dirs.known_hosts(), 0o022, "chmod go-w"),
        (dirs.config.join("config.toml"), 0o022, "chmod go-w"),
    ];
    let mut checks = Vec::new();
    for (path, forbidden, command) in files {
        let Ok(metadata) = path.metadata() else { continue };
        let (mode, owner) = (metadata.permissions().mode() & 0o7777, metadata.uid());
        let shown = path.display();
        if mode & forbidden != 0 {
            let what = if forbidden == 0o077 { "read" } else { "change" };
            let says = format!("others may {what} {shown} (mode {mode:04o})");
            checks.push(Check::fault("key files", says, format!("{command} {shown}")));
        } else if owner != user && owner != 0 {
            let says = format!("{shown} belongs to user {owner}");
            checks.push(Check::fault("key files", says, format!("chown {user} {shown}")));
        }
    }
    if checks.is_empty() {
        let says = format!("{}: only this user can change them", dirs.config.display());
        checks.push(Check::ok("key files", says));
    }
    checks
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::State;
    use super::*;

    #[test]
    fn small_limits_name_the_sysctl_line() {
        let default = |name: &str| {
            let text = match name {
                "core/rmem_max" | "core/wmem_max" => "212992\n",
                "ipv4/tcp_rmem" => "4096\t131072\t6291456\n",
                _ => "4096\t16384\t1048576\n",
            };
            Some(text.to_owned())
        };
        let checks = buffers(&default);
        let remedy = checks[0].remedy.as_deref().expect("advice");
        let line = "sysctl -w net.core.rmem_max=8388608 net.core.wmem_max=8388608";
        assert!(remedy.contains(line), "{remedy}");
        assert_eq!(checks.len(), 2);
        assert!(checks[1].says.contains("net.ipv4.tcp_wmem allows 1.0 MiB"), "{}", checks[1].says);
        let large = buffers(&|_| Some("16777216".to_owned()));
        assert!(large.iter().all(|check| check.state == State::Ok), "{large:?}");
        for nonsense in [None, Some("a few".to_owned()), Some(String::new())] {
            let checks = buffers(&|_| nonsense.clone());
            assert!(checks.iter().all(|check| check.state == State::Ok), "{checks:?}");
        }
    }

    #[test]
    fn key_files_that_others_read_or_change_are_faults() {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("config");
        fs::create_dir(&config).unwrap();
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(&config, 0o700);
        let dirs = Dirs { config, state: dir.path().into(), site: dir.path().into() };
        let user = geteuid().as_raw();
        let faults = || {
            let checks = key_files(&dirs, user).into_iter();
            let faults = checks.filter(|check| check.state == State::Fault);
            faults.map(|check| check.remedy.unwrap()).collect::<Vec<_>>()
        };
        assert!(faults().is_empty(), "no file is no fault");
        let key = dirs.config.join("key");
        fs::write(&key, "secret").unwrap();
        mode(&key, 0o644);
        fs::write(dirs.authorized_keys(), "").unwrap();
        mode(&dirs.authorized_keys(), 0o620);
        let wanted = [
            format!("chmod go= {}", key.display()),
            format!("chmod go-w {}", dirs.authorized_keys().display()),
        ];
        assert_eq!(faults(), wanted);
        mode(&key, 0o600);
        mode(&dirs.authorized_keys(), 0o644);
        assert!(faults().is_empty());
    }

    #[test]
    fn this_machine_is_checked() {
        let dir = tempfile::tempdir().unwrap();
        let checks = check(dir.path());
        for what in ["program", "UDP", "UDP buffers", "TCP buffers", "clock", "disk", "key files"] {
            assert!(checks.iter().any(|check| check.what == what), "{what}: {checks:?}");
        }
        assert!(checks.iter().all(|c| (c.state == State::Ok) == c.remedy.is_none()), "{checks:?}");
        let missing = disks(&[dir.path().join("not/there/yet"), dir.path().to_owned()]);
        assert_eq!(missing.len(), 1, "one file system: {missing:?}");
    }
}
