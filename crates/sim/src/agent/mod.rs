//! What sends and receives: the two ends of every flow.
//!
//! An end is driven by its node in the order (time, class, id): packets that arrive before
//! timers, timers before marks (the end of the warm-up, samples). An end may act ahead of the
//! node's clock up to [`Ctx::horizon`], for nothing else happens at its node before.

use packtrain_link::{Pace, Segments};
use packtrain_units::{ByteCount, DataRate, Duration, Time};

use crate::network::Network;
use crate::train::Train;

pub(crate) mod build;
pub(crate) mod cross;
pub(crate) mod depot;
pub(crate) mod engine;
pub(crate) mod short;
pub(crate) mod tcp;

/// One end of a flow.
///
/// The node calls `on_train` for packets that arrive before every other event of the node (other
/// ends' timers included), and `on_timer` when nothing else comes before `poll_timeout`. An end
/// whose own timer comes due before the next packet of a train (strictly before: at the same
/// instant the packet is first) either acts on the timer itself in between, or stops there and
/// returns the packets it has not taken.
pub(crate) trait Agent {
    /// Packets arrive: packet `i` at `pace.time(i)`. Returns those it did not take, if any; it
    /// takes at least one. What it sends in answer to packet `i` leaves at `pace.time(i)`.
    fn on_train(&mut self, pace: Pace, train: Train, ctx: &mut Ctx<'_>) -> Option<Train>;

    /// The instant of `poll_timeout` came. It may go on with later timers of its own as long as
    /// they lie before `ctx.horizon()`.
    fn on_timer(&mut self, now: Time, ctx: &mut Ctx<'_>);

    /// When `on_timer` is to be called next. A sender gives its start here at first.
    fn poll_timeout(&self) -> Option<Time>;

    /// What it counted since the beginning.
    fn counts(&self) -> Counts;

    /// A point of its curves; only senders have one.
    fn curve(&self) -> Option<Curve> {
        None
    }

    /// When a flow with an end had delivered everything: asked of senders.
    fn completed_at(&self) -> Option<Time> {
        None
    }

    /// Of short connections: how many completed, mean and 99th percentile of their times.
    fn completions(&self) -> Option<(u64, Duration, Duration)> {
        None
    }
}

/// What an end counts; both ends' counts are added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Packets sent forward, repeats included.
    pub(crate) sent_packets: u64,
    /// Payload bytes sent again.
    pub(crate) retransmitted: u64,
    /// Useful bytes delivered, each once.
    pub(crate) delivered: u64,
    /// Packets with payload that an engine's receiver got, repeats included.
    pub(crate) received: u64,
    /// Tests of the trend of the delay by a UDT receiver, and those that found it rising.
    pub(crate) trend: [u64; 2],
    /// Packets dropped by the receiving host.
    pub(crate) host_dropped: u64,
    /// Rounds in which the controller was told of a loss.
    pub(crate) loss_events: u64,
    /// Timeouts.
    pub(crate) timeouts: u64,
    /// Sum of all measured round trips, in nanoseconds.
    pub(crate) rtt_sum: u128,
    /// How many there were.
    pub(crate) rtt_count: u64,
}

/// A point of a sender's curves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Curve {
    /// Congestion window.
    pub(crate) cwnd: ByteCount,
    /// Bytes in flight.
    pub(crate) in_flight: ByteCount,
    /// Pacing rate, if it paces.
    pub(crate) pacing_rate: Option<DataRate>,
    /// The newest round trip measured.
    pub(crate) rtt: Duration,
    /// Payload bytes that the receiver acknowledged in order; a TCP's.
    pub(crate) acked: Option<ByteCount>,
    /// Capacity of the path and rate of arrival, as an engine's feedback measured them.
    pub(crate) capacity: Option<DataRate>,
    pub(crate) arrival_rate: Option<DataRate>,
}

/// What an end can do to the world.
pub(crate) struct Ctx<'a> {
    pub(crate) net: &'a mut Network,
    pub(crate) node: usize,
    pub(crate) horizon: Time,
}

impl Ctx<'_> {
    /// Nothing else happens at this node before this instant; nothing may be sent at it or later.
    pub(crate) fn horizon(&self) -> Time {
        self.horizon
    }

    /// Sends a train to `train.to` by the first link of the route. Times never decrease from one
    /// call to the next, nor lie before what the end was called for.
    pub(crate) fn send(&mut self, pace: Pace, train: Train) {
        debug_assert!(pace.time(train.count() - 1) < self.horizon);
        self.net.forward(self.node, pace, train);
    }
}

/// An end of any kind.
#[derive(Debug)]
pub(crate) enum Endpoint {
    /// Sends cross traffic.
    CrossSource(Box<cross::Source>),
    /// Counts it.
    CrossSink(cross::Sink),
    /// A TCP sender.
    TcpSender(Box<tcp::Sender>),
    /// A TCP receiver.
    TcpReceiver(Box<tcp::Receiver>),
    /// A depot: the receiving end of one connection and the sending end of the next.
    Depot(Box<depot::Depot>),
    /// The sending end of a depot, which is at this place.
    Within(usize),
    /// Sends many short connections.
    ShortSender(Box<short::ShortSender>),
    /// Receives them.
    ShortReceiver(Box<short::ShortReceiver>),
    /// An engine that sends.
    EngineSender(Box<engine::EngineSender>),
    /// An engine that receives.
    EngineReceiver(Box<engine::EngineReceiver>),
}

macro_rules! each {
    ($self:ident, $agent:ident => $call:expr) => {
        match $self {
            Endpoint::Depot($agent) => $call,
            Endpoint::Within($agent) => $call,
            Endpoint::CrossSource($agent) => $call,
            Endpoint::CrossSink($agent) => $call,
            Endpoint::TcpSender($agent) => $call,
            Endpoint::TcpReceiver($agent) => $call,
            Endpoint::ShortSender($agent) => $call,
            Endpoint::ShortReceiver($agent) => $call,
            Endpoint::EngineSender($agent) => $call,
            Endpoint::EngineReceiver($agent) => $call,
        }
    };
}

/// Nothing happens here: the depot acts.
impl Agent for usize {
    fn on_train(&mut self, _: Pace, _: Train, _: &mut Ctx<'_>) -> Option<Train> {
        None
    }

    fn on_timer(&mut self, _: Time, _: &mut Ctx<'_>) {}

    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    fn counts(&self) -> Counts {
        Counts::default()
    }
}

impl Agent for Endpoint {
    fn on_train(&mut self, pace: Pace, train: Train, ctx: &mut Ctx<'_>) -> Option<Train> {
        each!(self, agent => agent.on_train(pace, train, ctx))
    }

    fn on_timer(&mut self, now: Time, ctx: &mut Ctx<'_>) {
        each!(self, agent => agent.on_timer(now, ctx))
    }

    fn poll_timeout(&self) -> Option<Time> {
        each!(self, agent => agent.poll_timeout())
    }

    fn counts(&self) -> Counts {
        each!(self, agent => agent.counts())
    }

    fn curve(&self) -> Option<Curve> {
        each!(self, agent => agent.curve())
    }

    fn completed_at(&self) -> Option<Time> {
        each!(self, agent => agent.completed_at())
    }

    fn completions(&self) -> Option<(u64, Duration, Duration)> {
        each!(self, agent => agent.completions())
    }
}
