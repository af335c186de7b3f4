//! Options of protocol version 2. They travel in the channel of [`Open`](super::Open), because an
//! end of version 1 refuses an `Open` with more fields.

use std::fmt;

use packtrain_object::{Entry, EntryKind};
use serde::{Deserialize, Serialize};

/// Maximum number of `--chmod` changes.
const MAX_MODE_CHANGES: usize = 64;
/// Maximum length of a backup suffix, in bytes.
const MAX_SUFFIX: usize = 64;

/// Options that an end of protocol version 1 does not know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtraOptions {
    /// Source: copy what a symbolic link leads to.
    pub copy_links: bool,
    /// Source: do not enter directories of other file systems.
    pub one_file_system: bool,
    /// Sink: create the missing parent directories of the destination.
    pub make_path: bool,
    /// Sink: leave alone what exists at the target.
    pub ignore_existing: bool,
    /// Sink: create nothing that does not exist at the target.
    pub existing_only: bool,
    /// Sink: files of equal size are unchanged, whatever their time.
    pub size_only: bool,
    /// Sink: skip files below this size in bytes.
    pub min_size: Option<u64>,
    /// Sink: skip files above this size in bytes.
    pub max_size: Option<u64>,
    /// Sink: changes of the permission bits.
    pub mode_changes: Vec<ModeChange>,
    /// Sink: keep what is replaced or deleted.
    pub backup: Option<Backup>,
    /// Both: the source removes each file and link that is durable at the sink.
    pub remove_source_files: bool,
    /// Both: names of one file at the source are names of one file at the target.
    pub hard_links: bool,
    /// Both: copy extended attributes of the namespace `user`.
    pub xattrs: bool,
    /// Both: copy POSIX access control lists; the modes too.
    pub acls: bool,
    /// Source: the paths of the request are patterns.
    pub patterns: bool,
    /// Both: move changed files as a whole.
    pub whole_file: bool,
    /// Sink: in a dry run, report files whose mode or time would be set.
    pub report_metadata: bool,
    /// Sink: a digest of the sources and of what is chosen of them. Progress of other origins is kept.
    pub origin: [u8; 16],
}

/// Where `--backup` keeps what is replaced or deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backup {
    /// Added to the name.
    pub suffix: Vec<u8>,
    /// The directory, relative to the destination; beside the original if `None`.
    pub dir: Option<Vec<u8>>,
}

/// One change of `--chmod`: `mode & keep | set`, and `set_if_executable` too for directories and
/// for files that somebody may execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModeChange {
    /// It applies to files.
    pub files: bool,
    /// It applies to directories.
    pub directories: bool,
    /// The bits that stay.
    pub keep: u32,
    /// The bits that are set.
    pub set: u32,
    /// The bits that are set where execution is allowed already, and for directories (`X`).
    pub set_if_executable: u32,
}

/// A text of `--chmod` that is not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModeError(String);

impl fmt::Display for ModeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is no mode: write it as for chmod, with D before changes of directories and F \
             before those of files: D755,F644 or Dg+s,ugo-w,F+X",
            self.0
        )
    }
}

impl std::error::Error for ModeError {}

impl ExtraOptions {
    /// The lowest protocol version in which these options have their meaning.
    pub fn lowest_version(&self) -> u16 {
        // A peer of version 1 moves whole files anyway, reports less, and keeps less for other sources.
        let (whole_file, report_metadata, origin) =
            (self.whole_file, self.report_metadata, self.origin);
        let same = Self { whole_file, report_metadata, origin, ..Self::default() };
        if *self == same { 1 } else { 2 }
    }

