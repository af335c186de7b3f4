//! The core of a flow: it speaks frames and trains and knows neither bytes nor keys.

mod backlog;
mod credit;
mod delay;
mod delivery;
pub(crate) mod edge;
mod inbound;
pub(crate) mod lane;
pub(crate) mod ledger;
mod loss;
pub(crate) mod ranges;
mod receiver;
mod rtt;
mod sender;
mod timers;
mod window;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::Range;

use packtrain_cc::CongestionController;
use packtrain_units::{ByteCount, Duration, Offset, Rng, Time};
use serde_json::json;

use crate::codec::frame::Frame;
use crate::codec::header::DATA_OVERHEAD;
use crate::config::limits::{BASE_MTU, LANES, MAX_MTU};
use crate::config::{CoreConfig, FlowError, Role};
use crate::core::lane::Lane;
use crate::core::ledger::Train;
use crate::core::receiver::Receiver;
use crate::core::rtt::Rtt;
use crate::core::sender::Sender;
use crate::life::Life;
use crate::mtu::Mtu;
use crate::qlog::Log;
use crate::seam::{BATCH_BYTES, CloseReason, Event};
use crate::stats::{FlowStats, Limit};

/// One packet number in so many bursts is left out, to catch an optimistic acknowledger.
const SKIP_EVERY: u64 = 128;

/// One end of a flow, without its codec.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) lanes: Vec<Lane>,
    pub(crate) stats: FlowStats,
    pub(crate) log: Log,
    rtt: Rtt,
    /// The sender's least round trip as it told the receiver, or as it was last told.
    told_rtt: Duration,
    told_at: Time,
    rng: Rng,
    controls: VecDeque<Control>,
    events: VecDeque<Event>,
    sender: Option<Sender>,
    receiver: Option<Receiver>,
    life: Life,
    next_lane: usize,
    idle_told: bool,
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

/// Leave to send data now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Burst {
    pub(crate) lane: u8,
    pub(crate) to: SocketAddr,
    /// How many packets at most.
    pub(crate) packets: u32,
    /// Payload bytes of a full packet.
    pub(crate) size: u16,
}

