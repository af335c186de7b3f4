//! Commands whose features belong to later versions: refused, never taken for something else.

use std::ffi::{OsStr, OsString};

use clap::{Args, Subcommand};

/// Each takes whatever follows it, so that the refusal is the only answer.
#[derive(Debug, Subcommand)]
pub(crate) enum Later {
    /// Transfers that wait their turn.
    #[command(hide = true, disable_help_flag = true, disable_version_flag = true)]
    Queue(Rest),
    /// Who works the queue.
    #[command(hide = true, disable_help_flag = true, disable_version_flag = true)]
    Worker(Rest),
}

/// Anything.
#[derive(Args, Debug)]
pub(crate) struct Rest {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    rest: Vec<OsString>,
}

impl Later {
    /// The sentence it is refused with.
    pub(crate) fn refusal(&self) -> String {
        let (name, instead) = match self {
            Self::Queue(_) => ("queue", "run `cp` from a scheduler you have"),
            Self::Worker(_) => ("worker", "run `cp` from a scheduler you have"),
        };
        format!("`packtrain {name}` is not in this version: {instead}")
    }
}

/// Commands that must work whatever the configuration says: among them those that shells and
/// packagers run, and those that are refused.
pub(crate) fn needs_no_settings(word: &OsStr) -> bool {
    const NAMES: &[&str] =
        &["completions", "man", "demo", "help", "--help", "-h", "--version", "-V"];
    NAMES.iter().any(|name| word == *name)
}
