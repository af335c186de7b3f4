//! `packtrain key`.

use clap::{Args, Subcommand};

/// Arguments of `key`.
#[derive(Args, Debug)]
pub(crate) struct KeyArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub(crate) command: KeyCommand,
}

/// Subcommands of `key`.
#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Print this user's public key as a line for authorized_keys. Creates the key if there is
    /// none.
    Show {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Remove the key of a server from the known keys, for example after the server got a new key.
    Forget {
        /// The server as in a pt:// address.
        #[arg(value_name = "HOST[:PORT]")]
        server: String,
    },
}
