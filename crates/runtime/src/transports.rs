//! The transports of one transfer: negotiation, selection, and fallback after failures.
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
mod ordered;
mod path_samples;
mod payload;
pub mod perf_parts;
mod pipe;
pub mod qlog;
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
use packtrain_service::history::Earlier;
use packtrain_service::{LossCause, PortRange, StreamsReport, TransportChoice};

pub use flow::causes;
pub use local::LocalLink;
pub use offer::{Caller, Hints};
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

/// The configuration of the transports, equal at both ends.
#[derive(Clone, Debug)]
pub struct TransportConfig {
    /// The transports to try.
    pub choice: TransportChoice,
    pub(crate) cc: Option<String>,
    /// Number of TCP streams; none if it is tuned during the transfer.
    pub streams: Option<u32>,
    /// Maximum number of TCP streams.
    pub most_streams: u32,
    /// What earlier transfers over the same path measured, if this end sends.
    pub earlier: Earlier,
    /// Settings of the kernel's TCP.
    pub kernel: TcpSettings,
    /// Yield to other traffic.
    pub(crate) background: bool,
    /// Limit in bits per second for all transports together.
    pub(crate) rate_bps: Option<u64>,
    /// Origin of that limit.
    pub rate_by: Option<HeldBy>,
    pub(crate) ports: Option<PortRange>,
    /// The depots that this end's connections use; set only at the initiator.
    pub via: Option<Via>,
    /// The candidate paths, if this end sends and is the initiator.
    pub ways: Option<Arc<CandidatePaths>>,
    /// Whether depots are in between, at either end's choice.
    pub(crate) relayed: bool,
    pub(crate) hints: Hints,
    /// The round trip to the addresses in `hints.peer`, at most; none if it is not known.
    pub rtt: Option<Duration>,
    /// The transports that the site's policy allows at this end; none allows all.
    pub(crate) allowed: Option<Vec<String>>,
}

/// Datagram transports with other feedback than the native one. They are used only on request.
const BY_NAME: [TransportChoice; 3] =
    [TransportChoice::Udt, TransportChoice::Fobs, TransportChoice::Sabul];

#[cfg(test)]
impl TransportConfig {
    /// Within this machine, without what a user or a policy may choose.
    pub(crate) fn on_loopback(choice: TransportChoice) -> Self {
        let own = vec![std::net::Ipv4Addr::LOCALHOST.into()];
        Self {
            choice,
            cc: None,
            streams: None,
            most_streams: MAX_STREAMS,
            earlier: Earlier::default(),
            kernel: TcpSettings::default(),
            background: false,
            rate_bps: None,
            rate_by: None,
            ports: None,
            via: None,
            ways: None,
            relayed: false,
            rtt: None,
            hints: Hints { peer: own.clone(), own, ..Hints::default() },
            allowed: None,
        }
    }
}

impl TransportConfig {
    fn udp(&self) -> bool {
        self.takes(TransportChoice::Native) || BY_NAME.into_iter().any(|one| self.takes(one))
    }

    /// Whether flows have a reliable feedback channel in addition to their datagrams.
    pub fn beside(&self) -> bool {
        self.feedback() == FeedbackKind::Sabul
    }

    /// The name of the datagram transport.
    fn datagrams(&self) -> TransportChoice {
        if BY_NAME.contains(&self.choice) { self.choice } else { TransportChoice::Native }
    }

    /// The feedback of a receiver of datagrams. Both ends derive the same one from the requested
    /// controller.
    pub(crate) fn feedback(&self) -> FeedbackKind {
        udp::feedback(self.choice, self.cc.as_deref())
    }

    fn tcp(&self) -> bool {
        self.takes(TransportChoice::Tcp)
    }

    /// The number of TCP streams.
    fn count(&self) -> StreamCount {
        StreamCount::new(self.streams, self.most_streams, || self.earlier.samples.clone())
    }

    fn pipe(&self) -> bool {
        self.takes(TransportChoice::Pipe)
    }

    /// Whether the transport of this name may be used.
    fn uses(&self, name: &str) -> bool {
        let built = [TransportChoice::Native, TransportChoice::Tcp, TransportChoice::Pipe];
        let all = built.into_iter().chain(BY_NAME);
        all.filter(|one| one.name() == name).any(|one| self.takes(one))
    }

    fn takes(&self, one: TransportChoice) -> bool {
        let listed = |names: &Vec<String>| names.iter().any(|name| name == one.name());
        self.choice.includes(one) && self.allowed.as_ref().is_none_or(listed)
    }

    /// Limiter for everything that this end sends, if there is a limit.
    pub fn send_limiter(&self) -> Option<RateLimiter> {
        self.rate_bps.map(|rate| RateLimiter::new(DataRate::from_bps(rate), SEND_BURST))
    }

    /// Limiter for everything that this end receives, if there is a limit.
    pub fn receive_limiter(&self) -> Option<RateLimiter> {
        self.rate_bps.map(|rate| RateLimiter::new(DataRate::from_bps(rate), RECEIVE_BURST))
    }

    /// The origin of the limit, if the limiter limited the transfer for long enough.
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

/// Result of each transport.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Moved {
    /// Name and payload bytes of the transports that moved data.
    pub shares: Vec<(String, ByteCount)>,
    /// Payload bytes sent more than once.
    pub retransmitted: ByteCount,
    /// Losses by cause.
    pub causes: LossCause,
    /// Minimum round-trip time.
    pub rtt: Option<Duration>,
    /// Origin of the rate limit that limited the transfer, as this end measured it.
    pub held: Option<HeldBy>,
    /// Report of the TCP streams, which is a separate message on the wire.
    #[serde(skip)]
    pub streams: Option<StreamsReport>,
}
