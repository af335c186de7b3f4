//! `packtrain key`.

use clap::{Args, Subcommand};

/// What `key` takes.
#[derive(Args, Debug)]
pub(crate) struct KeyArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: KeyCommand,
}

/// What can be done with keys.
#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Print this user's public key, as a line for another's authorized_keys; make it if there
    /// is none.
    Show {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Forget the key of a server, after it was changed for a known reason.
    Forget {
        /// The server, as pt:// names it.
        #[arg(value_name = "HOST[:PORT]")]
        server: String,
    },
}
