//! Why something could not be done, and why connections end.

use packtrain_cc::BuildError;
use packtrain_units::Duration;

/// Why a connection or a listener was not opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// An option is out of its range.
    #[error("{0}")]
    Option(&'static str),
    /// The controller cannot be had.
    #[error(transparent)]
    Controller(#[from] BuildError),
    /// The controller needs a signal that the stock wire does not carry.
    #[error("the controller `{0}` needs signals that the stock UDT wire does not carry")]
    Signals(String),
    /// The endpoint has as many connections as it may.
    #[error("too many connections on one socket")]
    TooMany,
    /// There is a listener already.
    #[error("this socket is listening already")]
    Listening,
}

/// Why a connection was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// No answer came.
    #[error("no answer within {0}")]
    Timeout(Duration),
    /// The peer rejected it with this code; 1002 is a different version, or a stream called
    /// where messages are spoken.
    #[error("rejected by the peer (code {0}: another version, or stream against messages)")]
    Rejected(i32),
    /// The peer offers less than a packet.
    #[error("the peer's terms cannot be met: {0}")]
    Terms(&'static str),
}

/// Why a connection is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndReason {
    /// We closed it, and all that was sent arrived.
    #[error("closed")]
    Closed,
    /// We closed it, and not all that was sent was acknowledged within the linger time.
    #[error("closed before everything was acknowledged")]
    Unfinished,
    /// The peer closed it.
    #[error("closed by the peer")]
    ByPeer,
    /// Nothing was heard for too long.
    #[error("the connection is broken: nothing heard for {0}")]
    Broken(Duration),
    /// The peer reported an error of its own (type 8), usually a disk.
    #[error("the peer reported error {0}")]
    PeerError(u32),
    /// It was never made.
    #[error(transparent)]
    NotMade(#[from] ConnectError),
}

/// Why a call on a connection failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SocketError {
    /// It is not connected yet.
    #[error("not connected yet")]
    NotYet,
    /// It is over, and there is nothing more to read.
    #[error(transparent)]
    Ended(EndReason),
    /// It was closed here.
    #[error("closed for sending")]
    Closing,
    /// A stream call on a connection of messages, or the other way round.
    #[error("not a call for this kind of connection")]
    Kind,
    /// The message is larger than the send buffer.
    #[error("the message is larger than the send buffer")]
    TooLarge,
    /// The message is larger than the room given: it was lost.
    #[error("the message of {0} bytes does not fit")]
    Short(usize),
}
