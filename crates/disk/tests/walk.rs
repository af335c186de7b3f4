//! The walk over sources. If rsync is installed, its filters are the reference.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use packtrain_disk::{Root, Trouble, WalkFailure, WalkOptions, Walker, classify};
use packtrain_object::{EntryKind, Filters};

/// A tree in a new directory; a name that ends with a slash is a directory.
fn tree(names: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in names {
        let path = dir.path().join(name);
        if name.ends_with('/') {
            fs::create_dir_all(path).unwrap();
        } else {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
    }
    dir
}

fn recursive() -> WalkOptions {
    WalkOptions { recursive: true, ..WalkOptions::default() }
}

fn walk(sources: &[PathBuf], options: WalkOptions) -> (Vec<String>, Vec<WalkFailure>) {
    let (mut found, mut failed) = (Vec::new(), Vec::new());
    let mut walker = Walker::new(sources, options);
    while let Some(item) = walker.next() {
        match item {
            Ok(item) => {
                // The returned path can be opened.
                let root = &walker.roots()[item.root];
                assert!(root.stat(&item.source).unwrap().is_some());
                let slash = if item.entry.kind == EntryKind::Directory { "/" } else { "" };
                found.push(format!("{}{slash}", item.entry.path));
            }
            Err(failure) => failed.push(failure),
        }
    }
    assert_eq!(walker.had_failures(), !failed.is_empty());
    (found, failed)
}

fn found(sources: &[PathBuf], options: WalkOptions) -> Vec<String> {
    let (found, failed) = walk(sources, options);
    assert!(failed.is_empty(), "{failed:?}");
    found
}

#[test]
fn the_trailing_slash_decides() {
    let dir = tree(&["d/b/x", "d/a", "d/b.c"]);
    let at = |path: &str| vec![PathBuf::from(format!("{}/{path}", dir.path().display()))];
    let named = ["d/", "d/a", "d/b/", "d/b/x", "d/b.c"];
    let contents = ["./", "a", "b/", "b/x", "b.c"];
    assert_eq!(found(&at("d"), recursive()), named);
    assert_eq!(found(&at("d/"), recursive()), contents);
    assert_eq!(found(&at("d/."), recursive()), contents);
    assert_eq!(found(&at("d/b/.."), recursive()), contents);
    assert_eq!(found(&at("d/a"), recursive()), ["a"]);
    assert_eq!(found(&at("d/b.c"), WalkOptions::default()), ["b.c"]);
}

#[test]
fn metadata_and_links_are_seen_as_they_are() {
    let dir = tree(&["d/f"]);
    let file = dir.path().join("d/f");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o4751)).unwrap();
    fs::File::open(&file)
        .unwrap()
        .set_modified(std::time::UNIX_EPOCH + std::time::Duration::new(77, 5))
        .unwrap();
    symlink("/nowhere", dir.path().join("d/l")).unwrap();
    fs::hard_link(&file, dir.path().join("d/g")).unwrap();
    let items: Vec<_> =
        Walker::new(&[dir.path().join("d")], recursive()).map(Result::unwrap).collect();
    assert_eq!(items.len(), 4);
    let f = &items[1].entry;
    assert_eq!((f.mode, f.mtime.secs, f.mtime.nanos), (0o4751, 77, 5));
    assert_eq!(f.kind, EntryKind::File { size: 3 });
    assert_eq!(items[2].entry.kind, EntryKind::File { size: 3 }, "a hard link is a file");
    assert_eq!(items[3].entry.kind, EntryKind::Symlink { target: b"/nowhere".to_vec() });
}

#[test]
fn a_directory_needs_to_be_asked_for() {
    let dir = tree(&["d/x", "f"]);
    let (got, failed) = walk(&[dir.path().join("d"), dir.path().join("f")], WalkOptions::default());
    assert_eq!(got, ["f"]);
    assert_eq!(failed.len(), 1);
    assert!(failed[0].is_source && failed[0].error.to_string().contains("-r"), "{}", failed[0]);
}

