//! One end of a flow: the core and the codec joined. It owns none of their logic.

use std::net::SocketAddr;
use std::ops::Range;

use packtrain_cc::CongestionController;
use packtrain_units::{ByteCount, Offset, Time};

use crate::codec::frame;
use crate::codec::header::{CONTROL_HEAD, DATA_HEAD, DATA_OVERHEAD, Header, TAG, expand};
use crate::codec::keys::{Opener, Sealer};
use crate::config::{FlowConfig, FlowError};
use crate::core::ledger::Train;
use crate::core::{Burst, Control, Core, Envelope};
use crate::seam::{BATCH_BYTES, CloseReason, Datagrams, Event, Fill, Payload, Placement, Transmit};
use crate::stats::FlowStats;

/// ECT(0), the mark of a sender that understands congestion marks (RFC 3168).
const ECT0: u8 = 2;
/// Congestion experienced.
const CE: u8 = 3;

/// One end of a flow.
#[derive(Debug)]
pub struct Flow {
    core: Core,
    sealer: Sealer,
    opener: Opener,
    flow_id: u32,
    ecn: u8,
    text: Vec<u8>,
}

impl Flow {
    /// A flow that starts probing its peer at `now`; a sender needs a controller.
    ///
    /// # Errors
    /// A configuration outside the limits, no controller, or one that needs other signals.
    pub fn new(
        config: FlowConfig,
        controller: Option<Box<dyn CongestionController>>,
        now: Time,
    ) -> Result<Self, FlowError> {
        let core = Core::new(&config, controller, now)?;
        let lanes = config.peers.len() as u8;
        Ok(Self {
            core,
            sealer: Sealer::new(&config.keys, config.role, lanes)?,
            opener: Opener::new(&config.keys, config.role, lanes),
            flow_id: config.flow_id,
            ecn: if config.ecn { ECT0 } else { 0 },
            text: Vec::with_capacity(2048),
        })
    }

    /// One more remote address to try for a lane, learned since the start.
    pub fn add_peer(&mut self, lane: u8, address: SocketAddr) {
        if let Some(lane) = self.core.lanes.get_mut(usize::from(lane)) {
            lane.path.add(address);
        }
    }

    /// Sender: these bytes are to be moved, in this order. What is assigned already and not
    /// acknowledged must not be assigned again.
    pub fn assign(&mut self, range: Range<Offset>) {
        self.core.assign(range);
    }

    /// Sender: gives back what of the range is not acknowledged, as [`Event::Returned`].
    pub fn revoke(&mut self, range: Range<Offset>) {
        self.core.revoke(range);
    }

    /// Sender: payload bytes assigned and not yet acknowledged.
    pub fn backlog(&self) -> ByteCount {
        self.core.backlog()
    }

    /// A batch came in; returns how many datagrams of it were authentic and new. Anything else
    /// is counted and dropped. Call `poll_transmit` after it.
    pub fn handle(
        &mut self,
        now: Time,
        input: Datagrams<'_>,
        placement: &mut impl Placement,
    ) -> usize {
        let Datagrams { lane, from, bytes, stride, ecn, received_at } = input;
        let (mut good, mut last) = (0, None);
        for datagram in bytes.chunks_mut(stride.max(1)) {
            if let Some(envelope) = self.open(now, lane, from, datagram, placement) {
                good += 1;
                last = Some(last.map_or(
                    envelope,
                    |l: Envelope| {
                        if l.pn > envelope.pn { l } else { envelope }
                    },
                ));
            }
        }
        if let Some(last) = last {
            if ecn == Some(CE) {
                self.core.stats.ecn_ce += good as u64;
            }
            self.core.on_batch(now, received_at, &last, placement.room());
        }
        good
    }

    /// Receiver: the pool has `room` bytes again, told outside `handle`.
    pub fn set_room(&mut self, now: Time, room: ByteCount) {
        self.core.set_room(now, room);
    }

    /// Receiver: the socket of `lane` has dropped `total` datagrams since it was opened.
    pub fn host_drops(&mut self, lane: u8, total: u32) {
        self.core.host_drops(lane, total);
    }

    /// The kernel refused a datagram of `size` bytes as too large for the path.
    pub fn too_large(&mut self, now: Time, size: ByteCount) {
        self.core.too_large(now, size);
    }

    /// The next batch to send, sealed into `out`, which has at least [`BATCH_BYTES`]; runs due
    /// timers first. None: nothing may leave before `poll_timeout`, or before the payload or
    /// the network brings something.
    pub fn poll_transmit(
        &mut self,
        now: Time,
        payload: &mut impl Payload,
        out: &mut [u8],
    ) -> Option<Transmit> {
        self.core.release(payload);
        if out.len() < BATCH_BYTES {
            return None;
        }
        while let Some((control, pn)) = self.core.poll_control(now) {
            if let Some(transmit) = self.seal_control(&control, pn, out) {
                return Some(transmit);
            }
        }
        let burst = self.core.begin(now)?;
        let len = self.fill_burst(now, &burst, payload, out);
        let segment = (usize::from(burst.size) + DATA_OVERHEAD).min(len);
        let Burst { lane, to, .. } = burst;
        (len > 0).then_some(Transmit { lane, to, len, segment, ecn: self.ecn })
    }

    /// The instant of `poll_timeout` came.
    pub fn handle_timeout(&mut self, now: Time) {
        self.core.tick(now);
    }

