//! Why a call failed.

use std::io;

use packtrain_net::udp::BindError;
use packtrain_udt4::{ConnectError, EndReason, OpenError, SocketError};

/// Why a call on a socket failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No UDP socket could be bound to this address.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// An invalid option, or too many connections.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// No connection was made.
    #[error("no connection: {0}")]
    Connect(#[from] ConnectError),
    /// The connection has ended.
    #[error("{0}")]
    Ended(EndReason),
    /// The call is invalid for this connection or its state.
    #[error("{0}")]
    Call(SocketError),
    /// The call would have to wait, and the socket is non-blocking.
    #[error("not ready")]
    WouldBlock,
    /// The timeout of the call has expired.
    #[error("timed out")]
    TimedOut,
    /// The listener or port is closed.
    #[error("closed")]
    Closed,
    /// The system has no thread or descriptor left.
    #[error("the system refused: {0}")]
    System(#[from] io::Error),
    /// The network thread has panicked.
    #[error("the network thread failed: a bug")]
    Failed,
}

impl From<SocketError> for Error {
    fn from(error: SocketError) -> Self {
        match error {
            SocketError::Ended(EndReason::NotMade(why)) => Self::Connect(why),
            SocketError::Ended(reason) => Self::Ended(reason),
            other => Self::Call(other),
        }
    }
}

impl From<EndReason> for Error {
    fn from(reason: EndReason) -> Self {
        Self::from(SocketError::Ended(reason))
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        use io::ErrorKind as K;
        let kind = match &error {
            Error::System(e) => e.kind(),
            Error::Bind(BindError::System { source, .. }) => source.kind(),
            Error::Bind(BindError::NoFreePort { .. }) => K::AddrInUse,
            Error::Open(_) => K::InvalidInput,
            Error::Connect(ConnectError::Timeout(_)) | Error::TimedOut => K::TimedOut,
            Error::Connect(_) => K::ConnectionRefused,
            Error::Ended(EndReason::ByPeer) => K::ConnectionReset,
            Error::Ended(_) | Error::Closed => K::ConnectionAborted,
            Error::Call(SocketError::NotYet) => K::NotConnected,
            Error::Call(SocketError::Closing) => K::BrokenPipe,
            Error::Call(_) => K::InvalidInput,
            Error::WouldBlock => K::WouldBlock,
            Error::Failed => K::Other,
        };
        Self::new(kind, error)
    }
}
