//! Command lines as people write them for other programs, which mean something else here.

use std::ffi::OsString;

use clap::error::ErrorKind;

use crate::exit::Exit;

/// The answer to `-h` among the options or places of a copy, as in `rsync -avh a/ b/`: without it,
/// the command would print help and copy nothing, with the exit code of success.
pub(super) fn rsync_help(error: &clap::Error, line: &[OsString]) -> Option<Exit> {
    let command = line.get(1)?.to_str()?;
    let is_copy = matches!(command, "cp" | "verify");
    let is_alone = line.len() <= 3 || line.iter().any(|word| word == "--help");
    if !is_copy || is_alone || error.kind() != ErrorKind::DisplayHelp {
        return None;
    }
    Some(Exit::usage(format!(
        "leave out -h: figures are always printed with units, as by rsync -h (--human-readable); \
         `packtrain {command} -h` alone prints help"
    )))
}
