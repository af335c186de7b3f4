//! Sources that vanish or change, full and read-only disks, names that do not fit.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::rig::{Rig, Running, contents, is_root, skipped, wait_until};
use crate::tree::{self, MIB, assert_same};

/// A tree whose last files are read well after the copy has started.
fn slow_tree(rig: &Rig) {
    fs::create_dir(rig.path("src")).expect("a folder");
    tree::file(&rig.path("src/a-big"), 160 * MIB, 1);
    tree::file(&rig.path("src/m-mid"), 100, 1);
    tree::file(&rig.path("src/z-last"), 6 * MIB, 1);
}

/// A copy of [`slow_tree`] that has listed the files and moves the first one.
fn copy_of_slow_tree(rig: &Rig) -> Running {
    slow_tree(rig);
    let mut command = rig.cp();
    command.args(["--rate", "400mbit"]).arg(contents(&rig.path("src"))).arg(rig.far("dst"));
    let running = rig.start(&mut command);
    wait_until("the copy begins", || rig.path("dst").exists());
    std::thread::sleep(Duration::from_millis(300));
    running
}

#[test]
#[ignore = "needs an ssh server; `cargo xtask test` runs it"]
fn a_file_that_vanishes_is_24_and_the_rest_is_done() {
    let Some(rig) = Rig::ssh() else { return };
    let running = copy_of_slow_tree(&rig);
    fs::remove_file(rig.path("src/z-last")).expect("removed");
    let ended = running.wait();
    assert_eq!(ended.code, 24, "{}", ended.stderr);
    assert_same(&rig.path("src"), &rig.path("dst"));
}

#[test]
#[ignore = "needs an ssh server; `cargo xtask test` runs it"]
fn a_file_that_changes_is_23_and_the_rest_is_done() {
    let Some(rig) = Rig::ssh() else { return };
    let running = copy_of_slow_tree(&rig);
    tree::file(&rig.path("src/z-last"), 7 * MIB, 2);
    let ended = running.wait();
    assert_eq!(ended.code, 23, "{}", ended.stderr);
    assert!(ended.stderr.contains("z-last"), "{}", ended.stderr);
    assert!(!rig.path("dst/z-last").exists(), "a torn file took its name");
    rig.ok(rig.cp().arg(contents(&rig.path("src"))).arg(rig.path("dst")));
    assert_same(&rig.path("src"), &rig.path("dst"));
}

#[test]
#[ignore = "needs an ssh server; `cargo xtask test` runs it"]
fn a_file_cut_short_while_it_is_read_is_23() {
    let Some(rig) = Rig::ssh() else { return };
    let running = copy_of_slow_tree(&rig);
    let big = fs::OpenOptions::new().write(true).open(rig.path("src/a-big")).expect("the file");
    big.set_len(MIB).expect("cut");
    let ended = running.wait();
    assert_eq!(ended.code, 23, "{}", ended.stderr);
    assert!(!rig.path("dst/a-big").exists(), "a torn file took its name");
    assert!(rig.path("dst/z-last").exists(), "the rest was not done");
}

#[test]
fn an_unreadable_file_is_23_and_the_rest_is_done() {
    let rig = Rig::local();
    fs::create_dir(rig.path("src")).expect("a folder");
    tree::file(&rig.path("src/good"), 1000, 1);
    tree::file(&rig.path("src/secret"), 1000, 1);
    let secret = rig.path("src/secret");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o000)).expect("mode");
    let mut command = rig.packtrain();
    if is_root() {
        // Root can read everything, so the copy runs as nobody. The program must be in a directory
        // that nobody can enter.
        let open = tempfile::tempdir().expect("a folder");
        let work = open.path().join("work");
        copy_for_nobody(&rig, &work);
        fs::set_permissions(open.path(), fs::Permissions::from_mode(0o755)).expect("mode");
        command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.arg(work.join("packtrain")).args(["cp", "-r"]);
        command.env("XDG_STATE_HOME", work.join("state"));
        command.env("XDG_CONFIG_HOME", work.join("config"));
        command.arg(contents(&work.join("src"))).arg(work.join("dst"));
        let ended = rig.run(&mut command);
        assert_eq!(ended.code, 23, "{}", ended.stderr);
        assert!(ended.stderr.contains("secret"), "{}", ended.stderr);
        assert!(work.join("dst/good").exists(), "the rest was not done");
        return;
    }
    command.args(["cp", "-r"]).arg(contents(&rig.path("src"))).arg(rig.path("dst"));
    let ended = rig.run(&mut command);
    assert_eq!(ended.code, 23, "{}", ended.stderr);
    assert!(ended.stderr.contains("secret"), "{}", ended.stderr);
    assert!(rig.path("dst/good").exists(), "the rest was not done");
}

