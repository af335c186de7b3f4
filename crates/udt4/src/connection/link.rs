//! The parts of an open connection.

use std::collections::BTreeMap;

use packtrain_cc::udt::Variant;
use packtrain_cc::{ControllerConfig, build};
use packtrain_proto::udt::{PacketRate, Receiver, ReceiverConfig, Sender, SenderConfig};
use packtrain_proto::{FlowStats, TRAIN_PACKETS};
use packtrain_units::{ByteCount, DataRate, Duration, SeqNo, Time};

use super::leave::Waiting;
use super::stall_repair::StallRepair;
use crate::buffers::{RecvBuffer, SendBuffer};
use crate::handshake::Terms;
use crate::options::{Options, limits};
use crate::perf::Perf;
use crate::wire::HEADER_BYTES;

/// The round trip that UDT assumes before a measurement.
const FIRST_RTT: Duration = Duration::from_millis(100);

/// How long the answering side holds data back, after which it sends a keepalive first. A stock
/// client cannot yet assign the first packet after the answer to its call, and drops it; a loss of
/// data would end slow start at once.
const HOLD: Duration = Duration::from_millis(10);

/// Counters beyond those of the feedback.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) sent_packets: u64,
    pub(super) sent_bytes: u64,
    pub(super) retransmitted: u64,
    pub(super) received_packets: u64,
    pub(super) received_bytes: u64,
    pub(super) duplicates: u64,
    pub(super) refused: u64,
    pub(super) bad: u64,
    pub(super) sent_acks: u64,
    pub(super) received_acks: u64,
    pub(super) sent_naks: u64,
    pub(super) received_naks: u64,
    pub(super) sender_lost: u64,
    pub(super) receiver_lost: u64,
    /// One past the highest unit that arrived.
    pub(super) highest: u64,
    pub(super) expired: u64,
}

/// The part of a batch that was not passed on yet.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Consecutive units that were stored: the first, and their number.
    pub(super) run: Option<(u64, u32)>,
    /// First and last unit, stored or not, and their number.
    pub(super) span: Option<(u64, u64, u32)>,
    /// The sender's time stamps of the first and the last.
    pub(super) stamps: (u32, u32),
}

/// An open connection: both directions, their buffers, its counters.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) peer_id: u32,
    pub(super) payload: usize,
    pub(super) kind: crate::options::Kind,
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    pub(super) outgoing: SendBuffer,
    pub(super) incoming: RecvBuffer,
    pub(super) stall_repair: StallRepair,
    /// No data is sent before this time, and then not as the first packet.
    pub(super) hold: Time,
    pub(super) greets: bool,
    /// Our first unit.
    pub(super) first: u64,
    pub(super) counts: Counts,
    pub(super) batch: Batch,
    /// Packets since the last full acknowledgement: arrival of the first and the last, and their
    /// number.
    pub(super) since_ack: Option<(Time, Time, u64)>,
    /// The last packet of the previous batch: its unit and the sender's time stamp.
    pub(super) before: Option<(u64, u32)>,
    /// The time stamp of the last new packet sent.
    pub(super) stamp: u32,
    pub(super) start: Time,
    /// A message that did not fit into the last datagram.
    pub(super) waiting: Option<Waiting>,
    /// Expired messages of which units were never sent: first such unit, one past the last.
    pub(super) dead: BTreeMap<u64, u64>,
    /// Room in packets that the peer last advertised.
    pub(super) peer_room: u64,
    /// The round trip by our own clock.
    pub(super) own_rtt: Option<Duration>,
    /// All units below were acknowledged by full acknowledgements.
    pub(super) acked_to: u64,
    pub(super) last_received: Time,
    pub(super) last_sent: Time,
    /// Datagrams sent since the last packet from the peer.
    pub(super) calls: u32,
    /// Since when there is data to send or acknowledge, and the total time before.
    pub(super) busy_since: Option<Time>,
    pub(super) busy: Duration,
}

impl Link {
    /// `None` if the controller cannot be built, which `connect` and `listen` have checked.
    pub(super) fn new(now: Time, seed: u64, options: &Options, terms: Terms) -> Option<Self> {
        let variant = Variant::of_controller(&options.cc);
        let mtu = ByteCount((terms.payload + HEADER_BYTES) as u64);
        let config = ControllerConfig { mtu, seed, now, ceiling: options.max_rate, rtt: terms.rtt };
        let controller = build(&options.cc, &config).ok()?;
        let first = u64::from(terms.isn.get());
        let window = u64::from(terms.send_window);
        let config = SenderConfig {
            variant,
            first,
            datagram: mtu,
            train: TRAIN_PACKETS,
            window,
            bitmaps: false,
        };
        let mut sender = Sender::new(config, controller, now);
        sender.set_ceiling(options.max_rate);
        let peer_first = u64::from(terms.peer_isn.get());
        let config = ReceiverConfig {
            // The receiver is independent of the sender's algorithm and behaves like a stock one.
            variant: Variant::Udt4,
            first: peer_first,
            window: u64::from(terms.recv_window),
            train: TRAIN_PACKETS,
            socket: options.socket_packets(),
        };
        let mut receiver = Receiver::new(config, now);
        let incoming = RecvBuffer::new(peer_first, terms.payload, terms.recv_window, options.kind);
        receiver.set_room(now, incoming.room(peer_first));
        Some(Self {
            peer_id: terms.peer_id,
            payload: terms.payload,
            kind: options.kind,
            sender,
            receiver,
            outgoing: SendBuffer::new(first, terms.payload, options.send_buffer),
            incoming,
            stall_repair: StallRepair::new(now, first),
            hold: now,
            greets: false,
            first,
            counts: Counts::default(),
            batch: Batch::default(),
            since_ack: None,
            before: None,
            stamp: 0,
            start: now,
            waiting: None,
            dead: BTreeMap::new(),
            peer_room: window,
            own_rtt: terms.rtt,
            acked_to: first,
            last_received: now,
            last_sent: now,
            calls: 0,
            busy_since: None,
            busy: Duration::ZERO,
        })
    }

