//! The receiving endpoint: which units arrived, and the room for more.

use packtrain_units::{ByteCount, Duration, Time};

use super::feedback_receiver::FeedbackReceiver;
use super::order::Order;
use crate::codec::frame::Host;
use crate::codec::header::UNIT_OVERHEAD;
use crate::codec::unit::Unit;
use crate::config::limits::{LANES, WINDOW_UNITS};
use crate::config::{CoreConfig, FeedbackKind};
use crate::core::credit::Credit;
use crate::core::drain::Drain;
use crate::fobs::{self, Bitmap};
use crate::sabul;
use crate::seam::TRAIN_PACKETS;
use crate::stats::FlowStats;
use crate::udt::{self, Impossible, Message, UnitStatus};

/// The receiver of one flow.
#[derive(Debug)]
pub(crate) struct UnitReceiver {
    feedback: FeedbackReceiver,
    /// Units placed and not yet passed to the feedback: first and end.
    placed: Option<(u64, u64)>,
    /// Units that arrived on another lane than those before them.
    order: Order,
    /// The data packets of the current batch so far.
    batch: Option<Batch>,
    host_drops: [u32; LANES],
    drain: Drain,
    room: ByteCount,
    /// Payload bytes of the largest unit so far, or those of the smallest datagram.
    size: u64,
    warnings: bool,
    lane: u8,
}

/// The data packets of one batch.
#[derive(Clone, Copy, Debug)]
struct Batch {
    first: Unit,
    last: u64,
    packets: u32,
}

impl UnitReceiver {
    pub(crate) fn new(config: &CoreConfig, now: Time) -> Self {
        let feedback = match config.feedback {
            FeedbackKind::Udt(variant) => {
                let udt = udt::ReceiverConfig {
                    variant,
                    first: 0,
                    window: WINDOW_UNITS,
                    train: config.train.clamp(1, TRAIN_PACKETS),
                    socket: None,
                };
                FeedbackReceiver::Udt(Box::new(udt::Receiver::new(udt, now)))
            }
            FeedbackKind::Sabul => {
                // The owner's ceiling is the requested rate (section 4, Open: the smaller offer).
                let requested = config.rate_ceiling;
                FeedbackReceiver::Sabul(Box::new(sabul::Receiver::new(
                    WINDOW_UNITS,
                    requested,
                    now,
                )))
            }
            // The native feedback has a receiver of its own.
            FeedbackKind::Fobs | FeedbackKind::Native => {
                FeedbackReceiver::Fobs(Box::new(fobs::Receiver::new(WINDOW_UNITS, now)))
            }
        };
        let mut receiver = Self {
            feedback,
            placed: None,
            order: Order::default(),
            batch: None,
            host_drops: [0; LANES],
            drain: Drain::new(now, config.room),
            room: config.room,
            size: config.mtu.get() - UNIT_OVERHEAD as u64,
            warnings: config.warnings,
            lane: 0,
        };
        receiver.set_room(now, config.room);
        receiver
    }

    /// The unit number near which the next ones are expected.
    pub(crate) fn expected(&self) -> u64 {
        self.feedback.next()
    }

    /// How a unit relates to what has arrived. Units before it have been placed.
    pub(crate) fn check(&mut self, now: Time, unit: u64) -> UnitStatus {
        if self.placed.is_some_and(|(_, end)| end != unit) {
            self.flush(now);
        }
        if self.order.overlaps(unit, unit + 1) {
            UnitStatus::Duplicate
        } else {
            self.feedback.check(unit)
        }
    }

    /// Whether all `count` units from `first` on are new.
    pub(crate) fn all_new(&self, first: u64, count: u32) -> bool {
        let end = first + u64::from(count);
        let apart = self.placed.is_none_or(|placed| first >= placed.1 || end <= placed.0);
        apart
            && first >= self.feedback.top()
            && !self.order.overlaps(first, end)
            && self.feedback.check(end - 1) == UnitStatus::New
    }

    /// Consecutive units of at most `size` bytes arrived, placed or not.
    #[inline]
    pub(crate) fn on_arrival(&mut self, unit: Unit, packets: u32, size: u64) {
        self.size = self.size.max(size);
        let last = unit.first + u64::from(packets) - 1;
        match &mut self.batch {
            Some(batch) => {
                // A pause within the batch counts like one before it.
                batch.first.joined &= unit.joined;
                batch.last = last;
                batch.packets += packets;
            }
            None => self.batch = Some(Batch { first: unit, last, packets }),
        }
    }

    /// Consecutive new units with this many bytes were placed; `repeats` of them held no new bytes.
    #[inline]
    pub(crate) fn on_placed(
        &mut self,
        now: Time,
        first: u64,
        (packets, repeats): (u32, u32),
        bytes: u64,
        stats: &mut FlowStats,
    ) {
        stats.duplicate_packets += u64::from(repeats);
        self.drain.placed += bytes;
        let end = first + u64::from(packets);
        match &mut self.placed {
            Some(placed) if placed.1 == first => placed.1 = end,
            _ => {
                self.flush(now);
                self.placed = Some((first, end));
            }
        }
    }

