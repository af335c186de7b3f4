//! One end of a flow: the core and the codec combined.

use std::net::SocketAddr;
use std::ops::Range;

use packtrain_cc::{CongestionController, LossWindow};
use packtrain_loss::Verdict;
use packtrain_units::{ByteCount, Offset, Time};

use crate::codec::frame;
use crate::codec::header::{Header, expand};
use crate::codec::keys::{Opener, Sealer};
use crate::codec::unit;
use crate::config::{CoreConfig, FeedbackKind, FlowConfig, FlowError};
use crate::core::edge::{Arrivals, Left};
use crate::core::{Core, Envelope};
use crate::sealing::Sealing;
use crate::seam::{BATCH_BYTES, CloseReason, Datagrams, Event, Payload, Placement, Transmit};
use crate::stats::FlowStats;

/// One end of a flow.
#[derive(Debug)]
pub struct Flow {
    core: Core,
    sealer: Sealer,
    opener: Opener,
    flow_id: u32,
    /// Bytes of a data packet beside its payload.
    overhead: usize,
    /// Whether it uses a reliable feedback channel.
    reliable: bool,
    text: Vec<u8>,
}

impl Flow {
    /// Creates a flow that starts probing its peer at `now`. A sender needs a controller.
    ///
    /// # Errors
    /// A configuration outside the limits, no controller, or a controller that needs signals that
    /// the feedback does not provide.
    pub fn new(
        config: FlowConfig,
        controller: Option<Box<dyn CongestionController>>,
        now: Time,
    ) -> Result<Self, FlowError> {
        let core = Core::new(CoreConfig::from(&config), controller, now)?;
        let lanes = config.peers.len() as u8;
        Ok(Self {
            core,
            sealer: Sealer::new(&config.keys, config.role, lanes)?,
            opener: Opener::new(&config.keys, config.role, lanes),
            flow_id: config.flow_id,
            overhead: config.feedback.overhead(),
            reliable: config.feedback == FeedbackKind::Sabul,
            text: Vec::with_capacity(2048),
        })
    }

    /// Adds a remote address of a lane that was learned after the start.
    pub fn add_peer(&mut self, lane: u8, address: SocketAddr) {
        if let Some(lane) = self.core.lanes.get_mut(usize::from(lane)) {
            lane.path.add(address);
        }
    }

    /// Sender: adds bytes to send, in this order. Bytes that are assigned and not yet acknowledged
    /// must not be assigned again.
    pub fn assign(&mut self, range: Range<Offset>) {
        self.core.assign(range);
    }

    /// Sender: takes back the unacknowledged part of the range, returned as [`Event::Returned`].
    pub fn revoke(&mut self, range: Range<Offset>) {
        self.core.revoke(range);
    }

    /// Sender: holds data, but not control packets, until `at`. For an owner whose flows and other
    /// transports share one rate limit.
    pub fn hold_until(&mut self, at: Time) {
        self.core.hold_until(at);
    }

    /// Sender: payload bytes assigned and not yet acknowledged.
    pub fn backlog(&self) -> ByteCount {
        self.core.backlog()
    }

    /// Handles a received batch and returns how many of its datagrams were authentic and new. All
    /// others are counted and dropped. Call `poll_transmit` afterwards.
    pub fn handle(
        &mut self,
        now: Time,
        input: Datagrams<'_>,
        placement: &mut impl Placement,
    ) -> usize {
        let Datagrams { lane, from, bytes, stride, ecn, received_at } = input;
        let mut arrivals = Arrivals::default();
        for datagram in bytes.chunks_mut(stride.max(1)) {
            if let Some(envelope) = self.open(now, lane, from, datagram, placement) {
                arrivals.add(1, envelope);
            }
        }
        if arrivals.good > 0 {
            self.core.on_arrivals(now, received_at, ecn, &arrivals, placement.room());
        }
        arrivals.good
    }

    /// Whether the feedback needs a reliable channel, for [`poll_reliable`](Self::poll_reliable)
    /// and [`handle_reliable`](Self::handle_reliable).
    pub fn wants_reliable(&self) -> bool {
        self.reliable
    }

    /// The next message for the reliable channel, which only feedback `sabul` uses. The channel is
    /// TCP with the same encryption; it must deliver all bytes in order. Call this after
    /// `poll_transmit`.
    pub fn poll_reliable(&mut self) -> Option<Vec<u8>> {
        self.core.poll_reliable()
    }

    /// Handles bytes of the reliable channel. Call `poll_transmit` afterwards.
    pub fn handle_reliable(&mut self, now: Time, bytes: &[u8]) {
        self.core.handle_reliable(now, bytes);
    }

    /// Receiver: sets the room of the pool outside `handle`.
    pub fn set_room(&mut self, now: Time, room: ByteCount) {
        self.core.set_room(now, room);
    }

    /// Receiver: reports that the socket of `lane` has dropped `total` datagrams since it was
    /// opened.
    pub fn host_drops(&mut self, lane: u8, total: u32) {
        self.core.host_drops(lane, total);
    }

