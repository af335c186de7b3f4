//! The scripts, run by the shell of this machine in directories of their own.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::*;

fn settings(remote_path: &str, bootstrap: bool) -> SshSettings {
    SshSettings { remote_path: remote_path.to_owned(), bootstrap, ..SshSettings::default() }
}

/// A shell with the home directory `home`.
fn shell(words: &str, home: &Path) -> Child {
    let mut command = Command::new("sh");
    command.args(["-c", words]).env("HOME", home).env_remove("XDG_CACHE_HOME");
    command.env("TMPDIR", home.join("tmp")).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().unwrap()
}

fn executable(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
}

/// A program as the other end starts it: it prints its arguments.
fn stand_in(protocol: &str) -> String {
    format!(
        "#!/bin/sh\nif [ \"$1\" = --version ]; then echo packtrain 1 {protocol}; exit; fi\necho runs $*\n"
    )
}

fn home() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join("tmp")).unwrap();
    home
}

#[test]
fn the_scripts_are_lines_that_every_shell_passes_on() {
    for script in [
        find("packtrain", Service::Transfer, true),
        find("~/x", Service::Doctor(Some(PortRange { first: 5000, last: 5511 })), false),
        super::install(Service::Transfer),
    ] {
        assert!(!script.contains('\n'));
        let checked = Command::new("sh").args(["-n", "-c", &script]).status().unwrap();
        assert!(checked.success(), "{script}");
    }
    let doctor = find("~/x", Service::Doctor(Some(PortRange { first: 5000, last: 5511 })), true);
    assert!(doctor.contains("doctor --stdio --ports 5000-5511"), "{doctor}");
    // `posix` checks the rest in debug builds.
    assert!(posix(&find("packtrain", Service::Transfer, true)).starts_with("exec sh -c 'set -f; "));
}

#[test]
fn command_lines_are_for_the_login_shell() {
    let words = |text: &str| super::words(&settings(text, true), Service::Transfer).unwrap();
    assert!(words("~/bin/packtrain").starts_with("exec sh -c"));
    let line = words("module load x && packtrain");
    assert!(line.starts_with("module load x && packtrain serve --stdio || exec sh -c '"), "{line}");
    let never = super::words(&settings("sudo packtrain", false), Service::Transfer).unwrap();
    assert_eq!(never, "sudo packtrain serve --stdio");
    for refused in ["-v", "", " ", "a\nb"] {
        let failure = super::words(&settings(refused, true), Service::Doctor(None)).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Usage, "{refused:?}");
    }
}

#[test]
fn only_a_compatible_program_is_started() {
    for (protocol, starts) in [
        ("", true),
        ("protocol 1 to 1", true),
        ("protocol 1 to 999", true),
        ("protocol 998 to 999", false),
        ("protocol 0 to 0", false),
        ("protocol x to y", false),
    ] {
        let home = home();
        executable(&home.path().join(".local/bin/packtrain"), &stand_in(protocol));
        let script =
            find("packtrain", Service::Transfer, true).replace("for p in packtrain ", "for p in ");
        let mut child = shell(&posix(&script), home.path());
        drop(child.stdin.take());
        let mut said = String::new();
        child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        child.wait().unwrap();
        assert_eq!(said.contains("runs serve --stdio"), starts, "{protocol}: {said}");
        let ready = said.lines().find_map(|line| Ready::parse(line.as_bytes()));
        assert_eq!(ready.is_some_and(|ready| ready.unusable), !starts, "{protocol}: {said}");
    }
}

/// Sends a program as `cp` does, of which `arrives` is what gets there, and returns what the shell
/// printed.
fn install_of(home: &Path, bytes: &[u8], arrives: &[u8]) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes);
    let digest: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let mut child = shell("read -r s && eval \"$s\"", home);
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    write!(input, "{}\n{digest} {}\n", super::install(Service::Transfer), bytes.len()).unwrap();
    let mut said = String::new();
    while !said.contains("PACKTRAIN-BOOTSTRAP") && output.read_line(&mut said).unwrap() > 0 {}
    if said.contains(SEND) {
        writeln!(input, "{} plain", bytes.len()).unwrap();
        input.write_all(arrives).unwrap();
    }
    drop(input);
    output.read_to_string(&mut said).unwrap();
    child.wait().unwrap();
    said
}

fn install(home: &Path, program: &str) -> String {
    install_of(home, program.as_bytes(), program.as_bytes())
}

