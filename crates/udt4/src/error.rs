//! Errors of operations, and reasons for the end of connections.

use packtrain_cc::BuildError;
use packtrain_units::Duration;

/// Why a connection or a listener was not opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// An option is out of its range.
    #[error("{0}")]
    Option(&'static str),
    /// The controller cannot be built.
    #[error(transparent)]
    Controller(#[from] BuildError),
    /// The controller needs a signal that the stock wire does not carry.
    #[error("the controller `{0}` needs signals that the stock UDT wire does not carry")]
    Signals(String),
    /// The endpoint has the maximum number of connections.
    #[error("too many connections on one socket")]
    TooMany,
    /// There is a listener already.
    #[error("this socket is listening already")]
    Listening,
}

/// Why a connection was not established.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// No answer came.
    #[error("no answer within {0}")]
    Timeout(Duration),
    /// The peer rejected it with this code; 1002 is a different version, or a mismatch of stream
    /// and messages.
    #[error("rejected by the peer (code {0}: another version, or stream against messages)")]
    Rejected(i32),
    /// The peer's window is less than a packet.
    #[error("the peer's terms cannot be met: {0}")]
    Terms(&'static str),
}

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndReason {
    /// Closed here; all data arrived.
    #[error("closed")]
    Closed,
    /// Closed here; not all data was acknowledged within the linger time.
    #[error("closed before everything was acknowledged")]
    Unfinished,
    /// The peer closed it.
    #[error("closed by the peer")]
    ByPeer,
    /// No packet arrived for too long.
    #[error("the connection is broken: nothing heard for {0}")]
    Broken(Duration),
    /// The peer reported an error of its own (type 8), usually of a disk.
    #[error("the peer reported error {0}")]
    PeerError(u32),
    /// It was never established.
    #[error(transparent)]
    NotMade(#[from] ConnectError),
}

/// Why a call on a connection failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SocketError {
    /// It is not connected yet.
    #[error("not connected yet")]
    NotYet,
    /// It has ended, and there is nothing more to read.
    #[error(transparent)]
    Ended(EndReason),
    /// It was closed here.
    #[error("closed for sending")]
    Closing,
    /// A stream call on a connection of messages, or the reverse.
    #[error("not a call for this kind of connection")]
    Kind,
    /// The message is larger than the send buffer.
    #[error("the message is larger than the send buffer")]
    TooLarge,
    /// The message is larger than the buffer given: it was lost.
    #[error("the message of {0} bytes does not fit")]
    Short(usize),
}
