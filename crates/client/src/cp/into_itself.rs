//! A directory that would be copied into itself, as `cp -r src src/copy` would.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use packtrain_runtime::sink::expand_home;
use packtrain_service::paths::show;
use packtrain_service::{CpRequest, Location, RequestError};

/// Refuses a copy on this machine of a directory to a place in it. With filters or a list of files the
/// user has chosen what is copied, which may leave that place out.
pub(super) fn refuse(request: &CpRequest) -> Result<(), RequestError> {
    let options = &request.options;
    let is_chosen = !options.filters.is_empty() || options.files_from.is_some();
    if options.verify || !options.recursive || is_chosen {
        return Ok(());
    }
    let Location::Local(dest) = &request.dest else { return Ok(()) };
    let Some(to) = resolved(&expand_home(dest)) else { return Ok(()) };
    for source in &request.sources {
        let Location::Local(path) = source else { continue };
        let path = &expand_home(path);
        let name = Path::new(OsStr::from_bytes(path));
        let is_link = !path.ends_with(b"/") && !options.extra.copy_links && name.is_symlink();
        let Ok(from) = std::fs::canonicalize(name) else { continue };
        // `src/` to `src` copies each file to itself, which changes nothing.
        let is_same = path.ends_with(b"/") && to == from;
        if from.is_dir() && !is_link && to.starts_with(&from) && !is_same {
            let text = format!("{} would be copied into itself, to {}", show(path), show(dest));
            return Err(super::usage(&format!("{text}: name a target outside of it")));
        }
    }
    Ok(())
}

/// The path with the links of its part that exists followed.
fn resolved(path: &[u8]) -> Option<PathBuf> {
    let path = std::path::absolute(OsStr::from_bytes(path)).ok()?;
    path.ancestors().find_map(|above| {
        let there = std::fs::canonicalize(above).ok()?;
        let rest = path.strip_prefix(above).unwrap_or(Path::new(""));
        Some(there.join(rest))
    })
}
