//! `packtrain completions` and `packtrain man`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

/// Arguments of `completions`.
#[derive(Args, Debug)]
pub(crate) struct CompletionArgs {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}

/// Arguments of `man`.
#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// Directory for the pages packtrain.1, packtrain-cp.1 and so on.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) out: PathBuf,
    /// Write one page in Markdown, commands.md, instead.
    #[arg(long)]
    pub(crate) markdown: bool,
}
