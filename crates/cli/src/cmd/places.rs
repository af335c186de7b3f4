//! Completion of remote places: `packtrain cp host:pa<TAB>` lists names at the host.
//!
//! The scripts of bash, zsh and fish start this program with the command line so far. It answers with
//! one place a line, or with exit code 1 if the word at the end is no remote place.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use clap_complete::Shell;
use packtrain_client::completion;
use packtrain_service::{Location, SshSettings};

use crate::args::{self, Command, CompletionArgs};
use crate::exit::Code;
use crate::out::line;

/// The word at the end is completed by the shell.
const NOT_REMOTE: Code = Code(1);

/// Added to what `clap_complete` generates for bash.
const BASH: &str = include_str!("places/bash.sh");
const ZSH: &str = include_str!("places/zsh.sh");
const FISH: &str = include_str!("places/fish.fish");

/// The script of a shell with the completion of remote places.
pub(super) fn add_to(script: String, shell: Shell) -> String {
    match shell {
        Shell::Bash => script + BASH,
        Shell::Fish => script + FISH,
        // The script ends with the call of its function, so both come before it.
        Shell::Zsh => {
            let begin = "_packtrain() {\n";
            let called = format!("{begin}    _packtrain_places && return 0\n");
            script.replacen(begin, &format!("{ZSH}\n{called}"), 1)
        }
        _ => script,
    }
}

/// Prints the places with which a word can go on.
pub(super) fn complete(args: &CompletionArgs) -> Code {
    let (words, cut, quoted) = match &args.line {
        Some(line) => {
            let Some(split) = Words::of(line, &args.breaks) else { return NOT_REMOTE };
            (split.words.into_iter().map(OsString::from).collect(), split.cut, true)
        }
        None => (args.words.clone(), 0, false),
    };
    let Some(places) = places(&words) else { return NOT_REMOTE };
    for place in places {
        let Some(rest) = place.get(cut..) else { continue };
        line(&if quoted { quote(rest) } else { rest.to_owned() });
    }
    Code::DONE
}

/// The places that begin as the last word does; none if that is no place over ssh or at a server.
fn places(words: &[OsString]) -> Option<Vec<String>> {
    let (word, before) = words.split_last()?;
    let [_, command, options @ ..] = before else { return None };
    if !matches!(command.to_str()?, "cp" | "verify") || word.as_bytes().starts_with(b"-") {
        return None;
    }
    if options.last().is_some_and(|option| takes_value(command, option)) {
        return None;
    }
    let text = word.to_str()?;
    let mut place = Location::parse(word).ok()?;
    let path = match &mut place {
        // Without a path the place is the home directory.
        Location::Ssh { path, .. } if text.ends_with(':') && path == b"." => {
            path.clear();
            path
        }
        Location::Ssh { path, .. } => path,
        // Without a slash the word may still become another host, and a ticket is for a copy.
        Location::Server { path, .. } if text.matches('/').count() > 2 && !has_ticket(options) => {
            path
        }
        _ => return None,
    };
    let begun = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default().len();
    let head = text.get(..text.len().checked_sub(begun)?)?;
    let names = completion::names(&settings(options)?, &place)?;
    Some(names.iter().map(|name| format!("{head}{name}")).collect())
}

/// Whether a ticket is to admit the copy: a server may admit it once only.
fn has_ticket(options: &[OsString]) -> bool {
    options.iter().any(|option| option.as_bytes().starts_with(b"--ticket"))
}

/// Whether the word after `option` is its value.
fn takes_value(command: &OsStr, option: &OsStr) -> bool {
    let Some(option) = option.to_str() else { return false };
    let bare = args::bare();
    let Some(command) = bare.find_subcommand(command) else { return false };
    let found = match (option.strip_prefix("--"), option.strip_prefix('-')) {
        (Some(long), _) => command.get_arguments().find(|arg| {
            let names = arg.get_long_and_visible_aliases().unwrap_or_default();
            names.contains(&long)
        }),
        (None, Some(shorts)) => command
            .get_arguments()
            .find(|arg| arg.get_short().is_some() && arg.get_short() == shorts.chars().last()),
        (None, None) => None,
    };
    found.is_some_and(|arg| arg.get_action().takes_values() && !arg.is_require_equals_set())
}

/// Whether this word is short options in one, among them this one.
fn is_bundle_with(word: &str, option: char) -> bool {
    let shorts = word.strip_prefix('-').filter(|shorts| !shorts.starts_with('-'));
    shorts.is_some_and(|shorts| shorts.contains(option))
}

/// How ssh is started: by the command line, a variable or the configuration.
fn settings(options: &[OsString]) -> Option<SshSettings> {
    let mut line: Vec<OsString> = ["packtrain", "cp"].map(OsString::from).to_vec();
    let mut rest = options.iter();
    while let Some(option) = rest.next() {
        match option.to_str() {
            Some("-e" | "--ssh") => {
                line.extend([option.clone(), rest.next()?.clone()]);
            }
            Some(text) if text.starts_with("--ssh=") => line.push(option.clone()),
            // Another machine, perhaps, by an option that is not read here.
            Some(text) if is_bundle_with(text, 'e') => return None,
            _ => {}
        }
    }
    line.extend(["a", "b"].map(OsString::from));
    match args::parse(&line).ok()?.command {
        Command::Cp(args) => Some(args.remote.ssh.settings()),
        _ => None,
    }
}

