//! The core of a flow. It works with frames and trains and has no access to bytes or keys.

mod backlog;
mod bunch;
mod credit;
mod delay;
mod delivery;
mod drain;
pub(crate) mod edge;
mod endpoint;
mod inbound;
pub(crate) mod lane;
pub(crate) mod ledger;
mod loss;
pub(crate) mod loss_attribution;
mod probe_train;
mod receiver;
mod receiver_rate_cap;
mod rtt;
mod sender;
mod socket_drops;
mod spread;
mod timers;
pub(crate) mod units;
mod window;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::Range;

use packtrain_cc::{CongestionController, Signals};
use packtrain_units::{ByteCount, DataRate, Duration, Offset, Time};
use serde_json::json;

use crate::codec::frame::Frame;
use crate::codec::reliable::Stream;
use crate::codec::unit::Unit;
use crate::config::limits::{BASE_MTU, LANES, MAX_MTU};
use crate::config::{CoreConfig, FlowError};
use crate::core::backlog::Backlog;
use crate::core::endpoint::Endpoint;
use crate::core::lane::Lane;
use crate::core::ledger::Train;
use crate::core::probe_train::ProbeTrains;
use crate::core::rtt::Rtt;
use crate::life::Life;
use crate::mtu::Mtu;
use crate::qlog::Log;
use crate::seam::{BATCH_BYTES, CloseReason, Event};
use crate::secrets::Secrets;
use crate::stats::{FlowStats, Limit};

/// One packet number per this many bursts is skipped, to detect a receiver that acknowledges
/// packets that it did not get.
const SKIP_EVERY: u64 = 128;
/// While more control packets wait to be sent, pings are not answered, and feedback is not built: the
/// peer decides how much there is to say.
const MAX_CONTROLS: usize = 128;
/// Rate for which one lane suffices. The default buffer of a socket (264 coalesced datagrams) then
/// holds 25 ms, which covers what a thread waits for a processor. A flow without need of more keeps
/// its packets in one order: a loss shows when the next packet of its lane arrives.
const RATE_PER_LANE: DataRate = DataRate::from_mbps(125);
/// Packets back to back that one lane takes: what the default buffer holds.
const PACKETS_PER_LANE: u64 = 256;
/// A unit sender below this rate stays on one lane.
const SPREAD_ABOVE: DataRate = DataRate::from_mbps(2_000);

/// One end of a flow, without its codec.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) lanes: Vec<Lane>,
    pub(crate) stats: FlowStats,
    pub(crate) log: Log,
    rtt: Rtt,
    /// The minimum round trip that the sender reported to the receiver: at the receiver the last
    /// one received, at the sender the last one sent.
    reported_rtt: Duration,
    rtt_reported_at: Time,
    secrets: Secrets,
    pub(crate) controls: VecDeque<Control>,
    events: VecDeque<Event>,
    endpoint: Endpoint,
    /// Messages to send on the reliable channel.
    reliable_out: VecDeque<Vec<u8>>,
    stream: Stream,
    /// Bytes of a data packet beside its payload.
    overhead: u16,
    life: Life,
    trains: ProbeTrains,
    next_lane: usize,
    /// Number of lanes that data is spread over.
    spread: usize,
    /// The signals that the feedback provides.
    provides: Signals,
    idle_reported: bool,
    /// No data is sent before this time: a limit that the flow shares with other senders.
    not_before: Time,
    /// Data waits for `not_before`.
    held: bool,
}

/// A control packet to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Control {
    pub(crate) lane: u8,
    pub(crate) to: SocketAddr,
    pub(crate) frame: Frame,
    /// Pad the datagram to this size.
    pub(crate) pad: Option<u16>,
    /// Its acknowledgement matters: a tail probe.
    pub(crate) tracked: bool,
}

/// Permission to send data now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Burst {
    pub(crate) lane: u8,
    pub(crate) to: SocketAddr,
    /// Maximum number of packets.
    pub(crate) packets: u32,
    /// Payload bytes of a full packet.
    pub(crate) size: u16,
}

