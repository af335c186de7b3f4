//! Names at another machine, for the completion of remote places in a shell.
//!
//! Over ssh the names come from a shell script, so nothing needs to be installed there; a server
//! answers a query. A person waits for the names: there is a time limit, nothing is asked (ssh's
//! `BatchMode`), and an error is the same as no names
//! ([ADR 0060](../../../docs/adr/0060-remote-completion-asks-a-shell.md) and
//! [ADR 0067](../../../docs/adr/0067-servers-list-names-for-completion.md)).

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;

use packtrain_identity::config::Dirs;
use packtrain_os::process::start_without_terminal;
use packtrain_runtime::session::Stop;
use packtrain_runtime::{query, tunnel};
use packtrain_service::{Location, SshSettings, StopHandle};
use packtrain_units::{Duration, escape};

use crate::ssh::child::{self, Target};

/// How long the other machine may take.
const TIME_LIMIT: Duration = Duration::from_secs(4);
/// Options of ssh with which it asks nothing, forwards nothing and gives up early.
const QUIET: &[&str] = &[
    "-a",
    "-x",
    "-oBatchMode=yes",
    "-oConnectTimeout=3",
    "-oClearAllForwardings=yes",
    "-oPermitLocalCommand=no",
];
/// Bytes of the answer that are read.
const MAX_ANSWER: u64 = 1 << 20;
/// Names that are offered. The script sends no more either.
const MAX_NAMES: usize = 1000;
/// Longest name of a file on Linux, in bytes.
const MAX_NAME: usize = 255;

/// Runs the first line of its input, which may have any characters.
const RUN: &str = "read -r s; eval \"$s\"";
/// Reads a path, and writes the names that begin as its last name does, each with a zero byte; those
/// of directories with a slash. The path is only ever an argument of builtin commands, in quotes.
const LIST: &str = "p=$(cat; echo .); p=${p%.}; i=0; printf 'PACKTRAIN-NAMES-1\\0'; \
     for f in \"$p\"*; do \
     if [ -d \"$f\" ]; then d=/; elif [ -e \"$f\" ] || [ -L \"$f\" ]; then d=; else continue; fi; \
     i=$((i+1)); if [ $i -gt 1000 ]; then break; fi; \
     printf '%s%s\\0' \"${f##*/}\" \"$d\"; done\n";
/// What the script writes first. Login shells may print something before.
const MARKER: &[u8] = b"PACKTRAIN-NAMES-1\0";

/// The names at `place` that begin with its last name, sorted; those of directories end with a slash.
/// Empty if the machine does not answer in time, or asks for a password. Names that a terminal must not
/// print are left out. None if `place` is at no server and not reached by the program `ssh`.
pub fn names(settings: &SshSettings, place: &Location) -> Option<Vec<String>> {
    let (user, host, path) = match place {
        Location::Ssh { user, host, path } => (user, host, path),
        Location::Server { host, port, path } => {
            return Some(served(host, *port, path).unwrap_or_default());
        }
        _ => return None,
    };
    let mut settings = settings.clone();
    let (program, rest) = settings.command.split_first()?;
    // Others cannot be told to ask nothing.
    if Path::new(program).file_name()? != "ssh" {
        return None;
    }
    let quiet = QUIET.iter().map(|&word| word.to_owned());
    settings.command = [program.clone()].into_iter().chain(quiet).chain(rest.to_vec()).collect();
    let target = Target::new(user.as_deref(), host).ok()?;
    let mut command = child::command(&settings, &[], &target).ok()?;
    command.arg(child::posix(RUN));
    // ssh starts in the home directory.
    let path = path.strip_prefix(b"~/").unwrap_or(path);
    let answer = run(command, &[LIST.as_bytes(), path].concat(), TIME_LIMIT).unwrap_or_default();
    Some(parse(&answer, begun(path)))
}

