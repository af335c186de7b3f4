//! `--remove-source-files`: what is durable at the target is removed at the source, and nothing else.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::proxy::Proxy;
use crate::rig::{Rig, contents, free_port, slash, wait_until};
use crate::server::{serve, serve_at, ticket};
use crate::tree::{self, MIB};

fn fill(dir: &Path) {
    fs::create_dir_all(dir.join("sub/empty")).expect("a folder");
    tree::file(&dir.join("big"), 5 * MIB, 1);
    fs::write(dir.join("sub/small"), "text").expect("a file");
    fs::write(dir.join("none"), "").expect("a file");
    symlink("sub/small", dir.join("link")).expect("a link");
}

/// The directory has what `fill` put into `same`.
fn assert_full(rig: &Rig, dir: &str) {
    let read = |dir: &str, name| fs::read(rig.path(dir).join(name)).expect("a file");
    for name in ["big", "sub/small", "none", "link"] {
        assert!(read(dir, name) == read("same", name), "{name} in {dir}");
    }
    assert!(rig.path(dir).join("sub/empty").is_dir());
    let link = fs::read_link(rig.path(dir).join("link")).expect("a link");
    assert_eq!(link.to_str(), Some("sub/small"));
}

/// The files and links below a directory.
fn files(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for item in fs::read_dir(dir).expect("a folder").flatten() {
        match item.file_type().expect("its type").is_dir() {
            true => found.extend(files(&item.path())),
            false => found.push(item.file_name().to_string_lossy().into_owned()),
        }
    }
    found.sort();
    found
}

#[test]
fn files_and_links_are_removed_and_directories_stay() {
    let rig = Rig::local();
    fill(&rig.path("src"));
    fill(&rig.path("same"));
    let mut cp = rig.cp();
    cp.args(["--json", "--remove-source-files"]).arg(contents(&rig.path("src"))).arg(rig.path("d"));
    let ended = rig.ok(&mut cp);
    assert_eq!(ended.number("removed"), 4);
    assert_eq!(files(&rig.path("src")), [""; 0]);
    assert!(rig.path("src/sub/empty").is_dir());
    assert_full(&rig, "d");
    assert_eq!(files(&rig.path("d")), ["big", "link", "none", "small"]);
    // What the target has already goes too, after it was copied and verified anew.
    fill(&rig.path("src"));
    let again = rig.ok(&mut cp);
    assert_eq!((again.number("removed"), again.number("files_moved")), (4, 3));
    // A dry run removes nothing.
    fill(&rig.path("src"));
    assert_eq!(rig.ok(cp.arg("--dry-run")).number("removed"), 0);
    assert_eq!(files(&rig.path("src")).len(), 4);
}

#[test]
fn what_is_not_copied_stays() {
    let rig = Rig::local();
    fill(&rig.path("src"));
    let copy = |more: &[&str], dst: &str| {
        let mut cp = rig.cp();
        cp.args(["--json", "--remove-source-files"]).args(more);
        rig.ok(cp.arg(contents(&rig.path("src"))).arg(rig.path(dst)))
    };
    assert_eq!(copy(&["--exclude", "small", "--max-size=1M"], "d").number("removed"), 2);
    assert_eq!(files(&rig.path("src")), ["big", "small"]);
    // It is there, and need not be the same.
    fs::create_dir_all(rig.path("e/sub")).expect("a folder");
    fs::write(rig.path("e/sub/small"), "other").expect("a file");
    assert_eq!(copy(&["--ignore-existing"], "e").number("removed"), 1);
    fs::write(rig.path("e/sub/small"), "newer").expect("a file");
    assert_eq!(copy(&["--update"], "e").number("removed"), 0);
    assert_eq!(files(&rig.path("src")), ["small"]);
}

#[test]
fn a_file_that_is_its_own_target_is_not_lost() {
    let rig = Rig::local();
    fill(&rig.path("src"));
    fill(&rig.path("same"));
    // The same directory by another path.
    symlink("src", rig.path("other")).expect("a link");
    let mut cp = rig.cp();
    cp.arg("--remove-source-files").arg(contents(&rig.path("src")));
    let ended = rig.run(cp.arg(contents(&rig.path("other"))));
    assert_eq!(ended.code, 23, "{}", ended.stderr);
    assert!(ended.stderr.contains("is the target itself"), "{}", ended.stderr);
    assert_full(&rig, "src");
    assert_eq!(files(&rig.path("src")), ["big", "link", "none", "small"]);
}

