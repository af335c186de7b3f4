//! Options named as in rsync, where no other program is needed to say what is right.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use rustix::fs::{CWD, FileType, Mode};

use crate::rig::{Rig, contents, slash};

#[test]
fn pipes_and_sockets_are_skipped_and_counted() {
    let rig = Rig::local();
    fs::create_dir_all(rig.path("src/sub")).expect("a folder");
    fs::write(rig.path("src/f"), "text").expect("a file");
    for name in ["src/pipe", "src/sub/second"] {
        rustix::fs::mknodat(CWD, rig.path(name), FileType::Fifo, Mode::RUSR, 0).expect("a pipe");
    }
    let ended = rig.ok(rig.cp().arg("--delete").arg(contents(&rig.path("src"))).arg(rig.path("d")));
    let said = "pipe and 1 more: pipes, sockets and devices are not copied";
    assert!(ended.stderr.contains(said), "{}", ended.stderr);
    assert_eq!(fs::read(rig.path("d/f")).expect("copied"), b"text");
    assert!(!rig.path("d/pipe").exists());
    let mut alone = rig.packtrain();
    let ended = rig.ok(alone.arg("cp").arg(rig.path("src/pipe")).arg(rig.path("x")));
    assert!(ended.stderr.contains("is not copied"), "{}", ended.stderr);
    assert!(!rig.path("x").exists());
}

#[test]
#[ignore = "needs an ssh server; `cargo xtask test` runs it"]
fn the_choices_reach_the_other_end_in_both_directions() {
    let Some(rig) = Rig::ssh() else { return };
    fs::create_dir_all(rig.path("src/sub")).expect("a folder");
    fs::write(rig.path("src/sub/small"), "s").expect("a file");
    fs::write(rig.path("src/large"), "l".repeat(5000)).expect("a file");
    symlink("sub/small", rig.path("src/link")).expect("a link");
    rustix::fs::mknodat(CWD, rig.path("src/pipe"), FileType::Fifo, Mode::RUSR, 0).expect("a pipe");
    let flags = ["-aL", "--mkpath", "--max-size=1K", "--chmod=F600"];
    let far_source = slash(&rig.far("src"));
    for (from, to, name) in [
        (contents(&rig.path("src")), rig.far("up/a/b"), "up/a/b"),
        (far_source, rig.path("down/a/b").into_os_string(), "down/a/b"),
    ] {
        let ended = rig.ok(rig.cp().args(flags).arg(&from).arg(&to));
        assert!(ended.stderr.contains("is not copied"), "{}", ended.stderr);
        let dst = rig.path(name);
        assert_eq!(fs::read(dst.join("sub/small")).expect("copied"), b"s");
        let link = fs::symlink_metadata(dst.join("link")).expect("copied");
        assert!(link.is_file() && link.permissions().mode() & 0o777 == 0o600);
        assert!(!dst.join("large").exists() && !dst.join("pipe").exists());
    }
}

#[test]
fn links_are_followed_wherever_they_lead_and_not_in_circles() {
    let rig = Rig::local();
    fs::create_dir_all(rig.path("out/side")).expect("a folder");
    fs::create_dir_all(rig.path("src/sub")).expect("a folder");
    fs::write(rig.path("out/side/f"), "outside").expect("a file");
    symlink(rig.path("out"), rig.path("src/out")).expect("a link");
    symlink("../sub", rig.path("src/sub/circle")).expect("a link");
    symlink("nothing", rig.path("src/dangling")).expect("a link");
    let ended = rig.run(rig.cp().arg("-L").arg(contents(&rig.path("src"))).arg(rig.path("dst")));
    assert_eq!(ended.code, 23, "{}", ended.stderr);
    assert!(ended.stderr.contains("is a link to a directory that contains it"), "{}", ended.stderr);
    assert!(ended.stderr.contains("is a link whose target does not exist"), "{}", ended.stderr);
    assert_eq!(fs::read(rig.path("dst/out/side/f")).expect("copied"), b"outside");
}

