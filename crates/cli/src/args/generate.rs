//! `packtrain completions` and `packtrain man`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueHint};

/// Arguments of `completions`.
#[derive(Args, Debug)]
#[command(override_usage = "packtrain completions <SHELL>")]
pub(crate) struct CompletionArgs {
    /// The shell.
    #[arg(required_unless_present_any = ["line", "words"])]
    pub(crate) shell: Option<clap_complete::Shell>,
    /// For the script of bash: complete the remote place at the end of this command line.
    #[arg(long, hide = true, conflicts_with_all = ["shell", "words"])]
    pub(crate) line: Option<String>,
    /// For the script of bash: the characters that separate what it completes.
    #[arg(long, hide = true, requires = "line", default_value = "")]
    pub(crate) breaks: String,
    /// For the scripts of zsh and fish: complete the last of these words, which have no quotes.
    #[arg(last = true, hide = true, conflicts_with = "shell")]
    pub(crate) words: Vec<OsString>,
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