#[test]
fn a_server_removes_what_was_fetched_unless_it_is_read_only() {
    let rig = Rig::local();
    fill(&rig.path("root/src"));
    fill(&rig.path("same"));
    let fetch = |port: u16, dst: &str| {
        let mut cp = rig.cp();
        cp.args(["--json", "--remove-source-files", "--ticket", &ticket(&rig)]);
        rig.run(cp.arg(format!("pt://127.0.0.1:{port}/src/")).arg(rig.path(dst)))
    };
    let (server, port) = serve(&rig, &["--read-only"]);
    let ended = fetch(port, "a");
    assert_eq!(ended.code, 12, "{}", ended.stderr);
    assert!(ended.stderr.contains("nothing may be removed there"), "{}", ended.stderr);
    assert_eq!(files(&rig.path("root/src")).len(), 4);
    drop(server);
    let (_server, port) = serve(&rig, &[]);
    let ended = fetch(port, "b");
    assert_eq!((ended.code, ended.number("removed")), (0, 4), "{}", ended.stderr);
    assert_eq!(files(&rig.path("root/src")), [""; 0]);
    assert_full(&rig, "b");
    // And the other way.
    let mut put = rig.cp();
    put.args(["--json", "--remove-source-files", "--ticket", &ticket(&rig)]);
    put.arg(contents(&rig.path("b"))).arg(format!("pt://127.0.0.1:{port}/src"));
    assert_eq!(rig.ok(&mut put).number("removed"), 4);
    assert_eq!(files(&rig.path("b")), [""; 0]);
}

/// What an earlier try of the same command moved is no missing source of the next, and counts.
#[test]
fn named_files_that_were_moved_before_the_connection_was_lost_are_not_missing() {
    let rig = Rig::local();
    fs::create_dir(rig.path("src")).expect("a folder");
    for (name, size) in [("a", 1000), ("b", 2000), ("c", 40 * MIB)] {
        tree::file(&rig.path("src").join(name), size, size);
    }
    let (_server, port) = serve(&rig, &[]);
    fs::create_dir(rig.path("root/dst")).expect("a folder");
    let proxy = Proxy::start(port, u64::MAX);
    let mut put = rig.packtrain();
    put.args(["cp", "--json", "--remove-source-files", "--transport", "pipe", "--rate", "60mbit"]);
    put.args(["--ticket", &ticket(&rig)])
        .args(["a", "b", "c"].map(|name| rig.path("src").join(name)));
    let running = rig.start(put.arg(format!("pt://127.0.0.1:{}/dst", proxy.port)));
    wait_until("both small files are moved", || {
        !rig.path("src/a").exists() && !rig.path("src/b").exists()
    });
    // Removals in the moment of the loss are not counted, and their files are reported as missing.
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(rig.path("src/c").exists(), "it takes 5 s");
    proxy.cut();
    let ended = running.wait();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stderr.contains("trying again") || ended.json_lines().len() > 1);
    assert_eq!((ended.number("removed"), ended.number("files_moved")), (3, 3), "{}", ended.stderr);
    assert!(ended.number("bytes_moved") >= 40 * MIB + 3000);
    assert_eq!(files(&rig.path("src")), [""; 0]);
    // A part of the first try of the large file may stay.
    let there = files(&rig.path("root/dst"));
    let there: Vec<_> = there.iter().filter(|name| !name.starts_with('.')).collect();
    assert_eq!(there, ["a", "b", "c"]);
}

