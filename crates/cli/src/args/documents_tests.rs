//! Every command that the README and the guide show is one that this program understands, and the
//! written pages of the guide name every command and every option.

use std::path::{Path, PathBuf};

use packtrain_testkit::documents::{guide, shell_blocks, text};

use super::bare;

/// A command of a document: where it stands and its words.
struct Shown {
    place: String,
    words: Vec<String>,
}

/// All `packtrain` commands in blocks of shell of a page.
fn commands(page: &Path) -> Vec<Shown> {
    let mut all = Vec::new();
    for block in shell_blocks(page) {
        let mut whole = String::new();
        for (number, line) in block.text.lines().enumerate() {
            match line.strip_suffix('\\') {
                Some(part) => {
                    whole.push_str(part);
                    continue;
                }
                None => whole.push_str(line),
            }
            for words in split(&std::mem::take(&mut whole)) {
                let place = format!("{}:{}", page.display(), block.line + number);
                let begin =
                    words.iter().position(|word| !word.contains('=') || word.starts_with('-'));
                let words = words.into_iter().skip(begin.unwrap_or(0)).collect::<Vec<_>>();
                if words.first().is_some_and(|word| word == "packtrain") {
                    all.push(Shown { place, words });
                }
            }
        }
    }
    all
}

/// A line of shell as simple commands: quotes, comments, pipes and redirections are understood.
pub(super) fn split(line: &str) -> Vec<Vec<String>> {
    let (mut all, mut words, mut word) = (Vec::new(), Vec::new(), None::<String>);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                word.extend(chars.by_ref().take_while(|other| *other != c));
            }
            '\\' => word.get_or_insert_default().extend(chars.next()),
            '#' if word.is_none() => break,
            ' ' | '\t' => words.extend(word.take()),
            '|' | ';' | '&' | '(' | ')' | '<' | '>' => {
                words.extend(word.take());
                all.push(std::mem::take(&mut words));
            }
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    all.push(words);
    all.retain(|words| !words.is_empty());
    all
}

#[test]
fn every_command_in_the_documents_is_understood() {
    let readme = std::iter::once(PathBuf::from("README.md"));
    let shown: Vec<Shown> = readme.chain(guide()).flat_map(|page| commands(&page)).collect();
    assert!(shown.len() > 80, "only {} commands were found", shown.len());
    let mut wrong = Vec::new();
    for Shown { place, words } in shown {
        // Lines that show a form instead of a command.
        if words.iter().any(|word| word.contains('[') || word.contains("...")) {
            continue;
        }
        // The number of a loop.
        let given = words.iter().map(|word| if word == "$n" { "1" } else { word });
        if let Err(error) = bare().try_get_matches_from(given)
            && error.use_stderr()
        {
            let why = error.to_string().lines().next().unwrap_or_default().to_owned();
            wrong.push(format!("{place}: {}: {why}", words.join(" ")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The long options that `--help` shows of this command and its subcommands, with the command, and
/// the subcommands themselves.
fn names(command: &clap::Command, path: &str) -> Vec<(String, String)> {
    let args = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let flags = args.filter_map(clap::Arg::get_long).map(|long| format!("--{long}"));
    let mut all: Vec<_> = flags.map(|flag| (path.to_owned(), flag)).collect();
    for each in command.get_subcommands().filter(|each| !each.is_hide_set()) {
        let path = format!("{path} {}", each.get_name());
        all.push((path.clone(), path.clone()));
        all.extend(names(each, &path));
    }
    all
}

#[test]
fn the_guide_names_every_command_and_option() {
    // The reference of commands is generated, so it names all of them.
    let written = guide().into_iter().filter(|page| !page.ends_with("reference/commands.md"));
    let text: String = written.map(|page| text(&page)).collect();
    let ends = |c: Option<char>| !c.is_some_and(|c| c.is_alphanumeric() || c == '-');
    let is_named = |name: &str| {
        text.match_indices(name).any(|(at, _)| ends(text[at + name.len()..].chars().next()))
    };
    let all = names(&bare(), "packtrain");
    assert!(all.len() > 300, "only {} names were found", all.len());
    let missing: Vec<_> = all.into_iter().filter(|(_, name)| !is_named(name)).collect();
    assert!(missing.is_empty(), "docs/guide does not name: {missing:#?}");
}

#[test]
fn a_line_of_shell_is_taken_apart() {
    let words = |line: &str| split(line);
    assert_eq!(words("a 'b c' | d \"e\" # f"), [vec!["a", "b c"], vec!["d", "e"]]);
    assert_eq!(words("x\\ y>z"), [vec!["x y"], vec!["z"]]);
}
