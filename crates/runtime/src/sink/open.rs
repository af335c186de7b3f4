//! Opens the destination: derives the directory, the file name and the journal from the destination
//! argument and the first entry.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use packtrain_disk::{Kind, LeftoverName, Lock, LockError, Root, Trouble, classify};
use packtrain_object::{Entry, EntryKind, RelPath, SourceName, manifest};
use packtrain_transfer::message::{Message, Options};
use packtrain_transfer::{Failure, FailureKind, Requested};

use super::target::Target;
use super::unusable;
use crate::confinement::Confinement;
use packtrain_identity::config::Dirs;
use packtrain_service::paths::show;
use packtrain_units::escape;

/// The destination argument.
#[derive(Clone, Debug)]
pub struct Destination {
    /// As typed, in bytes; a trailing slash means a directory.
    pub path: Vec<u8>,
    /// The directory that confines all paths (a server's root); `path` is relative to it.
    pub confined: Option<Confinement>,
    /// Number of sources that the initiator named.
    pub sources: usize,
    /// Names of the sources; none if the initiator is the source, or requested everything.
    pub names: Option<Vec<SourceName>>,
    /// Whether owners, and with them set-user-id and set-group-id bits, may be set.
    pub owners: bool,
}

impl Destination {
    /// The entries that the sink accepts.
    pub(super) fn requested(&self, options: &Options) -> Result<Requested, Failure> {
        match &self.names {
            Some(names) => Requested::of_sources(names, options),
            None => Ok(Requested::anything(options)),
        }
    }
}

/// The opened destination.
pub(crate) struct Opened {
    pub(crate) root: Arc<Root>,
    /// The path for messages. To a client of a server it is the one that the client named.
    shown: Vec<u8>,
    /// The entries that the sink accepts.
    pub(super) requested: Requested,
    prefix: RelPath,
    rename: Option<RelPath>,
    /// Identifies the lock, the journal and the temporaries of this transfer.
    id: [u8; 16],
    /// Identifies this transfer in its journal, by source name and destination.
    pub(crate) transfer: [u8; 16],
    pub(crate) journal: RelPath,
    lock_file: RelPath,
    dry: bool,
}

/// Opens the destination, and creates it if permitted, for a manifest that starts with `first`.
pub(crate) fn open(
    destination: &Destination,
    first: &Message,
    options: &Options,
) -> Result<Opened, Failure> {
    let mut requested = destination.requested(options)?;
    let entry = first_entry(first, &requested)?;
    // With `--files-from` or a pattern the target is a directory, even if there is a single file.
    let is_file = entry.as_ref().is_some_and(|e| !matches!(e.kind, EntryKind::Directory))
        && destination.sources == 1
        && options.files_from.is_none()
        // A pattern may match several files.
        && !options.extra.patterns;
    // Without any entry nothing is created, unless a trailing slash names a directory.
    let is_nothing =
        matches!(first, Message::ManifestEnd { .. }) && !destination.path.ends_with(b"/");
    let dry = options.dry_run || options.verify || is_nothing;
    let is_file = is_file || is_nothing;
    let make_path = options.extra.make_path && !is_nothing;
    let (root, prefix, rename) = match &destination.confined {
        Some(below) => confined(below, &destination.path, is_file, (dry, make_path))?,
        None => free(&destination.path, is_file, (dry, make_path))?,
    };
    let shown = match &destination.confined {
        Some(_) if destination.path.is_empty() => b"/".to_vec(),
        Some(_) => destination.path.clone(),
        None => root.path().as_os_str().as_bytes().to_vec(),
    };
    if let (Some(entry), Some(_)) = (&entry, &rename) {
        requested = requested.only(entry);
    }
    let top = entry.as_ref().map_or(&[][..], |e| e.path.as_bytes());
    let top = top.split(|b| *b == b'/').next().unwrap_or(&[]);
    let last = rename.as_ref().map_or(top, |name| file_name(name.as_bytes()));
    let at = root.path().join(OsStr::from_bytes(prefix.as_bytes()));
    let at = std::fs::canonicalize(&at).unwrap_or(at);
    // With `--inplace` the target itself is written, so all transfers to it share a lock, whatever
    // their source. Otherwise two sources have two temporaries.
    let source = if options.inplace { &[][..] } else { top };
    let id = name_of(options.inplace, &at, &[last, source]);
    let transfer = name_of(options.inplace, &at, &[last, top]);
    let name = |end: &str| -> Result<RelPath, Failure> {
        let file = format!(".packtrain-{}.{end}", tag(&id));
        let path = match prefix.is_root() {
            true => file.into_bytes(),
            false => [prefix.as_bytes(), b"/", file.as_bytes()].concat(),
        };
        RelPath::new(path).map_err(|e| Failure::new(FailureKind::TargetRefused, e.to_string()))
    };
    let (journal, lock_file) = (name("journal")?, name("lock")?);
    let root = Arc::new(root);
    Ok(Opened { root, shown, requested, prefix, rename, id, transfer, journal, lock_file, dry })
}

