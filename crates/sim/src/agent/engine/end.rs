//! One end of an engine's flow in the simulation.

use packtrain_cc::udt::Variant;
use packtrain_cc::{ControllerConfig, build};
use packtrain_link::Pace;
use packtrain_proto::bare::BareConfig;
use packtrain_proto::{Event, FeedbackKind, FlowStats, Role};
use packtrain_units::{ByteCount, Duration, Time};

use super::batch::Batch;
use super::channel::Channel;
use super::intake::Intake;
use super::wire::{Leaving, Setup, Wire};
use crate::SimError;
use crate::agent::Ctx;
use crate::agent::build::Place;
use crate::spec::EngineSpec;
use crate::train::{Body, EngineBody, Segment, Toward, Train};

/// Bytes of IPv4 and UDP headers.
const HEADERS: u64 = 28;
/// Bytes that an endless source offers.
const ENDLESS_ROOM: ByteCount = ByteCount(1 << 60);
/// An engine that asks to be called at once this often without sending anything is called again
/// after this time.
const IDLE_TURNS: (u32, Duration) = (8, Duration::from_micros(50));

/// One end.
#[derive(Debug)]
pub(super) struct End {
    wire: Wire,
    intake: Intake,
    channel: Channel,
    flow: u32,
    peer: u32,
    toward: Toward,
    stop: Option<Time>,
    /// When it must be called next.
    due: Option<Time>,
    now: Time,
    idle_turns: u32,
    sent: u64,
    /// Whether it sends endlessly, so that idle does not mean completed.
    endless: bool,
    completed_at: Option<Time>,
}

impl End {
    pub(super) fn new(role: Role, spec: &EngineSpec, place: &Place) -> Result<Self, SimError> {
        let now = place.start;
        let field = |name: &str| format!("flows[{}].{name}", place.flow);
        let sends = role == Role::Sender;
        let EngineSpec { mtu, ceiling, .. } = *spec;
        let controller = if sends {
            let config = ControllerConfig { mtu, seed: place.seed, now, ceiling, rtt: None };
            let controller = build(&spec.cc, &config);
            let mut controller =
                controller.map_err(|e| SimError::invalid(field("cc"), e.to_string()))?;
            if let Some(saved) = spec.saved {
                controller.on_saved_path(saved);
            }
            Some(controller)
        } else {
            None
        };
        let feedback = match spec.cc.split(':').next() {
            Some("sabul") => FeedbackKind::Sabul,
            Some("udt") => FeedbackKind::Udt(Variant::of_controller(&spec.cc)),
            Some("fobs") => FeedbackKind::Fobs,
            _ => FeedbackKind::Native,
        };
        let config = BareConfig {
            mtu,
            max_mtu: mtu,
            rate_ceiling: ceiling,
            seed: place.seed ^ u64::from(!sends),
            feedback,
            train: spec.train,
            warnings: spec.warnings,
            ecn: spec.ecn,
            probe_train: spec.probe_train,
            ..BareConfig::new(role)
        };
        let setup = Setup { role, codec: spec.codec, config, controller };
        let mut wire =
            Wire::new(setup, now).map_err(|e| SimError::invalid(field("mtu"), e.to_string()))?;
        if sends {
            wire.assign(spec.bytes.unwrap_or(ENDLESS_ROOM));
        }
        let intake = match &place.host {
            _ if sends => Intake::Plain(Batch::single()),
            Some(host) => Intake::host(host, place.seed),
            None if spec.coalesce => Intake::Plain(Batch::coalescing()),
            None => Intake::Plain(Batch::single()),
        };
        Ok(Self {
            wire,
            intake,
            channel: Channel::default(),
            flow: place.flow,
            peer: if sends { place.to } else { place.from },
            toward: if sends { Toward::Receiver } else { Toward::Sender },
            stop: sends.then_some(place.stop),
            due: Some(now),
            now,
            idle_turns: 0,
            sent: 0,
            endless: spec.bytes.is_none(),
            completed_at: None,
        })
    }

    /// When it must be called next.
    pub(super) fn due(&self) -> Option<Time> {
        self.due
    }

    pub(super) fn completed_at(&self) -> Option<Time> {
        self.completed_at
    }

    pub(super) fn stats(&self) -> FlowStats {
        self.wire.stats()
    }

    pub(super) fn delivered(&self) -> ByteCount {
        self.wire.delivered()
    }