#[test]
fn missing_parents_are_made_only_when_asked_for() {
    let rig = Rig::local();
    fs::create_dir_all(rig.path("src")).expect("a folder");
    fs::write(rig.path("src/f"), "text").expect("a file");
    let mut plain = rig.packtrain();
    let ended = rig.run(plain.arg("cp").arg(rig.path("src/f")).arg(rig.path("a/b/f")));
    assert_eq!(ended.code, 4, "{}", ended.stderr);
    for (option, there) in [("--dry-run", false), ("--verbose", true)] {
        for (from, to) in [("src/f", "a/b/f"), ("src/f", "c/d/"), ("src/", "e/g")] {
            let mut cp = rig.cp();
            let place = |name: &str| {
                let mut path = rig.path("").into_os_string();
                path.push(name);
                path
            };
            rig.ok(cp.args(["--mkpath", option]).arg(place(from)).arg(place(to)));
        }
        for name in ["a/b/f", "c/d/f", "e/g/f"] {
            assert_eq!(rig.path(name).exists(), there, "{option}: {name}");
        }
        assert_eq!(rig.path("a").exists(), there, "{option}");
    }
}

#[test]
fn options_without_an_effect_are_accepted_with_a_word() {
    let rig = Rig::local();
    fs::write(rig.path("f"), "text").expect("a file");
    let mut cp = rig.packtrain();
    cp.args(["cp", "-avzP", "--partial", "--append", "-D"]).arg(rig.path("f")).arg(rig.path("g"));
    let ended = rig.ok(&mut cp);
    for word in ["-z has no effect", "-P has no effect", "--partial has", "--append has", "-D has"]
    {
        assert!(ended.stderr.contains(word), "{word}: {}", ended.stderr);
    }
    let mut quiet = rig.packtrain();
    let ended = rig.ok(quiet.args(["cp", "-qz"]).arg(rig.path("f")).arg(rig.path("h")));
    assert_eq!(ended.stderr, "");
    for (line, tip) in [
        ("--rsync-path=x", "write --remote-path COMMAND"),
        ("-S", "holes are always kept"),
        ("--transfers=4", "write --streams N"),
    ] {
        let mut cp = rig.packtrain();
        let ended = rig.run(cp.args(["cp", line, "a", "b"]));
        assert_eq!(ended.code, 2);
        assert!(
            ended.stderr.contains(tip) && !ended.stderr.contains("similar"),
            "{}",
            ended.stderr
        );
    }
}

#[test]
fn a_dry_run_tells_files_bytes_modes_and_deletions() {
    let rig = Rig::local();
    fs::create_dir_all(rig.path("src/sub")).expect("a folder");
    fs::write(rig.path("src/sub/new"), "n".repeat(1000)).expect("a file");
    fs::write(rig.path("src/mode"), "m").expect("a file");
    fs::write(rig.path("src/same"), "s").expect("a file");
    rig.ok(rig.cp().arg(contents(&rig.path("src"))).arg(rig.path("dst")));
    fs::remove_file(rig.path("dst/sub/new")).expect("there");
    fs::set_permissions(rig.path("dst/mode"), fs::Permissions::from_mode(0o600)).expect("a mode");
    fs::create_dir(rig.path("dst/gone")).expect("a folder");
    fs::write(rig.path("dst/gone/inner"), "x").expect("a file");
    let mut cp = rig.cp();
    cp.args(["-n", "--delete", "--json"]).arg(contents(&rig.path("src"))).arg(rig.path("dst"));
    let ended = rig.ok(&mut cp);
    let lines = ended.json_lines();
    let results: Vec<(&str, &str)> = lines
        .iter()
        .filter(|line| line["event"] == "file" && line["result"] != "unchanged")
        .map(|line| (line["path"].as_str().unwrap(), line["result"].as_str().unwrap()))
        .collect();
    for wanted in [
        ("sub/new", "to move"),
        ("mode", "to set"),
        ("gone/inner", "to delete"),
        ("gone", "to delete"),
    ] {
        assert!(results.contains(&wanted), "{wanted:?} in {results:?}");
    }
    assert_eq!(results.len(), 4, "{results:?}");
    let last = lines.last().expect("a last line");
    assert_eq!(last["dry_run"], true);
    assert_eq!((ended.number("bytes_moved"), ended.number("files_moved")), (1000, 1));
    assert_eq!((ended.number("deleted"), ended.number("metadata")), (2, 1));
    assert_eq!(ended.number("goodput_bps"), 0);
    assert!(rig.path("dst/gone/inner").exists() && !rig.path("dst/sub/new").exists());
    let real = rig.ok(rig.cp().arg("--json").arg(contents(&rig.path("src"))).arg(rig.path("dst")));
    assert_eq!(real.json_lines().last().expect("a line")["dry_run"], false);
}

