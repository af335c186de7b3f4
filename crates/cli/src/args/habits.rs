//! Command lines as people write them for other programs, which mean something else here.

use std::borrow::Cow;
use std::ffi::OsString;

use clap::ValueEnum as _;
use clap::error::ErrorKind;

use super::ProgressMode;
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

/// The line with `--progress json` as `--progress=json`. As with rsync, `--progress` needs no value, so
/// that another word after it is a place.
pub(super) fn joined(line: &[OsString]) -> Cow<'_, [OsString]> {
    let options = line.iter().position(|word| word == "--").unwrap_or(line.len());
    let at = line[..options].windows(2).position(|words| {
        words[0] == "--progress"
            && ProgressMode::from_str(&words[1].to_string_lossy(), false).is_ok()
    });
    let Some(at) = at else { return Cow::Borrowed(line) };
    let mut joined = line.to_vec();
    let how = joined.remove(at + 1);
    joined[at].push("=");
    joined[at].push(how);
    Cow::Owned(joined)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_value_of_progress_is_taken_from_the_next_word() {
        let joined = |words: &str| -> String {
            let line: Vec<OsString> = words.split(' ').map(OsString::from).collect();
            let joined: Vec<_> =
                joined(&line).iter().map(|word| word.to_string_lossy().into_owned()).collect();
            joined.join(" ")
        };
        assert_eq!(joined("p cp --progress json a b"), "p cp --progress=json a b");
        for same in ["p cp --progress a b", "p cp a b --progress", "p cp -- --progress bar b"] {
            assert_eq!(joined(same), same);
        }
    }
}