/// A train to send: its packets and their units.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) train: Train,
    /// It is a retransmission.
    pub(crate) repeat: bool,
    /// Its data units, where the feedback counts in units.
    pub(crate) unit: Option<Unit>,
}

/// The envelope of a received packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Envelope {
    pub(crate) lane: u8,
    pub(crate) pn: u64,
    pub(crate) from: SocketAddr,
    /// Size of the datagram.
    pub(crate) size: usize,
}

impl Core {
    pub(crate) fn new(
        config: CoreConfig,
        controller: Option<Box<dyn CongestionController>>,
        now: Time,
    ) -> Result<Self, FlowError> {
        if config.peers.is_empty() || config.peers.len() > LANES {
            return Err(FlowError::Lanes(config.peers.len()));
        }
        let mtu = datagram(config.mtu)?;
        let mtu = Mtu::new(mtu, datagram(config.max_mtu)?);
        let endpoint = Endpoint::new(&config, controller, mtu, now)?;
        let train_to = config.train_to.filter(|_| endpoint.launches_at_capacity());
        let trains = ProbeTrains::new(train_to, config.rate_ceiling);
        let overhead = config.feedback.overhead() as u16;
        let provides = config.feedback.provides();
        let known = config.known_rtt.is_some();
        let lanes = config.peers.into_iter().map(|peers| Lane::new(peers, known, now)).collect();
        Ok(Self {
            lanes,
            stats: FlowStats::default(),
            log: Log::default(),
            rtt: config.known_rtt.map_or_else(Rtt::default, Rtt::guessed),
            reported_rtt: Duration::ZERO,
            rtt_reported_at: now,
            secrets: Secrets::new(config.seed),
            controls: VecDeque::new(),
            events: VecDeque::new(),
            endpoint,
            reliable_out: VecDeque::new(),
            stream: Stream::default(),
            overhead,
            life: Life::new(now),
            trains,
            next_lane: 0,
            spread: 1,
            provides,
            idle_reported: true,
            not_before: Time::ZERO,
            held: false,
        })
    }

    pub(crate) fn assign(&mut self, range: Range<Offset>) {
        if !self.endpoint.is_sender() {
            return;
        }
        if self.life.is_over() {
            self.events.push_back(Event::Returned(range));
            return;
        }
        self.endpoint.assign(range.start.get(), range.end.get());
        self.idle_reported = self.is_done();
    }

    pub(crate) fn revoke(&mut self, range: Range<Offset>) {
        let events = &mut self.events;
        self.endpoint.revoke(range.start.get(), range.end.get(), |a, b| {
            events.push_back(Event::Returned(Offset(a)..Offset(b)));
        });
    }

    pub(crate) fn backlog(&self) -> ByteCount {
        ByteCount(self.endpoint.backlog().map_or(0, Backlog::unacked))
    }

    /// Whether all assigned bytes are acknowledged.
    fn is_done(&self) -> bool {
        self.endpoint.backlog().is_none_or(Backlog::is_done)
    }

    pub(crate) fn set_room(&mut self, now: Time, room: ByteCount) {
        match &mut self.endpoint {
            Endpoint::NativeReceiver(receiver) => receiver.set_room(now, room),
            Endpoint::UnitReceiver(receiver) => receiver.set_room(now, room),
            _ => {}
        }
    }

    pub(crate) fn host_drops(&mut self, lane: u8, total: u32) {
        match &mut self.endpoint {
            Endpoint::NativeReceiver(receiver) => receiver.host_drops(lane, total),
            Endpoint::UnitReceiver(receiver) => receiver.host_drops(lane, total),
            _ => {}
        }
    }

    /// The socket of `lane` dropped this many more batches before the next one.
    pub(crate) fn host_dropped(&mut self, lane: u8, batches: u32) {
        if let Some(lane) = self.lanes.get_mut(usize::from(lane)) {
            lane.drops.counted(batches, &lane.window);
        }
    }

    pub(crate) fn too_large(&mut self, now: Time, size: ByteCount) {
        let size = u16::try_from(size.get()).unwrap_or(u16::MAX);
        if self.endpoint.mtu_mut().is_some_and(|mtu| mtu.on_too_large(now, size)) {
            self.mtu_changed(now);
        }
    }

