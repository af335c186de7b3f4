//! Random cases: source trees, a destination, filter rules and options. A case is a description, so
//! that it can be built twice, printed and reduced.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, UTIME_OMIT};

use crate::rig::Dice;

/// Names that collide between trees, match the rules below, or are hard to pass on.
const NAMES: [&[u8]; 16] = [
    b"a",
    b"b",
    b"build",
    b"x.log",
    b"y.tmp",
    b".hidden",
    b"new\nline",
    b"-dash",
    b"br[a]ck",
    b"star*",
    b"back\\slash",
    b"sp ace",
    b"\xff\xfe",
    "ümlaut".as_bytes(),
    b"q?",
    b"#hash",
];

/// Filter patterns; `/src/` is there for sources named without a slash.
const PATTERNS: [&[u8]; 26] = [
    b"*.log",
    b"*.tmp",
    b"a",
    b"a/",
    b"/a",
    b"/src/a",
    b"build/",
    b"build/*",
    b"build/**",
    b"build/***",
    b"**/b",
    b"a/b",
    b"a/**/x.log",
    b"?",
    b"[ab]",
    b"[!ab]",
    b"[a-x]*",
    b"new*",
    b"br\\[a\\]ck",
    b"star\\*",
    "ü*".as_bytes(),
    b".*",
    b"*/",
    b"*",
    b"#hash",
    b"back\\slash",
];

/// Modification times: no two with the same second, since rsync compares seconds first.
const TIMES: [(i64, u32); 6] = [
    (1_000_000_000, 111_111_111),
    (1_234_567_890, 5),
    (1_500_000_000, 999_999_999),
    (1_600_000_001, 123_456_000),
    (86_400, 7),
    (1_700_000_000, 250_000_001),
];

const FILE_MODES: [u32; 9] = [0o644, 0o644, 0o600, 0o755, 0o444, 0o777, 0o4755, 0o2755, 0o1644];
const DIR_MODES: [u32; 7] = [0o755, 0o755, 0o700, 0o777, 0o555, 0o1777, 0o2775];

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Dir,
    /// A file of this size whose content follows from the number; `hole` leaves its middle out.
    File {
        size: u64,
        content: u8,
        hole: bool,
    },
    Link(Vec<u8>),
    Fifo,
}

/// An entry of a tree. Parents precede their entries. An empty path is the tree itself.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) path: Vec<u8>,
    pub(super) kind: Kind,
    mode: u32,
    time: (i64, u32),
}

pub(super) type Tree = Vec<Node>;

/// One source argument.
#[derive(Clone)]
pub(super) struct Source {
    pub(super) name: &'static str,
    pub(super) slash: bool,
    pub(super) tree: Tree,
}

/// The input of one comparison.
#[derive(Clone)]
pub(super) struct Case {
    pub(super) sources: Vec<Source>,
    /// The content of the destination before the run.
    pub(super) target: Tree,
    pub(super) target_slash: bool,
    pub(super) delete: bool,
    /// Option and pattern, such as `--exclude` and `*.log`.
    pub(super) rules: Vec<(&'static str, Vec<u8>)>,
    /// Names for `--files-from`, if any.
    pub(super) listed: Option<Vec<Vec<u8>>>,
}

impl Case {
    pub(super) fn random(seed: u64) -> Self {
        let mut dice = Dice::seeded(seed);
        let dice = &mut dice;
        let mut sources = vec![Source {
            name: "src",
            slash: dice.below(2) == 0,
            tree: if dice.below(12) == 0 { lone(dice) } else { tree(dice, b"") },
        }];
        if matches!(sources[0].tree[0].kind, Kind::Dir) {
            if dice.below(6) == 0 {
                // This name does not occur in the first tree: `cp` has its own rule for names in
                // both.
                let tree = tree(dice, b"2");
                sources.push(Source { name: "src2", slash: dice.below(2) == 0, tree });
            }
        } else {
            sources[0].slash = false;
        }
        let listed = (sources.len() == 1 && sources[0].tree.len() > 1 && dice.below(8) == 0)
            .then(|| listed(dice, &sources[0].tree));
        let target = target(dice, &sources, listed.is_some());
        let rules = match dice.below(3) {
            // rsync does not apply filters to the parent directories of a listed name.
            _ if listed.is_some() => Vec::new(),
            0 => Vec::new(),
            _ => (0..1 + dice.below(3)).map(|_| rule(dice)).collect(),
        };
        // rsync gives a single directory the name of a destination that does not exist, as it does
        // with a file. A trailing slash makes the destination a directory.
        let is_dir = sources[0].tree[0].is_dir();
        let lone = target.is_empty() && is_dir && (listed.is_some() || !sources[0].slash);
        let may_slash = target.first().is_none_or(Node::is_dir);
        Self {
            target_slash: lone || dice.below(4) == 0 && may_slash,
            target,
            delete: dice.below(2) == 0,
            rules,
            listed,
            sources,
        }
    }
}

impl Node {
    pub(super) fn is_dir(&self) -> bool {
        matches!(self.kind, Kind::Dir)
    }

