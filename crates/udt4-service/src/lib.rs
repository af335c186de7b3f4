//! Commands for the wire of the stock UDT library: a client of its file server, a server for its
//! file client, and measurements. The wire is not encrypted, so it is used only when it is named
//! explicitly.

pub mod fetch;
mod perf;
mod serve;

use std::net::SocketAddr;

use packtrain_os::names;
use packtrain_socket::{Error, Options};
use packtrain_transfer::{Failure, FailureKind};
use packtrain_units::{DataRate, Duration};

use packtrain_service::{Notice, NoticeLevel, RequestError, host};

pub use fetch::{fetch, stdout_is_begun};
pub use perf::{client as perf_client, server as perf_server};
pub use serve::{Udt4ServeRequest, serve};

/// The warning for every use.
const IN_CLEAR: &str = "udt4 is not encrypted or verified: whoever is on the path can read and \
                        change what moves";
/// Timeout of a blocking call, after which a request to stop is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum packets in flight; the buffers are the actual limit.
const FLOW_WINDOW: u32 = 102_400;
/// Maximum length of a file name in the protocol: the longest path on Linux.
const MAX_NAME: usize = 4096;

fn in_clear() -> Notice {
    Notice::new(NoticeLevel::Warning, IN_CLEAR)
}

/// The first address of a host.
fn lookup(host: &str, port: u16) -> Result<SocketAddr, Failure> {
    let found = names::lookup(host, port).ok();
    found.and_then(|all| all.first().copied()).ok_or_else(|| {
        let text = format!("{host}: no such host is known: check the name");
        Failure::new(FailureKind::Temporary, text)
    })
}

/// Parses an address to listen at.
fn address(text: &str) -> Result<SocketAddr, RequestError> {
    host::listen_address(text).map_err(|text| RequestError::new(FailureKind::Usage, text))
}

/// The options of the stock library, with the values of the command.
fn options(cc: Option<&String>, rate: Option<DataRate>) -> Options {
    let defaults = Options::default();
    let cc = cc.cloned().unwrap_or_else(|| defaults.cc.clone());
    Options { cc, max_rate: rate, ..defaults }
}

/// The failure of a command for an error of a socket.
fn failure(whom: &dyn std::fmt::Display, error: &Error) -> Failure {
    let kind = match error {
        Error::Open(_) => FailureKind::Usage,
        Error::Bind(_) | Error::System(_) => FailureKind::Fatal,
        _ => FailureKind::Temporary,
    };
    let text = match error {
        // The error concerns an option, not the peer.
        Error::Open(_) => format!("--cc: {error}"),
        _ => format!("{whom}: {error}"),
    };
    Failure::new(kind, text)
}