    /// Holds data until the peer is ready for it, on the answering side.
    pub(super) fn wait_for_peer(&mut self, now: Time) {
        self.hold = now + HOLD;
        self.greets = true;
    }

    /// Whether there is data to read.
    pub(super) fn readable(&self) -> bool {
        self.incoming.readable(self.receiver.next())
    }

    /// Reads with `take`, and reports the new room to the receiver.
    pub(super) fn read<T>(&mut self, now: Time, take: impl FnOnce(&mut RecvBuffer, u64) -> T) -> T {
        let next = self.receiver.next();
        let before = self.incoming.room(next);
        let got = take(&mut self.incoming, next);
        let room = self.incoming.room(next);
        if room != before {
            self.receiver.set_room(now, room);
        }
        got
    }

    /// The 31 bits of a unit's number that are sent.
    #[inline]
    pub(super) fn wire_number(unit: u64) -> SeqNo {
        SeqNo::new((unit & 0x7fff_ffff) as u32)
    }

    /// The unit nearest to `expected` with this number; `None` below zero.
    #[inline]
    pub(super) fn expand(expected: u64, number: SeqNo) -> Option<u64> {
        let step = number.distance_from(Self::wire_number(expected));
        expected.checked_add_signed(i64::from(step))
    }

    /// The arrival rate of the packets since the last full acknowledgement, if there are enough. It
    /// is reported while the estimator has no value, because a stock sender that leaves slow start
    /// without a rate continues at almost none.
    pub(super) fn first_rate(&self) -> Option<PacketRate> {
        let (first, last, packets) = self.since_ack.filter(|(.., packets)| *packets >= 8)?;
        PacketRate::of_packets(packets - 1, last.since(first))
    }

    /// Whether all data to send was acknowledged or dropped. A stock receiver passes to its reader
    /// only what a full acknowledgement covers; a shutdown after a light one would lose the rest.
    pub(super) fn is_drained(&self) -> bool {
        self.acked_to >= self.outgoing.end()
    }

    /// When a keepalive is due if nothing else is sent.
    pub(super) fn keepalive_at(&self) -> Time {
        let long = self.calls % limits::LONG_PAUSE_EVERY == limits::LONG_PAUSE_AFTER;
        let timeout = self.rtt().unwrap_or(FIRST_RTT) * 4;
        let pause = if long {
            timeout.clamp(limits::LONG_PAUSE, limits::MAX_LONG_PAUSE)
        } else {
            limits::KEEPALIVE
        };
        self.last_sent + pause
    }

    /// Updates the busy time.
    pub(super) fn note_busy(&mut self, now: Time) {
        match (self.busy_since, self.is_drained()) {
            (None, false) => self.busy_since = Some(now),
            (Some(since), true) => {
                self.busy += now.since(since);
                self.busy_since = None;
            }
            _ => {}
        }
    }

    /// The round trip of the busier direction: a peer that received little has no sample and
    /// reports UDT's initial value.
    fn rtt(&self) -> Option<Duration> {
        let (sent, got) = (self.sender.rtt(), self.receiver.rtt());
        let receives = self.counts.received_packets > self.counts.sent_packets;
        if receives { got.or(sent) } else { sent.or(got) }
    }

    pub(super) fn perf(&self, now: Time) -> Perf {
        let mut gauges = FlowStats::default();
        self.receiver.gauges(&mut gauges);
        self.sender.gauges(&mut gauges);
        let counts = &self.counts;
        let datagram = ByteCount((self.payload + HEADER_BYTES) as u64);
        let next = self.receiver.next();
        let rate = gauges.pacing_rate.filter(|rate| *rate > DataRate::ZERO);
        Perf {
            age: now.since(self.start),
            sent_packets: counts.sent_packets,
            received_packets: counts.received_packets,
            sender_lost_packets: counts.sender_lost,
            receiver_lost_packets: counts.receiver_lost,
            retransmitted_packets: counts.retransmitted,
            sent_acks: counts.sent_acks,
            received_acks: counts.received_acks,
            sent_naks: counts.sent_naks,
            received_naks: counts.received_naks,
            sending_time: self.busy + self.busy_since.map_or(Duration::ZERO, |s| now.since(s)),
            sent_bytes: ByteCount(counts.sent_bytes),
            received_bytes: ByteCount(counts.received_bytes),
            duplicate_packets: counts.duplicates,
            refused_packets: counts.refused,
            bad_datagrams: counts.bad,
            expired_messages: counts.expired,
            send_period: rate.map_or(Duration::ZERO, |rate| rate.time_for(datagram)),
            flow_window: self.peer_room,
            congestion_window: gauges.cwnd.get() / datagram.get(),
            flight_size: self.sender.next().saturating_sub(self.sender.acked()),
            rtt: self.rtt().unwrap_or(FIRST_RTT),
            bandwidth: gauges.capacity,
            send_room: self.outgoing.room(),
            recv_room: self.incoming.room_bytes(next),
            controller: gauges.controller,
        }
    }
}
