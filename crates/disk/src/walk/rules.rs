//! Files of rules in the directories of the source (`: FILE`).
//!
//! A directory whose file cannot be read is not entered: without its rules names would be copied
//! that are excluded.

use std::io::{self, Read};

use packtrain_object::filter::per_directory::MAX_FILE_BYTES;

use super::super::stat::Kind;
use super::{Place, Walker, rel_path};

impl Walker {
    /// Reads the files of rules in a directory that is about to be entered; `has` tells which names
    /// are in it.
    pub(super) fn take_rules(
        &mut self,
        dir: &Place,
        has: impl Fn(&[u8]) -> bool,
    ) -> io::Result<()> {
        if !self.filters.has_files() {
            return Ok(());
        }
        let names = self.filters.file_names().filter(|(_, name)| has(name));
        let names: Vec<_> = names.map(|(number, name)| (number, name.to_vec())).collect();
        for (number, name) in names {
            let failed = |why: String| {
                let name = packtrain_units::escape::name(&name);
                io::Error::other(format!("is left out, because of its filter file `{name}`: {why}"))
            };
            let Some(text) =
                self.read_rules(&dir.child(&name)).map_err(|e| failed(e.to_string()))?
            else {
                continue;
            };
            let added = self.filters.add_file(number, &dir.to, &text);
            if added.map_err(|error| failed(error.to_string()))?
                && self.report_rules
                && let Some(Ok(item)) = self.ready.back_mut()
                && item.entry.path.as_bytes() == dir.to
            {
                item.rules.push((number, text));
            }
        }
        Ok(())
    }

    /// Reads the files of rules in a directory of the list of names.
    pub(super) fn take_listed_rules(&mut self, dir: &Place) {
        if let Err(error) = self.take_rules(dir, |_| true) {
            self.bad_rules = Some(dir.to.clone());
            self.fail_place(dir, error);
        }
        if self.filters.has_files() {
            self.listed_rules.push(dir.clone());
        }
    }

    /// Forgets the rules of a directory after the last of its names, unless the sink holds them too:
    /// the limits then count those of the whole tree.
    pub(super) fn leave_rules(&mut self, dir: &Place) {
        if !self.report_rules {
            self.filters.leave(&dir.to);
        }
    }

    /// The content of a file of rules; `None` if there is no such file.
    fn read_rules(&self, place: &Place) -> io::Result<Option<Vec<u8>>> {
        let why = match self.sources.stat(place)?.map(|stat| stat.kind) {
            Some(Kind::File) => {
                let file = self.sources.root(place).open_read(&rel_path(&place.from)?)?;
                let mut text = Vec::new();
                file.take(MAX_FILE_BYTES as u64 + 1).read_to_end(&mut text)?;
                if text.len() <= MAX_FILE_BYTES {
                    return Ok(Some(text));
                }
                "it is larger than 64 KiB"
            }
            // A directory of this name has no rules.
            None | Some(Kind::Directory) => return Ok(None),
            Some(Kind::Symlink) => "it is a symbolic link, which is not followed",
            Some(Kind::Special) => "it is a pipe, socket or device",
        };
        Err(io::Error::other(why))
    }
}
