//! `packtrain config`.

use clap::{Args, Subcommand};

/// What `config` takes.
#[derive(Args, Debug)]
pub(crate) struct ConfigArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: ConfigCommand,
}

/// What can be done with the configuration.
#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print where the files are, what they and the environment set, and the site's ceilings.
    Show {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
}