    /// Receiver: reports that the kernel counted `batches` more drops at the socket of `lane`
    /// before the next batch. With UDP_GRO one count can stand for several datagrams; their number
    /// is derived from the missing packet numbers. Use it instead of `host_drops` when the number
    /// of datagrams is unknown.
    pub fn host_dropped(&mut self, lane: u8, batches: u32) {
        self.core.host_dropped(lane, batches);
    }

    /// Reports that the kernel refused a datagram of `size` bytes as too large for the path.
    pub fn too_large(&mut self, now: Time, size: ByteCount) {
        self.core.too_large(now, size);
    }

    /// Writes and seals the next batch into `out`, which has at least [`BATCH_BYTES`]; runs due
    /// timers first. `None` means that nothing may be sent before `poll_timeout`, new payload or a
    /// received packet.
    pub fn poll_transmit(
        &mut self,
        now: Time,
        payload: &mut impl Payload,
        out: &mut [u8],
    ) -> Option<Transmit> {
        self.core.release(|range| payload.release(range));
        if out.len() < BATCH_BYTES {
            return None;
        }
        let Self { core, sealer, flow_id, overhead, text, .. } = self;
        let mut sealing = Sealing { sealer, flow_id: *flow_id, text, payload, out, len: 0 };
        let Left { lane, to, size, ecn } = core.transmit(now, &mut sealing)?;
        let len = sealing.len;
        let segment = size.map_or(len, |size| (usize::from(size) + *overhead).min(len));
        Some(Transmit { lane, to, len, segment, ecn })
    }

    /// Runs the timers that are due; call it at the time that `poll_timeout` gave.
    pub fn handle_timeout(&mut self, now: Time) {
        self.core.tick(now);
    }

    /// When to call `handle_timeout` and then `poll_transmit`, pacing included. Valid after
    /// `poll_transmit` returned `None`.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.core.poll_timeout()
    }

    /// The next event for the owner. [`Event::Placed`] appears after `poll_transmit`.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.core.poll_event()
    }

    /// Sender: the next window with losses to classify. Classification takes a fraction of a
    /// millisecond, so the owner runs it on another thread and returns the result with
    /// `on_verdict`.
    pub fn poll_signature(&mut self) -> Option<LossWindow> {
        self.core.poll_signature()
    }

    /// Sender: takes the cause of the losses in this window.
    pub fn on_verdict(&mut self, now: Time, window: &LossWindow, verdict: &Verdict) {
        self.core.on_verdict(now, window, verdict);
    }

    /// Closes the flow: returns what is not acknowledged, notifies the peer
    /// (three times; keep polling until
    /// `is_closed`), and raises [`Event::Closed`].
    pub fn close(&mut self, now: Time, reason: CloseReason) {
        self.core.close(now, reason);
    }

    /// Whether the flow is over and has nothing more to send.
    pub fn is_closed(&self) -> bool {
        self.core.is_closed()
    }

    /// Counters and gauges.
    pub fn stats(&self) -> FlowStats {
        self.core.gauges()
    }

    /// Enables the event log: bounded JSON lines, fetched with `poll_log`.
    pub fn enable_log(&mut self) {
        self.core.log.enable();
    }

    /// The next line of the event log.
    pub fn poll_log(&mut self) -> Option<String> {
        self.core.log.poll()
    }

    /// Opens one datagram and passes it to the core.
    #[inline]
    fn open(
        &mut self,
        now: Time,
        lane: u8,
        from: SocketAddr,
        datagram: &mut [u8],
        placement: &mut impl Placement,
    ) -> Option<Envelope> {
        let size = datagram.len();
        let (header, head) = self.parse(lane, datagram)?;
        let expected = self.core.lanes[usize::from(lane)].window.next();
        let pn = expand(header.low, expected);
        if !self.core.is_new(lane, pn) {
            return None;
        }
        let largest = expected.saturating_sub(1);
        let Some(text) = self.opener.open(lane, pn, largest, datagram, head) else {
            self.core.stats.bad_datagrams += 1;
            return None;
        };
        let envelope = Envelope { lane, pn, from, size };
        let sane = match header.offset {
            Some(offset) if header.unit => {
                let expected = self.core.expected_unit().unwrap_or(0);
                unit::split(text, expected).is_some_and(|(unit, text)| {
                    let place = || placement.place(Offset(offset), text);
                    self.core.on_unit(now, &envelope, unit, (offset, text.len()), place)
                })
            }
            Some(offset) => {
                let place = || placement.place(Offset(offset), text);
                self.core.on_data(&envelope, offset, text.len(), place)
            }
            None => match frame::parse(text) {
                Some(frames) => {
                    self.core.on_control(now, &envelope, frames);
                    true
                }
                None => false,
            },
        };
        self.core.stats.bad_datagrams += u64::from(!sane);
        sane.then_some(envelope)
    }

    fn parse(&mut self, lane: u8, datagram: &[u8]) -> Option<(Header, usize)> {
        let ours = |header: &Header| {
            header.flow_id == self.flow_id
                && header.lane == lane
                && usize::from(lane) < self.core.lanes.len()
        };
        let parsed = Header::parse(datagram).filter(|(header, _)| ours(header));
        self.core.stats.bad_datagrams += u64::from(parsed.is_none());
        parsed
    }
}

#[cfg(test)]
#[path = "flow_tests/mod.rs"]
mod tests;