    /// Whether one more control packet may wait to be sent.
    fn may_queue(&self) -> bool {
        self.controls.len() < MAX_CONTROLS
    }

    /// The next control packet with its number; runs the timers first.
    fn poll_control(&mut self, now: Time) -> Option<(Control, u64)> {
        self.tick(now);
        let control = self.controls.pop_front()?;
        let ledger = &mut self.lanes[usize::from(control.lane)].ledger;
        let pn = if control.tracked {
            let train = Train { first: ledger.next(), count: 1, size: 0, last: 0, offset: 0 };
            ledger.push(ledger::Sent::new(train, 0, now));
            train.first
        } else {
            ledger.take()
        };
        if matches!(control.frame, Frame::Ping { .. }) {
            self.life.on_sent_packet(now);
        }
        Some((control, pn))
    }

    /// Sender: no data leaves before `at`.
    pub(crate) fn hold_until(&mut self, at: Time) {
        self.not_before = at;
    }

    /// When data that waits for [`hold_until`](Self::hold_until) may leave.
    fn held_until(&self) -> Option<Time> {
        self.held.then_some(self.not_before)
    }

    /// Whether data may leave now.
    fn begin(&mut self, now: Time) -> Option<Burst> {
        if !self.life.is_established() || self.life.is_over() {
            return None;
        }
        let budget = match &mut self.endpoint {
            Endpoint::NativeSender(sender) => sender.budget(now, self.rtt.smoothed_or_guess()),
            Endpoint::UnitSender(sender) => sender.budget(now),
            _ => 0,
        };
        self.held = budget > 0 && now < self.not_before;
        if self.held {
            // The sender's own pace does not matter until then.
            self.endpoint.hold();
            return None;
        }
        if budget == 0 {
            return None;
        }
        let mtu = self.endpoint.mtu()?.current();
        let lane = self.pick_lane(now)?;
        let path = &mut self.lanes[lane];
        if self.secrets.below(SKIP_EVERY) == 0 {
            path.ledger.skip();
        }
        Some(Burst {
            lane: lane as u8,
            to: path.path.remote()?,
            packets: budget.min((BATCH_BYTES / usize::from(mtu)) as u32),
            size: mtu - self.overhead,
        })
    }

    /// The next train of a burst, of at most `packets`.
    fn next_train(
        &mut self,
        now: Time,
        burst: &Burst,
        packets: u32,
        skip_lost: bool,
    ) -> Option<Load> {
        let first = self.lanes[usize::from(burst.lane)].ledger.next();
        let piece = match &mut self.endpoint {
            Endpoint::NativeSender(sender) => sender.piece(skip_lost)?,
            Endpoint::UnitSender(sender) => {
                return sender.next_train(now, first, burst.size, packets, skip_lost);
            }
            _ => return None,
        };
        let size = u64::from(burst.size);
        let count = piece.len.div_ceil(size).min(u64::from(packets));
        let bytes = piece.len.min(count * size);
        let train = Train {
            first,
            count: count as u32,
            size: burst.size,
            last: (bytes - (count - 1) * size) as u16,
            offset: piece.offset,
        };
        Some(Load { train, repeat: piece.repeat, unit: None })
    }

    /// A train of a burst was sent.
    fn sent(&mut self, now: Time, burst: &Burst, load: &Load) {
        let (lane, stats) = (&mut self.lanes[usize::from(burst.lane)], &mut self.stats);
        match &mut self.endpoint {
            Endpoint::NativeSender(sender) => {
                sender.on_sent(now, lane, load.train, load.repeat, stats);
            }
            Endpoint::UnitSender(sender) => sender.on_sent(now, lane, load, stats),
            _ => {}
        }
        self.life.on_sent_packet(now);
    }

    /// The payload cannot read this train.
    fn unreadable(&mut self, now: Time, train: &Train) {
        let (a, b) = train.span(0, 1);
        let events = &mut self.events;
        self.endpoint.revoke(a, b, |a, b| match events.back_mut() {
            Some(Event::Unreadable(last)) if last.end == Offset(a) => last.end = Offset(b),
            _ => events.push_back(Event::Unreadable(Offset(a)..Offset(b))),
        });
        self.log.note(now, "payload:unreadable", || json!({ "from": a, "to": b }));
    }