    /// Checks what a peer asks for.
    ///
    /// # Errors
    /// What is out of range, or what this version does not carry out.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.acls && !self.mode_changes.is_empty() {
            return Err("modes are not changed in a copy that keeps access control lists");
        }
        if self.remove_source_files && self.copy_links {
            return Err("files that links lead to are not removed");
        }
        if self.mode_changes.len() > MAX_MODE_CHANGES {
            return Err("too many changes of modes");
        }
        if let Some(backup) = &self.backup {
            let suffix = &backup.suffix;
            if suffix.len() > MAX_SUFFIX || suffix.iter().any(|b| matches!(b, b'/' | 0)) {
                return Err("a suffix that is no part of a name");
            }
            if suffix.is_empty() && backup.dir.as_ref().is_none_or(Vec::is_empty) {
                return Err("a backup needs a suffix or a directory");
            }
        }
        Ok(())
    }

    /// Whether the sink skips a file of this size.
    pub fn skips_size(&self, entry: &Entry) -> bool {
        let Some(size) = entry.size() else { return false };
        self.min_size.is_some_and(|least| size < least)
            || self.max_size.is_some_and(|most| size > most)
    }

    /// `mode` of an entry after `--chmod`.
    pub fn change_mode(&self, kind: &EntryKind, mode: u32) -> u32 {
        let is_dir = *kind == EntryKind::Directory;
        self.mode_changes.iter().fold(mode, |mode, change| {
            if if is_dir { !change.directories } else { !change.files } {
                return mode;
            }
            let may_execute = is_dir || mode & 0o111 != 0;
            let execute = if may_execute { change.set_if_executable } else { 0 };
            (mode & change.keep | change.set | execute) & 0o7777
        })
    }
}

impl ModeChange {
    /// Parses the list of `--chmod` as rsync does, for a user with this umask.
    ///
    /// # Errors
    /// The part that is not understood.
    pub fn parse_list(text: &str, umask: u32) -> Result<Vec<Self>, ModeError> {
        text.split(',').map(|part| Self::parse(part, umask)).collect()
    }

