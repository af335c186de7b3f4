//! Local copies: exit codes, the JSON of a real run, and a signal during a run.

use std::io::{Read as _, Write as _};
use std::process::Stdio;

use crate::common::{Home, code, done, exists, stderr, stdout};

#[test]
fn a_copy_ends_with_0_and_says_what_it_did() {
    let home = Home::new();
    home.file("a", b"some bytes");
    let output = home.run(&["cp", "--json", "a", "b"]);
    let last = done(&output);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert_eq!(std::fs::read(home.path("b")).expect("it was copied"), b"some bytes");
    assert_eq!(last["ok"], true, "{last}");
    assert_eq!((&last["bytes"], &last["bytes_moved"]), (&10.into(), &10.into()), "{last}");
    assert_eq!((&last["error"], &last["failed"]), (&serde_json::Value::Null, &0.into()), "{last}");
    assert_eq!(stderr(&output), "", "quiet where no terminal is");
}

#[test]
fn a_log_has_every_event_whatever_the_screen_shows() {
    let home = Home::new();
    home.file("a", b"some bytes");
    let output = home.run(&["cp", "-q", "--log-file", "log", "a", "b"]);
    assert_eq!((code(&output), stderr(&output)), (0, String::new()));
    let log = std::fs::read_to_string(home.path("log")).expect("it was made");
    let last = log.lines().last().expect("there are events");
    assert!(last.contains(r#""direction":"local","event":"done","ok":true,"#), "{log}");
    assert!(log.contains(r#""event":"file""#), "{log}");
    for line in log.lines() {
        let event: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let time = event["time"].as_str().expect("each has a time");
        assert!(time.len() == 24 && &time[10..11] == "T" && time.ends_with('Z'), "{time}");
        if event["event"] == "started" {
            assert_eq!((&event["sources"][0], &event["target"]), (&"a".into(), &"b".into()));
        }
    }
    assert!(log.contains(r#""event":"started""#), "{log}");
    let output = home.run(&["cp", "--json", "--log-file", "no/such/place", "a", "c"]);
    assert_eq!((code(&output), &done(&output)["error"]["kind"]), (2, &"usage".into()));
    assert!(!exists(&home.path("c")));
}

#[test]
fn the_log_of_a_manifest_has_its_end() {
    let home = Home::new();
    home.file("dir/a", b"some bytes");
    for (words, status, ok) in [
        (["verify", "--log-file", "log", "--manifest-out", "list", "dir"], 0, true),
        (["verify", "--log-file", "log", "--manifest", "list", "dir"], 0, true),
        (["verify", "--log-file", "log", "--manifest", "list", "none"], 3, false),
    ] {
        let output = home.run(&words);
        assert_eq!(code(&output), status, "{words:?}: {}", stderr(&output));
        let log = std::fs::read_to_string(home.path("log")).expect("it was made");
        let last = log.lines().last().expect("there are events");
        let event: serde_json::Value = serde_json::from_str(last).expect("JSON");
        assert_eq!((&event["event"], &event["ok"]), (&"done".into(), &ok.into()), "{last}");
        std::fs::remove_file(home.path("log")).expect("it was made");
    }
}

#[test]
fn quiet_prints_errors_and_no_warnings() {
    let home = Home::new();
    home.file("src/a", b"some bytes");
    rustix::fs::mkfifoat(rustix::fs::CWD, home.path("src/pipe"), 0o600.into()).expect("a pipe");
    let text = "a pipe, socket or device is not copied";
    let output = home.run(&["cp", "-r", "src/", "loud"]);
    assert!(code(&output) == 0 && stderr(&output).contains(text), "{}", stderr(&output));
    let output = home.run(&["cp", "-qr", "--log-file", "log", "src/", "quiet"]);
    assert_eq!((code(&output), stderr(&output)), (0, String::new()));
    let log = std::fs::read_to_string(home.path("log")).expect("it was made");
    assert!(log.contains(text), "{log}");
    let output = home.run(&["cp", "-q", "missing", "quiet"]);
    assert_eq!(code(&output), 3);
    assert!(stderr(&output).contains("missing"), "{}", stderr(&output));
}

#[test]
fn patterns_that_end_with_a_zero_byte_are_read_from_each_file_of_names() {
    let home = Home::new();
    for name in ["src/a.log", "src/b.txt", "src/c.tmp"] {
        home.file(name, b"x");
    }
    home.file("patterns", b"*.log\0*.tmp\0");
    let output = home.run(&["cp", "-r", "--from0", "--exclude-from", "patterns", "src/", "out"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let out = ["a.log", "b.txt", "c.tmp"].map(|name| exists(&home.path(&format!("out/{name}"))));
    assert_eq!(out, [false, true, false]);
}

#[test]
fn only_exact_names_of_temporaries_are_left_out_and_a_named_one_is_told() {
    let home = Home::new();
    std::fs::create_dir(home.path("src")).expect("empty");
    let users = [".my.packtrain-backup.txt", ".a.packtrain-notes", ".packtrain-x.lock"];
    let ours = ".f.packtrain-0a1b2c3d";
    for name in users.iter().chain([&ours]) {
        home.file(&format!("src/{name}"), b"x");
    }
    let output = home.run(&["cp", "-r", "src/", "dst"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(users.iter().all(|name| exists(&home.path(&format!("dst/{name}")))));
    assert!(!exists(&home.path(&format!("dst/{ours}"))));
    let output = home.run(&["cp", &format!("src/{ours}"), "one"]);
    assert_eq!(code(&output), 23, "{}", stderr(&output));
    assert!(stderr(&output).contains("rename it first"), "{}", stderr(&output));
    let output = home.run(&["cp", &format!("src/{}", users[0]), "one"]);
    assert_eq!((code(&output), exists(&home.path("one"))), (0, true), "{}", stderr(&output));
}

#[test]
fn a_name_is_one_line_and_says_what_it_is() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    let home = Home::new();
    let names: [&[u8]; 5] =
        [b"x\nmoved     y", "gpj.\u{202e}exe".as_bytes(), b"a\xc2\x9bb", b"n\xff", b"n\xfe"];
    std::fs::create_dir(home.path("src")).expect("empty");
    for name in names {
        std::fs::write(home.path("src").join(OsStr::from_bytes(name)), b"x").expect("written");
    }
    // A directory that cannot be opened is reported at the end.
    let mut none = home.command();
    none.args(["cp", "-v"]).arg(OsStr::from_bytes(b"no\nmoved z\xe2\x80\xae"));
    let none = none.arg("c").output().expect("the command starts");
    let output = home.run(&["cp", "-v", "-r", "src", "dst"]);
    let said = [stderr(&output), stderr(&none)].concat();
    for bad in ['\u{202e}', '\u{9b}', '\u{fffd}'] {
        assert!(!said.contains(bad), "{said:?}");
    }
    assert!(
        !said.lines().any(|line| line.starts_with("moved     y") || line == "moved z"),
        "{said}"
    );
    for shown in ["x\\nmoved     y", "gpj.\\u{202e}exe", "n\\xff", "n\\xfe"] {
        assert_eq!(said.lines().filter(|line| line.contains(shown)).count(), 1, "{shown}: {said}");
    }
    let output = home.run(&["cp", "--json", "-v", "-r", "src", "again"]);
    let events: Vec<serde_json::Value> = stdout(&output)
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .filter(|event: &serde_json::Value| event["event"] == "file")
        .collect();
    let bytes: Vec<&str> = events.iter().filter_map(|e| e["path_bytes"].as_str()).collect();
    // base64 of `src/n` and the invalid byte.
    for wanted in ["c3JjL27/", "c3JjL27+"] {
        assert_eq!(bytes.iter().filter(|b| **b == wanted).count(), 1, "{bytes:?}");
    }
    assert_eq!(bytes.len(), 2, "only where it is needed: {bytes:?}");
}

#[test]
fn nothing_to_do_is_0_and_9_only_if_asked() {
    let home = Home::new();
    home.file("a", b"some bytes");
    assert_eq!(code(&home.run(&["cp", "a", "b"])), 0);
    assert_eq!(code(&home.run(&["cp", "a", "b"])), 0);
    assert_eq!(code(&home.run(&["cp", "--error-on-no-transfer", "a", "b"])), 9);
}

#[test]
fn a_change_without_data_is_a_change() {
    use std::os::unix::fs::{PermissionsExt, symlink};

    let home = Home::new();
    home.file("src/a", b"some bytes");
    symlink("v1", home.path("src/current")).expect("a link");
    let mode = |name: &str, mode| {
        std::fs::set_permissions(home.path(name), PermissionsExt::from_mode(mode)).expect("it");
    };
    mode("src", 0o750);
    let run = || {
        let output = home.run(&["cp", "-r", "--error-on-no-transfer", "src/", "dst"]);
        (code(&output), stderr(&output))
    };
    assert_eq!(run().0, 0);
    assert_eq!(run().0, 9, "nothing changed");
    let relink = || {
        std::fs::remove_file(home.path("src/current")).expect("it is there");
        symlink("v2", home.path("src/current")).expect("a link");
    };
    let mkdir = || std::fs::create_dir(home.path("src/d")).expect("a directory");
    let chmod_file = || mode("src/a", 0o600);
    let chmod_directory = || mode("src/d", 0o700);
    let changes: [&dyn Fn(); 4] = [&relink, &mkdir, &chmod_file, &chmod_directory];
    for (number, change) in changes.into_iter().enumerate() {
        change();
        let (status, said) = run();
        assert_eq!(status, 0, "change {number}: {said}");
        assert_eq!(run().0, 9, "change {number} is made");
    }
}

#[test]
fn what_is_missing_has_its_code() {
    let home = Home::new();
    home.file("a", b"some bytes");
    let output = home.run(&["cp", "--json", "nothing", "b"]);
    assert_eq!(code(&output), 3, "{}", stderr(&output));
    assert_eq!(done(&output)["error"]["kind"], "source_missing");
    assert!(stderr(&output).starts_with("packtrain: "), "{}", stderr(&output));
    let output = home.run(&["cp", "a", "no/such/place/b"]);
    assert_eq!(code(&output), 4, "{}", stderr(&output));
}

#[test]
fn a_tree_with_filters_and_lines_for_each_file() {
    let home = Home::new();
    home.file("src/keep.txt", b"1");
    home.file("src/drop.o", b"2");
    home.file("src/deep/also.txt", b"3");
    std::fs::create_dir(home.path("dst")).expect("it is not there yet");
    let output = home.run(&["cp", "-r", "--dry-run", "--exclude", "*.o", "src/", "dst"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(stdout(&output).contains("keep.txt"), "{}", stdout(&output));
    assert!(!stdout(&output).contains("drop.o"), "{}", stdout(&output));
    let left = std::fs::read_dir(home.path("dst")).expect("it was made").count();
    assert_eq!(left, 0, "a dry run changes nothing");
    let output = home.run(&["cp", "-r", "-v", "--exclude", "*.o", "src/", "dst"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(stderr(&output).contains("also.txt"), "{}", stderr(&output));
    assert!(exists(&home.path("dst/deep/also.txt")) && !exists(&home.path("dst/drop.o")));
}

#[test]
fn verify_finds_what_differs() {
    let home = Home::new();
    home.file("src/a", b"same");
    home.file("src/b", b"here");
    assert_eq!(code(&home.run(&["cp", "-r", "src/", "dst"])), 0);
    let output = home.run(&["verify", "src/", "dst"]);
    assert_eq!(code(&output), 0, "{}{}", stdout(&output), stderr(&output));
    home.file("dst/b", b"hers");
    let output = home.run(&["verify", "--json", "src/", "dst"]);
    assert_eq!(code(&output), 13, "{}{}", stdout(&output), stderr(&output));
    assert_eq!(done(&output)["differing"], 1);
    assert_eq!(std::fs::read(home.path("dst/b")).expect("there"), b"hers", "nothing is changed");
}

/// Applies to short streams too: the sender does not know that a chunk is the last one while it
/// sends it.
#[test]
fn a_pipe_is_a_file_of_unknown_length() {
    const CHUNK: usize = 4 << 20;
    let home = Home::new();
    for length in [0, 1, 5, 3 << 20, CHUNK - 1, CHUNK, CHUNK + 1].repeat(4) {
        let mut command = home.command();
        command.args(["cp", "-", "out"]).stdin(Stdio::piped());
        let mut child = command.spawn().expect("the command starts");
        let data = vec![7_u8; length];
        child.stdin.take().expect("piped").write_all(&data).expect("it reads");
        assert!(child.wait().expect("it ends").success(), "{length} bytes");
        assert!(std::fs::read(home.path("out")).expect("there") == data, "{length} bytes");
    }
}

/// The rate limit makes the copy long enough for the signal to arrive before its end.
#[test]
fn a_signal_leaves_a_resumable_state_and_the_command_that_resumes() {
    let home = Home::new();
    home.file("it's big", &vec![1; 64 << 20]);
    let words = ["cp", "--rate", "80mbit", "--progress", "json", "it's big", "copy"];
    let mut command = home.command();
    command.args(words).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the command starts");
    // The first progress line shows that the transfer runs.
    let mut said = vec![0; 1];
    let mut pipe = child.stderr.take().expect("piped");
    pipe.read_exact(&mut said).expect("there is progress");
    let kill = |signal: &str| {
        let id = child.id().to_string();
        std::process::Command::new("kill").args([signal, &id]).status().expect("kill runs")
    };
    assert!(kill("-TERM").success());
    pipe.read_to_end(&mut said).expect("it ends");
    let status = child.wait().expect("it ends");
    let said = String::from_utf8_lossy(&said);
    assert_eq!(status.code(), Some(143), "{said}");
    assert!(said.contains(r"cp --rate 80mbit --progress json 'it'\''s big' copy"), "{said}");
    assert!(!exists(&home.path("copy")), "the name is taken only by the whole file");
    assert_eq!(code(&home.run(&["cp", "it's big", "copy"])), 0);
    assert_eq!(std::fs::read(home.path("copy")).expect("there").len(), 64 << 20);
}

#[test]
fn a_manifest_that_cannot_be_written_leaves_the_old_one() {
    let home = Home::new();
    for n in 0..300 {
        home.file(&format!("src/{n}"), b"text");
    }
    home.file("out/list", b"old");
    std::os::unix::fs::symlink("list", home.path("out/link")).expect("a link");
    // A limit of the size of files stands for a full disk.
    let program = env!("CARGO_BIN_EXE_packtrain");
    let script = format!("trap '' XFSZ; ulimit -f 4; exec {program} \"$@\"");
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &script, "sh", "verify", "--manifest-out", "out/list", "src"]);
    let output = command.current_dir(home.path("")).output().expect("it starts");
    assert_eq!(code(&output), 7, "{}", stderr(&output));
    assert_eq!(std::fs::read(home.path("out/list")).expect("there"), b"old");
    let output = home.run(&["verify", "--manifest-out", "out/link", "src"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(std::fs::read(home.path("out/list")).expect("there").len() > 300 * 64);
    let mut names: Vec<_> = std::fs::read_dir(home.path("out")).expect("there").flatten().collect();
    names.sort_by_key(std::fs::DirEntry::file_name);
    let names: Vec<_> = names.iter().map(std::fs::DirEntry::file_name).collect();
    assert_eq!(names, ["link", "list"]);
}

#[test]
fn a_home_directory_that_is_the_destination_keeps_its_mode() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::new();
    let set = |path: &std::path::Path, mode: u32| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("mode");
    };
    let mode = |path: &std::path::Path| {
        std::fs::metadata(path).expect("it is there").permissions().mode() & 0o7777
    };
    home.file("src/sub/f", b"text");
    set(&home.path("src"), 0o775);
    set(&home.path("src/sub"), 0o775);
    // Below a link too, and whatever the destination is called.
    let account = home.state().with_file_name("home");
    std::fs::create_dir(&account).expect("a folder");
    std::os::unix::fs::symlink(&account, home.path("link")).expect("a link");
    set(&account, 0o700);
    let place = account.to_str().expect("text");
    for to in [place, "link", "dst"] {
        let output = home.run(&["cp", "-r", "src/", to]);
        assert_eq!(code(&output), 0, "{to}: {}", stderr(&output));
    }
    assert_eq!((mode(&account), mode(&account.join("sub"))), (0o700, 0o775));
    assert_eq!(mode(&home.path("dst")), 0o775, "another directory gets the mode of the source");
    // A dry run does not announce a change of the mode.
    let output = home.run(&["cp", "-r", "-n", "-v", "src/", place]);
    assert!(!stdout(&output).contains("775"), "{}", stdout(&output));
    assert!(!stderr(&output).contains("775"), "{}", stderr(&output));
}

/// What an option leaves out is not replaced, so the directory of its name at the target keeps what it
/// contains. A dry run says the same.
#[test]
fn delete_leaves_a_directory_where_a_file_is_left_out() {
    for (n, option) in ["--ignore-existing", "--max-size=3", "--min-size=100"].iter().enumerate() {
        let home = Home::new();
        let (src, dst) = (format!("src{n}"), format!("dst{n}"));
        std::fs::create_dir_all(home.path(&src).join("d")).expect("fine");
        std::fs::create_dir_all(home.path(&dst).join("f/sub")).expect("fine");
        std::fs::create_dir_all(home.path(&dst).join("d")).expect("fine");
        home.file(&format!("{src}/f"), b"a report");
        for kept in ["f/k", "f/sub/k"] {
            home.file(&format!("{dst}/{kept}"), b"precious");
        }
        home.file(&format!("{dst}/d/stray"), b"gone");
        let (from, to) = (format!("{src}/"), format!("{dst}/"));
        for dry in [true, false] {
            let mut args = vec!["cp", "-rv", "--delete", option, &from, &to];
            args.extend(dry.then_some("-n"));
            let output = home.run(&args);
            let text = stdout(&output) + &stderr(&output);
            assert_eq!(code(&output), 0, "{option}: {text}");
            assert!(text.contains("d/stray") && !text.contains("f/"), "{option}: {text}");
            assert!(exists(&home.path(&format!("{dst}/f/sub/k"))), "{option}");
            assert!(exists(&home.path(&format!("{dst}/f/k"))), "{option}");
            assert_eq!(exists(&home.path(&format!("{dst}/d/stray"))), dry, "{option}");
        }
    }
}

/// A target that was restored with times of whole seconds is not up to date.
#[test]
fn times_that_differ_in_the_part_of_a_second_are_different() {
    use std::time::{Duration, SystemTime};

    let home = Home::new();
    let set = |name: &str, text: &[u8], nanos| {
        home.file(name, text);
        let file = std::fs::File::options().write(true).open(home.path(name)).expect("there");
        let time = SystemTime::UNIX_EPOCH + Duration::new(1_000_000, nanos);
        file.set_modified(time).expect("set");
    };
    for nanos in [123_456_789, 123_456_000] {
        set("a", b"new version", nanos);
        set("b", b"old version", 0);
        let output = home.run(&["cp", "a", "b"]);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        assert_eq!(std::fs::read(home.path("b")).expect("there"), b"new version");
        let output = home.run(&["cp", "--json", "a", "b"]);
        assert_eq!(done(&output)["bytes_moved"], 0, "equal now");
    }
}

/// `cp -r src src/copy` is refused, as `mistakes.txt` shows. These are not copies into themselves.
#[test]
fn a_directory_may_be_copied_to_a_place_in_it_that_is_left_out() {
    let home = Home::new();
    home.file("src/f", b"f");
    std::os::unix::fs::symlink("src", home.path("link")).expect("a link");
    for words in [
        &["cp", "-r", "--exclude", "/copy", "src/", "src/copy"][..],
        &["cp", "-r", "link", "src/copy/"],
        &["cp", "-r", "src/", "src"],
        &["cp", "-r", "src", "src-2"],
    ] {
        let output = home.run(words);
        assert_eq!(code(&output), 0, "{words:?}: {}", stderr(&output));
    }
    assert!(exists(&home.path("src/copy/f")) && !exists(&home.path("src/copy/copy")));
    assert!(home.path("src/copy/link").is_symlink() && exists(&home.path("src-2/src/f")));
}

/// rsync's `--progress` has no value.
#[test]
fn the_word_after_progress_is_a_place_unless_it_says_how() {
    let home = Home::new();
    home.file("src/f", b"f");
    for words in [
        &["cp", "-r", "--progress", "src/", "a"][..],
        &["cp", "-r", "--progress=none", "src/", "b"],
        &["cp", "-r", "--progress", "none", "src/", "c"],
    ] {
        let output = home.run(words);
        assert_eq!(code(&output), 0, "{words:?}: {}", stderr(&output));
    }
    assert!(["a/f", "b/f", "c/f"].iter().all(|name| exists(&home.path(name))));
}

#[test]
fn last_is_the_last_transfer_and_for_diagnose_the_last_copy() {
    let home = Home::new();
    home.file("a", b"some bytes");
    assert_eq!(code(&home.run(&["cp", "a", "b"])), 0);
    assert_eq!(code(&home.run(&["verify", "a", "b"])), 0);
    let row = home.run(&["history", "last"]);
    assert_eq!(code(&row), 0, "{}", stderr(&row));
    assert!(stdout(&row).contains("verify"), "{}", stdout(&row));
    let diagnosis = home.run(&["diagnose", "last"]);
    assert_eq!(code(&diagnosis), 0, "{}", stderr(&diagnosis));
    assert!(stdout(&diagnosis).contains("cp to b"), "{}", stdout(&diagnosis));
}
