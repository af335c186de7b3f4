//! The written pages of the guide name every command and every option of `--help`.

use std::collections::BTreeSet;

use packtrain_testkit::documents::{self, guide};

use crate::rig::Rig;

#[test]
fn the_guide_names_every_flag() {
    let rig = Rig::local();
    let written = guide().into_iter().filter(|page| !page.ends_with("reference/commands.md"));
    let text: String = written.map(|page| documents::text(&page)).collect();
    let mut missing = BTreeSet::new();
    let mut open: Vec<Vec<String>> = vec![Vec::new()];
    while let Some(path) = open.pop() {
        let ended = rig.ok(rig.packtrain().args(&path).arg("--help"));
        let help = String::from_utf8_lossy(&ended.stdout).into_owned();
        for flag in flags(&help) {
            let whole = |end: Option<char>| !end.is_some_and(|c| c.is_alphanumeric() || c == '-');
            let named = text
                .match_indices(&flag)
                .any(|(at, _)| whole(text[at + flag.len()..].chars().next()));
            if !named {
                missing.insert(format!("packtrain {}: {flag}", path.join(" ")));
            }
        }
        for name in commands(&help) {
            let mut next = path.clone();
            next.push(name.clone());
            if !text.contains(&format!("packtrain {}", next.join(" "))) {
                missing.insert(format!("packtrain {}", next.join(" ")));
            }
            open.push(next);
        }
    }
    let missing: Vec<String> = missing.into_iter().collect();
    assert!(missing.is_empty(), "docs/guide does not name:\n{}", missing.join("\n"));
}

/// The long options in the output of `--help`.
fn flags(help: &str) -> BTreeSet<String> {
    help.lines()
        .map(str::trim_start)
        .filter(|line| line.starts_with('-'))
        .flat_map(|line| {
            line.split([' ', ',', '=', '[', '<']).take(4).map(str::to_owned).collect::<Vec<_>>()
        })
        .filter(|word| word.starts_with("--") && word.len() > 2)
        .filter(|word| word != "--help" && word != "--version")
        .map(|word| word.trim_end_matches(['.', ':', ';', ']']).to_owned())
        .collect()
}

/// The names below `Commands:`, without `help`.
fn commands(help: &str) -> Vec<String> {
    help.lines()
        .skip_while(|line| !line.starts_with("Commands:"))
        .skip(1)
        .take_while(|line| line.starts_with(' ') || line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}
