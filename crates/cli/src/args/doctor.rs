//! `packtrain doctor`.

use std::ffi::OsString;

use clap::{Args, ValueHint};

use packtrain_service::PortRange;

use super::common::SshArgs;
use super::values;

/// Arguments of `doctor`.
#[derive(Args, Debug)]
#[command(
    override_usage = "packtrain doctor [user@host] [OPTIONS]",
    after_help = "The output names what was checked, what was found, and what to change. Exit code \
                  0: transfers work; 7: something must be changed first."
)]
pub(crate) struct DoctorArgs {
    /// Another machine that ssh reaches. It is checked too, and so are UDP and the clocks between
    /// the two.
    #[arg(value_name = "user@host", value_hint = ValueHint::Hostname)]
    pub(crate) host: Option<OsString>,
    #[command(flatten)]
    pub(crate) ssh: SshArgs,
    /// Try UDP at the first free port of this range there, such as 5000-5511: the --ports of the
    /// copies to come [default: any].
    #[arg(long, value_name = "A-B", value_parser = values::ports)]
    pub(crate) ports: Option<PortRange>,
    /// Address of the other machine for UDP, if it differs from that of ssh.
    #[arg(long, value_name = "ADDR")]
    pub(crate) data_addr: Option<String>,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    /// Answer another doctor over standard input and output.
    #[arg(long, hide = true, conflicts_with_all = ["host", "json"])]
    pub(crate) stdio: bool,
}
