//! Both ends of a transfer as state machines without I/O.
//!
//! A [`Source`] has files and sends, a [`Sink`] receives and writes. Each is fed what happened
//! (`on_…`), asked what to do (`poll_action`) and told the time; neither reads a clock, a disk or
//! a socket. Messages between them go over an ordered, reliable control channel; payload goes
//! over whatever transports there are, in any order and possibly twice.
//!
//! What is safe has three steps, and nothing skips one: *received*, *verified* (the digest of the
//! bytes written equals the digest of the bytes read at the source), *durable* (data synced, files
//! renamed, journal synced). Only durable bytes are reported as such, and only files whose every
//! byte a sync covered take their names.

mod action;
mod assign;
mod failure;
mod fallback;
pub mod limits;
pub mod message;
pub mod range_scheduler;
mod requested;
mod sink;
mod source;
pub mod transport;

pub use action::{
    ChunkPlan, DeletePlan, FileReport, Found, FoundKind, Outcome, PieceHash, SinkAction,
    SourceAction, TargetState,
};
pub use failure::{Failure, FailureKind};
pub use message::{
    Decoder, Hello, Message, MessageError, Open, Opened, Options, PieceDigest, Progress, Resume,
    Role, Summary, unexpected,
};
pub use requested::{Requested, filters};
pub use sink::{Sink, SinkTotals};
pub use source::{Source, SourceTotals};
pub use transport::{Breach, Custody, Transport, TransportEvent, TransportId};
