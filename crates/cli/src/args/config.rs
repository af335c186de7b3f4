//! `packtrain config`.

use clap::{Args, Subcommand};

/// Arguments of `config`.
#[derive(Args, Debug)]
pub(crate) struct ConfigArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub(crate) command: ConfigCommand,
}

/// Subcommands of `config`.
#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print where the configuration files are, the values that they and the environment set, and
    /// the site's ceilings.
    Show {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}