fn copy_for_nobody(rig: &Rig, work: &Path) {
    let script = "mkdir \"$1\" && cp -a \"$2\" \"$1/src\" && cp \"$3\" \"$1/packtrain\" && \
                  chown -R 65534:65534 \"$1\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh"]).arg(work).arg(rig.path("src"));
    shell.arg(env!("CARGO_BIN_EXE_packtrain"));
    rig.ok(&mut shell);
}

#[test]
#[ignore = "needs namespaces; `cargo xtask test` runs it"]
fn a_full_disk_is_one_message_and_resumes() {
    for (what, options, larger) in [
        ("blocks", "size=24m", "size=400m"),
        ("inodes", "size=400m,nr_inodes=100", "size=400m,nr_inodes=10000"),
    ] {
        let rig = Rig::local();
        fs::create_dir(rig.path("src")).expect("a folder");
        tree::file(&rig.path("src/big"), 40 * MIB, 1);
        for index in 0..200 {
            tree::file(&rig.path("src").join(format!("f{index}")), 500, index);
        }
        fs::create_dir(rig.path("mnt")).expect("a folder");
        let script = format!(
            "mount -t tmpfs -o {options} none mnt || exit 99\n\
             \"$0\" cp -r src/ mnt/dst 2>first; echo $? >first.code\n\
             mount -o remount,{larger} mnt || exit 98\n\
             \"$0\" cp -r src/ mnt/dst 2>second; echo $? >second.code\n\
             diff -r src mnt/dst >differ && ls -A mnt/dst | wc -l >count\n"
        );
        let Some(_) = in_namespace(&rig, &script) else { return };
        let read = |name: &str| fs::read_to_string(rig.path(name)).unwrap_or_default();
        let first = read("first");
        assert!(!["0", "2", "101"].contains(&read("first.code").trim()), "{what}: {first}");
        let said = |l: &&str| l.contains("space") || l.contains("full") || l.contains("inodes");
        let lines = first.lines().filter(said).count();
        assert_eq!(lines, 1, "{what}: one message, not {lines}:\n{first}");
        assert_eq!(read("second.code").trim(), "0", "{what}: {}", read("second"));
        assert_eq!(read("differ"), "", "{what}");
        assert_eq!(read("count").trim(), "201", "{what}: something was left behind");
    }
}

#[test]
#[ignore = "needs namespaces; `cargo xtask test` runs it"]
fn a_server_without_room_is_one_message_over_every_transport() {
    let rig = Rig::local();
    fs::create_dir(rig.path("src")).expect("a folder");
    tree::file(&rig.path("src/big"), 40 * MIB, 1);
    rig.own_key("keys");
    for (mount, says) in [("size=24m", "is full"), ("ro", "read-only")] {
        let script = format!(
            r#"
            ip link set lo up && mkdir -p mnt && mount -t tmpfs -o {mount} none mnt || exit 99
            "$0" serve --listen 127.0.0.1:7700 --root mnt --authorized-keys keys 2>served &
            server=$!
            trap 'kill $server 2>/dev/null' EXIT
            for i in $(seq 200); do grep -q listening served && break; sleep 0.05; done
            for transport in auto native tcp pipe; do
                "$0" cp -r --transport $transport --accept-new-host src/                     pt://127.0.0.1:7700/dst 2>$transport
                echo $? >$transport.code
            done
            "#
        );
        let Some(()) = in_namespace(&rig, &script) else { return };
        for transport in ["auto", "native", "tcp", "pipe"] {
            let read = |name: &str| fs::read_to_string(rig.path(name)).unwrap_or_default();
            let (told, code) = (read(transport), read(&format!("{transport}.code")));
            let case = format!("{mount}, {transport}, exit {code}:\n{told}");
            assert!(!["0", "2", "101"].contains(&code.trim()), "{case}");
            assert_eq!(told.matches(says).count(), 1, "{case}");
            for word in ["going on", "UDP:", "TCP:", "://docs", "trying again"] {
                assert!(!told.contains(word), "{word}: {case}");
            }
        }
    }
}

