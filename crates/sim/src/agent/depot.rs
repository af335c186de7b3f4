//! A depot of the Logistical Session Layer: it ends one TCP connection and starts the next.
//!
//! Data that arrives in order passes three buffers: the kernel's of the first connection, the
//! process', the kernel's of the second. The process copies in zero time as soon as there is room.
//! The first connection's window therefore closes when all three are full, and opens as the next
//! hop acknowledges: backpressure to the source. The second connection is opened when the first
//! segment arrives, because that segment has the session's header.

use packtrain_link::{Pace, Segments};
use packtrain_units::{Duration, Time};

use super::tcp::{Receiver, Sender};
use super::{Agent, Counts, Ctx};
use crate::train::{Toward, Train};

/// An instant ends when the next nanosecond begins.
const TICK: Duration = Duration::from_nanos(1);

/// The receiving end of one connection and the sending end of the next, as one end: they interact
/// within an instant. Its counts are those of the receiving end.
#[derive(Debug)]
pub(crate) struct Depot {
    input: Receiver,
    output: Sender,
    /// Capacity in segments of the second kernel buffer and of the process' buffer.
    send: u64,
    user: u64,
}

impl Depot {
    /// `send` and `user` are the segments in the buffers behind `input`'s own.
    pub(crate) fn new(input: Receiver, output: Sender, send: u64, user: u64) -> Self {
        Self { input, output: output.waiting(), send, user }
    }

    /// The sending end.
    pub(crate) fn output(&self) -> &Sender {
        &self.output
    }

    /// The sending end, for use before the run.
    pub(crate) fn output_mut(&mut self) -> &mut Sender {
        &mut self.output
    }

    /// Copies as much as possible: the kernel holds unacknowledged data.
    fn copy(&mut self, now: Time, ctx: &mut Ctx<'_>) {
        let written = self.output.acknowledged() + self.send;
        self.output.available_until(self.input.in_sequence().min(written), now, ctx);
        self.input.readable_until(written + self.user, now, ctx);
    }

    fn next_timeout(&self) -> Time {
        let input = self.input.poll_timeout().unwrap_or(Time::MAX);
        input.min(self.output.poll_timeout().unwrap_or(Time::MAX))
    }

    /// Runs timers of both ends before `limit`, in order of time, the receiving end first.
    fn act_on_timers(&mut self, limit: Time, ctx: &mut Ctx<'_>) {
        loop {
            let now = self.next_timeout();
            if now >= limit {
                return;
            }
            if self.input.poll_timeout() == Some(now) {
                self.input.on_timer(now, ctx);
            } else {
                self.output.run_timers(now + TICK, ctx);
            }
        }
    }
}

impl Agent for Depot {
    fn on_train(&mut self, pace: Pace, train: Train, ctx: &mut Ctx<'_>) -> Option<Train> {
        let mut left = Some(train);
        for i in 0.. {
            let Some(mut one) = left.take() else { break };
            if one.count() > 1 {
                left = Some(one.split_off(1));
            }
            let at = pace.time(i);
            self.act_on_timers(at, ctx);
            match one.toward {
                Toward::Receiver => self.input.on_train(Pace::at(at), one, ctx),
                Toward::Sender => self.output.on_train(Pace::at(at), one, ctx),
            };
            self.copy(at, ctx);
        }
        None
    }

    fn on_timer(&mut self, _: Time, ctx: &mut Ctx<'_>) {
        self.act_on_timers(ctx.horizon(), ctx);
    }

    fn poll_timeout(&self) -> Option<Time> {
        Some(self.next_timeout()).filter(|at| *at != Time::MAX)
    }

    fn counts(&self) -> Counts {
        self.input.counts()
    }
}
