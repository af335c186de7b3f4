//! `completions` and `man`, generated from the definitions that parse the command line.

use std::fmt::Write as _;

use packtrain_service::{FailureKind, RequestError};

use super::places;
use crate::args::{self, CompletionArgs, ManArgs};
use crate::exit::{Code, Exit};

/// `packtrain completions`.
pub(crate) fn completions(args: &CompletionArgs) -> Code {
    let Some(shell) = args.shell else { return places::complete(args) };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut args::bare(), "packtrain", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    crate::out::bytes(places::add_to(script, shell).as_bytes());
    Code::DONE
}

/// `packtrain man`.
pub(crate) fn man(args: &ManArgs) -> Result<Code, Exit> {
    let failed = |error: std::io::Error| {
        RequestError::new(FailureKind::TargetRefused, format!("{}: {error}", args.out.display()))
    };
    std::fs::create_dir_all(&args.out).map_err(failed)?;
    // Pages show the definitions, not the values of this environment.
    let command = args::bare().mut_subcommands(|sub| sub.disable_help_subcommand(true));
    if args.markdown {
        std::fs::write(args.out.join("commands.md"), reference(command)).map_err(failed)?;
        return Ok(Code::DONE);
    }
    clap_mangen::generate_to(command, &args.out).map_err(failed)?;
    Ok(Code::DONE)
}

/// All commands and options as a page of Markdown.
fn reference(mut command: clap::Command) -> String {
    command.build();
    let mut page = String::from(
        "# Commands\n\nThis page is generated from the definitions that read the command line, and a test \
         compares it\nwith them. To write it anew:\n\n```sh\nPACKTRAIN_WRITE_REFERENCE=1 cargo test -p \
         packtrain --test it reference\n```\n",
    );
    let mut open = vec![(String::from("packtrain"), &command)];
    while let Some((name, command)) = open.pop() {
        section(&mut page, &name, command);
        let subs = command.get_subcommands().filter(|sub| !sub.is_hide_set());
        let subs: Vec<_> = subs.filter(|sub| sub.get_name() != "help").collect();
        open.extend(subs.into_iter().rev().map(|sub| (format!("{name} {}", sub.get_name()), sub)));
    }
    page
}

/// The section of one command.
fn section(page: &mut String, name: &str, command: &clap::Command) {
    let line = |page: &mut String, text: &str| {
        page.push_str(text);
        page.push('\n');
    };
    let _ = write!(page, "\n## {name}\n\n");
    if let Some(about) = command.get_long_about().or(command.get_about()) {
        line(page, &about.to_string());
        page.push('\n');
    }
    let usage = command.clone().render_usage().to_string();
    let _ = write!(page, "```text\n{}\n```\n", usage.trim_start_matches("Usage: ").trim_end());
    let shown = |arg: &&clap::Arg| {
        !arg.is_hide_set() && !matches!(arg.get_id().as_str(), "help" | "version")
    };
    let all: Vec<_> = command.get_arguments().filter(shown).collect();
    if all.is_empty() {
        return;
    }
    line(page, "\n| argument | meaning |\n|---|---|");
    for arg in all {
        let values: Vec<String> = arg
            .get_value_names()
            .filter(|_| arg.get_action().takes_values())
            .into_iter()
            .flatten()
            .map(ToString::to_string)
            .collect();
        let values = values.join(" ");
        let words = [
            arg.get_short().map(|short| format!("-{short}")),
            arg.get_long().map(|long| format!("--{long}")),
        ];
        let mut word = words.into_iter().flatten().collect::<Vec<_>>().join("`, `");
        if !values.is_empty() {
            let gap = if word.is_empty() { "" } else { " " };
            let _ = write!(word, "{gap}{values}");
        }
        let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string);
        let mut help = help.unwrap_or_default().replace('\n', " ").replace('|', "\\|");
        if !help.is_empty() && !help.ends_with(['.', ']']) {
            help.push('.');
        }
        let choices = arg.get_possible_values();
        let choices: Vec<_> = choices.iter().filter(|one| !one.is_hide_set()).collect();
        if !choices.is_empty() && arg.get_action().takes_values() {
            let names: Vec<_> = choices.iter().map(|one| format!("`{}`", one.get_name())).collect();
            let _ = write!(help, " One of {}.", names.join(", "));
        }
        let defaults: Vec<_> =
            arg.get_default_values().iter().map(|one| one.to_string_lossy()).collect();
        if !defaults.is_empty() && arg.get_action().takes_values() {
            let _ = write!(help, " Default: `{}`.", defaults.join(" "));
        }
        line(page, &format!("| `{}` | {} |", word.replace('|', "\\|"), help.trim()));
    }
}
