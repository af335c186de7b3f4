//! `--filter`: rules in rsync's syntax, in the form that both ends read.

use std::path::Path;

use super::files_from::{old_style, rule_lines};
use crate::exit::Exit;

/// How deep files of rules may name each other.
const MAX_DEPTH: u32 = 8;

/// The rules that the text of a `--filter` stands for; more than one if it names a file of rules.
pub(super) fn parse(text: &str, zero: bool) -> Result<Vec<String>, Exit> {
    let mut rules = Vec::new();
    add(text.trim_start(), zero, MAX_DEPTH, &mut rules)?;
    Ok(rules)
}

fn add(text: &str, zero: bool, depth: u32, rules: &mut Vec<String>) -> Result<(), Exit> {
    let unknown = || {
        Exit::usage(format!(
            "--filter: `{text}` is not a rule of this version: write '+ PATTERN', '- PATTERN', H, S, \
             P or R with a pattern, '. FILE' or ': FILE'"
        ))
    };
    if matches!(text, "!" | "clear") {
        rules.push("!".to_owned());
        return Ok(());
    }
    let (word, pattern) = text.split_once([' ', '_']).unwrap_or((text, ""));
    let (name, modifiers) = split(word);
    let plain = |sign: &str| -> Result<String, Exit> {
        if !modifiers.chars().all(|c| matches!(c, '!' | 's' | 'r')) {
            return Err(unknown());
        }
        if pattern.is_empty() {
            return Err(Exit::usage(format!("--filter: `{text}` has no pattern: add one")));
        }
        // The modifiers of the text come last: `s` and `r` in it replace the side of the word.
        let named = modifiers.contains(['s', 'r']);
        let (sign, side) = sign.split_at(1);
        let side = if named { "" } else { side };
        Ok(format!("{sign}{modifiers}{side} {pattern}"))
    };
    match name {
        "+" | "include" => rules.push(plain("+")?),
        "-" | "exclude" => rules.push(plain("-")?),
        "H" | "hide" => rules.push(plain("-s")?),
        "S" | "show" => rules.push(plain("+s")?),
        "P" | "protect" => rules.push(plain("-r")?),
        "R" | "risk" => rules.push(plain("+r")?),
        "." | "merge" => {
            let sign = match modifiers {
                "" => None,
                "-" | "+" => Some(modifiers),
                _ => return Err(unknown()),
            };
            merge(pattern, sign, zero, depth, rules)?;
        }
        ":" | "dir-merge" => in_each_directory(text, (modifiers, pattern), zero, rules)?,
        _ => return Err(unknown()),
    }
    Ok(())
}

/// Adds a rule for the files of this name in each directory of the source.
fn in_each_directory(
    text: &str,
    (modifiers, name): (&str, &str),
    zero: bool,
    rules: &mut Vec<String>,
) -> Result<(), Exit> {
    if let Some(unknown) =
        modifiers.chars().find(|c| !matches!(c, '-' | '+' | 'n' | 'e' | 'w' | 's' | 'r'))
    {
        return Err(Exit::usage(format!(
            "--filter: `{text}`: the modifier `{unknown}` is not in this version: write only -, +, n, \
             e, w, s or r after the colon"
        )));
    }
    if let Some(below) = name.strip_prefix('/').filter(|below| !below.contains('/')) {
        return Err(Exit::usage(format!(
            "--filter: `{text}`: files in directories above the source are not read: write \
             ':{modifiers} {below}'"
        )));
    }
    if matches!(name, "" | "." | "..") || name.contains('/') {
        return Err(Exit::usage(format!(
            "--filter: `{text}` needs the name of a file in each directory, without a slash: write \
             ': .rsync-filter'"
        )));
    }
    // As with rsync, the file leaves itself out before its own rules count.
    if modifiers.contains('e') {
        rules.push(format!("- {}", literal(name)));
    }
    let zero = if zero { "0" } else { "" };
    rules.push(format!(":{}{zero} {name}", modifiers.replace('e', "")));
    Ok(())
}

