//! The transports of one transfer: set up between the two ends, watched, replaced when one fails.
//!
//! Both ends tell each other in an [`Offer`](offer::Offer) where they listen and with which keys; then both
//! send first, so that a firewall or an address translator between them lets the answer in. UDP
//! and TCP race; the control connection itself (the pipe) carries data only while neither works.
//! Between two ends of one process the memory of the reader is handed over, and nothing else is used.

pub mod beside;
#[cfg(test)]
mod contract_tests;
mod flow;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod intake;
mod local;
mod mover;
pub mod offer;
mod path_samples;
mod payload;
pub mod perf_parts;
mod pipe;
mod sinks;
mod sources;
mod tcp;
pub mod transport;
pub mod udp;

use std::sync::Arc;

use packtrain_net::limit::RateLimiter;
use packtrain_proto::FeedbackKind;
use packtrain_units::{ByteCount, DataRate, Duration};
use serde::{Deserialize, Serialize};

use crate::candidate_paths::CandidatePaths;
use packtrain_hops::route::Via;
use packtrain_service::ceilings::{HELD_SHARE, HeldBy, RECEIVE_BURST, SEND_BURST};
use packtrain_service::{LossCause, PortRange, StreamsReport, TransportChoice};

pub use flow::causes;
pub use local::LocalLink;
pub use offer::Hints;
pub use path_samples::{Counters, PathSamples};
pub use sinks::SinkTransports;
pub use sources::SourceTransports;
pub(crate) use sources::TransportNews;
pub use tcp::group::Reading;
pub use tcp::record::Record;
pub use tcp::stream_count::StreamCount;
pub use tcp::stream_count_tuner::StreamCountTuner;
pub use tcp::stream_pool::StreamPool;
pub use tcp::stripe_scheduler::StreamId;
pub use tcp::{MAX_STREAMS, TcpSettings};

/// How transports are to be set up: the same at both ends.
#[derive(Clone, Debug)]
pub struct TransportConfig {
    /// The transports to try.
    pub choice: TransportChoice,
    pub(crate) cc: Option<String>,
    /// TCP streams; none if the number is chosen while they run.
    pub streams: Option<u32>,
    /// The most there may be.
    pub most_streams: u32,
    /// What earlier transfers over the same path measured, if this end sends.
    pub earlier: Vec<packtrain_plan::streams::Sample>,
    /// Settings of TCP.
    pub kernel: TcpSettings,
    /// Give way to other traffic.
    pub(crate) background: bool,
    /// The ceiling of the transfer's rate, over all transports together.
    pub(crate) rate_bps: Option<u64>,
    /// Whose ceiling that is.
    pub rate_by: Option<HeldBy>,
    pub(crate) ports: Option<PortRange>,
    /// The depots that this end's connections go over; only the caller's do.
    pub via: Option<Via>,
    /// The ways to choose from while it runs, if this end sends and calls.
    pub ways: Option<Arc<CandidatePaths>>,
    /// Depots are in between, whoever chose them.
    pub(crate) relayed: bool,
    pub(crate) hints: Hints,
    /// The transports that the site's policy allows at this end; all if none.
    pub(crate) allowed: Option<Vec<String>>,
}

/// Datagrams under a feedback that nobody gets who did not ask for it.
const BY_NAME: [TransportChoice; 3] =
    [TransportChoice::Udt, TransportChoice::Fobs, TransportChoice::Sabul];

impl TransportConfig {
    fn udp(&self) -> bool {
        self.takes(TransportChoice::Native) || BY_NAME.into_iter().any(|one| self.takes(one))
    }

    /// Whether flows have a channel beside their datagrams.
    pub fn beside(&self) -> bool {
        self.feedback() == FeedbackKind::Sabul
    }

    /// What the transport over datagrams is called.
    fn datagrams(&self) -> TransportChoice {
        if BY_NAME.contains(&self.choice) { self.choice } else { TransportChoice::Native }
    }

    /// How a receiver of datagrams tells what arrived: the same at both ends, since both know
    /// which controller was asked for.
    pub(crate) fn feedback(&self) -> FeedbackKind {
        udp::feedback(self.choice, self.cc.as_deref())
    }

    fn tcp(&self) -> bool {
        self.takes(TransportChoice::Tcp)
    }

    /// How many TCP streams there are to be.
    fn count(&self) -> StreamCount {
        StreamCount::new(self.streams, self.most_streams, || self.earlier.clone())
    }

    fn pipe(&self) -> bool {
        self.takes(TransportChoice::Pipe)
    }

    fn takes(&self, one: TransportChoice) -> bool {
        let listed = |names: &Vec<String>| names.iter().any(|name| name == one.name());
        self.choice.includes(one) && self.allowed.as_ref().is_none_or(listed)
    }

    /// What all that this end sends is held to, if anything.
    pub fn send_limiter(&self) -> Option<RateLimiter> {
        self.rate_bps.map(|rate| RateLimiter::new(DataRate::from_bps(rate), SEND_BURST))
    }

    /// What all that this end receives is held to, if anything.
    pub fn receive_limiter(&self) -> Option<RateLimiter> {
        self.rate_bps.map(|rate| RateLimiter::new(DataRate::from_bps(rate), RECEIVE_BURST))
    }

    /// Whose ceiling held the transfer, if its limiter did for long enough.
    pub fn held_by(&self, limiter: Option<&RateLimiter>) -> Option<HeldBy> {
        self.rate_by.filter(|_| limiter.is_some_and(|limiter| limiter.limited() >= HELD_SHARE))
    }

    fn port_range(&self) -> packtrain_net::udp::PortRange {
        use packtrain_net::udp::PortRange;
        self.ports.map_or(PortRange::ANY, |p| {
            // The command has checked that the range is not empty.
            PortRange::new(p.first, p.last).unwrap_or(PortRange::ANY)
        })
    }
}

/// What each transport did in the end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Moved {
    /// Name and payload bytes, those that moved something.
    pub shares: Vec<(String, ByteCount)>,
    /// Payload bytes sent more than once.
    pub retransmitted: ByteCount,
    /// Losses by cause.
    pub causes: LossCause,
    /// Least round trip.
    pub rtt: Option<Duration>,
    /// What held its rate down, as this end sees it.
    pub held: Option<HeldBy>,
    /// What the TCP streams did; a word of its own on the wire.
    #[serde(skip)]
    pub streams: Option<StreamsReport>,
}
