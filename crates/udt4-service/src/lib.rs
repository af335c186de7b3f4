//! The stock UDT library's wire: fetching from its file server, serving its file client, and
//! measuring. In clear, so never chosen by anything but its name.

pub mod fetch;
mod perf;
mod serve;

use std::net::{SocketAddr, ToSocketAddrs};

use packtrain_socket::{Error, Options};
use packtrain_transfer::{Failure, FailureKind};
use packtrain_units::{DataRate, Duration};

use packtrain_service::{Notice, NoticeLevel, RequestError, host};

pub use fetch::fetch;
pub use perf::{client as perf_client, server as perf_server};
pub use serve::{Udt4ServeRequest, serve};

/// What everybody who uses it is told.
const IN_CLEAR: &str = "udt4 is not encrypted or verified: whoever is on the path can read and \
                        change what moves";
/// How long a blocking call may take before somebody looks whether to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Packets that may be under way: the buffers are the limit.
const FLOW_WINDOW: u32 = 102_400;
/// The longest file name of the file transfer protocol: Linux's longest path.
const MAX_NAME: usize = 4096;

fn in_clear() -> Notice {
    Notice::new(NoticeLevel::Warning, IN_CLEAR)
}

/// The first address of a host.
fn lookup(host: &str, port: u16) -> Result<SocketAddr, Failure> {
    let found = (host, port).to_socket_addrs();
    found.ok().and_then(|mut all| all.next()).ok_or_else(|| {
        let text = format!("{host}: no such host is known: check the name");
        Failure::new(FailureKind::Temporary, text)
    })
}

/// Where to listen.
fn address(text: &str) -> Result<SocketAddr, RequestError> {
    host::listen_address(text).map_err(|text| RequestError::new(FailureKind::Usage, text))
}

/// The stock library's options with ours.
fn options(cc: Option<&String>, rate: Option<DataRate>) -> Options {
    let defaults = Options::default();
    let cc = cc.cloned().unwrap_or_else(|| defaults.cc.clone());
    Options { cc, max_rate: rate, ..defaults }
}

/// What an error of a socket means for a command.
fn failure(whom: &dyn std::fmt::Display, error: &Error) -> Failure {
    let kind = match error {
        Error::Open(_) => FailureKind::Usage,
        Error::Bind(_) | Error::System(_) => FailureKind::Fatal,
        _ => FailureKind::Temporary,
    };
    let text = match error {
        // It is about an option, and no peer's fault.
        Error::Open(_) => format!("--cc: {error}"),
        _ => format!("{whom}: {error}"),
    };
    Failure::new(kind, text)
}