    fn below(&self, dir: &[u8]) -> bool {
        self.path.strip_prefix(dir).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    }
}

/// The tree without the node at `at` and everything below it.
pub(super) fn without(tree: &Tree, at: usize) -> Tree {
    let gone = &tree[at].path;
    tree.iter().filter(|node| gone.is_empty() || !node.below(gone)).cloned().collect()
}

fn pick<'a, T>(dice: &mut Dice, from: &'a [T]) -> &'a T {
    &from[dice.below(from.len() as u64) as usize]
}

fn rule(dice: &mut Dice) -> (&'static str, Vec<u8>) {
    let pattern = pick(dice, &PATTERNS).to_vec();
    match dice.below(8) {
        0..=4 => ("--exclude", pattern),
        5 | 6 => ("--include", pattern),
        _ => ("--filter", [b"- ".as_slice(), &pattern].concat()),
    }
}

/// A directory with its entries; names at the top begin with `prefix`.
fn tree(dice: &mut Dice, prefix: &[u8]) -> Tree {
    let mut all = vec![node(dice, Vec::new(), Kind::Dir)];
    fill(dice, &mut all, &[], prefix, 3);
    all
}

fn fill(dice: &mut Dice, all: &mut Tree, dir: &[u8], prefix: &[u8], depth: u32) {
    for _ in 0..dice.below(5) {
        let name = [prefix, *pick(dice, &NAMES)].concat();
        let path = if dir.is_empty() { name } else { [dir, b"/", &name].concat() };
        if all.iter().any(|node| node.path == path) {
            continue;
        }
        let kind = kind(dice, depth > 0);
        let enter = matches!(kind, Kind::Dir);
        all.push(node(dice, path.clone(), kind));
        if enter {
            fill(dice, all, &path, b"", depth - 1);
        }
    }
}

fn kind(dice: &mut Dice, may_be_dir: bool) -> Kind {
    match dice.below(10) {
        0..=3 if may_be_dir => Kind::Dir,
        4 => Kind::Link(
            pick(dice, &[&b"a"[..], b"b/a", b"nowhere", b"..", b"\xff", b"build"]).to_vec(),
        ),
        _ => file(dice),
    }
}

fn file(dice: &mut Dice) -> Kind {
    let hole = dice.below(30) == 0;
    let size = match dice.below(40) {
        _ if hole => 300_000 + dice.below(10_000),
        0 => 4 * 1024 * 1024 + dice.below(2_000_000),
        1..=6 => 0,
        _ => 1 + dice.below(4),
    };
    Kind::File { size, content: dice.below(2) as u8, hole }
}

fn node(dice: &mut Dice, path: Vec<u8>, kind: Kind) -> Node {
    let modes: &[u32] = if matches!(kind, Kind::Dir) { &DIR_MODES } else { &FILE_MODES };
    Node { path, mode: *pick(dice, modes), time: *pick(dice, &TIMES), kind }
}

/// A source that is no directory: a file, or a dangling link.
fn lone(dice: &mut Dice) -> Tree {
    let kind = if dice.below(2) == 0 { Kind::Link(b"nowhere".to_vec()) } else { file(dice) };
    vec![node(dice, Vec::new(), kind)]
}

/// Some of the tree's paths, and sometimes one that does not exist.
fn listed(dice: &mut Dice, tree: &Tree) -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> =
        (0..1 + dice.below(3)).map(|_| pick(dice, &tree[1..]).path.clone()).collect();
    // rsync takes these for comments, even if names end with NUL.
    names.retain(|name| name[0] != b'#');
    if dice.below(4) == 0 {
        names.push(b"not there".to_vec());
    }
    names
}