/// The pattern that matches only this name.
fn literal(name: &str) -> String {
    if !name.contains(['*', '?', '[']) {
        return name.to_owned();
    }
    let escaped = |c: char| match c {
        '*' | '?' | '[' | '\\' => format!("\\{c}"),
        c => c.to_string(),
    };
    name.chars().map(escaped).collect()
}

/// The kind of a rule and its modifiers, such as `-!` or `exclude,!`.
fn split(word: &str) -> (&str, &str) {
    if let Some((name, modifiers)) = word.split_once(',') {
        return (name, modifiers);
    }
    match word.chars().next() {
        Some('+' | '-' | '.' | ':' | 'H' | 'S' | 'P' | 'R') => word.split_at(1),
        _ => (word, ""),
    }
}

/// Adds the rules in a file; with `sign` each line is a pattern.
fn merge(
    file: &str,
    sign: Option<&str>,
    zero: bool,
    depth: u32,
    rules: &mut Vec<String>,
) -> Result<(), Exit> {
    let option = format!("--filter '. {file}'");
    if file.is_empty() {
        return Err(Exit::usage("--filter: a `.` rule names a file of rules: write '. FILE'"));
    }
    if depth == 0 {
        return Err(Exit::usage(format!("{option}: files of rules name each other too deeply")));
    }
    for line in rule_lines(&option, Path::new(file), zero)? {
        match sign {
            Some(sign) => rules.push(old_style(sign, &line)),
            None => add(&line, zero, depth - 1, rules)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good(text: &str) -> Vec<String> {
        parse(text, false).unwrap_or_else(|exit| panic!("{text}: {}", exit.into_error().text))
    }

    fn refused(text: &str) -> String {
        parse(text, false).expect_err(text).into_error().text
    }

    #[test]
    fn rules_have_one_form_for_both_ends() {
        for (text, rule) in [
            ("- *.o", "- *.o"),
            ("-_x", "- x"),
            ("include y z", "+ y z"),
            ("-! *.c", "-! *.c"),
            ("exclude,! a", "-! a"),
            ("H secret", "-s secret"),
            ("show /a", "+s /a"),
            ("P *~", "-r *~"),
            ("risk,! b", "+!r b"),
            ("-rs c", "-rs c"),
            ("!", "!"),
            ("clear", "!"),
        ] {
            assert_eq!(good(text), [rule], "{text}");
        }
    }

    #[test]
    fn a_file_of_rules_is_read_and_may_name_another() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = |name: &str| dir.path().join(name).display().to_string();
        std::fs::write(path("inner"), "*.o\n; no\n+ keep.o\n").expect("a file");
        let outer = format!("# comment\n- a\n.- {}\nP b\n", path("inner"));
        std::fs::write(path("outer"), outer).expect("a file");
        assert_eq!(good(&format!(". {}", path("outer"))), ["- a", "- *.o", "+ keep.o", "-r b"]);
        std::fs::write(path("loop"), format!("merge {}\n", path("loop"))).expect("a file");
        assert!(refused(&format!(". {}", path("loop"))).contains("too deeply"));
    }

    #[test]
    fn a_file_in_each_directory_is_for_the_source_to_read() {
        assert_eq!(good(": .f"), [": .f"]);
        assert_eq!(good("dir-merge,n- .gitignore"), [":n- .gitignore"]);
        assert_eq!(good(":e_.f"), ["- .f", ": .f"]);
        assert_eq!(good(":ew a*b"), ["- a\\*b", ":w a*b"]);
        assert_eq!(parse(":- .f", true).expect("a rule"), [":-0 .f"]);
    }

    #[test]
    fn what_is_not_supported_is_named() {
        for (text, says) in [
            (": /.rsync-filter", "write ': .rsync-filter'"),
            (":n- /.f", "write ':n- .f'"),
            (":", "without a slash"),
            (": a/b", "without a slash"),
            (":C", "modifier `C`"),
            (":p .f", "modifier `p`"),
            ("-C", "is not a rule"),
            ("-p x", "is not a rule"),
            ("frob x", "is not a rule"),
            ("+", "no pattern"),
            (".", "names a file"),
            (".e /x", "is not a rule"),
            (". /nonexistent", "/nonexistent"),
        ] {
            let said = refused(text);
            assert!(said.contains(says), "{text}: {said}");
        }
    }
}
