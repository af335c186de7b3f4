//! The sending end: its state and its driver.

use packtrain_cc::{CongestionController, ControllerConfig, LossRange, Signal, Signals, Start};
use packtrain_link::{Pace, Segments};
use packtrain_units::{ByteCount, Time};

use super::Shape;
use super::log::Log;
use super::prr::Prr;
use super::rate::RateSampler;
use super::recovery_newreno::NewReno;
use super::recovery_rack::Rack;
use super::rto::Rto;
use super::scoreboard::Scoreboard;
use super::timers::Timers;
use crate::SimError;
use crate::agent::build::Place;
use crate::agent::{Agent, Counts, Ctx, Curve};
use crate::spec::{Recovery, TcpSpec};
use crate::train::{Body, Train};

/// State of loss recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// No known loss.
    Open,
    /// Recovery until all segments below are acknowledged.
    Recovery(u64),
    /// After a timeout, until all segments below are acknowledged.
    Loss(u64),
}

/// State of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// Not started.
    Idle,
    /// SYN sent this many times.
    Opening(u32),
    /// Data may flow.
    Open,
    /// All data is acknowledged.
    Done(Time),
}

/// Sends segments as its controller allows, and repairs losses with one of three methods.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(super) shape: Shape,
    pub(super) cc: Box<dyn CongestionController>,
    /// Whether packets are sent at the controller's pace.
    pub(super) paced: bool,
    /// Whether the controller uses delivery rates.
    pub(super) wants_rate: bool,
    pub(super) method: Recovery,
    /// The receiver's window in segments.
    pub(super) window: u64,
    /// The receiver has room for all segments below; only a depot has limited room.
    pub(super) edge: u64,
    /// All segments below may be sent: at a depot what it has, elsewhere everything.
    pub(super) available: u64,
    pub(super) life: Life,
    pub(super) phase: Phase,
    /// All segments below are acknowledged; none from `nxt` on was sent.
    pub(super) una: u64,
    pub(super) nxt: u64,
    /// The next send index.
    pub(super) index: u64,
    pub(super) largest_acked: Option<u64>,
    /// The round ends when this index is acknowledged.
    pub(super) round_end: u64,
    /// Losses of lower indices belong to a round whose loss was reported.
    pub(super) loss_round: u64,
    pub(super) log: Log,
    pub(super) board: Scoreboard,
    pub(super) rto: Rto,
    pub(super) rate: RateSampler,
    pub(super) timers: Timers,
    pub(super) prr: Option<Prr>,
    pub(super) newreno: NewReno,
    pub(super) rack: Rack,
    /// Retransmissions allowed regardless of the window.
    pub(super) forced: u64,
    /// Losses not yet reported to the controller.
    pub(super) losses: Vec<LossRange>,
    /// Paced packets that are not offered yet.
    pub(super) staged: Option<(Pace, Train)>,
    pub(super) counts: Counts,
}

impl Sender {
    /// # Errors
    /// An unknown controller.
    pub(crate) fn new(spec: &TcpSpec, place: &Place) -> Result<Self, SimError> {
        Self::connection(spec, Shape::new(spec, place, 0, place.start), place.seed)
    }

    /// The sending end of one connection.
    ///
    /// # Errors
    /// An unknown controller.
    pub(crate) fn connection(spec: &TcpSpec, shape: Shape, seed: u64) -> Result<Self, SimError> {
        let config =
            ControllerConfig { mtu: spec.mss, seed, now: shape.start, ceiling: None, rtt: None };
        let start = Start {
            initial_window: spec.initial_window,
            paced: spec.paced,
            // A sender with Linux' recovery also counts as Linux does.
            whole_packets: spec.recovery == Recovery::Rack,
        };
        let cc = packtrain_cc::build_with(&spec.cc, &config, &start).map_err(|error| {
            SimError::invalid(format!("flows[{}].cc", shape.flow), error.to_string())
        })?;
        let window = spec.window.map_or(u64::MAX, |w| (w.get() / spec.mss.get().max(1)).max(1));
        let timers = Timers::start_at(shape.start);
        Ok(Self {
            paced: spec.paced || cc.paces_itself(),
            wants_rate: cc.paces_itself()
                || cc.needs().covers(Signals::of(&[Signal::DeliveryRate])),
            cc,
            method: spec.recovery,
            window,
            edge: u64::MAX,
            available: u64::MAX,
            life: Life::Idle,
            phase: Phase::Open,
            una: 0,
            nxt: 0,
            index: 0,
            largest_acked: None,
            round_end: 0,
            loss_round: 0,
            log: Log::default(),
            board: Scoreboard::default(),
            rto: Rto::new(spec.min_rto, spec.recovery == Recovery::Rack),
            rate: RateSampler::default(),
            timers,
            prr: None,
            newreno: NewReno::default(),
            rack: Rack::default(),
            forced: 0,
            losses: Vec::new(),
            staged: None,
            counts: Counts::default(),
            shape,
        })
    }

