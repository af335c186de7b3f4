//! Packtrain's own engines as ends of a flow: the real core, with its codec if asked for.
//!
//! A sender's end takes every packet at once. A receiver's end takes batches, as a socket with
//! receive offload gives them to a process that sleeps a little between reads: the first packet
//! opens a batch, which closes after 50 us, with its 44th packet, with a packet shorter than the
//! first, or before a longer one. That depends on nothing but the packets' times and sizes, so a
//! simulation by trains gives what one by packets gives. Where the node has a model of its host,
//! that model makes the batches, and drops what the socket cannot hold.
//!
//! An engine whose feedback is SABUL has a channel beside its datagrams that loses nothing (`channel`).

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

/// An engine that sends.
#[derive(Debug)]
pub(crate) struct EngineSender(End);

/// An engine that receives.
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
            cwnd: stats.cwnd,
            in_flight: stats.in_flight,
            pacing_rate: stats.pacing_rate,
            rtt: stats.rtt_latest.unwrap_or_default(),
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
mod tests;