#[test]
#[ignore = "needs namespaces; `cargo xtask test` runs it"]
fn a_read_only_target_is_said() {
    let rig = Rig::local();
    fs::create_dir(rig.path("src")).expect("a folder");
    tree::file(&rig.path("src/f"), 5 * MIB, 1);
    fs::create_dir(rig.path("mnt")).expect("a folder");
    let script = "mount -t tmpfs -o ro none mnt || exit 99\n\
                  \"$0\" cp -r src/ mnt/dst 2>first; echo $? >first.code\n";
    let Some(_) = in_namespace(&rig, script) else { return };
    let code = fs::read_to_string(rig.path("first.code")).expect("a code");
    let text = fs::read_to_string(rig.path("first")).expect("stderr");
    assert!(!["0", "2", "101"].contains(&code.trim()), "{code} {text}");
    assert!(text.to_lowercase().contains("read-only"), "{text}");
}

/// Runs a shell script in the rig's folder, in mount and network namespaces; `$0` is the command.
pub(crate) fn in_namespace(rig: &Rig, script: &str) -> Option<()> {
    let mut command = Command::new("unshare");
    if !is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--mount", "--net", "sh", "-c", script]).arg(env!("CARGO_BIN_EXE_packtrain"));
    command.current_dir(rig.path("."));
    command.env("XDG_STATE_HOME", rig.path("state")).env("XDG_CONFIG_HOME", rig.path("config"));
    let ended = rig.run(&mut command);
    if ended.code == 99 || ended.stderr.contains("unshare:") {
        skipped(&format!("no mount namespaces: {}", ended.stderr));
        return None;
    }
    Some(())
}

#[test]
fn a_path_too_long_is_23_and_the_rest_is_done() {
    let rig = Rig::local();
    fs::create_dir(rig.path("src")).expect("a folder");
    tree::file(&rig.path("src/good"), 1000, 1);
    // 22 names of 200 bytes exceed the maximum length of a path.
    let script = "cd src && name=$(printf 'd%.0s' $(seq 200)) && \
                  for i in $(seq 22); do mkdir $name && cd $name || exit 1; done && echo x >leaf";
    let mut make = Command::new("bash");
    rig.ok(make.args(["-c", script]).current_dir(rig.path(".")));
    let ended = rig.run(rig.cp().arg(contents(&rig.path("src"))).arg(rig.path("dst")));
    assert!(rig.path("dst/good").exists(), "the rest was not done: {}", ended.stderr);
    assert_eq!(ended.code, 23, "{}", ended.stderr);
}

#[test]
fn a_folder_where_a_file_should_be_fails_alone() {
    let rig = Rig::local();
    fs::create_dir_all(rig.path("src")).expect("a folder");
    tree::file(&rig.path("src/a"), 1000, 1);
    tree::file(&rig.path("src/b"), 1000, 1);
    fs::create_dir_all(rig.path("dst/a/full")).expect("a folder");
    let ended = rig.run(rig.cp().arg(contents(&rig.path("src"))).arg(rig.path("dst")));
    assert_eq!(ended.code, 23, "{}", ended.stderr);
    assert!(rig.path("dst/b").exists(), "the rest was not done");
    assert!(rig.path("dst/a/full").exists(), "a full folder was replaced");
}

#[test]
fn a_link_at_the_target_is_not_followed_out_of_it() {
    let rig = Rig::local();
    fs::create_dir_all(rig.path("src/sub")).expect("a folder");
    tree::file(&rig.path("src/sub/f"), 1000, 1);
    fs::create_dir_all(rig.path("outside")).expect("a folder");
    fs::create_dir_all(rig.path("dst")).expect("a folder");
    std::os::unix::fs::symlink(rig.path("outside"), rig.path("dst/sub")).expect("a link");
    let ended = rig.run(rig.cp().arg(contents(&rig.path("src"))).arg(rig.path("dst")));
    assert!(!rig.path("outside/f").exists(), "written through a link: {}", ended.stderr);
}