/// The first entry of a manifest. Checks the whole segment, so that no directory is created for
/// entries that were not requested.
fn first_entry(first: &Message, requested: &Requested) -> Result<Option<Entry>, Failure> {
    let Message::Manifest(bytes) = first else { return Ok(None) };
    let (_, entries) = manifest::decode_segment(bytes)
        .map_err(|e| Failure::new(FailureKind::Protocol, format!("the manifest: {e}")))?;
    entries.iter().try_for_each(|entry| requested.check(entry))?;
    Ok(entries.into_iter().next())
}

/// A digest of `parts`, the location and the user. With the location, two transfers that reach one
/// file by different paths share no temporary. With the user, transfers of two users do not share
/// files.
fn name_of(inplace: bool, at: &Path, parts: &[&[u8]]) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[u8::from(inplace)]);
    hasher.update(&rustix::process::geteuid().as_raw().to_le_bytes());
    let fixed = [b"packtrain transfer 2".as_slice(), at.as_os_str().as_bytes()];
    for part in fixed.iter().chain(parts) {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    let mut id = [0; 16];
    id.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    id
}

fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|b| *b == b'/').next().unwrap_or_default()
}

/// How the failure begins that another transfer to the same destination causes.
pub const IN_USE: &str = "the destination is in use by";

/// Takes a lock at the destination. If another user's file has the name of the lock and cannot be
/// removed, the lock is taken in this user's state directory instead. That lock excludes other
/// transfers of this user on this machine, and other users cannot block it.
fn take_lock(root: &Arc<Root>, shown: &[u8], rel: &RelPath) -> Result<Lock, Failure> {
    let who = format!("process {} of packtrain", std::process::id());
    let taken = match Lock::take(root, rel, &who) {
        Err(LockError::Foreign) => {
            let place = || -> Option<(Arc<Root>, RelPath)> {
                let state = Root::open(&own_locks().ok()?).ok()?;
                Some((Arc::new(state), RelPath::new(file_name(rel.as_bytes()).to_vec()).ok()?))
            };
            match place() {
                Some((state, name)) => Lock::take(&state, &name, &who),
                None => Err(LockError::Foreign),
            }
        }
        taken => taken,
    };
    let at = || show(&[shown, b"/", file_name(rel.as_bytes())].concat());
    taken.map_err(|error| match error {
        LockError::Held { who } => {
            let text = format!("{IN_USE} {who}: wait for it or stop it");
            Failure::new(FailureKind::Temporary, text)
        }
        LockError::Foreign | LockError::Unsupported => {
            let text = format!("{}: {}; ask its owner to remove it", at(), LockError::Foreign);
            Failure::new(FailureKind::TargetRefused, text)
        }
        LockError::Io(e) => unusable::locked(shown, &e),
    })
}

/// The directory for locks that could not be taken at their destination; created if missing.
fn own_locks() -> std::io::Result<PathBuf> {
    let dirs = Dirs::from_env().map_err(|_| std::io::ErrorKind::NotFound)?;
    let dir = dirs.state.join("locks");
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
    Ok(dir)
}

/// A single file that is received without a journal, with its lock.
pub struct SingleFile {
    /// The directory of the file.
    pub root: Arc<Root>,
    /// The name of the file.
    pub name: RelPath,
    /// The tag of its temporary. It is the same in every run, so that a later run replaces the
    /// temporary of a killed one.
    pub tag: String,
    /// Held until the file is renamed.
    pub(crate) _lock: Lock,
}

