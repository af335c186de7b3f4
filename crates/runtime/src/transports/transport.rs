//! What a transport is to the two ends of a transfer that run it: [`SourceTransport`] sends,
//! [`SinkTransport`] receives.
//!
//! To the state machine of a source a transport only moves ranges
//! ([`Transport`]). To the end that runs it a transport also takes
//! part in the offers that set connections up, reads what the peer tells it, and gives account of
//! what it saw and moved.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::{Receiver, Sender, unbounded};
use packtrain_net::limit::RateLimiter;
use packtrain_transfer::{Failure, Transport};
use packtrain_units::{ByteCount, Duration, Time};

use super::offer::{ControlMessage, Offer};
use super::path_samples::PathSamples;
use super::{Moved, TransportConfig};
pub use crate::assembly::Assembly;
use crate::control::ControlSender;
use crate::reader::Reader;
use packtrain_service::evidence::{Buffers, Net, PathPart};
use packtrain_service::{Notice, StreamsReport};

/// Wakes the thread that drives an end. Clones are the same.
#[derive(Clone)]
pub struct Wake(Arc<Pending>);

struct Pending {
    called: AtomicBool,
    call: Box<dyn Fn() + Send + Sync>,
}

impl Wake {
    /// Calls `call` once for all wakes until the driver polls again.
    pub(crate) fn new(call: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(Pending { called: AtomicBool::new(false), call: Box::new(call) }))
    }

    /// For tests that poll by themselves.
    pub fn unused() -> Self {
        Self::new(|| {})
    }

    /// Makes the driver poll the transports.
    pub fn wake(&self) {
        if !self.0.called.swap(true, Ordering::AcqRel) {
            (self.0.call)();
        }
    }

    /// The driver is about to poll.
    pub(super) fn begin_poll(&self) {
        self.0.called.store(false, Ordering::Release);
    }
}

/// What the threads of a transport report to the thread that drives it.
pub struct Inbox<T> {
    sender: Sender<T>,
    items: Receiver<T>,
}

impl<T> Default for Inbox<T> {
    fn default() -> Self {
        let (sender, items) = unbounded();
        Self { sender, items }
    }
}

impl<T> Inbox<T> {
    /// The threads' end, which wakes the driver.
    pub fn outbox(&self, wake: &Wake) -> Outbox<T> {
        Outbox { sender: self.sender.clone(), wake: wake.clone() }
    }

    /// The oldest item, if there is one.
    pub fn next(&self) -> Option<T> {
        self.items.try_recv().ok()
    }
}

/// See [`Inbox::outbox`].
pub struct Outbox<T> {
    sender: Sender<T>,
    wake: Wake,
}

impl<T> Clone for Outbox<T> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), wake: self.wake.clone() }
    }
}

impl<T> Outbox<T> {
    /// Puts an item into the inbox.
    pub fn send(&self, item: T) {
        // Nobody reads once the transfer is over.
        let _ = self.sender.send(item);
        self.wake.wake();
    }
}

/// What a transport of a source works with.
#[derive(Clone)]
pub struct SourceContext {
    /// The connection to the sink.
    pub control: ControlSender,
    /// The bytes of the object, unless the content is one that the transport brings by itself.
    pub reader: Option<Reader>,
    /// To be called when there is an event to poll.
    pub wake: Wake,
}

/// A transport at its sending end. What a transport does not need it leaves out.
pub trait SourceTransport: Transport {
    /// The transfer begins: bind, listen, and write into the offer where.
    fn start(&mut self, context: &SourceContext, offer: &mut Offer);

    /// The responder has agreed: these are the limits of both ends, and what all transports
    /// together are held to. Comes before the peer's offer, and only at an initiator.
    fn on_agreed(&mut self, _config: &TransportConfig, _limiter: Option<&RateLimiter>) {}

    /// The peer's offer came.
    fn on_offer(&mut self, _offer: &Offer) {}

    /// The peer sent this about transports.
    fn on_control(&mut self, _now: Time, _message: &ControlMessage) {}

    /// The peer took so many bytes in all off the control connection.
    fn on_data_taken(&mut self, _total: ByteCount) {}

    /// So much is left to move, as far as that is known.
    fn on_remaining(&mut self, _left: Option<ByteCount>) {}

    /// Whether it is used only while no other transport is up.
    fn is_last_resort(&self) -> bool {
        false
    }

    /// No other transport is up, and none has been for a while: a last resort comes up now.
    fn on_alone(&mut self, _now: Time) {}

    /// Whether it will never come up again.
    fn is_over(&self) -> bool;

    /// What the user is to be told, once.
    fn poll_notice(&mut self) -> Option<Notice> {
        None
    }

    /// Adds to the samples of the path what it sees now; the best transport that is up is asked
    /// every 50 ms.
    fn sample(&mut self, _now: Time, _samples: &mut PathSamples) {}

    /// Adds to the evidence what it knows of the path, and gives what its network thread used.
    /// `up_after` is the time from the peer's offer until it came up first, if it did.
    fn report_evidence(&self, _part: &mut PathPart, _up_after: Option<Duration>) -> Option<Net> {
        None
    }

    /// Adds what it moved so far, without the report about streams.
    fn account(&mut self, moved: &mut Moved);

    /// The report about its TCP streams, if it had any. It takes time: it predicts the best number.
    fn report_streams(&self) -> Option<StreamsReport> {
        None
    }
}

/// A transport at its receiving end: what arrives goes to the assembly.
pub trait SinkTransport: Send {
    /// Bind, listen, and write into the offer where. `control` is the connection to the source. At an
    /// initiator the responder has not agreed yet.
    fn bind(&mut self, _control: &ControlSender, _offer: &mut Offer) {}

    /// See [`SourceTransport::on_agreed`].
    fn on_agreed(&mut self, _config: &TransportConfig) {}

    /// From now on data has a place: the assembly takes the bytes of the object, waits for room,
    /// and writes them.
    fn start(&mut self, assembly: &Assembly);

    /// The peer's offer came. Data may not have a place yet, and does not come before it has: a
    /// source sends only what the sink asked for.
    fn on_offer(&mut self, _offer: &Offer) {}

    /// The peer sent this about transports.
    fn on_control(&mut self, _message: &ControlMessage) {}

    /// See [`SourceTransport::poll_notice`].
    fn poll_notice(&mut self) -> Option<Notice> {
        None
    }

    /// What came over it, repeated bytes included.
    fn received(&self) -> Option<(String, ByteCount)> {
        None
    }

    /// What its network thread used, and how its buffers did.
    fn report_evidence(&self) -> (Option<Net>, Option<Buffers>) {
        (None, None)
    }

    /// Ends it.
    fn close(&mut self);
}

pub(super) fn temporary(text: impl Into<String>) -> Failure {
    Failure::new(packtrain_transfer::FailureKind::Temporary, text)
}
