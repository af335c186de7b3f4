//! Files of filter rules in the directories of a source, also compared with rsync.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use packtrain_disk::{Root, WalkOptions, Walker};
use packtrain_object::{EntryKind, Filters, TreeFilter};
use proptest::prelude::*;
use rustix::fs::{CWD, FileType, Mode};

fn options(rules: &[&str]) -> WalkOptions {
    let mut filters = Filters::new();
    rules.iter().for_each(|rule| filters.rule(rule.as_bytes()).expect("a rule"));
    WalkOptions { recursive: true, filters, ..WalkOptions::default() }
}

/// Writes files with their contents, with their directories.
fn build(at: &Path, files: &[(&str, &str)]) {
    for (path, text) in files {
        let path = at.join(path);
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        fs::write(path, text).expect("a file");
    }
}

/// The names of a walk, sorted, a directory with a slash, and the failures.
fn walked(walker: Walker) -> (Vec<String>, Vec<String>) {
    let (mut names, mut failed) = (Vec::new(), Vec::new());
    for item in walker {
        match item {
            Ok(item) => {
                let slash = if item.entry.kind == EntryKind::Directory { "/" } else { "" };
                names.push(format!("{}{slash}", item.entry.path));
            }
            Err(failure) => failed.push(failure.to_string()),
        }
    }
    names.retain(|name| name != "./" && name != "/");
    names.sort();
    (names, failed)
}

fn walk(source: &Path, options: WalkOptions) -> (Vec<String>, Vec<String>) {
    walked(Walker::new(&[source.to_path_buf()], options))
}

/// The path of a directory, which names its contents.
fn contents(dir: &Path) -> PathBuf {
    let mut path = dir.as_os_str().to_owned();
    path.push("/");
    path.into()
}

#[test]
fn each_directory_adds_its_rules() {
    let dir = tempfile::tempdir().expect("a directory");
    let files = [
        (".f", "- *.o\n- /top\n"),
        ("x.o", ""),
        ("top", ""),
        ("a/top", ""),
        ("a/.f", "+ keep.o\n- /b/c\n"),
        ("a/keep.o", ""),
        ("a/b/c/d", ""),
        ("a/b/keep.o", ""),
        ("z/.f", "!\n"),
        ("z/x.o", ""),
    ];
    build(dir.path(), &files);
    let (names, failed) = walk(&contents(dir.path()), options(&[": .f"]));
    assert_eq!(failed, [""; 0]);
    let wanted =
        [".f", "a/", "a/.f", "a/b/", "a/b/keep.o", "a/keep.o", "a/top", "z/", "z/.f", "z/x.o"];
    assert_eq!(names, wanted);
    // A list of names reads the files on the way, and those of a listed directory.
    let listed = |names: &[&str], recursive| WalkOptions {
        recursive,
        files_from: Some(names.iter().map(|name| name.as_bytes().to_vec()).collect()),
        ..options(&[": .f"])
    };
    let names = ["x.o", "a", "a/keep.o", "a/b/c/d", "a/top", "z/x.o"];
    let (found, _) = walk(dir.path(), listed(&names, false));
    assert_eq!(found, ["a/", "a/b/", "a/keep.o", "a/top", "z/", "z/x.o"]);
    let (found, _) = walk(dir.path(), listed(&["a/b"], true));
    assert_eq!(found, ["a/", "a/b/", "a/b/keep.o"]);
}

#[test]
fn the_rules_of_one_source_are_not_those_of_the_next() {
    let dir = tempfile::tempdir().expect("a directory");
    let files = [
        ("one/.f", "- x\n- a/y\n"),
        ("one/x", ""),
        ("one/a/y", ""),
        ("two/x", ""),
        ("two/b/x", ""),
    ];
    build(dir.path(), &files);
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    let (names, failed) = walked(Walker::new(&[one.clone(), two.clone()], options(&[": .f"])));
    assert_eq!(failed, [""; 0]);
    assert_eq!(names, ["one/", "one/.f", "one/a/", "two/", "two/b/", "two/b/x", "two/x"]);
    // Its rules do not hide that a name in the first source has the same place at the target.
    let (names, failed) =
        walked(Walker::new(&[contents(&one), contents(&two)], options(&[": .f"])));
    assert_eq!(names, [".f", "a/", "b/", "b/x"]);
    assert!(failed.len() == 1 && failed[0].contains("two/x"), "{failed:?}");
}

