//! Commands of later versions. This version refuses them.

use std::ffi::{OsStr, OsString};

use clap::{Args, Subcommand};

/// Each command accepts any arguments, so that the refusal is the only possible error.
#[derive(Debug, Subcommand)]
pub(crate) enum Later {
    /// A queue of transfers.
    #[command(hide = true, disable_help_flag = true, disable_version_flag = true)]
    Queue(Rest),
    /// A process that runs queued transfers.
    #[command(hide = true, disable_help_flag = true, disable_version_flag = true)]
    Worker(Rest),
}

/// Any arguments.
#[derive(Args, Debug)]
pub(crate) struct Rest {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    rest: Vec<OsString>,
}

impl Later {
    /// The text of the refusal.
    pub(crate) fn refusal(&self) -> String {
        let (name, instead) = match self {
            Self::Queue(_) => ("queue", "run `cp` from a scheduler you have"),
            Self::Worker(_) => ("worker", "run `cp` from a scheduler you have"),
        };
        format!("`packtrain {name}` is not in this version: {instead}")
    }
}

/// Whether a command must work without reading the configuration: shells and packagers run some of
/// these commands.
pub(crate) fn needs_no_settings(word: &OsStr) -> bool {
    const NAMES: &[&str] =
        &["completions", "man", "demo", "help", "--help", "-h", "--version", "-V"];
    NAMES.iter().any(|name| word == *name)
}