#[test]
fn verify_lists_what_only_the_target_has() {
    let rig = Rig::local();
    fs::create_dir_all(rig.path("src")).expect("a folder");
    fs::write(rig.path("src/f"), "f").expect("a file");
    rig.ok(rig.cp().arg(contents(&rig.path("src"))).arg(rig.path("dst")));
    fs::write(rig.path("dst/extra"), "x").expect("a file");
    let verify = |source: std::ffi::OsString| {
        let mut verify = rig.packtrain();
        verify.args(["verify", "--json"]).arg(source).arg(rig.path("dst"));
        rig.run(&mut verify)
    };
    let ended = verify(contents(&rig.path("src")));
    assert_eq!((ended.code, ended.number("extra"), ended.number("differing")), (0, 1, 0));
    fs::write(rig.path("dst/f"), "g").expect("a file");
    let ended = verify(contents(&rig.path("src")));
    assert_eq!((ended.code, ended.number("extra"), ended.number("differing")), (13, 1, 1));
    assert!(rig.path("dst/extra").exists());
    // Without a slash the directory itself is looked for, as cp would have copied it.
    let ended = verify(rig.path("src").into());
    assert_eq!((ended.code, ended.number("extra")), (13, 0));
}

#[test]
fn a_manifest_is_what_b3sum_and_sha256sum_check() {
    let rig = Rig::local();
    let dir = rig.path("dir");
    fs::create_dir_all(dir.join("sub")).expect("a folder");
    for (name, text) in [("a", ""), ("sub/new\nline\\", "text"), ("sp ace", "more")] {
        fs::write(dir.join(name), text).expect("a file");
    }
    for (hash, program) in [("sha256", "sha256sum"), ("blake3", "b3sum")] {
        let list = rig.path(hash);
        let mut verify = rig.packtrain();
        verify.args(["verify", "--hash", hash, "--manifest-out"]).arg(&list).arg(&dir);
        rig.ok(&mut verify);
        let mut check = std::process::Command::new(program);
        match check.args(["-c", "--quiet"]).arg(&list).current_dir(&dir).output() {
            Ok(output) => assert!(output.status.success(), "{program}: {output:?}"),
            // Not every machine has b3sum; every one has sha256sum.
            Err(_) => assert_eq!(program, "b3sum"),
        }
        let verify = || {
            let mut verify = rig.packtrain();
            verify.args(["verify", "--json", "--hash", hash, "--manifest"]).arg(&list).arg(&dir);
            rig.run(&mut verify)
        };
        let ended = verify();
        assert_eq!((ended.code, ended.number("entries")), (0, 3), "{}", ended.stderr);
        fs::write(dir.join("a"), "changed").expect("a file");
        fs::write(dir.join("b"), "extra").expect("a file");
        let ended = verify();
        assert_eq!((ended.code, ended.number("differing"), ended.number("extra")), (13, 1, 1));
        fs::write(dir.join("a"), "").expect("a file");
        fs::remove_file(dir.join("b")).expect("there");
    }
    let mut hostile = rig.packtrain();
    fs::write(rig.path("evil"), format!("{}  ../up\n", "0".repeat(64))).expect("a file");
    let ended =
        rig.run(hostile.args(["verify", "--manifest"]).arg(rig.path("evil")).arg(rig.path("dir")));
    assert_eq!(ended.code, 2, "{}", ended.stderr);
}