#[test]
fn a_directory_whose_file_cannot_be_read_is_left_out() {
    let dir = tempfile::tempdir().expect("a directory");
    let files = [
        ("good/x", ""),
        ("bad/.f", "- [x\n"),
        ("bad/x", ""),
        ("long/x", ""),
        ("link/x", ""),
        ("pipe/x", ""),
        ("dir/.f/x", ""),
        ("out", "- x\n"),
    ];
    build(dir.path(), &files);
    fs::write(dir.path().join("long/.f"), vec![b'#'; (64 << 10) + 1]).expect("a file");
    symlink("../out", dir.path().join("link/.f")).expect("a link");
    let pipe = dir.path().join("pipe/.f");
    rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
    let (names, failed) = walk(&contents(dir.path()), options(&[": .f"]));
    // A directory of this name holds no rules.
    let wanted = [
        "bad/", "dir/", "dir/.f/", "dir/.f/x", "good/", "good/x", "link/", "long/", "out", "pipe/",
    ];
    assert_eq!(names, wanted);
    for (dir, why) in [("bad", "`[`"), ("link", "link"), ("long", "64 KiB"), ("pipe", "pipe")] {
        let text = failed.iter().find(|text| text.contains(&format!("/{dir}:")));
        assert!(text.is_some_and(|text| text.contains(why)), "{dir}: {failed:?}");
    }
    assert_eq!(failed.len(), 4, "{failed:?}");
    let listed = |name: &str| WalkOptions {
        files_from: Some(vec![name.as_bytes().to_vec()]),
        ..options(&[": .f"])
    };
    // The directory itself is named, and then what is in it.
    let both = WalkOptions {
        files_from: Some(["bad", "bad/x", "good/x"].map(|name| name.as_bytes().to_vec()).into()),
        recursive: true,
        ..options(&[": .f"])
    };
    let (names, failed) = walk(dir.path(), both);
    assert!(!names.contains(&"bad/x".to_owned()), "{names:?}");
    assert!(names.contains(&"good/x".to_owned()) && failed.len() == 1, "{names:?} {failed:?}");
    for name in ["bad/x", "link/x"] {
        let (names, failed) = walk(dir.path(), listed(name));
        assert!(!names.contains(&name.to_owned()) && failed.len() == 1, "{names:?} {failed:?}");
    }
    build(dir.path(), &[(".f", "- [x\n")]);
    let (names, failed) = walk(dir.path(), listed("good/x"));
    assert!(names.is_empty() && failed.len() == 1, "{names:?} {failed:?}");
}

#[test]
fn a_peer_reaches_no_file_outside_of_the_root() {
    let dir = tempfile::tempdir().expect("a directory");
    let files = [("rules", "- x\n"), ("root/s/a/x", ""), ("root/s/b/x", ""), ("root/in", "- x\n")];
    build(dir.path(), &files);
    symlink("../../../rules", dir.path().join("root/s/a/.f")).expect("a link");
    symlink("../../in", dir.path().join("root/s/b/.f")).expect("a link");
    let root = Root::open(&dir.path().join("root")).expect("a root");
    let beneath = |options| walked(Walker::beneath(&root, vec![b"s/".to_vec()], options));
    let (names, failed) = beneath(options(&[": .f"]));
    assert_eq!((names, failed.len()), (vec!["a/".to_owned(), "b/".to_owned()], 2));
    // With --copy-links, links within the directory of the source are followed.
    let (names, failed) = beneath(WalkOptions { copy_links: true, ..options(&[": .f"]) });
    assert!(!names.iter().any(|name| name.contains("a/x")), "{names:?}");
    assert!(failed.iter().any(|text| text.contains("s/a")), "{failed:?}");
}

#[test]
fn a_walk_returns_the_files_and_forgets_those_it_left() {
    let dir = tempfile::tempdir().expect("a directory");
    // More rules than an end holds at once.
    let text = "-_x\n".repeat(16_000);
    for name in 0..6 {
        build(dir.path(), &[(&format!("{name}/.f"), &text)]);
    }
    let (names, failed) = walk(&contents(dir.path()), options(&[": .f"]));
    assert_eq!((names.len(), failed), (12, Vec::new()));
    let reported = WalkOptions { report_rules: true, ..options(&[": .f"]) };
    let (_, failed) = walk(&contents(dir.path()), reported.clone());
    assert!(failed.len() == 2 && failed[0].contains("too many"), "{failed:?}");
    let small = tempfile::tempdir().expect("a directory");
    build(small.path(), &[("a/.f", "- x\n"), ("a/b/.g", "y\n"), ("c/.f", "# none\n")]);
    let reported = WalkOptions { report_rules: true, ..options(&[": .f", ":- .g"]) };
    let mut other = TreeFilter::new(reported.filters.clone());
    let mut found = Vec::new();
    for item in Walker::new(&[contents(small.path())], reported) {
        let item = item.expect("no failure");
        for (number, text) in item.rules {
            other.add_file(number, item.entry.path.as_bytes(), &text).expect("it was read");
            found.push(format!("{number} {}", item.entry.path));
        }
    }
    assert_eq!(found, ["0 a", "1 a/b"]);
    assert!(other.excludes(b"a/b/x", false) && other.excludes(b"a/b/y", false));
    assert!(!other.excludes(b"a/y", false) && !other.excludes(b"x", false));
}

