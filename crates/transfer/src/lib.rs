//! Both ends of a transfer as state machines without I/O.
//!
//! A [`Source`] reads files and sends them; a [`Sink`] receives and writes them. The driver
//! (`packtrain-runtime`) passes events (`on_…`) and the time to each, and carries out the actions
//! that `poll_action` returns. Neither reads a clock, a disk or a socket. Messages between them use
//! an ordered, reliable control channel. Payload uses any number of transports, in any order, and
//! may arrive twice.
//!
//! Data passes through three states, none of which is skipped: *received*, *verified* (the digest
//! of the bytes written equals the digest of the bytes read at the source), *durable* (data synced,
//! files renamed, journal synced). The sink reports bytes as durable only when they are, and
//! renames a file to its final name only after a sync that covers all its bytes.
//! byte a sync covered take their names.

mod action;
mod assign;
mod failure;
mod fallback;
pub mod limits;
pub mod message;
mod path_digests;
pub mod range_scheduler;
mod requested;
mod sink;
mod source;
pub mod transport;
mod versions;

pub use action::{
    ChunkPlan, DeletePlan, FileReport, Found, FoundKind, LinkPlan, Linked, Outcome, PieceHash,
    SinkAction, SourceAction, TargetState,
};
pub use failure::{Failure, FailureKind, protocol, removal_unknown};
pub use message::{
    Decoder, Hello, Message, MessageError, Open, Opened, Options, PieceDigest, Progress, Resume,
    Role, Summary, unexpected,
};
pub use path_digests::KeptPaths;
pub use requested::{Requested, filters, lowest_version};
pub use sink::{Sink, SinkTotals};
pub use source::{Source, SourceTotals};
pub use transport::{Breach, Custody, Transport, TransportEvent, TransportId};
pub use versions::Versions;
