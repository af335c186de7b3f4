//! The receiving endpoint: which units came, and what there is room for.

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
use crate::udt::{self, Impossible, Message, Seen};

/// The receiver's side of one flow.
#[derive(Debug)]
pub(crate) struct UnitReceiver {
    feedback: FeedbackReceiver,
    /// Units that were placed and that the feedback is still to be told: first and end.
    placed: Option<(u64, u64)>,
    /// What came by another lane than what is before it.
    order: Order,
    /// What the batch that is being worked through brought so far.
    batch: Option<Batch>,
    host_drops: [u32; LANES],
    drain: Drain,
    room: ByteCount,
    /// Payload bytes of a full unit, as far as known.
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
                };
                FeedbackReceiver::Udt(Box::new(udt::Receiver::new(udt, now)))
            }
            FeedbackKind::Sabul => {
                // What the owner allows is what it asks for (section 4, Open: the smaller offer).
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

    /// The unit near which those to come are.
    pub(crate) fn expected(&self) -> u64 {
        self.feedback.next()
    }

    /// What a unit is to it. Those before it were placed already.
    pub(crate) fn check(&mut self, now: Time, unit: u64) -> Seen {
        if self.placed.is_some_and(|(_, end)| end != unit) {
            self.flush(now);
        }
        if self.order.overlaps(unit, unit + 1) { Seen::Again } else { self.feedback.check(unit) }
    }

    /// Whether so many units from `first` on are all new.
    pub(crate) fn all_new(&self, first: u64, count: u32) -> bool {
        let end = first + u64::from(count);
        let apart = self.placed.is_none_or(|placed| first >= placed.1 || end <= placed.0);
        apart
            && first >= self.feedback.top()
            && !self.order.overlaps(first, end)
            && self.feedback.check(end - 1) == Seen::New
    }

    /// Consecutive units came, placed or not.
    #[inline]
    pub(crate) fn on_arrival(&mut self, unit: Unit, packets: u32) {
        let last = unit.first + u64::from(packets) - 1;
        match &mut self.batch {
            Some(batch) => {
                // A pause within the batch is as bad as one before it.
                batch.first.joined &= unit.joined;
                batch.last = last;
                batch.packets += packets;
            }
            None => self.batch = Some(Batch { first: unit, last, packets }),
        }
    }

    /// Consecutive new units were placed, of so many bytes; `repeats` of them held nothing new.
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

    /// Tells the feedback what was placed.
    pub(crate) fn flush(&mut self, now: Time) {
        let Some((first, end)) = self.placed.take() else { return };
        if first > self.feedback.top() {
            self.order.hold(now, first, end);
        } else {
            self.feedback.take(now, first, (end - first) as u32);
        }
    }

    /// Tells the feedback what has waited for other lanes long enough.
    fn release(&mut self, now: Time) {
        while let Some((first, end)) = self.order.pop(now, self.feedback.top()) {
            self.feedback.take(now, first, (end - first) as u32);
        }
    }

    /// Tells the feedback all that waits for other lanes.
    fn release_all(&mut self, now: Time) {
        while let Some((first, end)) = self.order.pop_all() {
            self.feedback.take(now, first, (end - first) as u32);
        }
    }

    /// A batch was worked through.
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

    /// The pool has this much room. What the application drains during a round trip is room too,
    /// and what arrived beyond a gap has its place already.
    pub(crate) fn set_room(&mut self, now: Time, room: ByteCount) {
        self.room = room;
        self.drain.update(now, room);
        let credit = Credit { room, drain: self.drain.rate };
        let bytes = credit.limit(self.feedback.rtt().unwrap_or(Duration::ZERO));
        self.feedback
            .set_room(now, bytes.get() / self.size + self.feedback.held() + self.order.len());
    }

    pub(crate) fn host_drops(&mut self, lane: u8, total: u32) {
        if let Some(slot) = self.host_drops.get_mut(usize::from(lane)) {
            *slot = total;
        }
    }

    fn total_host_drops(&self) -> u64 {
        self.host_drops.iter().map(|n| u64::from(*n)).sum()
    }

    /// What to tell of the host beside an acknowledgement.
    pub(crate) fn host(&self, stats: &FlowStats) -> Host {
        Host {
            drops: self.total_host_drops(),
            refused: stats.refused_packets,
            ecn_ce: stats.ecn_ce,
            drain: self.drain.rate,
        }
    }

    /// The sender said something of the data.
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

    /// What to tell the sender.
    pub(crate) fn poll_message(&mut self, now: Time) -> Option<Message> {
        let mut next = || self.feedback.poll_message(now);
        let message = next();
        if message == Some(Message::Warning) && !self.warnings { next() } else { message }
    }

    /// The sender wants everything told.
    pub(crate) fn on_ask(&mut self, now: Time, rtt: Duration) -> Result<(), Impossible> {
        self.flush(now);
        self.feedback.on_ask(now, rtt)
    }

    /// The sender said this by the channel that loses nothing.
    pub(crate) fn on_word(&mut self, now: Time, word: &sabul::Message) -> Result<(), Impossible> {
        self.flush(now);
        if matches!(word, sabul::Message::Drop { .. }) {
            self.release_all(now);
        }
        self.feedback.on_word(now, word)
    }

    /// What to tell the sender by that channel.
    pub(crate) fn poll_word(&mut self, now: Time) -> Option<sabul::Message> {
        self.feedback.poll_word(now)
    }

    /// What to tell the sender as a bitmap.
    pub(crate) fn poll_bitmap(&mut self, now: Time) -> Option<Bitmap> {
        self.feedback.poll_bitmap(now)
    }

    /// The lane heard last, by which messages go.
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
