//! Both ends in one process: the sink writes from the memory of the source's reader, and nothing
//! goes through a connection.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use packtrain_net::limit::RateLimiter;
use packtrain_object::CHUNK;
use packtrain_transfer::{Transport, TransportEvent};
use packtrain_units::{ByteCount, Offset, Time};

use super::Moved;
use super::mover::{Mover, Sent};
use super::offer::Offer;
use super::path_samples::PathSamples;
use super::transport::{Inbox, SinkContext, SinkTransport, SourceContext, SourceTransport};
use crate::assembly::Assembly;

const RANK: u8 = 0;

/// Joins the source and the sink of one process; clones are the same.
#[derive(Clone, Default)]
pub struct LocalLink(Arc<OnceLock<Assembly>>);

/// The sending end: whole chunks are handed over, unless a limit of the rate asks for less at once.
pub(super) struct LocalSource {
    link: LocalLink,
    limiter: Option<RateLimiter>,
    step: ByteCount,
    events: Inbox<TransportEvent>,
    mover: Option<Mover>,
    over: bool,
}

impl LocalSource {
    pub(super) fn new(link: LocalLink, limiter: Option<RateLimiter>) -> Self {
        Self::in_steps(link, limiter, CHUNK)
    }

    /// The same, with at most `step` at once.
    fn in_steps(link: LocalLink, limiter: Option<RateLimiter>, step: ByteCount) -> Self {
        Self { link, limiter, step, events: Inbox::default(), mover: None, over: false }
    }
}

impl Transport for LocalSource {
    fn name(&self) -> &'static str {
        "local"
    }

    fn assign(&mut self, range: Range<Offset>) {
        if let Some(mover) = &self.mover {
            mover.assign(range);
        }
    }

    fn revoke(&mut self, range: Range<Offset>) {
        if let Some(mover) = &self.mover {
            mover.revoke(&range);
        }
    }

    fn poll_event(&mut self, _now: Time) -> Option<TransportEvent> {
        let event = self.events.next().filter(|_| !self.over);
        self.over |= matches!(event, Some(TransportEvent::Closed(_)));
        event
    }

    fn close(&mut self) {
        if let Some(mover) = &self.mover {
            mover.close();
        }
    }
}

impl SourceTransport for LocalSource {
    fn start(&mut self, context: &SourceContext, _offer: &mut Offer) {
        let Some(reader) = context.reader.clone() else { return };
        let outbox = self.events.outbox(&context.wake);
        outbox.send(TransportEvent::Up { rank: RANK });
        let (limiter, link) = (self.limiter.clone(), self.link.clone());
        let report = move |event| outbox.send(event);
        let hand_over = move |_, slice| match link.0.get() {
            Some(assembly) => {
                assembly.hand_over(&slice);
                Sent::Placed
            }
            // The sink opens the link before it asks for anything.
            None => Sent::Over,
        };
        self.mover = Some(Mover::start("local", reader, report, limiter, self.step, hand_over));
    }

    fn is_over(&self) -> bool {
        self.over
    }

    fn sample(&mut self, _now: Time, samples: &mut PathSamples) {
        if let Some(mover) = &self.mover {
            samples.add_waiting(mover.waiting());
        }
    }

    fn account(&mut self, moved: &mut Moved) {
        let bytes = self.mover.as_ref().map_or(ByteCount::ZERO, Mover::moved);
        moved.shares.push((self.name().to_owned(), bytes));
    }
}

/// The receiving end.
pub(super) struct LocalSink(pub(super) LocalLink);

impl SinkTransport for LocalSink {
    fn start(&mut self, context: &SinkContext, _offer: &mut Offer) {
        let _ = self.0.0.set(context.assembly.clone());
    }

    fn close(&mut self) {}
}

#[cfg(test)]
#[path = "local_tests.rs"]
mod tests;
