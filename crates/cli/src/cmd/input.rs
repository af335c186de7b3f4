//! Files that a command reads, whole or as a stream.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use packtrain_service::{FailureKind, RequestError};

use crate::exit::Exit;
use crate::out;

/// A file to read; `-` is standard input. Every error names it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Input<'a>(pub(super) &'a Path);

impl Input<'_> {
    /// Opens the file.
    pub(super) fn open(self) -> Result<Box<dyn Read + Send>, Exit> {
        if self.0 == Path::new("-") {
            return Ok(Box::new(io::stdin()));
        }
        let file = File::open(self.0).map_err(|error| self.unreadable(&error))?;
        Ok(Box::new(file))
    }

    /// All bytes of the file, at most `most`.
    pub(super) fn bytes(self, most: u64) -> Result<Vec<u8>, Exit> {
        let mut bytes = Vec::new();
        self.open()?
            .take(most + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| self.unreadable(&error))?;
        if bytes.len() as u64 > most {
            return Err(self.refused(&format_args!("more than {} MiB are not read", most >> 20)));
        }
        Ok(bytes)
    }

    /// All text of the file, at most `most` bytes.
    pub(super) fn text(self, most: u64) -> Result<String, Exit> {
        String::from_utf8(self.bytes(most)?)
            .map_err(|error| self.refused(&format_args!("it is not UTF-8: {}", error.utf8_error())))
    }

    /// An error because the content is malformed.
    pub(super) fn refused(self, error: &dyn Display) -> Exit {
        self.failed(FailureKind::Usage, error)
    }

    /// An error of this kind.
    pub(super) fn failed(self, kind: FailureKind, error: &dyn Display) -> Exit {
        Exit::from(RequestError::new(kind, out::clean(&format!("{}: {error}", self.name()))))
    }

    /// The file's name, escaped for a terminal.
    pub(super) fn name(self) -> String {
        use std::os::unix::ffi::OsStrExt as _;
        out::shown(self.0.as_os_str().as_bytes()).to_string()
    }

    fn unreadable(self, error: &io::Error) -> Exit {
        let kind = match error.kind() {
            io::ErrorKind::NotFound => FailureKind::SourceMissing,
            _ => FailureKind::Fatal,
        };
        self.failed(kind, error)
    }
}
