//! Packtrain's own engines as ends of a flow: the product's core, optionally with its codec.
//!
//! A sender's end takes every packet at once. A receiver's end takes batches, as a socket with
//! receive offload delivers them to a process that sleeps briefly between reads: the first packet
//! opens a batch, which closes after 50 us, with its 44th packet, with a packet shorter than the
//! first, or before a longer one. This depends only on the packets' times and sizes, so a
//! simulation by trains gives the same result as one by packets. Where the node has a model of its
//! host, that model makes the batches, and drops packets that the socket cannot hold.
//!
//! An engine whose feedback is SABUL also has a reliable channel (`channel`).

mod batch;
mod channel;
mod end;
mod intake;
mod wire;

use packtrain_link::Pace;
use packtrain_proto::Role;
use packtrain_units::Time;

use self::end::End;
use super::build::Place;
use super::{Agent, Counts, Ctx, Curve};
use crate::SimError;
use crate::spec::EngineSpec;
use crate::train::Train;

/// A sending engine.
#[derive(Debug)]
pub(crate) struct EngineSender(End);

/// A receiving engine.
#[derive(Debug)]
pub(crate) struct EngineReceiver(End);

impl EngineSender {
    pub(crate) fn new(spec: &EngineSpec, place: &Place) -> Result<Self, SimError> {
        Ok(Self(End::new(Role::Sender, spec, place)?))
    }
}

impl EngineReceiver {
    pub(crate) fn new(spec: &EngineSpec, place: &Place) -> Result<Self, SimError> {
        Ok(Self(End::new(Role::Receiver, spec, place)?))
    }
}

impl Agent for EngineSender {
    fn on_train(&mut self, pace: Pace, train: Train, ctx: &mut Ctx<'_>) -> Option<Train> {
        self.0.on_train(pace, train, ctx);
        None
    }

    fn on_timer(&mut self, now: Time, ctx: &mut Ctx<'_>) {
        self.0.on_timer(now, ctx);
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.0.due()
    }

    fn counts(&self) -> Counts {
        let stats = self.0.stats();
        Counts {
            sent_packets: stats.sent_packets,
            retransmitted: stats.retransmitted_bytes.get(),
            loss_events: stats.loss_rounds,
            timeouts: stats.silences,
            rtt_sum: u128::from(stats.rtt_total.as_nanos()),
            rtt_count: stats.rtt_samples,
            ..Counts::default()
        }
    }

    fn curve(&self) -> Option<Curve> {
        let stats = self.0.stats();
        Some(Curve {
            acked: None,
            cwnd: Some(stats.cwnd),
            in_flight: stats.in_flight,
            pacing_rate: stats.pacing_rate,
            rtt: stats.rtt_latest,
            capacity: stats.capacity,
            arrival_rate: stats.arrival_rate,
        })
    }

    fn completed_at(&self) -> Option<Time> {
        self.0.completed_at()
    }
}

impl Agent for EngineReceiver {
    fn on_train(&mut self, pace: Pace, train: Train, ctx: &mut Ctx<'_>) -> Option<Train> {
        self.0.on_train(pace, train, ctx);
        None
    }

    fn on_timer(&mut self, now: Time, ctx: &mut Ctx<'_>) {
        self.0.on_timer(now, ctx);
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.0.due()
    }

    fn counts(&self) -> Counts {
        let stats = self.0.stats();
        Counts {
            delivered: self.0.delivered().get(),
            received: stats.received_packets,
            trend: [stats.trend_tests, stats.trend_rises],
            host_dropped: stats.host_drops,
            ..Counts::default()
        }
    }
}

#[cfg(test)]
mod estimate_tests;
#[cfg(test)]
mod fobs_tests;
#[cfg(test)]
mod launch_tests;
#[cfg(test)]
mod starved_tests;
#[cfg(test)]
mod tests;