/// The tag of a transfer's temporaries.
fn tag(id: &[u8; 16]) -> String {
    escape::hex(&id[..4])
}

type Place = (Root, RelPath, Option<RelPath>);

/// Opens a destination of the user's own account. Creates nothing in a dry run, and the parents of
/// the destination only if they are wanted (`--mkpath`).
fn free(path: &[u8], is_file: bool, (dry, make_path): (bool, bool)) -> Result<Place, Failure> {
    let path = expand_home(if path.is_empty() { b"." } else { path });
    let slash = path.ends_with(b"/");
    let as_path = Path::new(OsStr::from_bytes(&path));
    let is_dir = as_path.is_dir();
    let none = RelPath::root();
    if is_dir {
        let root = Root::open(as_path).map_err(|e| unusable::free(&path, &e))?;
        return Ok((root, none, None));
    }
    if is_file && !slash {
        let name = as_path.file_name().ok_or_else(|| {
            Failure::new(FailureKind::TargetMissing, format!("{}: no such directory", show(&path)))
        })?;
        let parent = match as_path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let refused = |e: std::io::Error| unusable::free(&path, &e);
        if make_path && dry && !parent.exists() {
            let (root, prefix, _) = missing(parent.as_os_str().as_bytes())?;
            let whole = [prefix.as_bytes(), b"/", name.as_bytes()].concat();
            let name = RelPath::new(whole)
                .map_err(|e| Failure::new(FailureKind::TargetRefused, e.to_string()))?;
            return Ok((root, prefix, Some(name)));
        }
        if make_path {
            std::fs::create_dir_all(parent).map_err(refused)?;
        }
        let root = Root::open(parent).map_err(refused)?;
        let name = RelPath::new(name.as_bytes().to_vec())
            .map_err(|e| Failure::new(FailureKind::TargetRefused, e.to_string()))?;
        return Ok((root, none, Some(name)));
    }
    if dry && std::fs::symlink_metadata(as_path).is_ok() {
        return Err(unusable::free(&path, &std::io::ErrorKind::NotADirectory.into()));
    }
    if dry {
        return missing(&path);
    }
    // Without `--mkpath` only the last component, as cp and rsync do; a missing parent is more
    // likely a typo.
    let made = match make_path {
        true => std::fs::create_dir_all(as_path),
        false => std::fs::create_dir(as_path),
    };
    match made {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(unusable::free(&path, &e));
        }
        _ => {}
    }
    let root = Root::open(as_path).map_err(|e| unusable::free(&path, &e))?;
    Ok((root, none, None))
}

/// Opens the location of a single file, named `own` unless `path` names it, and locks it.
pub fn single_file(path: &[u8], own: &[u8]) -> Result<SingleFile, Failure> {
    let (root, _, rename) = free(path, true, (false, false))?;
    let name = rename.map_or_else(|| RelPath::new(own.to_vec()), Ok);
    let name = name.map_err(|e| {
        let text = format!("`{}` is no name for a file ({e}): name the target", show(own));
        Failure::new(FailureKind::TargetRefused, text)
    })?;
    let at = std::fs::canonicalize(root.path()).unwrap_or_else(|_| root.path().to_path_buf());
    let tag = tag(&name_of(false, &at, &[name.as_bytes(), b"single file"]));
    let lock = RelPath::new(LeftoverName::lock_of(&tag).into_bytes())
        .map_err(|e| Failure::new(FailureKind::TargetRefused, e.to_string()))?;
    let root = Arc::new(root);
    let _lock = take_lock(&root, root.path().as_os_str().as_bytes(), &lock)?;
    Ok(SingleFile { root, name, tag, _lock })
}