    /// When `handle_timeout` and then `poll_transmit` are to be called, pacing included. Valid
    /// after `poll_transmit` gave none.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.core.poll_timeout()
    }

    /// The next thing the owner should know. [`Event::Placed`] comes after `poll_transmit`.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.core.poll_event()
    }

    /// Ends the flow: what is not acknowledged is returned, the peer is told (a few times; keep
    /// polling until `is_closed`), and [`Event::Closed`] is raised.
    pub fn close(&mut self, now: Time, reason: CloseReason) {
        self.core.close(now, reason);
    }

    /// Whether authenticated packets have passed both ways.
    pub fn is_established(&self) -> bool {
        self.core.is_established()
    }

    /// Whether the flow is over and has nothing more to send.
    pub fn is_closed(&self) -> bool {
        self.core.is_closed()
    }

    /// Counters and gauges.
    pub fn stats(&self) -> FlowStats {
        self.core.gauges()
    }

    /// Turns the event log on: JSON lines, bounded, to be fetched by `poll_log`.
    pub fn enable_log(&mut self) {
        self.core.log.enable();
    }

    /// The next line of the event log.
    pub fn poll_log(&mut self) -> Option<String> {
        self.core.log.poll()
    }

    /// Opens one datagram and hands it to the core.
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
        let window = &self.core.lanes[usize::from(lane)].window;
        let expected = window.next();
        let pn = expand(header.low, expected);
        if !window.is_new(pn) {
            self.core.stats.replayed_datagrams += 1;
            return None;
        }
        let largest = expected.saturating_sub(1);
        let Some(text) = self.opener.open(lane, pn, largest, datagram, head) else {
            self.core.stats.bad_datagrams += 1;
            return None;
        };
        let envelope = Envelope { lane, pn, from, size };
        let sane = match header.offset {
            Some(offset) => self.core.on_data(&envelope, offset, text, placement),
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

    fn seal_control(&mut self, control: &Control, pn: u64, out: &mut [u8]) -> Option<Transmit> {
        let header =
            Header { lane: control.lane, flow_id: self.flow_id, low: pn as u32, offset: None };
        self.text.clear();
        frame::write(&control.frame, &mut self.text);
        let least = control.pad.map_or(0, usize::from).saturating_sub(CONTROL_HEAD + TAG);
        if self.text.len() < least {
            self.text.resize(least, 0);
        }
        let len = CONTROL_HEAD + self.text.len() + TAG;
        let packet = out.get_mut(..len)?;
        header.write(packet);
        packet[CONTROL_HEAD..len - TAG].copy_from_slice(&self.text);
        self.sealer.seal(control.lane, pn, packet, CONTROL_HEAD)?;
        let Control { lane, to, .. } = *control;
        Some(Transmit { lane, to, len, segment: len, ecn: self.ecn })
    }

    /// Fills and seals the packets of one burst; returns their bytes. Trains may be several:
    /// repeats are often single packets, and a batch costs one system call.
    fn fill_burst(
        &mut self,
        now: Time,
        burst: &Burst,
        payload: &mut impl Payload,
        out: &mut [u8],
    ) -> usize {
        let (mut len, mut packets, mut skip_lost) = (0, 0, false);
        while packets < burst.packets {
            let next = self.core.next_train(burst, burst.packets - packets, skip_lost);
            let Some((mut train, repeat)) = next else { break };
            let (bytes, filled, fill) =
                self.fill_train(burst.lane, &train, payload, &mut out[len..]);
            if filled < train.count && filled > 0 {
                train.last = train.size;
                train.count = filled;
            }
            if filled > 0 {
                self.core.sent(now, burst, train, repeat);
                len += bytes;
                packets += filled;
            }
            match fill {
                Fill::Ready if train.last < train.size => break,
                Fill::Ready => {}
                Fill::Failed if filled == 0 => self.core.unreadable(now, &train),
                Fill::Failed => {}
                Fill::Pending if repeat && !skip_lost => skip_lost = true,
                Fill::Pending => {
                    self.core.payload_pending();
                    break;
                }
            }
        }
        len
    }

    /// Fills and seals as many packets of a train as the payload has: bytes written, packets,
    /// and why it stopped.
    fn fill_train(
        &mut self,
        lane: u8,
        train: &Train,
        payload: &mut impl Payload,
        out: &mut [u8],
    ) -> (usize, u32, Fill) {
        let mut at = 0;
        let mut offset = train.offset;
        for i in 0..train.count {
            let size = usize::from(if i + 1 == train.count { train.last } else { train.size });
            let packet = &mut out[at..at + size + DATA_OVERHEAD];
            let fill = payload.fill(Offset(offset), &mut packet[DATA_HEAD..DATA_HEAD + size]);
            if fill != Fill::Ready {
                return (at, i, fill);
            }
            let pn = train.first + u64::from(i);
            let low = pn as u32;
            let header = Header { lane, flow_id: self.flow_id, low, offset: Some(offset) };
            header.write(packet);
            if self.sealer.seal(lane, pn, packet, DATA_HEAD).is_none() {
                return (at, i, Fill::Pending);
            }
            at += size + DATA_OVERHEAD;
            offset += size as u64;
        }
        (at, train.count, Fill::Ready)
    }
}

#[cfg(test)]
#[path = "flow_tests/mod.rs"]
mod tests;
