//! Runs transfers over disks and sockets. [`source`] and [`sink`] are the two ends; each drives a
//! state machine of `packtrain-transfer` with threads of its own. [`transports`] move the data
//! between them, and [`control`] carries their messages.

mod assembly;
pub mod called;
pub mod calling;
pub mod candidate_paths;
pub mod checksum_list;
pub mod confinement;
pub mod control;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod handshake;
pub mod marker;
pub mod meters;
pub mod not_kept;
pub mod pack;
pub mod permissions;
pub mod query;
pub mod reader;
pub mod session;
pub mod sink;
pub mod skipped;
pub mod source;
pub mod target_failures;
pub mod traces;
pub mod transports;
pub mod tunnel;

/// The session request of an initiator that implements the protocol itself, for tests.
#[doc(hidden)]
pub fn sample_request(ticket: Option<[u8; 16]>) -> Vec<u8> {
    // One source, and payload on the control connection.
    handshake::SessionRequest {
        sources: 1,
        choice: 3,
        ticket,
        ..handshake::SessionRequest::default()
    }
    .encode()
}

/// The answer of a responder without limits, for tests.
#[doc(hidden)]
pub fn sample_answer() -> Vec<u8> {
    packtrain_service::ceilings::Ceilings::default().encode()
}
