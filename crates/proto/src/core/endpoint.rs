//! The part of an end that depends on the feedback, as a closed enum.
//!
//! The core has what all flows share: lanes and their packet numbers, paths, liveness, control
//! packets, events. An endpoint decides what is sent or received and how the two ends report it.
//! The methods below are the interface that the core uses for all endpoints.

use std::ops::Range;

use packtrain_cc::{CongestionController, Watched};
use packtrain_units::{DataRate, Duration, Offset, Time};

use crate::breaker::Breaker;
use crate::config::{CoreConfig, FeedbackKind, FlowError, Role};
use crate::core::backlog::Backlog;
use crate::core::receiver::Receiver;
use crate::core::rtt::Rtt;
use crate::core::sender::Sender;
use crate::core::units::{UnitReceiver, UnitSender};
use crate::mtu::Mtu;
use crate::stats::{FlowStats, Limit};

/// The endpoint of one feedback.
#[derive(Debug)]
pub(crate) enum Endpoint {
    NativeSender(Box<Sender>),
    NativeReceiver(Box<Receiver>),
    UnitSender(Box<UnitSender>),
    UnitReceiver(Box<UnitReceiver>),
}

impl Endpoint {
    pub(crate) fn new(
        config: &CoreConfig,
        controller: Option<Box<dyn CongestionController>>,
        mtu: Mtu,
        now: Time,
    ) -> Result<Self, FlowError> {
        if config.role == Role::Receiver {
            return Ok(match config.feedback {
                FeedbackKind::Native => {
                    let receiver = Receiver::new(now, config.peers.len(), config.room);
                    Self::NativeReceiver(Box::new(receiver))
                }
                FeedbackKind::Udt(_) | FeedbackKind::Fobs | FeedbackKind::Sabul => {
                    Self::UnitReceiver(Box::new(UnitReceiver::new(config, now)))
                }
            });
        }
        let controller = controller.ok_or(FlowError::NoController)?;
        if !config.feedback.provides().covers(controller.needs()) {
            return Err(FlowError::Signals(controller.name(), config.feedback.name()));
        }
        let controller = Watched::wrap(controller, now);
        Ok(match config.feedback {
            FeedbackKind::Native => {
                let ceiling = config.rate_ceiling;
                let ecn = config.ecn;
                Self::NativeSender(Box::new(Sender::new(controller, ceiling, mtu, ecn, now)))
            }
            FeedbackKind::Udt(_) | FeedbackKind::Fobs | FeedbackKind::Sabul => {
                Self::UnitSender(Box::new(UnitSender::new(config, controller, mtu, now)))
            }
        })
    }

    pub(crate) fn native_sender(&mut self) -> Option<&mut Sender> {
        match self {
            Self::NativeSender(sender) => Some(sender),
            _ => None,
        }
    }

    pub(crate) fn native_receiver(&mut self) -> Option<&mut Receiver> {
        match self {
            Self::NativeReceiver(receiver) => Some(receiver),
            _ => None,
        }
    }

    pub(crate) fn unit_sender(&mut self) -> Option<&mut UnitSender> {
        match self {
            Self::UnitSender(sender) => Some(sender),
            _ => None,
        }
    }

    pub(crate) fn unit_receiver(&mut self) -> Option<&mut UnitReceiver> {
        match self {
            Self::UnitReceiver(receiver) => Some(receiver),
            _ => None,
        }
    }

    /// Whether its feedback counts in data units.
    pub(crate) fn counts_units(&self) -> bool {
        matches!(self, Self::UnitSender(_) | Self::UnitReceiver(_))
    }

    pub(crate) fn is_sender(&self) -> bool {
        matches!(self, Self::NativeSender(_) | Self::UnitSender(_))
    }

    /// Native sender: whether a capacity that is known before the first data is of use.
    pub(crate) fn launches_at_capacity(&self) -> bool {
        match self {
            Self::NativeSender(sender) => sender.launches_at_capacity(),
            _ => false,
        }
    }

    /// Sender: the ranges to send.
    pub(crate) fn backlog(&self) -> Option<&Backlog> {
        match self {
            Self::NativeSender(sender) => Some(&sender.backlog),
            Self::UnitSender(sender) => Some(&sender.backlog),
            _ => None,
        }
    }

    /// Sender: its controller, for calls other than feedback.
    pub(crate) fn controller_mut(&mut self) -> Option<&mut dyn CongestionController> {
        match self {
            Self::NativeSender(sender) => Some(sender.controller_mut()),
            Self::UnitSender(sender) => Some(sender.controller_mut()),
            _ => None,
        }
    }

