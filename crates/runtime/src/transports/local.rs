//! Both ends in one process: the sink writes from the memory of the source's reader, and nothing
//! goes through a connection.

use std::sync::{Arc, OnceLock};

use packtrain_net::limit::RateLimiter;
use packtrain_object::CHUNK;
use packtrain_units::Offset;

use super::mover::Sent;
use super::ordered::{Medium, OrderedSource};
use super::transport::SinkTransport;
use crate::assembly::Assembly;
use crate::control::ControlSender;
use crate::reader::Slice;

/// Joins the source and the sink of one process; clones are the same.
#[derive(Clone, Default)]
pub struct LocalLink(Arc<OnceLock<Assembly>>);

impl Medium for LocalLink {
    const NAME: &'static str = "local";
    const RANK: u8 = 0;
    const LAST_RESORT: bool = false;

    fn send(&mut self, _control: &ControlSender, _at: Offset, slice: Slice) -> Sent {
        match self.0.get() {
            Some(assembly) => {
                assembly.hand_over(&slice);
                Sent::Placed
            }
            // The sink opens the link before it asks for anything.
            None => Sent::Over,
        }
    }
}

/// The sending end: whole chunks are handed over, unless a limit of the rate asks for less at once.
pub(super) fn source(link: LocalLink, limiter: Option<RateLimiter>) -> OrderedSource<LocalLink> {
    OrderedSource::new(link, limiter, CHUNK)
}

/// The receiving end.
pub(super) struct LocalSink(pub(super) LocalLink);

impl SinkTransport for LocalSink {
    fn start(&mut self, assembly: &Assembly) {
        let _ = self.0.0.set(assembly.clone());
    }

    fn close(&mut self) {}
}

#[cfg(test)]
#[path = "local_tests.rs"]
mod tests;
