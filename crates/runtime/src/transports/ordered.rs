//! A source's transport over something that keeps the order of bytes: the pipe, or the memory of
//! this process. One [`Mover`] moves everything.

use std::ops::Range;

use packtrain_net::limit::RateLimiter;
use packtrain_service::evidence::{Net, PathPart};
use packtrain_transfer::{Transport, TransportEvent};
use packtrain_units::{ByteCount, Duration, Offset, Time};

use super::mover::{Mover, Sent};
use super::offer::Offer;
use super::path_samples::PathSamples;
use super::transport::{Inbox, SourceContext, SourceTransport};
use super::{Moved, TransportConfig};
use crate::control::ControlSender;
use crate::reader::Slice;

/// What differs between the transports that keep the order of bytes.
pub(super) trait Medium: Send + 'static {
    /// Its name, as `--transport` spells it.
    const NAME: &'static str;
    /// Its rank among the transports; see [`TransportEvent::Up`].
    const RANK: u8;
    /// Whether it is used only while no other transport is up.
    const LAST_RESORT: bool;

    /// Hands on the bytes at an offset of the object.
    fn send(&mut self, control: &ControlSender, at: Offset, slice: Slice) -> Sent;
}

/// The sending end. `M` is kept here until the transport comes up.
pub(super) struct OrderedSource<M> {
    medium: Option<M>,
    limiter: Option<RateLimiter>,
    /// Maximum bytes handed on at once.
    largest: ByteCount,
    context: Option<SourceContext>,
    events: Inbox<TransportEvent>,
    mover: Option<Mover>,
    over: bool,
}

impl<M: Medium> OrderedSource<M> {
    pub(super) fn new(medium: M, limiter: Option<RateLimiter>, largest: ByteCount) -> Self {
        let (context, events, mover) = (None, Inbox::default(), None);
        Self { medium: Some(medium), limiter, largest, context, events, mover, over: false }
    }

    /// Starts to move, unless it did before or the content is not read here.
    fn come_up(&mut self) {
        let Some(SourceContext { control, reader: Some(reader), wake }) = self.context.take()
        else {
            return;
        };
        let Some(mut medium) = self.medium.take() else { return };
        let outbox = self.events.outbox(&wake);
        outbox.send(TransportEvent::Up { rank: M::RANK });
        let report = move |event| outbox.send(event);
        let send = move |at, slice| medium.send(&control, at, slice);
        let limiter = self.limiter.clone();
        self.mover = Some(Mover::start(M::NAME, reader, report, limiter, self.largest, send));
    }

    fn moved(&self) -> ByteCount {
        self.mover.as_ref().map_or(ByteCount::ZERO, Mover::moved)
    }
}

impl<M: Medium> Transport for OrderedSource<M> {
    fn name(&self) -> &'static str {
        M::NAME
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

    fn on_complete(&mut self) {
        if let Some(mover) = &self.mover {
            mover.all_placed();
        }
    }

    fn close(&mut self) {
        if let Some(mover) = &self.mover {
            mover.close();
        }
    }
}

impl<M: Medium> SourceTransport for OrderedSource<M> {
    fn start(&mut self, context: &SourceContext, _offer: &mut Offer) {
        self.context = Some(context.clone());
        if !M::LAST_RESORT {
            self.come_up();
        }
    }

    fn on_agreed(&mut self, _config: &TransportConfig, limiter: Option<&RateLimiter>) {
        self.limiter = limiter.cloned();
    }

    fn on_data_taken(&mut self, total: ByteCount) {
        if let Some(mover) = &self.mover {
            mover.taken(total.get());
        }
    }

    fn is_last_resort(&self) -> bool {
        M::LAST_RESORT
    }

    fn on_alone(&mut self, _now: Time) {
        self.come_up();
    }

    fn is_over(&self) -> bool {
        self.over
    }

    fn sample(&mut self, _now: Time, samples: &mut PathSamples) {
        if let Some(mover) = &self.mover {
            samples.add_waiting(mover.waiting());
        }
    }

    fn report_evidence(&self, part: &mut PathPart, up_after: Option<Duration>) -> Option<Net> {
        if M::LAST_RESORT {
            (part.race.piped, part.by_pipe) = (up_after, self.moved());
        }
        None
    }

    fn account(&mut self, moved: &mut Moved) {
        moved.shares.push((M::NAME.to_owned(), self.moved()));
    }
}
