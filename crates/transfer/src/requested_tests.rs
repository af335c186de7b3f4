use packtrain_object::{Mtime, RelPath};
use proptest::prelude::*;

use super::*;
use crate::message::ExtraOptions;

fn entry(path: &str, kind: EntryKind) -> Entry {
    let path = RelPath::try_from(path.as_bytes().to_vec()).unwrap();
    Entry {
        path,
        kind,
        mode: 0o4755,
        mtime: Mtime { secs: 1, nanos: 0 },
        uid: 7,
        gid: 8,
        extras: Default::default(),
    }
}

fn file(path: &str) -> Entry {
    entry(path, EntryKind::File { size: 1 })
}

fn link(path: &str) -> Entry {
    entry(path, EntryKind::Symlink { target: b"/etc/passwd".to_vec() })
}

fn directory(path: &str) -> Entry {
    entry(path, EntryKind::Directory)
}

fn names(paths: &[&str]) -> Vec<SourceName> {
    paths.iter().map(|path| SourceName::of(path.as_bytes())).collect()
}

fn plain() -> Options {
    Options::default()
}

fn recursive() -> Options {
    Options { recursive: true, ..plain() }
}

fn listed(names: &[&str], recursive: bool) -> Options {
    let list = names.iter().map(|name| name.as_bytes().to_vec()).collect();
    Options { files_from: Some(list), recursive, ..plain() }
}

#[track_caller]
fn check(sources: &[&str], options: &Options, good: &[Entry], bad: &[Entry]) {
    let requested = Requested::of_sources(&names(sources), options).unwrap();
    for entry in good {
        assert_eq!(requested.check(entry), Ok(()), "{entry:?}");
    }
    for entry in bad {
        let failure = requested.check(entry).expect_err(&format!("{entry:?}"));
        assert_eq!(failure.kind, FailureKind::Protocol);
        assert!(failure.text.contains(&entry.path.to_string()), "{failure}");
    }
}

#[test]
fn one_file_is_its_name_and_nothing_else() {
    let bad = [
        file(".bashrc"),
        file("asked.more"),
        file("aske"),
        file("asked/x"),
        directory("asked"),
        directory(".ssh"),
        file(".ssh/authorized_keys"),
        link("passwd"),
        directory(""),
    ];
    for source in ["asked", "/srv/asked", "~/asked", "a/../asked", "./asked"] {
        check(&[source], &plain(), &[file("asked"), link("asked")], &bad);
    }
}

#[test]
fn a_directory_is_what_is_below_its_name() {
    let good = [directory("asked"), file("asked/x"), file("asked/.ssh/y"), file("asked")];
    check(&["asked"], &recursive(), &good, &[file("askedx/y"), file("x"), directory("")]);
}

#[test]
fn several_sources_are_several_names() {
    let bad = [file("c"), file("a/b"), directory("a")];
    check(&["a", "x/b"], &plain(), &[file("a"), file("b")], &bad);
}

#[test]
fn contents_are_anything_below_the_destination() {
    for source in ["asked/", "", ".", "x/..", "/", "asked/."] {
        check(&[source], &recursive(), &[directory(""), file("x"), file("a/b")], &[]);
        check(&[source], &plain(), &[], &[directory(""), file("x"), file("a/b")]);
    }
}

#[test]
fn a_list_is_its_names_and_their_directories() {
    let list = ["a/b/c", "./d//e/", "f"];
    let good = [directory("a"), directory("a/b"), file("a/b/c"), directory("a/b/c"), file("f")];
    let bad = [file("a"), link("a/b"), file("a/b/x"), file("a/b/c/x"), file("e"), directory("")];
    check(&["src"], &listed(&list, false), &good, &bad);
    let below = [file("a/b/c/x"), file("d/e/y/z")];
    check(&["src"], &listed(&list, true), &below, &[file("a/b/x"), file("src/f"), link("d")]);
    check(&["src/"], &listed(&["."], true), &[directory(""), file("x/y")], &[]);
    check(&["src/"], &listed(&["."], false), &[directory("")], &[file("x")]);
}