/// The same of named files that are fetched.
#[test]
fn fetched_files_that_were_moved_before_the_connection_was_lost_are_not_missing() {
    let rig = Rig::local();
    fs::create_dir_all(rig.path("root/src")).expect("a folder");
    fs::create_dir(rig.path("dst")).expect("a folder");
    for (name, size) in [("a", 1000), ("b", 2000), ("c", 40 * MIB)] {
        tree::file(&rig.path("root/src").join(name), size, size);
    }
    let (_server, port) = serve(&rig, &[]);
    let proxy = Proxy::start(port, u64::MAX);
    let mut get = rig.packtrain();
    get.args(["cp", "--json", "--remove-source-files", "--transport", "pipe", "--rate", "60mbit"]);
    get.args(["--ticket", &ticket(&rig)]);
    get.args(["a", "b", "c"].map(|name| format!("pt://127.0.0.1:{}/src/{name}", proxy.port)));
    let running = rig.start(get.arg(rig.path("dst")));
    wait_until("both small files are moved", || {
        !rig.path("root/src/a").exists() && !rig.path("root/src/b").exists()
    });
    assert!(rig.path("root/src/c").exists(), "it takes 5 s");
    proxy.cut();
    let ended = running.wait();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!((ended.number("removed"), ended.number("files_moved")), (3, 3), "{}", ended.stderr);
    assert_eq!(files(&rig.path("root/src")), [""; 0]);
    let there = files(&rig.path("dst"));
    let there: Vec<_> = there.iter().filter(|name| !name.starts_with('.')).collect();
    assert_eq!(there, ["a", "b", "c"]);
}

/// The same of the names in a list, which are sent and fetched.
#[test]
fn listed_files_that_were_moved_before_the_connection_was_lost_are_not_missing() {
    let rig = Rig::local();
    let (_server, port) = serve(&rig, &[]);
    fs::write(rig.path("list"), "./a\nb/x\nc\n").expect("a list");
    for (src, dst, put) in [("here", "root/up", true), ("root/there", "down", false)] {
        fs::create_dir_all(rig.path(src).join("b")).expect("a folder");
        fs::create_dir_all(rig.path(dst)).expect("a folder");
        for (name, size) in [("a", 1000), ("b/x", 2000), ("c", 40 * MIB)] {
            tree::file(&rig.path(src).join(name), size, size);
        }
        let proxy = Proxy::start(port, u64::MAX);
        let mut cp = rig.packtrain();
        cp.args(["cp", "--json", "--remove-source-files", "--transport", "pipe"]);
        cp.args(["--rate", "60mbit", "--ticket", &ticket(&rig), "--files-from"]);
        cp.arg(rig.path("list"));
        let far = |name: &str| format!("pt://127.0.0.1:{}/{name}", proxy.port);
        match put {
            true => cp.arg(contents(&rig.path(src))).arg(far("up")),
            false => cp.arg(far("there/")).arg(rig.path(dst)),
        };
        cut_when_small_files_are_moved(&rig, &mut cp, &proxy, [src, "b/x"]);
        assert_eq!(files(&rig.path(src)), [""; 0]);
        let there = files(&rig.path(dst));
        let there: Vec<_> = there.iter().filter(|name| !name.starts_with('.')).collect();
        assert_eq!(there, ["a", "c", "x"]);
    }
}

/// The same between two servers.
#[test]
fn files_that_were_moved_between_servers_before_the_connection_was_lost_are_not_missing() {
    let rig = Rig::local();
    fs::create_dir_all(rig.path("root/src")).expect("a folder");
    fs::create_dir(rig.path("root/dst")).expect("a folder");
    for (name, size) in [("a", 1000), ("b", 2000), ("c", 40 * MIB)] {
        tree::file(&rig.path("root/src").join(name), size, size);
    }
    let keys = rig.own_key("keys");
    let keys = ["--authorized-keys", keys.to_str().expect("text")];
    let (from, to) = (free_port(), free_port());
    let _from = serve_at(&rig, from, &keys);
    let _to = serve_at(&rig, to, &keys);
    let proxy = Proxy::start(from, u64::MAX);
    let mut cp = rig.packtrain();
    cp.args(["cp", "--json", "--remove-source-files", "--accept-new-host", "--rate", "60mbit"]);
    cp.args(["a", "b", "c"].map(|name| format!("pt://127.0.0.1:{}/src/{name}", proxy.port)));
    cp.arg(format!("pt://127.0.0.1:{to}/dst"));
    cut_when_small_files_are_moved(&rig, &mut cp, &proxy, ["root/src", "b"]);
    assert_eq!(files(&rig.path("root/src")), [""; 0]);
    let there = files(&rig.path("root/dst"));
    let there: Vec<_> = there.iter().filter(|name| !name.starts_with('.')).collect();
    assert_eq!(there, ["a", "b", "c"]);
}

