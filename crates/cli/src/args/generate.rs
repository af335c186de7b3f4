//! `packtrain completions` and `packtrain man`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

/// What `completions` takes.
#[derive(Args, Debug)]
pub(crate) struct CompletionArgs {
    /// The shell to write for.
    pub(crate) shell: clap_complete::Shell,
}

/// What `man` takes.
#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// The directory to write packtrain.1, packtrain-cp.1, ... to.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) out: PathBuf,
    /// Write one page in Markdown, commands.md, instead.
    #[arg(long)]
    pub(crate) markdown: bool,
}
