//! Transfers wired to disks and sockets: a transfer's two ends are [`source`] and [`sink`], each of which
//! drives a state machine of `packtrain-transfer` with threads of its own; [`transports`] move the
//! bytes between them, and [`control`] carries what the ends say to each other.

mod assembly;
pub mod called;
pub mod candidate_paths;
pub mod confinement;
pub mod control;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod handshake;
pub mod marker;
pub mod meters;
pub mod pack;
pub mod permissions;
pub mod reader;
pub mod session;
pub mod sink;
pub mod source;
mod traces;
pub mod transports;
pub mod tunnel;

/// What a caller that speaks the protocol by itself says of itself in Open: peers of tests.
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

/// What a called end without limits says of itself in Opened: peers of tests.
#[doc(hidden)]
pub fn sample_answer() -> Vec<u8> {
    packtrain_service::ceilings::Ceilings::default().encode()
}