/// Runs a move of `a`, another small file and `c` in a directory, whose connection is lost when the small
/// ones are moved.
fn cut_when_small_files_are_moved(
    rig: &Rig,
    cp: &mut Command,
    proxy: &Proxy,
    [src, small]: [&str; 2],
) {
    let src = rig.path(src);
    let running = rig.start(cp);
    wait_until("both small files are moved", || {
        !src.join("a").exists() && !src.join(small).exists()
    });
    // Removals in the moment of the loss are not counted, and their files are reported as missing.
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(src.join("c").exists(), "it takes 5 s");
    proxy.cut();
    let ended = running.wait();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stderr.contains("trying again") || ended.json_lines().len() > 1);
    assert_eq!((ended.number("removed"), ended.number("failed")), (3, 0), "{}", ended.stderr);
}

#[test]
fn sources_that_share_names_are_refused_and_stay() {
    let rig = Rig::local();
    for dir in ["a", "b"] {
        fs::create_dir(rig.path(dir)).expect("a folder");
        fs::write(rig.path(dir).join("f"), dir).expect("a file");
    }
    let mut cp = rig.cp();
    cp.arg("--remove-source-files").args([contents(&rig.path("a")), contents(&rig.path("b"))]);
    let ended = rig.run(cp.arg(rig.path("d")));
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    let mut cp = rig.cp();
    cp.arg("--remove-source-files").args([rig.path("a/f"), rig.path("b/f")]);
    let ended = rig.run(cp.arg(rig.path("d")));
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    assert!(ended.stderr.contains("move them one by one"), "{}", ended.stderr);
    for dir in ["a", "b"] {
        assert_eq!(fs::read_to_string(rig.path(dir).join("f")).expect("it stays"), dir);
    }
}

#[test]
fn what_cannot_be_removed_safely_is_refused() {
    let rig = Rig::local();
    fill(&rig.path("src"));
    for more in [&["--inplace"][..], &["-L"], &["-r", "--delete"], &["--backup"]] {
        let mut cp = rig.cp();
        cp.arg("--remove-source-files").args(more).arg(rig.path("src")).arg(rig.path("d"));
        assert_eq!(rig.run(&mut cp).code, 2);
    }
    let mut cp = rig.packtrain();
    cp.args(["cp", "--remove-source-files"]).arg(rig.path("src/big")).arg("s3://bucket/key");
    assert_eq!(rig.run(&mut cp).code, 2);
    assert_eq!(files(&rig.path("src")).len(), 4);
}

#[test]
#[ignore = "needs an ssh server; `cargo xtask test` runs it"]
fn over_ssh_files_are_removed_in_each_direction() {
    let Some(rig) = Rig::ssh() else { return };
    fill(&rig.path("same"));
    let here = |name: &str| contents(&rig.path(name));
    let far = |name: &str| slash(&rig.far(name));
    for (from, to, dst) in [
        (here("src"), rig.far("up"), "up"),
        (far("src"), rig.path("down").into_os_string(), "down"),
        (far("src"), rig.far("between"), "between"),
    ] {
        fill(&rig.path("src"));
        let mut cp = rig.cp();
        let ended = rig.ok(cp.args(["--json", "--remove-source-files"]).arg(&from).arg(&to));
        assert_eq!(ended.number("removed"), 4, "{dst}");
        assert_eq!(files(&rig.path("src")), [""; 0], "{dst}");
        assert_full(&rig, dst);
    }
    // One file at the source is its own target.
    let mut cp = rig.cp();
    cp.args(["--json", "--remove-source-files"]).arg(far("up")).arg(rig.path("up"));
    let ended = rig.run(&mut cp);
    assert_eq!((ended.code, ended.number("removed")), (23, 0), "{}", ended.stderr);
    assert_full(&rig, "up");
}
