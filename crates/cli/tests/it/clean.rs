//! What interrupted copies leave, which files a later copy may reuse, and `clean`.
#![allow(clippy::disallowed_methods, reason = "tests of a command wait")]

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Home, code, exists, stderr, stdout};
use crate::web::noise;

const NOBODY: u32 = 65_534;
/// A step takes longer only if it hangs.
const LONG: Duration = Duration::from_secs(120);

/// Reports that a test was skipped because it needs root.
fn is_root() -> bool {
    if fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0) {
        return true;
    }
    packtrain_testkit::skip("other users' files need root");
    false
}

fn wait_for(what: &str, mut there: impl FnMut() -> bool) {
    let start = Instant::now();
    while !there() {
        assert!(start.elapsed() < LONG, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The names in a directory that begin with a dot.
fn hidden(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .expect("a folder")
        .flatten()
        .map(|item| item.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with('.'))
        .collect();
    names.sort();
    names
}

fn temporary(dir: &Path) -> Option<PathBuf> {
    let names = hidden(dir);
    let name = names.iter().find(|name| name.contains(".packtrain-") && !name.starts_with(".p"))?;
    Some(dir.join(name))
}

/// Starts a slow copy and returns when it runs and has a journal.
fn slow_copy(mut command: Command, dir: &Path) -> Child {
    command.args(["--rate", "40mbit", "--retries", "0"]);
    let child = command.stderr(Stdio::null()).spawn().expect("it starts");
    wait_for("the copy has written something durable", || {
        let names = if dir.is_dir() { hidden(dir) } else { Vec::new() };
        let size = |name: &String| fs::metadata(dir.join(name)).map_or(0, |meta| meta.len());
        names.iter().any(|name| name.ends_with(".journal") && size(name) > 100)
            && temporary(dir).is_some()
    });
    child
}

/// Kills a copy of `big` to `dst/` before it is complete.
fn killed_copy(home: &Home) {
    home.file("big", &noise(40 << 20));
    fs::create_dir_all(home.path("dst")).expect("writable");
    let mut command = home.command();
    command.args(["cp", "big", "dst"]);
    let mut child = slow_copy(command, &home.path("dst"));
    child.kill().expect("it runs");
    child.wait().expect("it ends");
}

#[test]
fn what_a_killed_copy_left_is_told_of_listed_and_removed() {
    let home = Home::new();
    killed_copy(&home);
    let left = hidden(&home.path("dst"));
    assert_eq!(left.len(), 3, "a temporary, a journal, a lock: {left:?}");
    // A source with another name has another temporary file.
    fs::rename(home.path("big"), home.path("new")).expect("writable");
    let output = home.run(&["cp", "new", "dst"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert_eq!(stderr(&output).matches("packtrain clean").count(), 1, "{}", stderr(&output));
    assert_eq!(hidden(&home.path("dst")), left, "told of, not touched");

    let output = home.run(&["clean", "--dry-run", "--json", "."]);
    let text = stdout(&output);
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((code(&output), lines.len()), (0, 4), "{text}");
    assert_eq!(lines[3]["removed"], 3, "{text}");
    assert!(lines[3]["bytes"].as_u64().is_some_and(|n| n > 1 << 20), "{text}");
    assert!(text.contains(r#""result":"would_remove""#), "{text}");
    assert_eq!(hidden(&home.path("dst")), left);

    let output = home.run(&["clean", "."]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert_eq!(stdout(&output).matches("removed  ").count(), 3, "{}", stdout(&output));
    assert_eq!(hidden(&home.path("dst")), [""; 0]);
    assert!(exists(&home.path("dst/new")));
    let output = home.run(&["cp", "--checksum", "new", "dst"]);
    assert!(!stderr(&output).contains("clean"), "{}", stderr(&output));
}

#[test]
fn what_is_in_use_what_is_the_users_and_what_is_elsewhere_stays() {
    let home = Home::new();
    home.file("big", &noise(40 << 20));
    for name in ["dst/.notes.packtrain-mine", "dst/.packtrain-list", "away/.x.packtrain-0a1b2c3d"] {
        home.file(name, b"the user's");
    }
    fs::create_dir_all(home.path("dst/deep")).expect("writable");
    home.file("dst/deep/.x.packtrain-0a1b2c3d", b"left");
    symlink(home.path("away"), home.path("dst/link")).expect("writable");
    let mut command = home.command();
    command.args(["cp", "big", "dst"]);
    let mut child = slow_copy(command, &home.path("dst"));
    let output = home.run(&["clean", "dst"]);
    let said = stdout(&output);
    assert!(said.contains("in use") && said.contains(&format!("process {}", child.id())), "{said}");
    assert!(child.wait().expect("it ends").success(), "the running copy was not disturbed");
    assert_eq!(hidden(&home.path("dst")), [".notes.packtrain-mine", ".packtrain-list"]);
    assert!(!exists(&home.path("dst/deep/.x.packtrain-0a1b2c3d")), "{said}");
    assert!(exists(&home.path("away/.x.packtrain-0a1b2c3d")), "links are not followed");
}

/// A lock in a parent directory protects the directory that is cleaned.
#[test]
fn a_transfer_into_a_directory_above_is_seen() {
    let home = Home::new();
    home.file("src/a/big", &noise(40 << 20));
    fs::create_dir_all(home.path("dst/a")).expect("writable");
    let mut command = home.command();
    command.args(["cp", "-r", "--rate", "40mbit", "src/", "dst"]);
    let mut child = command.stderr(Stdio::null()).spawn().expect("it starts");
    wait_for("a temporary", || temporary(&home.path("dst/a")).is_some());
    let output = home.run(&["clean", "dst/a"]);
    assert!(stdout(&output).contains("in use"), "{}", stdout(&output));
    assert!(child.wait().expect("it ends").success());
    assert_eq!(fs::read(home.path("dst/a/big")).ok(), fs::read(home.path("src/a/big")).ok());
}

#[test]
fn other_users_files_stay_unless_they_are_asked_for() {
    if !is_root() {
        return;
    }
    let home = Home::new();
    let path = home.file("dst/.f.packtrain-0a1b2c3d", b"theirs");
    chown(&path, Some(NOBODY), Some(NOBODY)).expect("root");
    let output = home.run(&["clean", "dst"]);
    assert!(stdout(&output).contains("of user 65534"), "{}", stdout(&output));
    assert!(exists(&path));
    assert_eq!(code(&home.run(&["clean", "--all-owners", "dst"])), 0);
    assert!(!exists(&path));
}

#[test]
fn a_place_elsewhere_is_refused_with_what_to_type() {
    let home = Home::new();
    let output = home.run(&["clean", "-n", "me@there:some dir"]);
    assert_eq!(code(&output), 2);
    let said = stderr(&output);
    assert!(said.contains("ssh me@there 'packtrain clean --dry-run"), "{said}");
    assert_eq!(code(&home.run(&["clean", "nowhere"])), 4);
}

/// The name of a temporary file can be seen and guessed. Another user plants files under this name,
/// the journal's and the lock's, in a directory where the copy cannot remove them.
#[test]
fn planted_files_get_nothing_and_stop_nothing() {
    if !is_root() {
        return;
    }
    let home = Home::new();
    // Only the shared directory belongs to another user than the attacked copy.
    let top = home.path("").parent().expect("a parent").to_path_buf();
    fs::set_permissions(&top, fs::Permissions::from_mode(0o755)).expect("root");
    for dir in ["home", "config", "state", "work"] {
        fs::create_dir_all(top.join(dir)).expect("root");
        chown(top.join(dir), Some(NOBODY), Some(NOBODY)).expect("root");
    }
    let secret = noise(12 << 20);
    let path = home.file("secret", &secret);
    chown(&path, Some(NOBODY), Some(NOBODY)).expect("root");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("root");
    let shared = home.path("shared");
    fs::create_dir(&shared).expect("root");
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).expect("root");
    let program = home.path("packtrain");
    fs::copy(env!("CARGO_BIN_EXE_packtrain"), &program).expect("root");
    let as_nobody = |words: &[&str]| {
        let own = home.command();
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]);
        command.arg(&program).args(words).current_dir(home.path(""));
        command.stdin(Stdio::null());
        for (name, value) in own.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    };
    let mut child = slow_copy(as_nobody(&["cp", "secret", "shared"]), &shared);
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    let names = hidden(&shared);
    assert_eq!(names.len(), 3, "{names:?}");
    for resume in ["--resume", "--resume=trust", "--no-resume"] {
        for name in hidden(&shared) {
            fs::remove_file(shared.join(name)).expect("root");
        }
        let _ = fs::remove_file(shared.join("secret"));
        for name in &names {
            fs::write(shared.join(name), "planted").expect("root");
            let mode = fs::Permissions::from_mode(0o666);
            fs::set_permissions(shared.join(name), mode).expect("root");
        }
        let lock = names.iter().find(|name| name.ends_with(".lock")).expect("a lock");
        let held = fs::File::open(shared.join(lock)).expect("root");
        held.lock().expect("a lock");
        let output = as_nobody(&["cp", resume, "secret", "shared"]).output().expect("setpriv");
        assert_eq!(code(&output), 0, "{resume}: {}", stderr(&output));
        let made = fs::metadata(shared.join("secret")).expect("it was copied");
        assert_eq!((made.uid(), made.mode() & 0o7777), (NOBODY, 0o600), "{resume}");
        assert!(fs::read(shared.join("secret")).expect("there") == secret, "{resume}");
        for name in &names {
            let planted = fs::read(shared.join(name)).expect("it could not be removed");
            assert_eq!(planted, b"planted", "{resume}: {name}");
        }
        assert_eq!(hidden(&shared), names, "{resume}: nothing of ours stays");
    }
}

/// Runs the command with this umask.
fn masked(home: &Home, mask: &str, words: &[&str], input: &[u8]) -> Output {
    let own = home.command();
    let mut command = Command::new("sh");
    command.args(["-c", "umask $0; exec \"$@\"", mask]).arg(own.get_program()).args(words);
    for (name, value) in own.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let path = home.file("input", input);
    let stdin = Stdio::from(fs::File::open(path).expect("there"));
    command.current_dir(home.path("")).stdin(stdin).output().expect("sh")
}

#[test]
fn a_pipe_and_a_download_obey_the_mask() {
    let home = Home::new();
    let body = std::sync::Arc::new(noise(3 << 20));
    let file = std::sync::Arc::clone(&body);
    let server = crate::web::server::Server::new(move |request, _| {
        crate::web::server::Response::file(request, &file, "\"one\"")
    });
    let url = server.url("f.bin");
    for (mask, mode) in [("077", 0o600), ("022", 0o644), ("002", 0o664)] {
        for more in [&[][..], &["--inplace"]] {
            for source in ["-", url.as_str()] {
                let _ = fs::remove_file(home.path("out"));
                let words = [&["cp"], more, &[source, "out"]].concat();
                let output = masked(&home, mask, &words, b"some bytes");
                assert_eq!(code(&output), 0, "{words:?}: {}", stderr(&output));
                let made = fs::metadata(home.path("out")).expect("it was made").mode() & 0o777;
                assert_eq!(made, mode, "{words:?} under {mask}: {made:o}");
            }
        }
    }
}

/// Standard output is filled from a file that only its owner can read and that is removed at the
/// end.
#[test]
fn what_goes_to_standard_output_is_private_and_is_removed() {
    let home = Home::new();
    let body = std::sync::Arc::new(noise(3 << 20));
    let file = std::sync::Arc::clone(&body);
    let server = crate::web::server::Server::new(move |request, _| {
        crate::web::server::Response::file(request, &file, "\"one\"")
    });
    let tmp = home.path("tmp");
    fs::create_dir(&tmp).expect("writable");
    let mut command = crate::web::command(&home);
    command.args(["cp", &server.url("f.bin"), "-"]).env("TMPDIR", &tmp);
    // Nothing reads the pipe, so the command blocks while it writes.
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
    wait_for("its directory", || !hidden(&tmp).is_empty());
    let dir = tmp.join(&hidden(&tmp)[0]);
    assert_eq!(fs::metadata(&dir).expect("a folder").mode() & 0o777, 0o700);
    let output = home.run(&["clean", "tmp"]);
    assert!(stdout(&output).contains("in use"), "{}", stdout(&output));
    let mut got = Vec::new();
    std::io::Read::read_to_end(&mut child.stdout.take().expect("piped"), &mut got).expect("bytes");
    assert!(child.wait().expect("it ends").success());
    assert!(got == *body);
    assert_eq!(hidden(&tmp), [""; 0]);
    // Left by a killed copy.
    fs::create_dir(&dir).expect("writable");
    fs::write(dir.join("out"), "x").expect("writable");
    let mode = |mode| fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).expect("ours");
    // A file that others may read does not come from a copy.
    mode(0o755);
    assert_eq!(code(&home.run(&["clean", "tmp"])), 0);
    assert!(dir.exists());
    mode(0o700);
    assert_eq!(code(&home.run(&["clean", "tmp"])), 0);
    assert_eq!(hidden(&tmp), [""; 0]);
}

#[test]
fn what_cannot_be_resumed_does_not_stay_after_a_signal() {
    let home = Home::new();
    home.file("big", &noise(40 << 20));
    fs::create_dir(home.path("dst")).expect("writable");
    for (words, input) in
        [(&["cp", "--no-resume", "big", "dst"][..], "big"), (&["cp", "-", "dst/f"], "big")]
    {
        let mut command = home.command();
        let stdin = Stdio::from(fs::File::open(home.path(input)).expect("there"));
        command.args(words).args(["--rate", "40mbit"]).stdin(stdin).stderr(Stdio::null());
        let mut child = command.spawn().expect("it starts");
        wait_for("a temporary", || temporary(&home.path("dst")).is_some());
        let id = child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().expect("kill").success());
        assert_eq!(child.wait().expect("it ends").code(), Some(143), "{words:?}");
        assert_eq!(hidden(&home.path("dst")), [""; 0], "{words:?}");
    }
}

/// A killed copy leaves a temporary file that the next run of the same command replaces.
#[test]
fn what_a_killed_run_without_resume_left_is_found_again() {
    let home = Home::new();
    home.file("big", &noise(40 << 20));
    fs::create_dir(home.path("dst")).expect("writable");
    let mut command = home.command();
    command.args(["cp", "--no-resume", "--rate", "40mbit", "big", "dst"]).stderr(Stdio::null());
    let mut child = command.spawn().expect("it starts");
    wait_for("a temporary", || temporary(&home.path("dst")).is_some());
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    assert_eq!(code(&home.run(&["cp", "--no-resume", "big", "dst"])), 0);
    assert_eq!(hidden(&home.path("dst")), [""; 0]);
    assert!(fs::read(home.path("dst/big")).ok() == fs::read(home.path("big")).ok());
}

/// The lock belongs to the target, whatever the name of its source.
#[test]
fn one_file_is_written_in_place_by_one_source_at_a_time() {
    let home = Home::new();
    home.file("one", &noise(40 << 20));
    home.file("two", &noise(5 << 20));
    home.file("dir/target", b"old");
    fs::hard_link(home.path("dir/target"), home.path("dir/alias")).expect("writable");
    let mut command = home.command();
    command.args(["cp", "--inplace", "--rate", "40mbit", "one", "dir/target"]);
    let mut child = command.stderr(Stdio::null()).spawn().expect("it starts");
    wait_for("the target grows", || {
        fs::metadata(home.path("dir/target")).is_ok_and(|meta| meta.len() > 3)
    });
    let output = home.run(&["cp", "--inplace", "--retries", "0", "two", "dir/target"]);
    assert_eq!(code(&output), 5, "{}", stderr(&output));
    assert!(stderr(&output).contains("in use"), "{}", stderr(&output));
    let output = home.run(&["cp", "--inplace", "--retries", "0", "two", "dir/alias"]);
    assert_ne!(code(&output), 0, "another name of the same file");
    assert!(child.wait().expect("it ends").success());
    assert!(fs::read(home.path("dir/target")).ok() == fs::read(home.path("one")).ok());
}

/// With --inplace, a copy of another source overwrites data that the journal of the first copy
/// lists.
#[test]
fn a_journal_in_place_does_not_outlive_another_source() {
    let home = Home::new();
    home.file("one", &noise(24 << 20));
    home.file("two", &vec![7; 24 << 20]);
    fs::create_dir(home.path("dst")).expect("writable");
    let mut command = home.command();
    command.args(["cp", "--inplace", "--rate", "40mbit", "one", "dst/f"]).stderr(Stdio::null());
    let mut child = command.spawn().expect("it starts");
    wait_for("a journal with a durable chunk", || {
        let names = hidden(&home.path("dst"));
        let journal = names.iter().find(|name| name.ends_with(".journal"));
        journal.is_some_and(|name| {
            fs::metadata(home.path("dst").join(name)).is_ok_and(|meta| meta.len() > 150)
        })
    });
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    assert_eq!(code(&home.run(&["cp", "--inplace", "two", "dst/f"])), 0);
    assert_eq!(code(&home.run(&["cp", "--inplace", "--resume=trust", "one", "dst/f"])), 0);
    assert!(fs::read(home.path("dst/f")).ok() == fs::read(home.path("one")).ok());
}