/// The names that rsync would transfer, sorted.
fn rsync(source: &Path, rules: &[String]) -> Vec<String> {
    let nowhere = tempfile::tempdir().expect("a directory");
    let mut command = Command::new("rsync");
    command.args(["-a", "--dry-run", "--out-format=%n"]);
    command.args(rules.iter().map(|rule| format!("--filter={rule}")));
    let out = command.arg(source).arg(nowhere.path()).output().expect("rsync");
    assert!(out.status.success(), "{rules:?}: {}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).expect("text");
    let mut names: Vec<_> = text.lines().filter(|line| *line != "./").map(str::to_owned).collect();
    names.sort();
    names
}

const NAMES: [&str; 6] = ["a", "b", "d", "x.o", "y.o", "build"];

fn path() -> impl Strategy<Value = String> {
    let name = proptest::sample::select(&NAMES[..]);
    proptest::collection::vec(name, 1..4).prop_map(|parts| parts.join("/"))
}

fn pattern() -> impl Strategy<Value = String> {
    let known = [
        "a",
        "b",
        "x.o",
        "*.o",
        "/a",
        "/b/",
        "d/",
        "a/b",
        "/a/b",
        "b/*",
        "a/**",
        "**/d",
        "/*",
        "*",
        "[ab]",
        "?",
        "/build/***",
        "d/***",
        "/d/*.o",
        "*/a",
        "**.o",
    ];
    proptest::sample::select(known.to_vec()).prop_map(str::to_owned)
}

fn line() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => pattern().prop_map(|pattern| format!("- {pattern}")),
        4 => pattern().prop_map(|pattern| format!("+ {pattern}")),
        1 => pattern().prop_map(|pattern| format!("H {pattern}")),
        1 => pattern().prop_map(|pattern| format!("P {pattern}")),
        1 => pattern().prop_map(|pattern| format!("-! {pattern}")),
        1 => Just("!".to_owned()),
        1 => Just("# comment".to_owned()),
        1 => Just(String::new()),
    ]
}

/// A tree with two kinds of files of rules, and the rules of the command.
type Case =
    (Vec<String>, Vec<(String, Vec<String>)>, Vec<(String, Vec<String>)>, Vec<String>, bool);

fn case() -> impl Strategy<Value = Case> {
    let dir = prop_oneof![Just(String::new()), path()];
    let rules =
        proptest::collection::vec((dir.clone(), proptest::collection::vec(line(), 0..4)), 0..4);
    let ignores =
        proptest::collection::vec((dir, proptest::collection::vec(pattern(), 0..3)), 0..3);
    let kinds = prop_oneof![
        4 => Just(": .f".to_owned()),
        2 => Just(":- .g".to_owned()),
        1 => Just(":n .f".to_owned()),
        1 => Just(":+ .g".to_owned()),
        1 => Just(":w .f".to_owned()),
        1 => Just(":s- .g".to_owned()),
        2 => pattern().prop_map(|pattern| format!("- {pattern}")),
        1 => pattern().prop_map(|pattern| format!("+ {pattern}")),
    ];
    let command = proptest::collection::vec(kinds, 1..4);
    (proptest::collection::vec(path(), 1..12), rules, ignores, command, any::<bool>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn rsync_takes_the_same_names((names, rules, ignores, mut command, inside) in case()) {
        if Command::new("rsync").arg("--version").output().is_err() {
            packtrain_testkit::skip("rsync is not installed: the rules are not compared with it");
            return Ok(());
        }
        // rsync reads one file of a name for one rule only.
        command.sort();
        command.dedup_by_key(|rule| if rule.starts_with(':') { rule[rule.len() - 2..].to_owned() } else { rule.clone() });
        let dir = tempfile::tempdir().expect("a directory");
        let source = dir.path().join("s");
        fs::create_dir(&source).expect("a directory");
        for name in names {
            // A name may be a directory of another one.
            if fs::create_dir_all(source.join(&name).parent().expect("a parent")).is_ok() && !source.join(&name).exists() {
                fs::write(source.join(name), "").expect("a file");
            }
        }
        let is_words = command.iter().any(|rule| rule.starts_with(":w"));
        for (at, lines, file) in rules.iter().map(|(at, lines)| (at, lines, ".f")).chain(ignores.iter().map(|(at, lines)| (at, lines, ".g"))) {
            if source.join(at).is_dir() {
                let lines = lines.iter().filter(|line| !is_words || !line.starts_with('#'));
                let space = if is_words { "_" } else { " " };
                let text: String = lines.map(|line| format!("{}\n", line.replace(' ', space))).collect();
                fs::write(source.join(at).join(file), text).expect("a file");
            }
        }
        let ours: Vec<&str> = command.iter().map(String::as_str).collect();
        let named = if inside { contents(&source) } else { source };
        let (ours, failed) = walk(&named, options(&ours));
        prop_assert_eq!(failed, Vec::<String>::new());
        prop_assert_eq!(ours, rsync(&named, &command));
    }
}