#[test]
fn what_is_missing_or_special_fails_and_the_walk_goes_on() {
    let dir = tree(&["d/a", "d/z"]);
    let pipe = dir.path().join("d/pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
    let sources = [
        dir.path().join("missing"),
        dir.path().join("no/such/dir/"),
        dir.path().join("d/a/not-a-dir"),
        dir.path().join("d"),
    ];
    let (got, failed) = walk(&sources, recursive());
    assert_eq!(got, ["d/", "d/a", "d/z"]);
    let seen: Vec<_> = failed.iter().map(|f| (f.is_source, classify(&f.error))).collect();
    assert_eq!(
        seen,
        [
            (true, Trouble::NotFound),
            (true, Trouble::NotFound),
            (true, Trouble::NotDirectory),
            (false, Trouble::Unsupported)
        ]
    );
    assert_eq!(failed[0].path, dir.path().join("missing").to_str().unwrap().as_bytes());
    assert_eq!(failed[3].path, pipe.to_str().unwrap().as_bytes());
}

#[test]
fn a_directory_that_vanishes_fails_alone() {
    let dir = tree(&["d/a/x", "d/b/x", "d/c"]);
    let mut walker = Walker::new(&[dir.path().join("d")], recursive());
    assert_eq!(walker.next().unwrap().unwrap().entry.path.as_bytes(), b"d");
    fs::remove_dir_all(dir.path().join("d/b")).unwrap();
    let (mut got, mut failed) = (0, Vec::new());
    for item in walker {
        match item {
            Ok(_) => got += 1,
            Err(failure) => failed.push(failure),
        }
    }
    assert_eq!(got, 3);
    assert_eq!(failed.len(), 1);
    assert_eq!(classify(&failed[0].error), Trouble::NotFound);
}

#[test]
fn sources_share_names_only_where_nothing_is_lost() {
    let dir = tree(&["a/sub/x", "a/only", "b/sub/y", "b/sub/x", "b/file"]);
    let (a, b) = (dir.path().join("a/"), dir.path().join("b/"));
    let (got, failed) = walk(&[a.clone(), b], recursive());
    assert_eq!(got, ["./", "only", "sub/", "sub/x", "file", "sub/y"]);
    assert_eq!(failed.len(), 1, "b/sub/x would overwrite a/sub/x");
    assert_eq!(classify(&failed[0].error), Trouble::Exists);
    // The same source twice is no conflict.
    assert_eq!(found(&[a.clone(), a], recursive()), ["./", "only", "sub/", "sub/x"]);
    let sub = dir.path().join("a/sub");
    let named = found(&[sub.clone(), dir.path().join("a/only"), sub], recursive());
    assert_eq!(named, ["sub/", "sub/x", "only"]);
}

#[test]
fn a_peers_sources_stay_beneath_the_root() {
    let dir = tree(&["served/sub/x", "served/y", "outside/secret"]);
    symlink("../outside", dir.path().join("served/up")).unwrap();
    symlink(dir.path().join("outside"), dir.path().join("served/abs")).unwrap();
    symlink("sub", dir.path().join("served/in")).unwrap();
    let root = Root::open(&dir.path().join("served")).unwrap();
    let walk = |source: &str| {
        let walker = Walker::beneath(&root, vec![source.as_bytes().to_vec()], recursive());
        let (found, failed): (Vec<_>, Vec<_>) = walker.partition(Result::is_ok);
        let path = |item: &packtrain_disk::WalkItem| item.entry.path.to_string();
        (found.into_iter().map(|item| path(&item.unwrap())).collect::<Vec<_>>(), failed.len())
    };
    for (source, found) in [
        ("sub", &["sub", "sub/x"][..]),
        ("/sub/", &[".", "x"]),
        ("sub/../y", &["y"]),
        ("in/", &[".", "x"]),
        ("in/x", &["x"]),
        // A link is transferred as a link.
        ("up", &["up"]),
        ("abs", &["abs"]),
        ("", &[".", "abs", "in", "sub", "sub/x", "up", "y"]),
        ("/", &[".", "abs", "in", "sub", "sub/x", "up", "y"]),
    ] {
        assert_eq!(walk(source), (found.iter().map(ToString::to_string).collect(), 0), "{source}");
    }
    for source in [
        "..",
        "../",
        "../outside",
        "sub/../../outside/",
        "up/",
        "up/secret",
        "abs/",
        "abs/.",
        "/../outside/secret",
    ] {
        assert_eq!(walk(source), (vec![], 1), "{source}");
    }
}

#[test]
fn sources_beside_each_other_share_an_open_directory() {
    let names: Vec<String> = (0..3000).map(|n| format!("f{n}")).collect();
    let dir = tree(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let sources: Vec<_> = names.iter().map(|name| dir.path().join(name)).collect();
    assert_eq!(Walker::new(&sources, WalkOptions::default()).roots().len(), 1);
    assert_eq!(found(&sources, WalkOptions::default()), names);
}

#[test]
fn a_list_of_names_brings_the_directories_on_the_way() {
    let dir = tree(&["s/a/b/c", "s/a/b/d", "s/a/x", "s/e/f/g", "s/h"]);
    symlink("a", dir.path().join("s/link")).unwrap();
    let list = |names: &[&str], recursive| WalkOptions {
        recursive,
        files_from: Some(names.iter().map(|n| n.as_bytes().to_vec()).collect()),
        ..WalkOptions::default()
    };
    let s = vec![dir.path().join("s")];
    assert_eq!(
        found(&s, list(&["h", "a/b/d", "/a//b/./c"], false)),
        ["a/", "a/b/", "a/b/c", "a/b/d", "h"]
    );
    assert_eq!(found(&s, list(&["e"], false)), ["e/"]);
    assert_eq!(found(&s, list(&["e", "e/f/g", "h"], true)), ["e/", "e/f/", "e/f/g", "h"]);
    let mut filters = Filters::new();
    filters.rule(b"- /a/b").unwrap();
    let filtered = WalkOptions { filters, ..list(&["a/b/c", "a/x", "h"], false) };
    assert_eq!(found(&s, filtered), ["a/", "a/x", "h"]);
    let (got, failed) = walk(&s, list(&["h", "../s/h", "a/none", "link/x"], false));
    assert_eq!(got, ["a/", "h"]);
    assert_eq!(failed.len(), 3, "{failed:?}");
    let (_, failed) = walk(&[s[0].clone(), s[0].clone()], list(&["h"], false));
    assert!(!failed.is_empty() && failed.iter().all(|f| f.is_source));
}

/// The names that rsync would transfer, sorted.
fn rsync(source: &Path, rules: &[&str]) -> Vec<String> {
    let nowhere = tempfile::tempdir().unwrap();
    let mut command = Command::new("rsync");
    command.args(["-a", "--dry-run", "--out-format=%n"]);
    for rule in rules {
        command.arg(format!("--filter={rule}"));
    }
    let out = command.arg(source).arg(nowhere.path()).output().unwrap();
    assert!(out.status.success(), "{rules:?}: {}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).unwrap();
    let mut names: Vec<_> = text.lines().filter(|l| *l != "./").map(str::to_owned).collect();
    names.sort();
    names
}

fn ours(source: &Path, rules: &[&str]) -> Vec<String> {
    let mut filters = Filters::new();
    for rule in rules {
        filters.rule(rule.as_bytes()).unwrap();
    }
    let options = WalkOptions { filters, ..recursive() };
    let mut names = found(&[source.to_path_buf()], options);
    names.retain(|name| name != "./");
    names.sort();
    names
}

fn no_rsync() -> bool {
    let missing = Command::new("rsync").arg("--version").output().is_err();
    if missing {
        packtrain_testkit::skip("rsync is not installed: the filters are not compared with it");
    }
    missing
}

#[test]
fn rsync_agrees_with_our_filters() {
    if no_rsync() {
        return;
    }
    let dir = tree(&[
        "s/a.o",
        "s/a.c",
        "s/foo/bar",
        "s/foo/x/bar",
        "s/foo/x/y/bar",
        "s/sub/foo/bar",
        "s/sub/a.o",
        "s/dir/one",
        "s/dir/two/three",
        "s/sub/dir/one",
        "s/bar",
        "s/[x]",
        "s/b\\c",
        "s/build/",
        "s/.hidden",
        "s/sub/a*b",
        "s/sub/axb",
        "s/foobar",
        "s/A1",
        "s/1A",
    ]);
    for rules in [
        &["- *.o"][..],
        &["- /foo"],
        &["- foo/"],
        &["- bar"],
        &["- foo/bar"],
        &["- /foo/bar"],
        &["- foo/*"],
        &["- foo/**"],
        &["- /foo/**"],
        &["- foo/**/bar"],
        &["- /foo/*/bar"],
        &["- **/bar"],
        &["- **bar"],
        &["- foo**"],
        &["- /sub/**.o"],
        &["- dir/***"],
        &["- /dir/***"],
        &["- /dir/**"],
        &["+ /foo/***", "- *"],
        &["+ /foo/", "+ /foo/bar", "- *"],
        &["+ */", "+ *.c", "- *"],
        &["+ *.c", "- *"],
        &["- [a-b]*"],
        &["- [!a-s]*"],
        &["- [[]x]"],
        &["- \\[x\\]"],
        &["- [x]"],
        &["- b\\c"],
        &["- a\\*b*"],
        &["- a\\*b"],
        &["- ?"],
        &["- ???"],
        &["- .*"],
        &["- s*b"],
        &["- *"],
        &["- **"],
        &["- /*"],
        &["- /*/"],
        &["- */*/bar"],
        &["- x/*"],
        &["- **/x/**"],
        &["- [[:upper:]][[:digit:]]"],
        &["-! *.c"],
        &["-! */", "- *.o"],
        &["+ bar", "- foo/*", "+ x"],
        &["- a", "!", "- *.o"],
        &["- s"],
        &["- /s"],
        &["- /s/foo"],
        &["- s/foo"],
    ] {
        for source in ["s/", "s"] {
            let source = dir.path().join(source);
            assert_eq!(ours(&source, rules), rsync(&source, rules), "{rules:?} on {source:?}");
        }
    }
}

#[test]
fn rsync_agrees_on_random_rules() {
    if no_rsync() {
        return;
    }
    let dir =
        tree(&["s/a", "s/b/a", "s/b/ab", "s/ab/a/b", "s/ab/b/a/a", "s/aa/bb/ab", "s/ba/a", "s/bb"]);
    let source = dir.path().join("s/");
    // A fixed seed: the patterns are the same in every run.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = |n: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) % n
    };
    for _ in 0..60 {
        let rules: Vec<String> = (0..1 + next(2))
            .map(|_| {
                let sign = if next(3) == 0 { "+" } else { "-" };
                let parts = ["a", "b", "*", "/", "?", "**", "ab", "[a]", "/**", "**/", "[!b]"];
                let mut body: String =
                    (0..1 + next(5)).map(|_| parts[next(parts.len() as u64) as usize]).collect();
                while body.contains("//") || body.contains("***") {
                    body = body.replace("//", "/").replace("***", "**");
                }
                format!("{sign} {body}")
            })
            .filter(|rule| rule.len() > 3)
            .collect();
        let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
        assert_eq!(ours(&source, &rules), rsync(&source, &rules), "{rules:?}");
    }
}