    /// Reports acknowledged ranges to payload and owner.
    pub(crate) fn release(&mut self, mut payload: impl FnMut(Range<Offset>)) {
        let Some(released) = self.endpoint.released() else { return };
        for range in released.drain(..) {
            payload(range.clone());
            self.events.push_back(Event::Placed(range));
        }
        if !self.idle_reported && self.is_done() {
            self.idle_reported = true;
            self.events.push_back(Event::Idle);
        }
    }

    /// Whether `pn` is new on `lane`; counts it as replayed if not.
    pub(crate) fn is_new(&mut self, lane: u8, pn: u64) -> bool {
        let new = self.lanes.get(usize::from(lane)).is_some_and(|lane| lane.window.is_new(pn));
        self.stats.replayed_datagrams += u64::from(!new);
        new
    }

    /// The ECN bits of data packets sent now.
    pub(crate) fn ecn_bits(&self) -> u8 {
        self.endpoint.ecn_bits()
    }

    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub(crate) fn close(&mut self, now: Time, reason: CloseReason) {
        self.end(now, reason, true);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.life.is_closed()
    }

    pub(crate) fn gauges(&self) -> FlowStats {
        let mut stats = self.stats.clone();
        self.rtt.gauges(&mut stats);
        stats.lanes = self.lanes.iter().filter(|lane| lane.is_open()).count() as u8;
        self.endpoint.gauges(&self.rtt, &mut stats);
        if self.held {
            stats.limit = Limit::Pacing;
        }
        stats
    }

    /// The next lane in rotation that may carry data, of as many as the rate asks for. Lanes whose
    /// probes are answered are preferred.
    fn pick_lane(&mut self, now: Time) -> Option<usize> {
        let n = self.lanes.len();
        // Order of units is worth more than room in sockets until one socket cannot hold them.
        let stays = self.endpoint.unit_rate().is_some_and(|rate| rate < SPREAD_ABOVE);
        let stays = stays && !self.endpoint.unit_sender().is_some_and(|s| s.leaves_lane(now));
        let from = if stays { self.next_lane + n - 1 } else { self.next_lane };
        let load = self.endpoint.native_load(self.rtt.smoothed_or_guess());
        self.spread = spread(self.spread, load, n);
        let open = |i: &usize| self.lanes[*i].is_open();
        let alive = |i: &usize| open(i) && !self.lanes[*i].is_dead();
        // The first lanes that work: others only carry what these cannot.
        let last = (0..n).filter(alive).take(self.spread).last();
        let turn = |i| (from + i) % n;
        let mut turns = (0..n).map(turn);
        let lane = match last {
            Some(last) => turns.find(|i| *i <= last && alive(i)),
            None => turns.find(open),
        }?;
        self.next_lane = lane + 1;
        Some(lane)
    }
}

/// The number of lanes, of `n`, for a rate and a burst of so many packets, where there were
/// `before`. A rate that varies by a fifth does not change it back and forth.
fn spread(before: usize, load: Option<(DataRate, u64)>, n: usize) -> usize {
    let Some((rate, burst)) = load else { return n };
    let lanes = |rate: DataRate| rate.as_bps().div_ceil(RATE_PER_LANE.as_bps());
    let wanted = [1, lanes(rate), burst.div_ceil(PACKETS_PER_LANE)].into_iter().max();
    let [wanted, slack] = [wanted.unwrap_or(1), lanes(rate.mul_f64(1.2))];
    let [wanted, slack] = [wanted, slack].map(|lanes| lanes.min(n as u64) as usize);
    before.clamp(wanted, slack.max(wanted))
}

fn datagram(size: ByteCount) -> Result<u16, FlowError> {
    let range = u64::from(BASE_MTU)..=u64::from(MAX_MTU);
    if !range.contains(&size.get()) {
        return Err(FlowError::Mtu(size));
    }
    Ok(size.get() as u16)
}