    /// Passes the placed units to the feedback.
    pub(crate) fn flush(&mut self, now: Time) {
        let Some((first, end)) = self.placed.take() else { return };
        if first > self.feedback.top() {
            self.order.hold(now, first, end);
        } else {
            self.feedback.take(now, first, (end - first) as u32);
        }
    }

    /// Passes units to the feedback that have waited long enough for other lanes.
    fn release(&mut self, now: Time) {
        while let Some((first, end)) = self.order.pop(now, self.feedback.top()) {
            self.feedback.take(now, first, (end - first) as u32);
        }
    }

    /// Passes all units that wait for other lanes to the feedback.
    fn release_all(&mut self, now: Time) {
        while let Some((first, end)) = self.order.pop_all() {
            self.feedback.take(now, first, (end - first) as u32);
        }
    }

    /// Finishes a batch.
    pub(crate) fn on_batch(&mut self, now: Time, received_at: Time, lane: u8) {
        self.flush(now);
        self.lane = lane;
        if let Some(Batch { first, last, packets }) = self.batch.take() {
            self.order.on_batch(now, lane, last.saturating_add(1));
            self.feedback.on_batch((now, received_at), first.first, last, packets, first.joined);
        }
        if !self.order.is_empty() {
            self.release(now);
        }
    }

    /// Sets the room of the pool. The bytes that the application drains during a round trip count
    /// as room, and units beyond a gap already have their place.
    pub(crate) fn set_room(&mut self, now: Time, room: ByteCount) {
        self.room = room;
        self.drain.update(now, room);
        let credit = Credit { room, drain: self.drain.rate };
        let bytes = credit.limit(self.feedback.rtt().unwrap_or(Duration::ZERO));
        self.feedback
            .set_room(now, bytes.get() / self.size + self.feedback.held() + self.order.len());
    }

    /// The sender asks for feedback.
    pub(crate) fn request_feedback(&mut self, now: Time) {
        self.feedback.request_feedback(now);
    }

    pub(crate) fn host_drops(&mut self, lane: u8, total: u32) {
        if let Some(slot) = self.host_drops.get_mut(usize::from(lane)) {
            *slot = total;
        }
    }

    fn total_host_drops(&self) -> u64 {
        self.host_drops.iter().map(|n| u64::from(*n)).sum()
    }

    /// The host's counters for an acknowledgement.
    pub(crate) fn host(&self, stats: &FlowStats) -> Host {
        Host {
            drops: self.total_host_drops(),
            refused: stats.refused_packets,
            ecn_ce: stats.ecn_ce,
            drain: self.drain.rate,
        }
    }

    /// Handles a message of the sender.
    pub(crate) fn on_message(&mut self, now: Time, message: &Message) -> Result<(), Impossible> {
        self.flush(now);
        if matches!(message, Message::Drop { .. }) {
            self.release_all(now);
        }
        self.feedback.on_message(now, message)
    }

    pub(crate) fn handle_timeout(&mut self, now: Time) {
        self.release(now);
        self.feedback.handle_timeout(now);
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.feedback.poll_timeout().into_iter().chain(self.order.poll_timeout()).min()
    }

    /// The next message to the sender.
    pub(crate) fn poll_message(&mut self, now: Time) -> Option<Message> {
        let mut next = || self.feedback.poll_message(now);
        let message = next();
        if message == Some(Message::Warning) && !self.warnings { next() } else { message }
    }

    /// Handles a request for a complete acknowledgement.
    pub(crate) fn on_bitmap_request(&mut self, now: Time, rtt: Duration) -> Result<(), Impossible> {
        self.flush(now);
        self.feedback.on_bitmap_request(now, rtt)
    }

    /// Handles a message of the reliable channel.
    pub(crate) fn on_reliable_message(
        &mut self,
        now: Time,
        word: &sabul::Message,
    ) -> Result<(), Impossible> {
        self.flush(now);
        if matches!(word, sabul::Message::Drop { .. }) {
            self.release_all(now);
        }
        self.feedback.on_reliable_message(now, word)
    }

    /// The next message for the reliable channel.
    pub(crate) fn poll_reliable_message(&mut self, now: Time) -> Option<sabul::Message> {
        self.feedback.poll_reliable_message(now)
    }

    /// The next bitmap to the sender.
    pub(crate) fn poll_bitmap(&mut self, now: Time) -> Option<Bitmap> {
        self.feedback.poll_bitmap(now)
    }

    /// The lane of the last received packet; messages use it.
    pub(crate) fn lane(&self) -> u8 {
        self.lane
    }

    /// Writes its gauges.
    pub(crate) fn gauges(&self, stats: &mut FlowStats) {
        let rtt = stats.rtt;
        self.feedback.gauges(stats);
        stats.rtt = stats.rtt.or(rtt);
        stats.host_drops = self.total_host_drops();
    }
}