    fn parse(part: &str, umask: u32) -> Result<Self, ModeError> {
        let error = || ModeError(part.to_owned());
        let (files, directories, rest) = match part.as_bytes().first() {
            Some(b'D') => (false, true, &part[1..]),
            Some(b'F') => (true, false, &part[1..]),
            _ => (true, true, part),
        };
        let base = Self { files, directories, keep: 0o7777, set: 0, set_if_executable: 0 };
        if rest.bytes().next().is_some_and(|b| b.is_ascii_digit()) {
            let set = u32::from_str_radix(rest, 8).ok().filter(|mode| *mode <= 0o7777);
            return Ok(Self { keep: 0, set: set.ok_or_else(error)?, ..base });
        }
        let at = rest.find(['+', '-', '=']).ok_or_else(error)?;
        let (who, rest) = rest.split_at(at);
        let (operator, bits) = rest.split_at(1);
        let mut mask = 0;
        for letter in who.bytes() {
            mask |= match letter {
                b'u' => 0o4700,
                b'g' => 0o2070,
                b'o' => 0o1007,
                b'a' => 0o7777,
                _ => return Err(error()),
            };
        }
        // Without a class the umask limits what changes, as with chmod.
        let limit = if who.is_empty() { 0o7777 & !(umask & 0o777) } else { mask };
        let classes = if who.is_empty() { 0o777 } else { mask & 0o777 };
        let (mut plain, mut conditional) = (0, 0);
        for letter in bits.bytes() {
            match letter {
                b'r' => plain |= 0o444 & classes,
                b'w' => plain |= 0o222 & classes,
                b'x' => plain |= 0o111 & classes,
                b'X' => conditional |= 0o111 & classes,
                b's' if who.is_empty() => plain |= 0o6000,
                b's' => plain |= 0o6000 & mask,
                b't' => plain |= 0o1000,
                _ => return Err(error()),
            }
        }
        let (plain, conditional) = (plain & (limit | 0o7000), conditional & limit);
        Ok(match operator {
            "+" => Self { set: plain, set_if_executable: conditional, ..base },
            "-" => Self { keep: 0o7777 & !(plain | conditional), ..base },
            _ => {
                let keep = 0o7777 & !(if who.is_empty() { 0o777 } else { mask });
                Self { keep, set: plain, set_if_executable: conditional, ..base }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(list: &str, kind: &EntryKind, mode: u32) -> u32 {
        let mode_changes = ModeChange::parse_list(list, 0o022).expect("a list");
        ExtraOptions { mode_changes, ..ExtraOptions::default() }.change_mode(kind, mode)
    }

    #[test]
    fn modes_change_as_with_rsync() {
        let file = EntryKind::File { size: 1 };
        for (list, mode, as_file, as_directory) in [
            ("D755,F644", 0o700, 0o644, 0o755),
            ("ugo-w", 0o666, 0o444, 0o444),
            ("a+rX", 0o600, 0o644, 0o755),
            ("a+rX", 0o700, 0o755, 0o755),
            ("u=rw,go=r", 0o777, 0o644, 0o644),
            ("Dg+s,F-x", 0o755, 0o644, 0o2755),
            // The umask 022 keeps the write bits of group and others.
            ("+w", 0o444, 0o644, 0o644),
            ("a+w", 0o444, 0o666, 0o666),
            ("o=", 0o757, 0o750, 0o750),
            ("600,u+x", 0o777, 0o700, 0o700),
            ("+t", 0o644, 0o1644, 0o1644),
        ] {
            assert_eq!(changed(list, &file, mode), as_file, "{list} of a file");
            assert_eq!(changed(list, &EntryKind::Directory, mode), as_directory, "{list} of a dir");
        }
        for bad in ["", "D", "u", "u+q", "z+r", "99", "77777", "u+r,", "g=u", "F8"] {
            let error = ModeChange::parse_list(bad, 0o022).expect_err(bad);
            assert!(error.to_string().contains("D755,F644"), "{error}");
        }
    }

    #[test]
    fn only_a_choice_that_an_older_end_ignores_needs_a_newer_one() {
        let none = ExtraOptions::default();
        assert_eq!(none.lowest_version(), 1);
        let whole = ExtraOptions {
            whole_file: true,
            report_metadata: true,
            origin: [1; 16],
            ..none.clone()
        };
        assert_eq!(whole.lowest_version(), 1);
        assert_eq!(ExtraOptions { size_only: true, ..none.clone() }.lowest_version(), 2);
        assert_eq!(ExtraOptions { max_size: Some(1), ..none }.lowest_version(), 2);
    }

    #[test]
    fn a_hostile_backup_is_refused() {
        let with = |suffix: &[u8], dir: Option<&[u8]>| ExtraOptions {
            backup: Some(Backup { suffix: suffix.to_vec(), dir: dir.map(<[u8]>::to_vec) }),
            ..ExtraOptions::default()
        };
        assert_eq!(with(b"~", None).check(), Ok(()));
        assert_eq!(with(b"", Some(b"old")).check(), Ok(()));
        let bad =
            [("", None), ("", Some(&b""[..])), ("/x", None), ("\0", None), (&"a".repeat(65), None)];
        for (suffix, dir) in bad {
            assert!(with(suffix.as_bytes(), dir).check().is_err(), "{suffix:?} {dir:?}");
        }
        for reserved in [
            ExtraOptions { remove_source_files: true, copy_links: true, ..ExtraOptions::default() },
            ExtraOptions {
                acls: true,
                mode_changes: ModeChange::parse_list("u+r", 0).expect("changes"),
                ..ExtraOptions::default()
            },
        ] {
            assert!(reserved.check().is_err(), "{reserved:?}");
        }
        for (inplace, hard_links, keeps_old) in
            [(true, true, false), (true, false, true), (true, false, false), (false, true, true)]
        {
            let backup = keeps_old.then(|| Backup { suffix: b"~".to_vec(), dir: None });
            let extra = ExtraOptions { hard_links, backup, ..ExtraOptions::default() };
            let options = crate::Options { inplace, extra: Box::new(extra), ..Default::default() };
            let loses = inplace && (hard_links || keeps_old);
            assert_eq!(options.check_combination().is_err(), loses, "{options:?}");
        }
        let many = ModeChange::parse_list(&["u+r"; 65].join(","), 0).expect("changes");
        assert!(ExtraOptions { mode_changes: many, ..ExtraOptions::default() }.check().is_err());
    }

    #[test]
    fn names_that_no_file_has_and_options_that_lose_data_together_are_refused() {
        for (update, size_only, ignore_existing) in
            [(true, false, false), (false, true, false), (false, false, true)]
        {
            let extra = ExtraOptions { size_only, ignore_existing, ..ExtraOptions::default() };
            let options = crate::Options { update, extra: Box::new(extra), ..Default::default() };
            assert!(options.check_combination().is_ok());
            let options = crate::Options { inplace: true, ..options };
            assert!(options.check_combination().is_err(), "{options:?}");
        }
        let listed = |name: Vec<u8>| {
            crate::Options { files_from: Some(vec![name]), ..Default::default() }.check_names()
        };
        assert!(listed(vec![b'a'; 4096]).is_ok());
        assert!(listed(vec![b'a'; 4097]).is_err());
    }
}