fn names(dir: &Path) -> Vec<String> {
    let items = fs::read_dir(dir).into_iter().flatten().flatten();
    items.map(|item| item.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn a_program_is_sent_once() {
    let home = home();
    let program = stand_in("");
    let first = install(home.path(), &program);
    assert!(first.contains("SEND cache") && first.contains("runs serve --stdio"), "{first}");
    let second = install(home.path(), &program);
    assert!(!second.contains("SEND") && second.contains("runs serve --stdio"), "{second}");
    let cache = home.path().join(".cache/packtrain");
    assert_eq!(names(&cache).len(), 1, "{:?}", names(&cache));
    assert!(names(&home.path().join("tmp")).is_empty());
    // A damaged copy in the cache is replaced.
    let place = cache.join(&names(&cache)[0]).join("packtrain");
    fs::write(&place, "#!/bin/sh\n").unwrap();
    let third = install(home.path(), &program);
    assert!(third.contains("SEND cache") && third.contains("runs serve --stdio"), "{third}");
    assert_eq!(fs::read_to_string(place).unwrap(), program);
}

#[test]
fn what_does_not_arrive_or_does_not_run_is_removed() {
    let home = home();
    let program = stand_in("");
    let (whole, damaged) =
        (program.as_bytes(), program.replace("runs", "ruins").replace("$*", "$"));
    assert_eq!(whole.len(), damaged.len());
    let cut = install_of(home.path(), whole, &whole[..whole.len() - 1]);
    assert!(cut.contains("FAILED the program did not arrive whole"), "{cut}");
    let damaged = install_of(home.path(), whole, damaged.as_bytes());
    assert!(damaged.contains("FAILED the program arrived damaged"), "{damaged}");
    let fails = install(home.path(), "#!/bin/sh\necho what is this; exit 1\n");
    assert!(fails.contains("FAILED what is this"), "{fails}");
    assert!(names(&home.path().join(".cache/packtrain")).is_empty());
    assert!(names(&home.path().join("tmp")).is_empty());
}

#[test]
fn without_a_cache_the_program_is_removed_at_the_end() {
    let home = home();
    // A file is where the cache should be; not even root makes a directory of it.
    fs::write(home.path().join(".cache"), "").unwrap();
    let program = stand_in("");
    let said = install(home.path(), &program);
    assert!(said.contains("SEND once") && said.contains("runs serve --stdio"), "{said}");
    assert!(names(&home.path().join("tmp")).is_empty());
    fs::remove_dir(home.path().join("tmp")).unwrap();
    fs::write(home.path().join("tmp"), "").unwrap();
    let said = install(home.path(), &program);
    assert!(said.contains("PACKTRAIN-BOOTSTRAP-FAILED"), "{said}");
}

/// Sent, from the cache, and sent for one use.
#[test]
fn the_program_gets_the_umask_of_the_account() {
    let home = home();
    let program = format!("{}umask\n", stand_in(""));
    let plain = |home: &Path| {
        // A test may itself run with any umask: what counts is that the program has the same.
        let mut child = shell("umask", home);
        let mut said = String::new();
        child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        child.wait().unwrap();
        said
    };
    let expected = plain(home.path());
    assert_ne!(expected.trim(), "0077", "the test needs another umask than that of the script");
    for way in ["sent", "cached"] {
        let said = install(home.path(), &program);
        assert_eq!(said.contains("SEND cache"), way == "sent", "{said}");
        assert!(said.ends_with(&format!("runs serve --stdio\n{expected}")), "{way}: {said}");
    }
    fs::remove_dir_all(home.path().join(".cache")).unwrap();
    fs::write(home.path().join(".cache"), "").unwrap();
    let said = install(home.path(), &program);
    assert!(said.contains("SEND once"), "{said}");
    assert!(said.ends_with(&format!("runs serve --stdio\n{expected}")), "{said}");
}

/// Unfinished copies: of a process of this namespace that has ended, of one that runs, and of
/// another namespace, young and old.
#[test]
fn only_copies_of_processes_that_are_known_to_have_ended_are_removed() {
    let home = home();
    let cache = home.path().join(".cache/packtrain");
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap();
    let namespace: String =
        namespace.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    let here = format!(".new-{}-{namespace}", &boot[..8]);
    let mut ended = Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let (dead, running) =
        (format!("{here}-{}.aaaaaa", ended.id()), format!("{here}-{}.bbbbbb", std::process::id()));
    let (young, old) = (".new-0123abcd-7-1.cccccc", ".new-0123abcd-7-1.dddddd");
    for name in [&dead, &running, young, old] {
        fs::create_dir_all(cache.join(name)).unwrap();
    }
    let aged = Command::new("touch").args(["-d", "2 days ago"]).arg(cache.join(old)).status();
    assert!(aged.unwrap().success());
    let program = stand_in("");
    let said = install(home.path(), &program);
    assert!(said.contains("runs serve --stdio"), "{said}");
    let mut left: Vec<_> = names(&cache).into_iter().filter(|name| name.starts_with('.')).collect();
    left.sort();
    let mut expected = vec![running, young.to_owned()];
    expected.sort();
    assert_eq!(left, expected);
}

#[test]
fn what_the_other_end_says_is_kept_in_bounds() {
    let target = Target::new(None, "host").unwrap();
    let why = shown(&format!("gzip: stdout: No space left on device\u{1b}[2J{}", "x".repeat(999)));
    assert!(why.len() <= MAX_REASON && !why.contains('\u{1b}'));
    let size = ByteCount(9 << 20);
    let full = refused(&target, &why, size);
    assert_eq!(full.kind, FailureKind::TargetFull);
    assert!(full.text.starts_with("no space on host"), "{}", full.text);
    for (why, what_to_do) in [
        ("noexec: programs may not run in /x/.cache", "XDG_CACHE_HOME"),
        ("/lib/libc.so.6: version `GLIBC_2.36' not found", "cargo xtask dist"),
        ("Permission denied", "--remote-path"),
    ] {
        let failure = refused(&target, why, size);
        assert_eq!(failure.kind, FailureKind::Fatal);
        assert!(failure.text.contains(what_to_do), "{}", failure.text);
    }
    assert!(Ready::parse(b"PACKTRAIN-BOOTSTRAP-2 Linux").is_none());
    let Some(Said::Send(stays, why)) = Said::parse(b"PACKTRAIN-BOOTSTRAP-SEND once mkdir: no; ")
    else {
        panic!("it asks for the program")
    };
    assert_eq!((stays, why.as_str()), (false, "mkdir: no"));
}
