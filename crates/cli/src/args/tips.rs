//! Tips for options that other programs have and packtrain does not.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Options of rsync, scp, rclone and curl with what to write instead.
const TIPS: &[(&[&str], &str)] = &[
    (&["--rsh"], "write -e COMMAND, as in -e 'ssh -p 2222'"),
    (&["--rsync-path"], "write --remote-path COMMAND"),
    (&["--port"], "write -e 'ssh -p PORT', or the port in the place: pt://host:port/path"),
    (&["-i", "--identity"], "write -e 'ssh -i FILE'; for a list of changes add -v or --dry-run"),
    (&["-C", "--compress-level", "--zc", "--compress-choice"], "cp does not compress"),
    (&["-J"], "write it into the ssh command: -e 'ssh -J HOST'"),
    (&["-3"], "a copy between two remote places is controlled from here without an option"),
    (&["-R", "--relative"], "write --files-from LIST and the directory that the names begin in"),
    (&["-S", "--sparse"], "holes are always kept"),
    (&["--numeric-ids"], "owners are always copied as numbers"),
    (&["-I", "--ignore-times"], "write --checksum to compare contents"),
    (&["-c"], "write --checksum"),
    (
        &["-k", "--copy-dirlinks", "--copy-unsafe-links", "--safe-links", "--munge-links"],
        "links are copied as links; write -L to copy what all of them lead to",
    ),
    (
        &["--delete-before", "--delete-during", "--delete-delay", "--delete-after", "--del"],
        "write --delete: names are removed at the end, after everything was copied",
    ),
    (&["--delete-excluded"], "names that a filter excludes stay; remove them by hand"),
    (&["--ignore-errors"], "nothing is deleted after a failure; mend it and run the command again"),
    (
        &["--stats", "--itemize-changes", "--info", "--out-format"],
        "write -v for a line for each file, or --json for all figures",
    ),
    (&["--human-readable"], "figures are always printed with units"),
    (&["--timeout", "--contimeout"], "write --retries N; a lost connection is noticed by itself"),
    (
        &["--partial-dir", "--temp-dir", "-T"],
        "temporaries lie beside their targets under hidden names",
    ),
    (
        &["--link-dest", "--copy-dest", "--compare-dest", "-y", "--fuzzy"],
        "only the target itself is compared; --backup --backup-dir keeps old versions",
    ),
    (&["--no-compress"], "cp does not compress"),
    (&["--modify-window"], "write --size-only or --checksum"),
    (&["--transfers", "--checkers", "--multi-thread-streams"], "write --streams N"),
    (
        &["--s3-provider", "--s3-region", "--config"],
        "S3 settings come from the variables and files of the AWS programs",
    ),
    (&["--create-empty-src-dirs"], "empty directories are always copied"),
    (&["--ignore-size"], "write --checksum to compare contents"),
    (&["-h"], "write --help"),
];

/// Options of other programs in place of those of a command.
const TIPS_OF: &[(&str, &[&str], &str)] = &[
    ("perf", &["-t", "--time"], "write --seconds N"),
    ("perf", &["-P"], "write --parallel N"),
    ("emulate", &["--delay", "--latency"], "write --rtt, the delay of both ways together"),
];

/// Commands of other programs with what to write instead.
const COMMANDS: &[(&[&str], &str)] = &[
    (
        &["rsync", "sync", "mirror"],
        "write packtrain cp -r SRC/ DST; with --delete it also removes what SRC does not have",
    ),
    (&["mv", "move"], "write packtrain cp -r --remove-source-files SRC DST"),
    (
        &["copy", "scp", "push", "pull", "put", "get", "upload", "download"],
        "write packtrain cp -r SRC DST",
    ),
    (
        &["ls", "list"],
        "packtrain cp -r --dry-run -v host:dir/ . lists what a copy would move, and moves nothing",
    ),
];

/// Replaces clap's guess by a tip if another program has the option or the command.
pub(super) fn improve(error: &mut clap::Error, line: &[OsString]) {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    let command = line.get(1).and_then(|word| word.to_str()).unwrap_or_default();
    let tip = match error.kind() {
        ErrorKind::UnknownArgument => text(ContextKind::InvalidArg).and_then(|argument| {
            let option = argument.split(['=', ' ']).next().unwrap_or_default();
            // `packtrain -av src/ host:dst`: no option stands before the command.
            let is_first = command.starts_with('-').then_some(COPY);
            tip_of(command, option).or(is_first).or_else(|| tip(option))
        }),
        ErrorKind::InvalidSubcommand => {
            text(ContextKind::InvalidSubcommand).and_then(|word| other_command(&word))
        }
        _ => None,
    };
    let Some(tip) = tip else { return };
    error.remove(ContextKind::SuggestedArg);
    error.remove(ContextKind::SuggestedSubcommand);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
}

/// The tip for a line that names places and no command.
const COPY: &str = "to copy, write packtrain cp -r SRC... DST";

fn other_command(word: &str) -> Option<&'static str> {
    let found = COMMANDS.iter().find(|(names, _)| names.contains(&word));
    let is_place = word.contains(['/', ':']) || std::path::Path::new(word).exists();
    found.map(|(_, tip)| *tip).or_else(|| is_place.then_some(COPY))
}

fn tip_of(command: &str, option: &str) -> Option<&'static str> {
    let found = TIPS_OF.iter().find(|(of, options, _)| *of == command && options.contains(&option));
    found.map(|(_, _, tip)| *tip)
}

fn tip(option: &str) -> Option<&'static str> {
    let found = TIPS.iter().find(|(options, _)| options.contains(&option));
    found.map(|(_, tip)| *tip)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::bare;

    #[test]
    fn no_tip_is_about_an_option_of_cp() {
        let cp = bare().find_subcommand("cp").expect("cp").clone();
        for (options, tip) in TIPS {
            for option in *options {
                let known = cp.get_arguments().any(|arg| {
                    let long = arg.get_long().map(|long| format!("--{long}"));
                    let short = arg.get_short().map(|short| format!("-{short}"));
                    long.as_deref() == Some(option) || short.as_deref() == Some(option)
                });
                assert!(!known || *option == "-h", "{option}: {tip}");
            }
        }
    }

    #[test]
    fn a_foreign_option_gets_its_tip_and_no_guess() {
        let line = ["packtrain", "cp", "--delete-after", "a", "b"];
        let mut error = bare().try_get_matches_from(line).expect_err("unknown");
        improve(&mut error, &line.map(OsString::from));
        let text = error.render().to_string();
        assert!(text.contains("tip: write --delete: names are removed at the end"), "{text}");
        assert!(!text.contains("similar"), "{text}");
    }
}
