//! Payload inside the control connection. It always works and is slow: it shares one TCP flow with
//! the messages and with ssh's own encryption. So it is used only while nothing else is up.

use std::ops::Range;

use packtrain_net::limit::RateLimiter;
use packtrain_transfer::message::MAX_DATA;
use packtrain_transfer::{Transport, TransportEvent};
use packtrain_units::{ByteCount, Duration, Offset, Time};

use super::Moved;
use super::mover::{Mover, Sent};
use super::offer::Offer;
use super::path_samples::PathSamples;
use super::transport::{Inbox, SourceContext, SourceTransport};
use packtrain_service::evidence::{Net, PathPart};

const RANK: u8 = 20;

/// The sending end of the pipe.
pub(super) struct PipeSource {
    limiter: Option<RateLimiter>,
    context: Option<SourceContext>,
    events: Inbox<TransportEvent>,
    mover: Option<Mover>,
    over: bool,
    /// When the race of transports began, and how long after that data went to the pipe.
    race_began: Option<Time>,
    up_after: Option<Duration>,
}

impl PipeSource {
    pub(super) fn new(limiter: Option<RateLimiter>) -> Self {
        let (context, mover, race_began, up_after) = (None, None, None, None);
        let (events, over) = (Inbox::default(), false);
        Self { limiter, context, events, mover, over, race_began, up_after }
    }

    fn moved(&self) -> ByteCount {
        self.mover.as_ref().map_or(ByteCount::ZERO, Mover::moved)
    }
}

impl Transport for PipeSource {
    fn name(&self) -> &'static str {
        "pipe"
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

impl SourceTransport for PipeSource {
    fn start(&mut self, context: &SourceContext, _offer: &mut Offer) {
        self.context = Some(context.clone());
    }

    fn on_offer(&mut self, now: Time, _offer: &Offer) {
        self.race_began = Some(now);
    }

    fn on_data_taken(&mut self, total: ByteCount) {
        if let Some(mover) = &self.mover {
            mover.taken(total.get());
        }
    }

    fn is_last_resort(&self) -> bool {
        true
    }

    fn on_alone(&mut self, now: Time) {
        let Some(SourceContext { control, reader: Some(reader), wake }) = self.context.take()
        else {
            return;
        };
        self.up_after = Some(self.race_began.map_or(Duration::ZERO, |began| now.since(began)));
        let outbox = self.events.outbox(&wake);
        outbox.send(TransportEvent::Up { rank: RANK });
        let report = move |event| outbox.send(event);
        let send = move |at, slice| match control.send_payload(at, slice) {
            true => Sent::UnderWay,
            false => Sent::Over,
        };
        let (limiter, largest) = (self.limiter.clone(), ByteCount(MAX_DATA as u64));
        self.mover = Some(Mover::start("pipe", reader, report, limiter, largest, send));
    }

    fn is_over(&self) -> bool {
        self.over
    }

    fn sample(&mut self, _now: Time, samples: &mut PathSamples) {
        if let Some(mover) = &self.mover {
            samples.add_waiting(mover.waiting());
        }
    }

    fn report_evidence(&self, part: &mut PathPart) -> Option<Net> {
        part.race.piped = self.up_after;
        part.by_pipe = self.moved();
        None
    }

    fn account(&mut self, moved: &mut Moved) {
        moved.shares.push((self.name().to_owned(), self.moved()));
    }
}
