//! The request of a receiving end. The sink accepts nothing else from the source.
//!
//! The source decides what it sends. Without this check a hostile source could write any name below
//! the destination, as in CVE-2019-6111 (scp) and CVE-2022-29154 (rsync). The sink compares each
//! entry of the manifest with the request before it makes or examines any. An entry that was not
//! requested ends the transfer.

use std::collections::HashSet;

use packtrain_object::{
    Entry, EntryKind, Filters, HardLink, NamePattern, SourceName, directories_above,
};

use crate::failure::{Failure, FailureKind};
use crate::message::Options;
use crate::path_digests::ParentPaths;
use crate::versions::Versions;

/// The permission bits that an entry keeps if its mode is not preserved: no set-user-ID,
/// set-group-ID or sticky bit. The bits that remain only narrow what the umask leaves.
const PLAIN_MODE: u32 = 0o777;

/// The names, kinds and attributes that a sink accepts from a source.
#[derive(Clone, Debug)]
pub struct Requested {
    names: Names,
    recursive: bool,
    filters: Filters,
    listed: Option<Listed>,
    preserve_mode: bool,
    preserve_owner: bool,
    hard_links: bool,
    xattrs: bool,
    acls: bool,
}

/// The allowed first components of entry paths.
#[derive(Clone, Debug)]
enum Names {
    /// Any: the initiator is the source, or the request is for everything that the source has.
    Any,
    /// Those of the named sources.
    Sources {
        /// Names of sources that are copied under their own name.
        named: HashSet<Vec<u8>>,
        /// Patterns of such names.
        patterns: Vec<NamePattern>,
        /// Whether the contents of a source were requested, whose names are not known in advance.
        contents: bool,
    },
}

/// The paths of `--files-from`.
#[derive(Clone, Debug, Default)]
struct Listed {
    paths: HashSet<Vec<u8>>,
    /// Directories above these paths.
    parents: ParentPaths,
}

impl Requested {
    /// A request for these sources.
    ///
    /// # Errors
    /// A filter rule that is invalid.
    pub fn of_sources(sources: &[SourceName], options: &Options) -> Result<Self, Failure> {
        let mut named = HashSet::with_capacity(sources.len());
        // A list names paths below its single source, and the name of that source is not part of
        // the paths.
        let mut contents = options.files_from.is_some();
        let mut patterns = Vec::new();
        for source in sources {
            match source {
                // Without -r a directory is not copied, so its contents are not requested.
                SourceName::Contents => contents |= options.recursive,
                SourceName::Named(name) => {
                    if options.extra.patterns && NamePattern::is_pattern(name) {
                        let pattern = NamePattern::new(name);
                        let refused = |e| Failure::new(FailureKind::Usage, format!("{e}"));
                        patterns.push(pattern.map_err(refused)?);
                    }
                    named.insert(name.clone());
                }
            }
        }
        Ok(Self {
            names: Names::Sources { named, patterns, contents },
            recursive: options.recursive,
            filters: filters(options)?,
            listed: options.files_from.as_deref().map(Listed::new),
            preserve_mode: options.preserve_mode,
            preserve_owner: options.preserve_owner,
            hard_links: options.extra.hard_links,
            xattrs: options.extra.xattrs,
            acls: options.extra.acls,
        })
    }

    /// A request that names no sources: the initiator is the source (an upload), or requested
    /// everything (a session that depots store). Parent directories and attributes are still
    /// checked.
    pub fn anything(options: &Options) -> Self {
        Self {
            names: Names::Any,
            recursive: true,
            filters: Filters::new(),
            listed: None,
            preserve_mode: options.preserve_mode,
            preserve_owner: options.preserve_owner,
            hard_links: options.extra.hard_links,
            xattrs: options.extra.xattrs,
            acls: options.extra.acls,
        }
    }