#[test]
fn filters_are_those_of_the_source() {
    let filters = ["+ keep.log", "- *.log", "- /asked/tmp/"].map(str::to_owned).to_vec();
    let options = Options { filters, ..recursive() };
    let good = [file("asked/keep.log"), file("asked/tmp"), directory("asked/x/tmp")];
    check(&["asked"], &options, &good, &[file("asked/a.log"), directory("asked/tmp")]);
    let bad = Options { filters: vec!["merge x".to_owned()], ..plain() };
    let refused = Requested::of_sources(&[], &bad).unwrap_err();
    assert_eq!(refused.kind, FailureKind::Usage);
}

#[test]
fn attributes_that_were_not_requested_are_dropped() {
    let options = Options { preserve_mode: false, ..plain() };
    let mut stripped = file("asked");
    stripped.extras.hard_link = packtrain_object::HardLink::First { further: 1 };
    stripped.extras.attributes = Some(Default::default());
    stripped.extras.acls = Some(Default::default());
    let with = stripped.clone();
    Requested::anything(&options).strip(&mut stripped);
    assert_eq!((stripped.mode, stripped.uid, stripped.gid), (0o755, 0, 0));
    assert_eq!(stripped.extras, Default::default());
    let extra =
        ExtraOptions { hard_links: true, xattrs: true, acls: true, ..ExtraOptions::default() };
    let options = Options { extra: Box::new(extra), ..plain() };
    let mut kept = with.clone();
    Requested::anything(&options).strip(&mut kept);
    assert_eq!(kept.extras, with.extras);
    let options = Options { preserve_owner: true, ..plain() };
    let mut kept = file("asked");
    Requested::anything(&options).strip(&mut kept);
    assert_eq!((kept.mode, kept.uid, kept.gid), (0o4755, 7, 8));
}

#[test]
fn one_entry_alone_is_nothing_below_or_beside_it() {
    let only = Requested::anything(&plain()).only(&file("x"));
    assert!(only.check(&file("x")).is_ok());
    for other in [file("y"), file("x/y"), directory("x"), directory("")] {
        assert!(only.check(&other).is_err(), "{other:?}");
    }
}

proptest! {
    /// Whatever its spelling, no path passes whose first component is not a source's base name.
    #[test]
    fn no_other_name_passes(
        sources in prop::collection::vec("[ab]{1,2}(/[ab]{1,2}){0,2}", 1..4),
        path in "[abc]{1,2}(/[ab]{1,2}){0,3}",
        recursive: bool,
        directory: bool,
    ) {
        let options = Options { recursive, ..plain() };
        let named: Vec<SourceName> = sources.iter().map(|s| SourceName::of(s.as_bytes())).collect();
        let requested = Requested::of_sources(&named, &options).unwrap();
        let kind = if directory { EntryKind::Directory } else { EntryKind::File { size: 0 } };
        let passes = requested.check(&entry(&path, kind)).is_ok();
        let top = path.split('/').next().unwrap();
        let named = sources.iter().any(|s| s.rsplit('/').next() == Some(top));
        let flat = !path.contains('/') && !directory;
        prop_assert_eq!(passes, named && (recursive || flat));
    }
}

#[test]
fn a_pattern_asks_for_the_names_that_it_matches() {
    let extra = Box::new(ExtraOptions { patterns: true, ..ExtraOptions::default() });
    let options = Options { extra, ..Options::default() };
    let sources = [SourceName::of(b"dir/*.nc"), SourceName::of(b"plain")];
    let requested = Requested::of_sources(&sources, &options).expect("a request");
    for good in ["a.nc", "plain", "*.nc"] {
        assert_eq!(requested.check(&file(good)), Ok(()), "{good}");
    }
    for bad in [".ssh.nc", "a.nc.exe", "other", ".bashrc"] {
        assert!(requested.check(&file(bad)).is_err(), "{bad}");
    }
    // Without the option the characters stand for themselves.
    let requested = Requested::of_sources(&sources, &Options::default()).expect("a request");
    assert!(requested.check(&file("a.nc")).is_err());
}
