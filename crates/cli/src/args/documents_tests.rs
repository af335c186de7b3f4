//! Every command that the README and the guide show is one that this program understands.

use std::path::{Path, PathBuf};

use packtrain_testkit::documents::{guide, shell_blocks};

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
fn split(line: &str) -> Vec<Vec<String>> {
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

#[test]
fn a_line_of_shell_is_taken_apart() {
    let words = |line: &str| split(line);
    assert_eq!(words("a 'b c' | d \"e\" # f"), [vec!["a", "b c"], vec!["d", "e"]]);
    assert_eq!(words("x\\ y>z"), [vec!["x y"], vec!["z"]]);
}
