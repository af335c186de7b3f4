//! Words that must not be in the repository: paths of one machine, personal notes.

use std::fs;

use anyhow::Result;

use crate::sh;

/// Files that contain these words because they search for them.
const SEARCHERS: &[&str] = &["xtask/src/tidy/words.rs"];

/// Names that were replaced by the field's terms ([the glossary](../../../docs/glossary.md)), with
/// the new terms.
const OLD_NAMES: &[(&str, &str)] = &[
    ("NodeError", "RequestError"),
    ("LineId", "StreamId"),
    ("WayId", "PathId"),
    ("Pilot", "PathSelector"),
    ("owndrops", "socket_drops"),
    ("hostcap", "receiver_rate_cap"),
    ("bringers", "depositors"),
    ("Towards", "Outbound"),
    ("testify", "report_evidence"),
    ("helm", "path_feed"),
    ("Book", "StripeScheduler"),
    ("Door", "AccessPolicy"),
    ("Seat", "SessionPermit"),
    ("Whence", "Inbound"),
    ("Met", "Handshake"),
    ("Fate", "DatagramStatus"),
    ("obey", "apply_commands"),
    ("look_around", "update"),
    ("Heard", "Received"),
];

/// Checks every text file.
pub(super) fn check() -> Result<Vec<String>> {
    let mut words: Vec<String> =
        ["/home/", "/Users/", "TODO", "FIXME", "XXX:", "HACK"].map(str::to_owned).to_vec();
    words.push(format!("{}/", sh::root().display()));
    let mut findings = Vec::new();
    for file in sh::files()? {
        let name = file.to_string_lossy();
        // Results of measurements name the machine on purpose; lock files are generated.
        if SEARCHERS.contains(&name.as_ref()) || name.ends_with(".lock") {
            continue;
        }
        // Binary files are not checked.
        let Ok(text) = fs::read_to_string(sh::root().join(&file)) else { continue };
        for (number, line) in text.lines().enumerate() {
            for word in words.iter().filter(|word| line.contains(word.as_str())) {
                findings.push(format!("{name}:{}: forbidden word {word}", number + 1));
            }
            if name.ends_with(".rs") {
                let old = |(old, _): &&(&str, &str)| has_word(line, old);
                for (old, new) in OLD_NAMES.iter().filter(old) {
                    findings.push(format!("{name}:{}: {old} is {new} now", number + 1));
                }
            }
            if line.ends_with([' ', '\t']) && !name.ends_with(".md") {
                findings.push(format!("{name}:{}: blanks at the end of the line", number + 1));
            }
        }
    }
    Ok(findings)
}

/// Whether a line contains a name as a separate word.
fn has_word(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word)
        .any(|(at, _)| !line[..at].ends_with(part) && !line[at + word.len()..].starts_with(part))
}

#[cfg(test)]
mod tests {
    use super::has_word;

    #[test]
    fn only_whole_words_count() {
        assert!(has_word("let a: Pilot = b;", "Pilot"));
        assert!(!has_word("let a: Pilots = AutoPilot;", "Pilot"));
    }
}