    /// Packets arrive. Timers due between two of them run between them.
    pub(super) fn on_train(&mut self, pace: Pace, train: Train, ctx: &mut Ctx<'_>) {
        if let Body::Engine(body) = &train.body
            && let EngineBody::Channel(segment) = &**body
        {
            self.on_segment(pace.first, segment.clone(), ctx);
            return;
        }
        let mut rest = Some((pace, train));
        while let Some((pace, train)) = rest.take() {
            while let Some(due) = self.due.filter(|due| *due < pace.first) {
                self.step(due, ctx);
            }
            // At the same instant the packet comes first.
            let until = self.due.unwrap_or(Time::MAX);
            let at = pace.first;
            rest = self.intake.take(pace, train, until);
            let last = self.intake.last().max(at);
            match self.intake.due() {
                Some(due) if due <= last => self.step(last, ctx),
                due => self.due = self.due.into_iter().chain(due).min(),
            }
        }
        self.run(ctx);
    }

    /// A segment of the channel arrives; it uses its own socket.
    fn on_segment(&mut self, at: Time, segment: Segment, ctx: &mut Ctx<'_>) {
        while let Some(due) = self.due.filter(|due| *due < at) {
            self.step(due, ctx);
        }
        let bytes = self.channel.arrive(at, segment);
        if !bytes.is_empty() {
            self.wire.handle_reliable(at, &bytes);
        }
        self.step(at, ctx);
        self.run(ctx);
    }

    /// Runs the timers due at `now`.
    pub(super) fn on_timer(&mut self, now: Time, ctx: &mut Ctx<'_>) {
        if self.due.is_some_and(|due| due <= now) {
            self.step(now, ctx);
        }
        self.run(ctx);
    }

    /// Runs the timers that are due before anything else can happen at the node.
    fn run(&mut self, ctx: &mut Ctx<'_>) {
        while let Some(due) = self.due.filter(|due| *due < ctx.horizon()) {
            self.step(due, ctx);
        }
    }

    /// Does all that is due at this instant.
    fn step(&mut self, now: Time, ctx: &mut Ctx<'_>) {
        let now = now.max(self.now);
        self.now = now;
        self.turn(now, ctx);
        while self.due.is_some_and(|due| due <= now) {
            self.turn(now, ctx);
        }
    }

    /// Handles one step: reads, sends what may be sent, and determines when to be called next.
    fn turn(&mut self, now: Time, ctx: &mut Ctx<'_>) {
        self.intake.read(now, &mut self.wire);
        if self.stop.is_some_and(|stop| stop <= now) {
            self.stop = None;
            self.wire.close(now);
        }
        if self.wire.poll_timeout().is_some_and(|at| at <= now) {
            self.wire.handle_timeout(now);
        }
        let before = self.sent;
        while let Some(leaving) = self.wire.poll_transmit(now) {
            self.send(now, leaving, ctx);
        }
        self.channel.handle_timeout(now);
        while let Some(words) = self.wire.poll_reliable() {
            self.channel.write(now, &words);
        }
        while let Some(segment) = self.channel.poll() {
            let body = EngineBody::Channel(segment.clone());
            self.leave(now, (1, 0), segment.size(), body, ctx);
        }
        while let Some(event) = self.wire.poll_event() {
            if event == Event::Idle && self.completed_at.is_none() {
                self.completed_at = (!self.endless).then_some(now);
                self.wire.close(now);
            }
        }
        let mut wire = self.wire.poll_timeout();
        let idle = self.sent == before && wire.is_some_and(|due| due <= now);
        self.idle_turns = if idle { self.idle_turns + 1 } else { 0 };
        let (turns, pause) = IDLE_TURNS;
        if self.idle_turns > turns {
            wire = Some(now + pause);
        }
        self.due = [self.intake.due(), self.stop, wire, self.channel.poll_timeout()]
            .into_iter()
            .flatten()
            .min();
    }

    fn send(&mut self, now: Time, leaving: Leaving, ctx: &mut Ctx<'_>) {
        let Leaving { count, size, ecn, body } = leaving;
        self.leave(now, (count, ecn), size + ByteCount(HEADERS), body, ctx);
    }

    /// Sends packets of `size` bytes each from the network header on.
    fn leave(
        &mut self,
        now: Time,
        (count, ecn): (u32, u8),
        size: ByteCount,
        body: EngineBody,
        ctx: &mut Ctx<'_>,
    ) {
        let train = Train {
            flow: self.flow,
            conn: 0,
            to: self.peer,
            size: size.get() as u32,
            count,
            toward: self.toward,
            first: self.sent,
            ecn,
            body: Body::Engine(Box::new(body)),
        };
        self.sent += u64::from(count);
        ctx.send(Pace::at(now), train);
    }
}