/// The names at a server that knows this user's key and whose own key is known here. Without a key of
/// this user none is made, and no server is asked.
fn served(host: &str, port: u16, path: &[u8]) -> Option<Vec<String>> {
    if !Dirs::from_env().ok()?.config.join("key").exists() {
        return None;
    }
    let (sender, receiver) = mpsc::channel();
    let (host, own_path) = (host.to_owned(), path.to_vec());
    // The process ends after the answer, and the thread with it.
    std::thread::spawn(move || {
        let trust = tunnel::Trust { ticket: None, accept_new_host: false };
        let stop = StopHandle::new();
        let Ok(tunnel) = tunnel::open(&host, port, &trust, None, &stop, &|_| {}) else { return };
        let stop = Stop::new(stop);
        let _ = sender.send(query::names(&tunnel.control, &own_path, stop).unwrap_or_default());
    });
    let found = receiver.recv_timeout(TIME_LIMIT.to_std()).ok()?;
    Some(of_server(found, begun(path)))
}

/// The names that a server sent, which may be anything.
fn of_server(found: Vec<query::Name>, begun: &[u8]) -> Vec<String> {
    let with_slash = |(mut name, is_dir): query::Name| {
        if is_dir {
            name.push(b'/');
        }
        name
    };
    let parts: Vec<Vec<u8>> = found.into_iter().map(with_slash).collect();
    printable(parts.iter().map(Vec::as_slice), begun)
}

/// The last name of a path, which is to be completed.
fn begun(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

/// What a command writes to its output within `limit`; it is ended then.
fn run(mut command: Command, input: &[u8], limit: Duration) -> Option<Vec<u8>> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    // `BatchMode` holds for the last host only: the ssh to a host on the way would ask.
    command.env("SSH_ASKPASS_REQUIRE", "never").env_remove("DISPLAY");
    start_without_terminal(&mut command);
    let mut process = command.spawn().ok()?;
    let group = rustix::process::Pid::from_child(&process);
    let (mut to, from) = (process.stdin.take()?, process.stdout.take()?);
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut answer = Vec::new();
        let _ = from.take(MAX_ANSWER).read_to_end(&mut answer);
        let _ = sender.send(answer);
    });
    // The input fits into the pipe, so this does not wait.
    let _ = to.write_all(input);
    drop(to);
    let answer = receiver.recv_timeout(limit.to_std());
    // The process was not waited for, so its id is still that of its group.
    let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    let _ = process.wait();
    answer.ok()
}

/// The names in an answer. The other end may send anything.
fn parse(answer: &[u8], begun: &[u8]) -> Vec<String> {
    let Some(at) = answer.windows(MARKER.len()).position(|window| window == MARKER) else {
        return Vec::new();
    };
    let (_, names) = answer.split_at(at + MARKER.len());
    let mut parts: Vec<&[u8]> = names.split(|byte| *byte == 0).collect();
    // The last name is whole only if a zero byte follows.
    parts.pop();
    printable(parts.into_iter(), begun)
}

/// The first names that begin so and that a terminal may print, sorted.
fn printable<'a>(parts: impl Iterator<Item = &'a [u8]>, begun: &[u8]) -> Vec<String> {
    let mut found: Vec<String> = parts
        .take(MAX_NAMES)
        .filter(|part| part.starts_with(begun))
        .filter_map(|part| std::str::from_utf8(part).ok())
        .filter(|part| is_name(part.strip_suffix('/').unwrap_or(part)))
        .map(str::to_owned)
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Whether this is one name that a terminal may print.
fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_NAME
        && !matches!(name, "." | "..")
        && !name.contains(|letter| letter == '/' || escape::is_hostile(letter))
}