    /// Sender: adds bytes to send.
    pub(crate) fn assign(&mut self, a: u64, b: u64) {
        match self {
            Self::NativeSender(sender) => sender.backlog.assign(a, b),
            Self::UnitSender(sender) => sender.backlog.assign(a, b),
            _ => {}
        }
    }

    /// Sender: takes back the unacknowledged part of `a..b`.
    pub(crate) fn revoke(&mut self, a: u64, b: u64, returned: impl FnMut(u64, u64)) {
        match self {
            Self::NativeSender(sender) => sender.backlog.revoke(a, b, returned),
            Self::UnitSender(sender) => sender.revoke(a, b, returned),
            _ => {}
        }
    }

    /// Sender: acknowledged ranges not yet reported to payload and owner.
    pub(crate) fn released(&mut self) -> Option<&mut Vec<Range<Offset>>> {
        match self {
            Self::NativeSender(sender) => Some(&mut sender.released),
            Self::UnitSender(sender) => Some(&mut sender.released),
            _ => None,
        }
    }

    /// Sender: the search for the datagram size.
    pub(crate) fn mtu(&self) -> Option<&Mtu> {
        match self {
            Self::NativeSender(sender) => Some(&sender.mtu),
            Self::UnitSender(sender) => Some(&sender.mtu),
            _ => None,
        }
    }

    /// Unit sender: its pacing rate, if the controller has one.
    pub(crate) fn unit_rate(&self) -> Option<DataRate> {
        match self {
            Self::UnitSender(sender) => sender.rate(),
            _ => None,
        }
    }

    /// Sender: the ECN bits of its data packets. Only the native feedback validates the path.
    pub(crate) fn ecn_bits(&self) -> u8 {
        match self {
            Self::NativeSender(sender) => sender.ecn.bits(),
            _ => 0,
        }
    }

    /// Native sender: the rate at which it may send, and the packets of a burst.
    pub(crate) fn native_load(&self, srtt: Duration) -> Option<(DataRate, u64)> {
        match self {
            Self::NativeSender(sender) => Some((sender.rate(srtt), sender.burst())),
            _ => None,
        }
    }

    pub(crate) fn mtu_mut(&mut self) -> Option<&mut Mtu> {
        match self {
            Self::NativeSender(sender) => Some(&mut sender.mtu),
            Self::UnitSender(sender) => Some(&mut sender.mtu),
            _ => None,
        }
    }

    /// Sender: what limits it.
    pub(crate) fn limit(&self) -> Option<Limit> {
        match self {
            Self::NativeSender(sender) => Some(sender.limit),
            Self::UnitSender(sender) => Some(sender.limit()),
            _ => None,
        }
    }

    /// Sender: something outside of the flow holds the data back.
    pub(crate) fn hold(&mut self) {
        match self {
            Self::NativeSender(sender) => sender.hold(),
            Self::UnitSender(sender) => sender.hold(),
            _ => {}
        }
    }

    /// Sender: the payload did not have the bytes that the flow needs next. The rate until they
    /// come is that of the disk or of the pipe, not of the path.
    pub(crate) fn payload_pending(&mut self) {
        match self {
            Self::NativeSender(sender) => sender.payload_pending(),
            Self::UnitSender(sender) => sender.payload_pending(),
            _ => {}
        }
    }

    /// Sender: bytes in flight, the breaker, and the time of the last feedback.
    pub(crate) fn breaker(&self) -> Option<(u64, &Breaker, Time)> {
        match self {
            Self::NativeSender(sender) => {
                let (in_flight, at) = (sender.in_flight(), sender.reported_at);
                Some((in_flight, &sender.breaker, at))
            }
            Self::UnitSender(sender) => {
                let (in_flight, at) = (sender.in_flight(), sender.reported_at);
                Some((in_flight, &sender.breaker, at))
            }
            _ => None,
        }
    }

    /// Sender: no feedback arrived for so long that data stops.
    pub(crate) fn silence(&mut self) {
        match self {
            Self::NativeSender(sender) => sender.breaker.silence(),
            Self::UnitSender(sender) => sender.breaker.silence(),
            _ => {}
        }
    }

    /// Writes its gauges.
    pub(crate) fn gauges(&self, rtt: &Rtt, stats: &mut FlowStats) {
        match self {
            Self::NativeSender(sender) => sender.gauges(rtt.smoothed_or_guess(), stats),
            Self::NativeReceiver(receiver) => stats.host_drops = receiver.total_host_drops(),
            Self::UnitSender(sender) => sender.gauges(stats),
            Self::UnitReceiver(receiver) => receiver.gauges(stats),
        }
    }
}
