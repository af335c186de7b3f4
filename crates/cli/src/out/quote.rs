//! Quotes a command line for a shell.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use packtrain_service::weburl::redact;

/// Prefixes of tickets: of servers and of kept sessions.
const TICKET_PREFIXES: [&str; 2] = ["pt1-", "pc1-"];

/// Joins the words so that a POSIX shell splits them into the same words. Bytes that a terminal
/// cannot show become `$'\NNN'`, which bash, zsh, ksh and newer shells support. Tickets and the
/// secrets of web addresses are replaced, because the command may be kept in a log.
pub(crate) fn command(words: &[OsString]) -> String {
    let shown = |word: &OsString| match word.to_str().and_then(without_secret) {
        Some(text) => one(OsStr::new(&text)),
        None => one(word),
    };
    words.iter().map(shown).collect::<Vec<_>>().join(" ")
}

/// The word, or the value of an option, without its secret; `None` if it has none.
fn without_secret(word: &str) -> Option<String> {
    let (option, value) = match word.split_once('=') {
        Some((option, value)) if option.starts_with("--") => (format!("{option}="), value),
        _ => (String::new(), word),
    };
    let shown = if value.starts_with("https://") || value.starts_with("http://") {
        redact(value)
    } else if TICKET_PREFIXES.iter().any(|prefix| value.starts_with(prefix)) {
        "[ticket]".to_owned()
    } else {
        return None;
    };
    Some(option + &shown)
}

fn one(word: &OsStr) -> String {
    let bytes = word.as_bytes();
    let plain = |c: &u8| c.is_ascii_alphanumeric() || b"-_./:=@%+,".contains(c);
    match word.to_str() {
        Some(text) if !bytes.is_empty() && bytes.iter().all(plain) => text.to_owned(),
        Some(text) if !text.chars().any(packtrain_units::escape::is_hostile) => {
            format!("'{}'", text.replace('\'', r"'\''"))
        }
        _ => escaped(bytes),
    }
}

fn escaped(bytes: &[u8]) -> String {
    let mut text = String::from("$'");
    for &byte in bytes {
        match byte {
            b'\'' | b'\\' => text.extend(['\\', char::from(byte)]),
            b' '..=b'~' => text.push(char::from(byte)),
            // An octal escape has a fixed length of three digits; `\x` would take following
            // letters.
            _ => text.push_str(&format!("\\{byte:03o}")),
        }
    }
    text.push('\'');
    text
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;
    use std::process::Command;

    use super::*;

    #[test]
    fn plain_words_stay_plain() {
        let words = ["packtrain", "cp", "-r", "a/b", "me@h:/x", "it's", "", "~/x"];
        let quoted = command(&words.map(OsString::from));
        assert_eq!(quoted, r"packtrain cp -r a/b me@h:/x 'it'\''s' '' '~/x'");
    }

    #[test]
    fn secrets_of_addresses_are_left_out() {
        let words = ["packtrain", "cp", "https://h/a?sig=5ecre7", "b?c", "gpj.\u{202e}exe"];
        let quoted = command(&words.map(OsString::from));
        let wanted = "packtrain cp 'https://h/a?[redacted]' 'b?c' $'gpj.\\342\\200\\256exe'";
        assert_eq!(quoted, wanted);
    }

    #[test]
    fn tickets_are_left_out() {
        let words = ["packtrain", "cp", "--ticket", "pt1-5ecre7", "--ticket=pt1-5ecre7", "a"];
        let wanted = "packtrain cp --ticket '[ticket]' '--ticket=[ticket]' a";
        assert_eq!(command(&words.map(OsString::from)), wanted);
        let option = command(&["--x=https://h/a?sig=5ecre7".into()]);
        assert_eq!(option, "'--x=https://h/a?[redacted]'");
    }

    #[test]
    fn a_shell_reads_the_same_words() {
        if Command::new("bash").arg("--version").output().is_err() {
            return; // The other test needs no shell.
        }
        let every: Vec<u8> = (1..=255).collect();
        let words =
            [every, b"a b;$(c)`d`*?!#\"'\\".to_vec(), b"\n0\t7".to_vec(), b"\xff1".to_vec()];
        for bytes in words {
            let quoted = command(&[OsString::from_vec(bytes.clone())]);
            let script = format!("printf %s {quoted}");
            let output = Command::new("bash").arg("-c").arg(&script).output().expect("bash runs");
            assert_eq!(output.stdout, bytes, "{script}");
        }
    }
}
