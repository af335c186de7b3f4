//! The two ends of every flow.
//!
//! A node drives its ends in the order (time, class, id): packets that arrive before timers, timers
//! before marks (the end of the warm-up, samples). An end may act ahead of the node's clock up to
//! [`Ctx::horizon`], because nothing else happens at its node before that time.

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
/// ends' timers included), and `on_timer` when nothing else comes before `poll_timeout`. If an
/// end's own timer is due strictly before the next packet of a train, the end either runs the timer
/// in between, or stops there and returns the packets it has not taken. At the same instant the
/// packet comes first.
pub(crate) trait Agent {
    /// Packets arrive: packet `i` at `pace.time(i)`. Returns those it did not take, if any; it
    /// takes at least one. Answers to packet `i` are sent at `pace.time(i)`.
    fn on_train(&mut self, pace: Pace, train: Train, ctx: &mut Ctx<'_>) -> Option<Train>;

    /// Runs the timer due at `now`. It may continue with its own later timers before
    /// `ctx.horizon()`.
    fn on_timer(&mut self, now: Time, ctx: &mut Ctx<'_>);

    /// When to call `on_timer` next. For a sender this is initially its start.
    fn poll_timeout(&self) -> Option<Time>;

    /// Its counters since the beginning.
    fn counts(&self) -> Counts;

    /// A sample of its curves; only senders have one.
    fn curve(&self) -> Option<Curve> {
        None
    }

    /// When a flow of limited size had delivered everything; for senders.
    fn completed_at(&self) -> Option<Time> {
        None
    }

    /// For short connections: number completed, mean and 99th percentile of their times.
    fn completions(&self) -> Option<(u64, Duration, Duration)> {
        None
    }
}

/// Counters of an end; those of both ends are added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Packets sent forward, retransmissions included.
    pub(crate) sent_packets: u64,
    /// Payload bytes retransmitted.
    pub(crate) retransmitted: u64,
    /// Useful bytes delivered, each once.
    pub(crate) delivered: u64,
    /// Packets with payload that an engine's receiver got, retransmissions included.
    pub(crate) received: u64,
    /// Trend tests of a UDT receiver, and those that found the delay rising.
    pub(crate) trend: [u64; 2],
    /// Packets dropped by the receiving host.
    pub(crate) host_dropped: u64,
    /// Rounds in which a loss was reported to the controller.
    pub(crate) loss_events: u64,
    /// Timeouts.
    pub(crate) timeouts: u64,
    /// Sum of all round-trip samples, in nanoseconds.
    pub(crate) rtt_sum: u128,
    /// Number of round-trip samples.
    pub(crate) rtt_count: u64,
}

/// A sample of a sender's curves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Curve {
    /// Congestion window, of a sender that has one.
    pub(crate) cwnd: Option<ByteCount>,
    /// Bytes in flight.
    pub(crate) in_flight: ByteCount,
    /// Pacing rate, if it paces.
    pub(crate) pacing_rate: Option<DataRate>,
    /// The newest round-trip sample, after the first.
    pub(crate) rtt: Option<Duration>,
    /// TCP: payload bytes that the receiver acknowledged in order.
    pub(crate) acked: Option<ByteCount>,
    /// Capacity of the path and arrival rate, as measured by an engine's feedback.
    pub(crate) capacity: Option<DataRate>,
    pub(crate) arrival_rate: Option<DataRate>,
}

/// The simulator's interface for ends.
pub(crate) struct Ctx<'a> {
    pub(crate) net: &'a mut Network,
    pub(crate) node: usize,
    pub(crate) horizon: Time,
}

impl Ctx<'_> {
    /// Nothing else happens at this node before this instant; all packets must be sent before it.
    pub(crate) fn horizon(&self) -> Time {
        self.horizon
    }

    /// Sends a train to `train.to` on the first link of the route. Times never decrease between
    /// calls, nor precede the event that the end was called for.
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
    /// The sending end of a depot; the depot is at this index.
    Within(usize),
    /// Sends many short connections.
    ShortSender(Box<short::ShortSender>),
    /// Receives them.
    ShortReceiver(Box<short::ShortReceiver>),
    /// A sending engine.
    EngineSender(Box<engine::EngineSender>),
    /// A receiving engine.
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

/// Does nothing: the depot acts for it.
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