/// The envelope of a packet that arrived.
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
        let (mut sender, mut receiver) = (None, None);
        match config.role {
            Role::Sender => {
                let controller = controller.ok_or(FlowError::NoController)?;
                if !sender::signals().covers(controller.needs()) {
                    return Err(FlowError::Signals(controller.name()));
                }
                sender = Some(Sender::new(controller, config.rate_ceiling, mtu, now));
            }
            Role::Receiver => {
                receiver = Some(Receiver::new(now, config.peers.len(), config.room));
            }
        }
        let lanes = config.peers.into_iter().map(|peers| Lane::new(peers, now)).collect();
        Ok(Self {
            lanes,
            stats: FlowStats::default(),
            log: Log::default(),
            rtt: Rtt::default(),
            told_rtt: Duration::ZERO,
            told_at: now,
            rng: Rng::new(config.seed),
            controls: VecDeque::new(),
            events: VecDeque::new(),
            sender,
            receiver,
            life: Life::new(now),
            next_lane: 0,
            idle_told: true,
        })
    }

    pub(crate) fn assign(&mut self, range: Range<Offset>) {
        let Some(sender) = &mut self.sender else { return };
        if self.life.is_over() {
            self.events.push_back(Event::Returned(range));
            return;
        }
        sender.backlog.assign(range.start.get(), range.end.get());
        self.idle_told = sender.backlog.is_done();
    }

    pub(crate) fn revoke(&mut self, range: Range<Offset>) {
        let Some(sender) = &mut self.sender else { return };
        let events = &mut self.events;
        sender.backlog.revoke(range.start.get(), range.end.get(), |a, b| {
            events.push_back(Event::Returned(Offset(a)..Offset(b)));
        });
    }

    pub(crate) fn backlog(&self) -> ByteCount {
        ByteCount(self.sender.as_ref().map_or(0, |s| s.backlog.unacked()))
    }

    pub(crate) fn set_room(&mut self, now: Time, room: ByteCount) {
        if let Some(receiver) = &mut self.receiver {
            receiver.set_room(now, room);
        }
    }

    pub(crate) fn host_drops(&mut self, lane: u8, total: u32) {
        if let Some(receiver) = &mut self.receiver {
            receiver.host_drops(lane, total);
        }
    }

    pub(crate) fn too_large(&mut self, now: Time, size: ByteCount) {
        let size = u16::try_from(size.get()).unwrap_or(u16::MAX);
        if let Some(sender) = &mut self.sender
            && sender.mtu.on_too_large(now, size)
        {
            self.mtu_changed(now);
        }
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
            self.life.on_said(now);
        }
        Some((control, pn))
    }

    /// Whether data may leave now.
    fn begin(&mut self, now: Time) -> Option<Burst> {
        let sender = self.sender.as_mut()?;
        if !self.life.is_established() || self.life.is_over() {
            return None;
        }
        let budget = sender.budget(now, self.rtt.smoothed_or_guess());
        if budget == 0 {
            return None;
        }
        let mtu = sender.mtu.current();
        let lane = self.pick_lane()?;
        let path = &mut self.lanes[lane];
        if self.rng.below(SKIP_EVERY) == 0 {
            path.ledger.skip();
        }
        Some(Burst {
            lane: lane as u8,
            to: path.path.remote()?,
            packets: budget.min((BATCH_BYTES / usize::from(mtu)) as u32),
            size: mtu - DATA_OVERHEAD as u16,
        })
    }

    /// The next train of a burst, of at most `packets`; and whether it repeats.
    fn next_train(&self, burst: &Burst, packets: u32, skip_lost: bool) -> Option<(Train, bool)> {
        let piece = self.sender.as_ref()?.piece(skip_lost)?;
        let size = u64::from(burst.size);
        let count = piece.len.div_ceil(size).min(u64::from(packets));
        let bytes = piece.len.min(count * size);
        let train = Train {
            first: self.lanes[usize::from(burst.lane)].ledger.next(),
            count: count as u32,
            size: burst.size,
            last: (bytes - (count - 1) * size) as u16,
            offset: piece.offset,
        };
        Some((train, piece.repeat))
    }

    /// A train of a burst left.
    fn sent(&mut self, now: Time, burst: &Burst, train: Train, repeat: bool) {
        let Some(sender) = &mut self.sender else { return };
        let lane = &mut self.lanes[usize::from(burst.lane)];
        sender.on_sent(now, lane, train, repeat, &mut self.stats);
        self.life.on_said(now);
    }

    /// The payload had not what the flow wants next.
    fn payload_pending(&mut self) {
        if let Some(sender) = &mut self.sender {
            sender.limit = Limit::Payload;
        }
    }

    /// The payload cannot read this train.
    fn unreadable(&mut self, now: Time, train: &Train) {
        let Some(sender) = &mut self.sender else { return };
        let (a, b) = train.span(0, 1);
        let events = &mut self.events;
        sender.backlog.revoke(a, b, |a, b| match events.back_mut() {
            Some(Event::Unreadable(last)) if last.end == Offset(a) => last.end = Offset(b),
            _ => events.push_back(Event::Unreadable(Offset(a)..Offset(b))),
        });
        self.log.note(now, "payload:unreadable", || json!({ "from": a, "to": b }));
    }

    /// Tells payload and owner what was acknowledged.
    pub(crate) fn release(&mut self, mut payload: impl FnMut(Range<Offset>)) {
        let Some(sender) = &mut self.sender else { return };
        for range in sender.released.drain(..) {
            payload(range.clone());
            self.events.push_back(Event::Placed(range));
        }
        if !self.idle_told && sender.backlog.is_done() {
            self.idle_told = true;
            self.events.push_back(Event::Idle);
        }
    }

    /// Whether `pn` is new on `lane`; counts it if not.
    pub(crate) fn is_new(&mut self, lane: u8, pn: u64) -> bool {
        let new = self.lanes.get(usize::from(lane)).is_some_and(|lane| lane.window.is_new(pn));
        self.stats.replayed_datagrams += u64::from(!new);
        new
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

    pub(crate) fn is_established(&self) -> bool {
        self.life.is_established()
    }

    pub(crate) fn gauges(&self) -> FlowStats {
        let mut stats = self.stats.clone();
        self.rtt.gauges(&mut stats);
        stats.lanes = self.lanes.iter().filter(|lane| lane.is_open()).count() as u8;
        if let Some(sender) = &self.sender {
            sender.gauges(self.rtt.smoothed_or_guess(), &mut stats);
        }
        if let Some(receiver) = &self.receiver {
            stats.host_drops = receiver.total_host_drops();
        }
        stats
    }

    /// The next lane in turn that may carry data: one whose probes are answered, if any is.
    fn pick_lane(&mut self) -> Option<usize> {
        let n = self.lanes.len();
        let turn = |i| (self.next_lane + i) % n;
        let open = |i: &usize| self.lanes[*i].is_open();
        let alive = |i: &usize| open(i) && !self.lanes[*i].is_dead();
        let lane = (0..n).map(turn).find(alive).or_else(|| (0..n).map(turn).find(open))?;
        self.next_lane = lane + 1;
        Some(lane)
    }
}

fn datagram(size: ByteCount) -> Result<u16, FlowError> {
    let range = u64::from(BASE_MTU)..=u64::from(MAX_MTU);
    if !range.contains(&size.get()) {
        return Err(FlowError::Mtu(size));
    }
    Ok(size.get() as u16)
}