    /// The same request for one entry only: the destination is the new name of a file.
    #[must_use]
    pub fn only(self, entry: &Entry) -> Self {
        let named = HashSet::from([entry.path.as_bytes().to_vec()]);
        let names = Names::Sources { named, patterns: Vec::new(), contents: false };
        Self { names, recursive: false, ..self }
    }

    /// Whether this entry was requested.
    ///
    /// # Errors
    /// A protocol failure that names the entry.
    pub fn check(&self, entry: &Entry) -> Result<(), Failure> {
        self.rejection_reason(entry).map_or(Ok(()), |why| Err(unrequested(entry, why)))
    }

    fn rejection_reason(&self, entry: &Entry) -> Option<&'static str> {
        let path = entry.path.as_bytes();
        let is_directory = entry.kind == EntryKind::Directory;
        let top_len = path.iter().position(|&b| b == b'/').unwrap_or(path.len());
        if let Names::Sources { named, patterns, contents } = &self.names
            && !contents
            && !named.contains(&path[..top_len])
            && !patterns.iter().any(|pattern| pattern.matches(&path[..top_len]))
        {
            return Some("no source has this name");
        }
        if let Some(listed) = &self.listed {
            if !listed.has(path, is_directory, self.recursive) {
                return Some("it is not in the list of --files-from");
            }
        } else if !self.recursive && (is_directory || top_len < path.len()) {
            return Some("directories were not requested");
        }
        // Every directory above this entry passed the filters before. An entry below an excluded
        // directory is refused because that directory was never announced.
        self.filters.excludes(path, is_directory).then_some("a filter excludes it")
    }

    /// Removes the attributes that were not requested.
    pub(crate) fn strip(&self, entry: &mut Entry) {
        if !self.preserve_mode {
            entry.mode &= PLAIN_MODE;
        }
        if !self.preserve_owner {
            (entry.uid, entry.gid) = (0, 0);
        }
        // Without it each name is a file of its own.
        if !self.hard_links {
            entry.extras.hard_link = HardLink::None;
        }
        if !self.xattrs {
            entry.extras.attributes = None;
        }
        if !self.acls {
            entry.extras.acls = None;
        }
    }
}

impl Listed {
    fn new(list: &[Vec<u8>]) -> Self {
        let mut listed = Self::default();
        for name in list {
            let parts = name.split(|&b| b == b'/').filter(|part| !matches!(*part, b"" | b"."));
            let path = parts.collect::<Vec<_>>().join(&b'/');
            listed.parents.add_above(&path);
            listed.paths.insert(path);
        }
        listed
    }

    fn has(&self, path: &[u8], is_directory: bool, recursive: bool) -> bool {
        let has_above = || {
            self.paths.contains(&b""[..])
                || directories_above(path).any(|dir| self.paths.contains(dir))
        };
        self.paths.contains(path)
            || is_directory && self.parents.contains(path)
            || recursive && has_above()
    }
}

/// The lowest protocol version in which these options have their meaning.
pub fn lowest_version(options: &Options) -> u16 {
    let filters = filters(options).unwrap_or_default();
    match options.extra.lowest_version() {
        _ if filters.has_files() => Versions::RULES,
        1 if filters.has_sides() => 2,
        version => version,
    }
}

/// The filter rules of a transfer.
///
/// # Errors
/// A rule that is invalid.
pub fn filters(options: &Options) -> Result<Filters, Failure> {
    let mut filters = Filters::new();
    for rule in &options.filters {
        filters
            .rule(rule.as_bytes())
            .map_err(|e| Failure::new(FailureKind::Usage, format!("filter `{rule}`: {e}")))?;
    }
    Ok(filters)
}

/// The failure of a source that sent this entry without a request for it.
pub(crate) fn unrequested(entry: &Entry, why: &str) -> Failure {
    let text = format!("the other end sent what was not asked for: `{}`: {why}", entry.path);
    Failure::new(FailureKind::Protocol, text)
}

#[cfg(test)]
#[path = "requested_tests.rs"]
mod tests;