/// The names in any answer, for fuzzing.
#[cfg(feature = "fuzzing")]
pub(crate) fn names_in(answer: &[u8]) -> Vec<String> {
    parse(answer, b"")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// What the script says of `path` in `dir`, by the shell of this machine.
    fn listed(dir: &Path, path: &[u8]) -> Vec<String> {
        let mut shell = Command::new("sh");
        shell.args(["-c", &child::posix(RUN)]).current_dir(dir);
        let input = [LIST.as_bytes(), path].concat();
        let answer = run(shell, &input, Duration::from_secs(60)).expect("sh runs");
        parse(&answer, path.rsplit(|byte| *byte == b'/').next().unwrap_or_default())
    }

    #[test]
    fn the_script_lists_names_and_runs_none() {
        let dir = tempfile::tempdir().expect("a directory");
        for sub in ["data", "sub/deep", "$(touch bad)"] {
            fs::create_dir_all(dir.path().join(sub)).expect("fine");
        }
        for name in ["date.txt", "da ta", "'q", "sub/f", "sub/$(touch bad)", ".hidden", "new\nline"]
        {
            fs::write(dir.path().join(name), "").expect("fine");
        }
        std::os::unix::fs::symlink("data", dir.path().join("dir-link")).expect("fine");
        std::os::unix::fs::symlink("nowhere", dir.path().join("dangling")).expect("fine");
        for (path, wanted) in [
            ("da", &["da ta", "dangling", "data/", "date.txt"][..]),
            ("sub/", &["$(touch bad)", "deep/", "f"]),
            ("'", &["'q"]),
            ("dir", &["dir-link/"]),
            (".h", &[".hidden"]),
            ("$(touch bad)/", &[]),
            ("$(touch bad)", &["$(touch bad)/"]),
            ("`touch bad`", &[]),
            ("*", &[]),
            ("nothing", &[]),
            // A name with a line break is left out.
            ("new", &[]),
        ] {
            assert_eq!(listed(dir.path(), path.as_bytes()), wanted, "{path}");
        }
        assert!(!dir.path().join("bad").exists());
    }

    #[test]
    fn a_hostile_answer_is_plain_names_or_nothing() {
        let said = |text: &str| parse(format!("motd\nPACKTRAIN-NAMES-1\0{text}").as_bytes(), b"a");
        assert_eq!(said("ab\0ac/\0"), ["ab", "ac/"]);
        assert_eq!(said("ab\0ab\0aa\0"), ["aa", "ab"]);
        for hostile in [
            "a\u{1b}[2J\0",
            "a\nb\0",
            "a\u{202e}b\0",
            "a\rb\0",
            "a\tb\0",
            "a/b\0",
            "b\0",
            "cut off",
        ] {
            assert_eq!(said(hostile), [""; 0], "{hostile:?}");
        }
        assert_eq!(parse(b"PACKTRAIN-NAMES-1\0a\xff\0", b"a"), [""; 0]);
        assert_eq!(parse(b"ab\0ac\0", b"a"), [""; 0]);
        assert_eq!(said(&format!("a{}\0", "x".repeat(300))), [""; 0]);
        assert_eq!(said(&"a\0".repeat(5000)).len(), 1);
        let many: String = (0..5000).map(|n| format!("a{n}\0")).collect();
        assert_eq!(said(&many).len(), MAX_NAMES);
    }

    #[test]
    fn a_hostile_server_sends_plain_names_or_nothing() {
        let said = |names: &[(&str, bool)]| {
            let names = names.iter().map(|(name, is_dir)| (name.as_bytes().to_vec(), *is_dir));
            of_server(names.collect(), b"a")
        };
        assert_eq!(said(&[("ab", true), ("aa", false), ("b", false)]), ["aa", "ab/"]);
        for hostile in ["a\u{1b}[2J", "a\nb", "a/b", "a/", ""] {
            assert_eq!(
                said(&[(hostile, false), (hostile, true)]).len(),
                usize::from(hostile == "a/"),
                "{hostile:?}"
            );
        }
        assert_eq!(of_server(vec![(b"a\xff".to_vec(), false)], b"a"), [""; 0]);
    }

    #[test]
    fn nothing_but_ssh_is_asked_and_only_for_its_places() {
        let place = Location::parse("host:pa".as_ref()).expect("a place");
        let with = |program: &str| SshSettings {
            command: vec![program.to_owned()],
            ..SshSettings::default()
        };
        assert_eq!(names(&with("/nonexistent/ssh"), &place), Some(Vec::new()));
        assert_eq!(names(&with("plink"), &place), None);
        let local = Location::parse("pa".as_ref()).expect("a place");
        assert_eq!(names(&with("ssh"), &local), None);
    }

    #[test]
    fn a_program_that_says_nothing_is_ended() {
        let mut sleeping = Command::new("sleep");
        sleeping.arg("600");
        assert_eq!(run(sleeping, b"", Duration::from_millis(50)), None);
    }
}