#[test]
#[ignore = "needs an ssh server; `cargo xtask test` runs it"]
fn a_manifest_of_another_machine_is_that_of_its_directory() {
    let Some(rig) = Rig::ssh() else { return };
    let dir = rig.path("dir");
    fs::create_dir_all(dir.join("sub")).expect("a folder");
    for (name, text) in [("a", ""), ("sub/new\nline", "text"), ("sp ace", "more"), ("x.log", "")] {
        fs::write(dir.join(name), text).expect("a file");
    }
    let verify = |words: &[&str], place: &std::ffi::OsStr| {
        let mut verify = rig.packtrain();
        verify.args(["verify", "--exclude", "*.log"]).args(words).arg(place);
        rig.reach(&mut verify);
        rig.run(&mut verify)
    };
    for hash in ["sha256", "blake3"] {
        let (here, there) = (rig.path("here"), rig.path("there"));
        for (list, place) in [(&here, dir.clone().into_os_string()), (&there, rig.far("dir"))] {
            let list = list.to_str().expect("text");
            let ended = verify(&["--hash", hash, "--manifest-out", list], &place);
            assert_eq!(ended.code, 0, "{}", ended.stderr);
        }
        let list = fs::read(&there).expect("a list");
        assert_eq!(list.iter().filter(|b| **b == b'\n').count(), 3);
        assert_eq!(list, fs::read(&here).expect("a list"), "{hash}");
        let check = || {
            let list = there.to_str().expect("text");
            verify(&["--json", "--hash", hash, "--manifest", list], &rig.far("dir"))
        };
        assert_eq!(check().code, 0);
        fs::write(dir.join("a"), "changed").expect("a file");
        let ended = check();
        assert_eq!((ended.code, ended.number("differing"), ended.number("extra")), (13, 1, 0));
        fs::write(dir.join("a"), "").expect("a file");
    }
    let ended = verify(&["--manifest-out", "-"], &rig.far("none"));
    assert_eq!(ended.code, 3, "{}", ended.stderr);
    assert!(ended.stderr.contains("no such file or directory"), "{}", ended.stderr);
}

#[test]
fn rules_of_one_side_and_files_of_rules_do_what_rsync_does() {
    let rig = Rig::local();
    for dir in ["src", "dst"] {
        fs::create_dir_all(rig.path(dir)).expect("a folder");
    }
    for name in ["src/hidden", "src/f", "src/x.o", "dst/kept", "dst/hidden", "dst/y.o", "dst/gone"]
    {
        fs::write(rig.path(name), name).expect("a file");
    }
    fs::write(rig.path("rules"), "# one side each\nP kept\nH hidden\n-s *.o\n").expect("a file");
    let rules = format!("--filter=. {}", rig.path("rules").display());
    let mut cp = rig.cp();
    rig.ok(cp.args(["--delete", &rules]).arg(contents(&rig.path("src"))).arg(rig.path("dst")));
    let mut names: Vec<_> = fs::read_dir(rig.path("dst"))
        .expect("a listing")
        .map(|item| item.expect("a name").file_name().into_string().expect("text"))
        .collect();
    names.sort();
    assert_eq!(names, ["f", "kept"]);
}

#[test]
#[ignore = "needs an ssh server; `cargo xtask test` runs it"]
fn the_other_end_expands_patterns_without_a_shell() {
    let Some(rig) = Rig::ssh() else { return };
    fs::create_dir_all(rig.path("src/sub")).expect("a folder");
    for name in ["a.nc", "b c.nc", "$(touch gone).nc", ".hidden.nc", "other", "sub/d.nc"] {
        fs::write(rig.path("src").join(name), name).expect("a file");
    }
    rig.ok(rig.cp().arg(rig.far("src/*.nc")).arg(rig.path("dst")));
    let mut names: Vec<_> = fs::read_dir(rig.path("dst"))
        .expect("a listing")
        .map(|item| item.expect("a name").file_name().into_string().expect("text"))
        .collect();
    names.sort();
    assert_eq!(names, ["$(touch gone).nc", "a.nc", "b c.nc"]);
    // One match goes into a directory too; between two remote places the names are checked as well.
    rig.ok(rig.cp().arg(rig.far("src/s*")).arg(rig.path("one")));
    assert_eq!(fs::read(rig.path("one/sub/d.nc")).expect("copied"), b"sub/d.nc");
    rig.ok(rig.cp().arg(rig.far("src/[ab]*.nc")).arg(rig.far("third")));
    assert!(rig.path("third/a.nc").exists() && !rig.path("third/other").exists());
    let ended = rig.run(rig.cp().arg(rig.far("src/*.none")).arg(rig.path("x")));
    assert_eq!(ended.code, 3, "{}", ended.stderr);
    assert!(ended.stderr.contains("the pattern matches nothing"), "{}", ended.stderr);
}
