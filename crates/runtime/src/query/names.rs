//! Names in a directory of a server, for the completion of places in a shell.

use packtrain_disk::{Kind, Trouble, classify};
use packtrain_object::RelPath;
use packtrain_service::paths::show;
use packtrain_transfer::{Failure, FailureKind};

use crate::confinement::Confinement;
use crate::traces::is_trace;

/// Maximum number of names in an answer.
pub(super) const MAX_NAMES: usize = 1000;
/// Maximum number of names that are looked at.
const MAX_EXAMINED: usize = 20_000;

/// A name, and whether it is a directory.
pub type Name = (Vec<u8>, bool);

/// The names in the directory of `path`, below `root`, that begin with the last name of `path`. As
/// in a shell, names with a leading dot are left out unless that last name has one.
pub(super) fn collect(root: Option<&Confinement>, path: &[u8]) -> Result<Vec<Name>, Failure> {
    let Some(root) = root else {
        let text = "names are listed for the clients of a server only";
        return Err(Failure::new(FailureKind::Usage, text));
    };
    let at = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let (dir, begun) = path.split_at(at);
    let unreadable = |error: std::io::Error| {
        let trouble = classify(&error);
        let kind = match trouble {
            Trouble::NotFound => FailureKind::SourceMissing,
            Trouble::Escapes => FailureKind::NotAuthorised,
            _ => FailureKind::Unreadable,
        };
        Failure::new(kind, format!("{}: {}", show(dir), trouble.sentence()))
    };
    let dir = root.root().and_then(|root| root.open_beneath(dir)).map_err(unreadable)?;
    let items = dir.list_at_most(&RelPath::root(), MAX_EXAMINED).map_err(unreadable)?;
    let mut found = Vec::new();
    for item in items {
        let is_hidden = item.name.starts_with(b".") && !begun.starts_with(b".");
        if is_hidden || !item.name.starts_with(begun) || is_trace(&item.name) {
            continue;
        }
        let is_dir = match item.kind {
            Kind::Directory => true,
            Kind::Symlink => dir.open_beneath(&item.name).is_ok(),
            Kind::File | Kind::Special => false,
        };
        found.push((item.name, is_dir));
        if found.len() == MAX_NAMES {
            break;
        }
    }
    Ok(found)
}