/// The content of the destination: nothing, an entry of another kind, an empty directory, or a
/// directory with changed parts of the sources and other files.
fn target(dice: &mut Dice, sources: &[Source], listed: bool) -> Tree {
    let one = sources.len() == 1 && !sources[0].tree[0].is_dir();
    match dice.below(8) {
        0 => return Vec::new(),
        1 => return vec![node(dice, Vec::new(), Kind::Dir)],
        2 if one => {
            let kind =
                if dice.below(3) == 0 { Kind::Link(b"nowhere".to_vec()) } else { file(dice) };
            return vec![node(dice, Vec::new(), kind)];
        }
        _ => {}
    }
    let mut all = tree(dice, b"");
    for source in sources {
        let base: &[u8] = if source.slash || listed { b"" } else { source.name.as_bytes() };
        for from in &source.tree {
            let path = match (base.is_empty(), from.path.is_empty()) {
                (true, true) => continue,
                (true, false) => from.path.clone(),
                (false, true) => base.to_vec(),
                (false, false) => [base, b"/", &from.path].concat(),
            };
            let parent = path.iter().rposition(|b| *b == b'/').map_or(&[][..], |at| &path[..at]);
            let open = all.iter().any(|node| node.path == parent && node.is_dir());
            let there = all.iter().any(|node| node.path == path);
            if !open || there {
                continue;
            }
            match dice.below(10) {
                0..=4 => all.push(Node { path, ..from.clone() }),
                5 => {
                    let kind = from.kind.clone();
                    all.push(node(dice, path, kind));
                }
                6 => {
                    let kind = kind(dice, true);
                    let is_dir = matches!(kind, Kind::Dir);
                    all.push(node(dice, path.clone(), kind));
                    if is_dir {
                        fill(dice, &mut all, &path, b"", 1);
                    }
                }
                _ => {}
            }
        }
        // Names that the source does not have, inside its directories.
        if !base.is_empty() && all.iter().any(|node| node.path == base && node.is_dir()) {
            fill(dice, &mut all, base, b"", 2);
        }
    }
    if dice.below(10) == 0 {
        all.push(node(dice, b"pipe".to_vec(), Kind::Fifo));
    }
    all
}

/// Creates the tree at `at`.
pub(super) fn build(tree: &Tree, at: &Path) {
    for node in tree {
        let path = place(at, node);
        match &node.kind {
            Kind::Dir => fs::create_dir(&path).expect("a directory"),
            Kind::Link(target) => symlink(OsStr::from_bytes(target), &path).expect("a link"),
            Kind::Fifo => {
                rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
                    .expect("a pipe");
            }
            Kind::File { size, content, hole } => write(&path, *size, *content, *hole),
        }
    }
    // In reverse order, because creating an entry changes the time of its directory.
    for node in tree.iter().rev() {
        let path = place(at, node);
        if matches!(node.kind, Kind::Dir | Kind::File { .. }) {
            fs::set_permissions(&path, fs::Permissions::from_mode(node.mode)).expect("a mode");
        }
        let (secs, nanos) = node.time;
        let times = Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            last_modification: Timespec { tv_sec: secs, tv_nsec: i64::from(nanos) },
        };
        rustix::fs::utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW).expect("a time");
    }
}

fn place(at: &Path, node: &Node) -> std::path::PathBuf {
    if node.path.is_empty() { at.to_path_buf() } else { at.join(OsStr::from_bytes(&node.path)) }
}

fn write(path: &Path, size: u64, content: u8, hole: bool) {
    let open = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut out: File = open.expect("a file");
    if hole {
        out.set_len(size).expect("a length");
        out.write_all(&[content + 1]).expect("written");
        out.write_all_at(&[content + 1], size - 1).expect("written");
        return;
    }
    let bytes: Vec<u8> = (0..size).map(|n| (n / 7 + n / 253) as u8 ^ content).collect();
    out.write_all(&bytes).expect("written");
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for source in &self.sources {
            let slash = if source.slash { "/" } else { "" };
            writeln!(f, "source {}{slash}", source.name)?;
            show(f, &source.tree)?;
        }
        let slash = if self.target_slash { " (named with a slash)" } else { "" };
        let none = if self.target.is_empty() { ": nothing" } else { "" };
        writeln!(f, "destination{slash}{none}")?;
        show(f, &self.target)?;
        write!(f, "options:{}", if self.delete { " --delete" } else { "" })?;
        for (option, pattern) in &self.rules {
            write!(f, " {option} {}", pattern.escape_ascii())?;
        }
        if let Some(listed) = &self.listed {
            write!(f, " --files-from")?;
            listed.iter().try_for_each(|name| write!(f, " '{}'", name.escape_ascii()))?;
        }
        writeln!(f)
    }
}

fn show(f: &mut fmt::Formatter<'_>, tree: &Tree) -> fmt::Result {
    for node in tree {
        let path = if node.path.is_empty() { &b"."[..] } else { &node.path };
        let what = match &node.kind {
            Kind::Dir => "dir".to_owned(),
            Kind::Fifo => "pipe".to_owned(),
            Kind::Link(target) => format!("link to '{}'", target.escape_ascii()),
            Kind::File { size, content, hole } => {
                format!("file of {size}, content {content}{}", if *hole { ", a hole" } else { "" })
            }
        };
        writeln!(
            f,
            "  '{}' {what}, mode {:o}, time {}",
            path.escape_ascii(),
            node.mode,
            node.time.0
        )?;
    }
    Ok(())
}
