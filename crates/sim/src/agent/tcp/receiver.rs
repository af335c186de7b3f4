//! The receiving end.

use packtrain_link::{Pace, Segments};
use packtrain_units::{Duration, RangeSet, Time};

use super::Shape;
use super::ack::Reporter;
use super::space::Space;
use crate::agent::build::Place;
use crate::agent::{Agent, Counts, Ctx};
use crate::spec::{Recovery, TcpSpec};
use crate::train::{Body, ROOM, Train};

/// Takes segments in any order and acknowledges them: every `ack_every`-th at once, others after
/// `ack_delay` (RFC 5681 section 4.2); at once for segments that are out of order, fill a gap, are
/// duplicates, or are the last.
#[derive(Debug)]
pub(crate) struct Receiver {
    shape: Shape,
    ack_every: u32,
    ack_delay: Duration,
    sack: bool,
    /// All segments below have arrived.
    next: u64,
    /// Segments that arrived beyond a gap.
    held: RangeSet<u64>,
    reporter: Reporter,
    /// Segments in order that are not acknowledged yet.
    pending: u32,
    /// When they must be acknowledged.
    deadline: Time,
    delivered: u64,
    /// The receive buffer; none for unlimited room.
    pub(super) space: Option<Space>,
}

impl Receiver {
    pub(crate) fn new(spec: &TcpSpec, place: &Place) -> Self {
        Self::connection(spec, Shape::new(spec, place, 0, place.start))
    }

    /// The receiving end of one connection.
    pub(crate) fn connection(spec: &TcpSpec, shape: Shape) -> Self {
        Self {
            shape,
            ack_every: spec.ack_every.max(1),
            ack_delay: spec.ack_delay,
            sack: spec.recovery != Recovery::NewReno,
            next: 0,
            held: RangeSet::new(),
            reporter: Reporter::default(),
            pending: 0,
            deadline: Time::MAX,
            delivered: 0,
            space: None,
        }
    }

    /// The receiving end of a depot, with limited room.
    pub(crate) fn bounded(self, space: Space) -> Self {
        Self { space: Some(space), ..self }
    }

    /// Segments that have arrived in order.
    pub(crate) fn in_sequence(&self) -> u64 {
        self.next
    }

    /// The reader has room for all segments below `until`. A sender that waits for room gets an
    /// update once the room is worth a packet.
    pub(crate) fn readable_until(&mut self, until: u64, at: Time, ctx: &mut Ctx<'_>) {
        let Some(space) = &mut self.space else { return };
        space.readable_until(until);
        if space.needs_update(self.next) && !self.complete() {
            self.acknowledge(at, ctx);
        }
    }

    /// The room that an acknowledgement of all segments below `number` advertises.
    fn room(&mut self, number: u64) -> u32 {
        self.space.as_mut().map_or(ROOM, |space| space.room(number))
    }

    /// Whether everything has arrived.
    pub(crate) fn complete(&self) -> bool {
        self.next == self.shape.segments
    }

    fn acknowledge(&mut self, at: Time, ctx: &mut Ctx<'_>) {
        self.pending = 0;
        self.deadline = Time::MAX;
        let room = self.room(self.next);
        let body = match self.sack && !self.held.is_empty() {
            true => Body::Sack(Box::new(self.reporter.report(&self.held, None, room))),
            false => Body::Ack { step: 0, room },
        };
        ctx.send(Pace::at(at), self.shape.back(self.next, 1, body));
    }

    /// Handles a train of segments in order, without gaps and without a timer expiring. Returns
    /// whether it was such a train.
    fn in_order(&mut self, pace: Pace, train: &Train, ctx: &mut Ctx<'_>) -> bool {
        let (every, count) = (self.ack_every, train.count());
        // Index of the packet that triggers the first acknowledgement.
        let first = every - 1 - self.pending;
        let in_time = pace.gap * u64::from(every - 1) <= self.ack_delay
            && (self.pending == 0 || pace.time(first.min(count - 1)) <= self.deadline);
        if train.first != self.next || !self.held.is_empty() || !in_time {
            return false;
        }
        let acks = (self.pending + count) / every;
        let left = (self.pending + count) % every;
        let start = self.next;
        self.next += u64::from(count);
        self.delivered += self.shape.bytes(start, u64::from(count));
        if acks > 0 {
            let pace = Pace { first: pace.time(first), gap: pace.gap * u64::from(every) };
            let number = start + u64::from(first) + 1;
            let step = if acks == 1 { 0 } else { every };
            let room = self.room(number);
            ctx.send(pace, self.shape.back(number, acks, Body::Ack { step, room }));
        }
        if left == 0 {
            self.deadline = Time::MAX;
        } else if acks > 0 || self.pending == 0 {
            self.deadline = pace.time(count - left) + self.ack_delay;
        }
        self.pending = left;
        if left > 0 && self.complete() {
            self.acknowledge(pace.time(count - 1), ctx);
        }
        true
    }

    fn segment(&mut self, at: Time, segment: u64, ctx: &mut Ctx<'_>) {
        if segment < self.next || self.held.contains(segment) {
            return self.duplicate(at, segment, ctx);
        }
        self.delivered += self.shape.bytes(segment, 1);
        if segment > self.next {
            self.held.insert(segment..segment + 1);
            self.reporter.arrived(segment, &self.held);
            return self.acknowledge(at, ctx);
        }
        let gap = !self.held.is_empty();
        self.next += 1;
        if let Some(first) = self.held.first()
            && first.start == self.next
        {
            self.next = first.end;
            self.held.pop_front(first.end - first.start);
            if self.held.is_empty() {
                self.reporter.clear();
            }
        }
        self.pending += 1;
        if gap || self.pending >= self.ack_every || self.complete() {
            self.acknowledge(at, ctx);
        } else if self.pending == 1 {
            self.deadline = at + self.ack_delay;
        }
    }

    fn duplicate(&mut self, at: Time, segment: u64, ctx: &mut Ctx<'_>) {
        // Short connections drop their state once complete: the answer is then plain.
        if !self.sack || self.complete() {
            return self.acknowledge(at, ctx);
        }
        self.pending = 0;
        self.deadline = Time::MAX;
        let room = self.room(self.next);
        let report = self.reporter.report(&self.held, Some(segment), room);
        ctx.send(Pace::at(at), self.shape.back(self.next, 1, Body::Sack(Box::new(report))));
    }
}

impl Agent for Receiver {
    fn on_train(&mut self, pace: Pace, train: Train, ctx: &mut Ctx<'_>) -> Option<Train> {
        match train.body {
            Body::Syn => {
                ctx.send(Pace::at(pace.first), self.shape.back(train.first, 1, Body::SynAck));
            }
            Body::Probe => self.acknowledge(pace.first, ctx),
            Body::Data { .. } if !self.in_order(pace, &train, ctx) => {
                for i in 0..train.count() {
                    let at = pace.time(i);
                    if self.deadline < at {
                        self.acknowledge(self.deadline, ctx);
                    }
                    self.segment(at, train.first + u64::from(i), ctx);
                }
            }
            _ => {}
        }
        None
    }

    fn on_timer(&mut self, now: Time, ctx: &mut Ctx<'_>) {
        if self.deadline <= now {
            self.acknowledge(now, ctx);
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        (self.deadline != Time::MAX).then_some(self.deadline)
    }

    fn counts(&self) -> Counts {
        Counts { delivered: self.delivered, ..Counts::default() }
    }
}