/// A location that does not exist and is not created: opens its nearest existing parent directory.
fn missing(path: &[u8]) -> Result<Place, Failure> {
    let full =
        std::path::absolute(OsStr::from_bytes(path)).map_err(|e| unusable::free(path, &e))?;
    let there = full.ancestors().find(|above| above.is_dir()).unwrap_or(Path::new("/"));
    let root = Root::open(there).map_err(|e| unusable::free(there.as_os_str().as_bytes(), &e))?;
    let rest = full.strip_prefix(there).unwrap_or(Path::new(""));
    let parts: Vec<&[u8]> = rest.components().map(|c| c.as_os_str().as_bytes()).collect();
    let prefix = RelPath::new(parts.join(&b'/'))
        .map_err(|e| Failure::new(FailureKind::TargetRefused, e.to_string()))?;
    Ok((root, prefix, None))
}

/// The same below the root of a server.
fn confined(
    below: &Confinement,
    path: &[u8],
    is_file: bool,
    (dry, make_path): (bool, bool),
) -> Result<Place, Failure> {
    let root = below.root().map_err(|e| unusable::free(path, &e))?;
    let slash = path.is_empty() || path.ends_with(b"/");
    let clean: Vec<&[u8]> =
        path.split(|b| *b == b'/').filter(|c| !c.is_empty() && *c != b".").collect();
    let clean = clean.join(&b'/');
    if clean.is_empty() {
        return Ok((root, RelPath::root(), None));
    }
    let place = RelPath::new(clean)
        .map_err(|e| Failure::new(FailureKind::NotAuthorised, format!("{}: {e}", show(path))))?;
    let refused = |e: &std::io::Error| unusable::confined(&root, path, e);
    match root.stat(&place).map_err(|e| refused(&e))?.map(|stat| stat.kind) {
        Some(Kind::Directory) => return Ok((root, place, None)),
        // Followed to a directory, as in a destination of the user's own account.
        Some(Kind::Symlink) => match root.open_beneath(place.as_bytes()) {
            Ok(inside) => return Ok((inside, RelPath::root(), None)),
            // A link to a file or to nothing is replaced.
            Err(e) if matches!(classify(&e), Trouble::NotFound | Trouble::NotDirectory) => {}
            Err(e) => return Err(refused(&e)),
        },
        _ => {}
    }
    if is_file && !slash {
        let parent = place.parent().unwrap_or_else(RelPath::root);
        if make_path && dry {
            return Ok((root, parent, Some(place)));
        }
        if make_path {
            root.make_dirs(&parent, 0o777 & !0o022)
                .map_err(|e| unusable::confined(&root, path, &e))?;
        }
        if !parent.is_root() && root.stat(&parent).ok().flatten().is_none() {
            let nothing = std::io::ErrorKind::NotFound.into();
            return Err(unusable::confined(&root, place.as_bytes(), &nothing));
        }
        return Ok((root, parent, Some(place)));
    }
    if !dry {
        let made = match make_path {
            true => root.make_dirs(&place, 0o777 & !0o022),
            false => root.make_dir(&place, 0o777 & !0o022),
        };
        made.map_err(|e| unusable::confined(&root, path, &e))?;
    }
    Ok((root, place, None))
}

/// Expands `~` and `~/...` to the home directory, as a shell at this end would.
pub fn expand_home(path: &[u8]) -> Vec<u8> {
    let rest = match path {
        b"~" => &[][..],
        [b'~', b'/', rest @ ..] => rest,
        _ => return path.to_vec(),
    };
    match std::env::var_os("HOME") {
        Some(home) => [home.as_bytes(), b"/", rest].concat(),
        None => path.to_vec(),
    }
}

impl Opened {
    /// Locks the destination against a second transfer of the same sources.
    pub(crate) fn lock(&self, _options: &Options) -> Result<Option<Lock>, Failure> {
        if self.dry {
            return Ok(None);
        }
        take_lock(&self.root, &self.shown, &self.lock_file).map(Some)
    }

    pub(super) fn target(&self, options: &Options, owners: bool) -> Target {
        let (prefix, rename) = (self.prefix.clone(), self.rename.clone());
        let owners = owners || !options.preserve_owner;
        // Without permission to set owners, the mode is kept as if owners were not requested.
        let options =
            Options { preserve_owner: options.preserve_owner && owners, ..options.clone() };
        let (root, shown) = (Arc::clone(&self.root), self.shown.clone());
        Target::new((root, shown), prefix, rename, tag(&self.id), options, owners)
    }
}