/// A command line of bash as words.
#[derive(Debug, PartialEq)]
struct Words {
    /// Without quotes; the last one is completed.
    words: Vec<String>,
    /// Bytes of the last word that bash leaves as they are: those up to the last separator.
    cut: usize,
}

impl Words {
    /// Splits a command line at white space. `breaks` are bash's separators within words. None if the
    /// last word has quotes or is expanded, so that bash must complete it.
    fn of(line: &str, breaks: &str) -> Option<Self> {
        let (mut words, mut word) = (Vec::new(), String::new());
        let (mut cut, mut is_plain, mut quote) = (0, true, None);
        let mut letters = line.chars();
        while let Some(letter) = letters.next() {
            match (quote, letter) {
                (Some(end), _) if letter == end => quote = None,
                (Some('"') | None, '\\') => word.push(letters.next()?),
                (Some(_), _) => word.push(letter),
                (None, '\'' | '"') => (quote, is_plain) = (Some(letter), false),
                (None, _) if letter.is_whitespace() => {
                    if !word.is_empty() || !is_plain {
                        words.push(std::mem::take(&mut word));
                    }
                    (cut, is_plain) = (0, true);
                }
                (None, _) => {
                    is_plain &= !matches!(letter, '$' | '`' | ';' | '|' | '&' | '<' | '>' | '(');
                    word.push(letter);
                    if breaks.contains(letter) {
                        cut = word.len();
                    }
                }
            }
        }
        words.push(word);
        is_plain.then_some(Self { words, cut })
    }
}

/// A text as one word of bash, in which nothing is expanded and nothing separates.
fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        let is_plain =
            letter.is_alphanumeric() || !letter.is_ascii() || "/._-+,%^".contains(letter);
        if !is_plain {
            out.push('\\');
        }
        out.push(letter);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const BREAKS: &str = " \t\n\"'@><=;|&(:";

    #[test]
    fn a_line_of_bash_is_split_where_bash_splits_it() {
        let of =
            |line: &str| Words::of(line, BREAKS).map(|split| (split.words.join("|"), split.cut));
        let found = |words: &str, cut| Some((words.to_owned(), cut));
        assert_eq!(of("packtrain cp a host:da"), found("packtrain|cp|a|host:da", 5));
        assert_eq!(of("packtrain cp u@host:my\\ f"), found("packtrain|cp|u@host:my f", 7));
        assert_eq!(of("p cp -e 'ssh -p 22' host:a/b"), found("p|cp|-e|ssh -p 22|host:a/b", 5));
        assert_eq!(of("p cp host:a\\:b"), found("p|cp|host:a:b", 5));
        assert_eq!(of("p cp host:a=b"), found("p|cp|host:a=b", 7));
        assert_eq!(of("p cp "), found("p|cp|", 0));
        for line in
            ["p cp 'host:a", "p cp \"host:a", "p cp host:$x", "p cp host:`x", "p cp host:a\\"]
        {
            assert_eq!(of(line), None, "{line}");
        }
    }

    #[test]
    fn a_name_is_one_word_of_bash() {
        for name in
            ["plain.txt", "my file", "$(touch bad)", "a'b\"c", "~x", "a:b=c", "ü é", "*?[x]", "!a#"]
        {
            let script = format!("printf %s x{}", quote(name));
            let shown = std::process::Command::new("bash").args(["-c", &script]).output();
            let shown = shown.expect("bash runs").stdout;
            assert_eq!(String::from_utf8(shown).expect("text"), format!("x{name}"));
        }
    }

    #[test]
    fn only_places_of_cp_and_verify_are_looked_up() {
        let asked = |line: &str| {
            let words: Vec<_> = line.split(' ').map(OsString::from).collect();
            places(&words)
        };
        // A program that is not there has no names, and a word that is no place is not looked up.
        let ssh = "-e /nonexistent/ssh";
        assert_eq!(asked(&format!("packtrain cp {ssh} host:pa")), Some(Vec::new()));
        assert_eq!(asked(&format!("packtrain verify {ssh} a u@host:")), Some(Vec::new()));
        // Nothing listens there, or this user has no key.
        assert_eq!(asked("packtrain cp pt://127.0.0.1:1/pa"), Some(Vec::new()));
        for line in [
            "packtrain cp -e plink host:pa",
            "packtrain cp ./host:pa",
            "packtrain cp pa",
            "packtrain cp pt://host",
            "packtrain cp --ticket @t pt://host/pa",
            "packtrain cp https://host/pa",
            "packtrain cp --via d1:78",
            "packtrain cp -rve d1:78",
            "packtrain cp --exclude a:b",
            "packtrain cp --rate=a:b",
            "packtrain history host:pa",
            "packtrain cp -oProxyCommand=x:pa",
            "packtrain cp -oProxyCommand@-host:pa",
            "packtrain",
        ] {
            assert_eq!(asked(line), None, "{line}");
        }
        assert!(takes_value("cp".as_ref(), "--bwlimit".as_ref()));
        assert!(!takes_value("cp".as_ref(), "--preserve".as_ref()));
        assert!(!takes_value("cp".as_ref(), "-r".as_ref()));
    }
}