    /// Limits the sender to the receive buffer of a depot, in segments.
    pub(crate) fn limit_to(&mut self, room: u64) {
        self.edge = room;
    }

    /// A sender in a depot: sends nothing, not even the SYN, before data is available.
    pub(crate) fn waiting(mut self) -> Self {
        self.available = 0;
        self.timers.deadline = Time::MAX;
        self
    }

    /// All segments below `until` may be sent from `now` on. The first one opens the connection.
    pub(crate) fn available_until(&mut self, until: u64, now: Time, ctx: &mut Ctx<'_>) {
        if until <= self.available {
            return;
        }
        self.available = until;
        match self.life {
            Life::Idle if self.timers.deadline == Time::MAX => self.open(now, ctx),
            Life::Open => {
                self.output(now, ctx);
                // The window may be closed.
                if self.timers.deadline == Time::MAX {
                    self.arm(now);
                }
            }
            _ => {}
        }
        self.flush(ctx);
    }

    /// All segments below are acknowledged.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.una
    }

    /// Segments sent and not cumulatively acknowledged.
    #[inline]
    pub(super) fn outstanding(&self) -> u64 {
        self.nxt - self.una
    }

    /// Segments in the network, as far as known (RFC 6675's pipe).
    #[inline]
    pub(super) fn pipe(&self) -> u64 {
        (self.outstanding() - self.board.absent()).saturating_sub(self.newreno.duplicates())
    }

    /// The controller's window in segments, without the receiver's limit.
    #[inline]
    pub(super) fn cwnd(&self) -> u64 {
        self.cc.cwnd().get() / u64::from(self.shape.mss)
    }

    /// Whether the controller alone sets the window even during recovery.
    #[inline]
    pub(super) fn self_governed(&self) -> bool {
        self.cc.paces_itself()
    }

    /// When all data was acknowledged.
    pub(crate) fn done_at(&self) -> Option<Time> {
        match self.life {
            Life::Done(at) => Some(at),
            _ => None,
        }
    }

    /// When it started.
    pub(crate) fn started(&self) -> Time {
        self.shape.start
    }

    fn acks(&mut self, pace: Pace, train: &Train, step: u32, room: u32, ctx: &mut Ctx<'_>) {
        let mut number = train.first;
        for i in 0..train.count() {
            let at = pace.time(i);
            self.act_on_timers(at, ctx);
            self.on_ack(at, number, room, None, ctx);
            number += u64::from(step);
        }
    }
}

impl Agent for Sender {
    fn on_train(&mut self, pace: Pace, train: Train, ctx: &mut Ctx<'_>) -> Option<Train> {
        match &train.body {
            Body::Ack { step, room } => self.acks(pace, &train, *step, *room, ctx),
            Body::Sack(sack) => {
                for i in 0..train.count() {
                    self.act_on_timers(pace.time(i), ctx);
                    self.on_ack(pace.time(i), train.first, sack.room, Some(sack), ctx);
                }
            }
            Body::SynAck => self.on_opened(pace.first, ctx),
            _ => {}
        }
        self.flush(ctx);
        None
    }

    fn on_timer(&mut self, _: Time, ctx: &mut Ctx<'_>) {
        self.run_timers(ctx.horizon(), ctx);
    }

    fn poll_timeout(&self) -> Option<Time> {
        let next = self.next_timeout();
        (next != Time::MAX).then_some(next)
    }

    fn counts(&self) -> Counts {
        self.counts
    }

    fn curve(&self) -> Option<Curve> {
        Some(Curve {
            cwnd: Some(self.cc.cwnd()),
            in_flight: self.shape.segments_as_bytes(self.pipe()),
            pacing_rate: if self.paced { self.cc.pacing_rate() } else { None },
            acked: Some(ByteCount(self.shape.bytes(0, self.una))),
            rtt: self.rto.rtt().map(|rtt| rtt.latest),
            ..Curve::default()
        })
    }

    fn completed_at(&self) -> Option<Time> {
        self.done_at()
    }
}
