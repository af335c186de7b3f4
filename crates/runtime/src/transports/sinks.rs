//! The receiving end's transports: everything that arrives is placed.

use std::sync::Arc;

use packtrain_transfer::Failure;
use packtrain_transfer::message::Message;
use packtrain_units::ByteCount;

use super::flow::FlowSink;
use super::intake::Intake;
use super::local::{LocalLink, LocalSink};
use super::offer::{ControlMessage, Offer};
use super::tcp::sink::TcpSink;
use super::transport::SinkTransport;
use super::{Moved, TransportConfig};
use crate::assembly::Assembly;
use crate::control::{ControlSender, PayloadSink};
use packtrain_service::ceilings::HeldBy;
use packtrain_service::evidence::{Buffers, Net};
use packtrain_service::{Notice, StreamsReport};

/// All transports of a sink.
pub struct SinkTransports {
    plan: TransportConfig,
    /// What may come in, over all transports together.
    intake: Intake,
    control: ControlSender,
    transports: Vec<Box<dyn SinkTransport>>,
    is_sealed: bool,
    /// What the source knows of the candidate paths.
    told: Option<u32>,
    /// What the source says each transport did.
    moved: Moved,
    /// The peer made its offer; another is not listened to.
    offered: bool,
    bound: bool,
    /// The source has told what each transport did, and nobody has asked since.
    accounted: bool,
    /// What had come over each transport at the last look.
    seen: Vec<(String, ByteCount)>,
}

impl SinkTransports {
    /// The transports that the configuration names; none is started yet.
    pub fn new(plan: TransportConfig, control: ControlSender) -> Self {
        let intake = Intake::new(&plan);
        let mut transports: Vec<Box<dyn SinkTransport>> = Vec::new();
        if plan.udp() {
            transports.push(Box::new(FlowSink::new(plan.clone(), intake.clone())));
        }
        if plan.tcp() {
            transports.push(Box::new(TcpSink::new(plan.clone(), intake.clone())));
        }
        Self { intake, is_sealed: true, ..Self::of(plan, control, transports) }
    }

    /// The transport from a source in this process, which has the same link.
    pub fn local(plan: TransportConfig, control: ControlSender, link: LocalLink) -> Self {
        Self::of(plan, control, vec![Box::new(LocalSink(link))])
    }

    /// These transports and no others.
    pub fn of(
        plan: TransportConfig,
        control: ControlSender,
        transports: Vec<Box<dyn SinkTransport>>,
    ) -> Self {
        Self {
            intake: Intake::new(&plan),
            plan,
            control,
            transports,
            is_sealed: false,
            told: None,
            moved: Moved::default(),
            offered: false,
            bound: false,
            accounted: false,
            seen: Vec::new(),
        }
    }

    /// Binds, listens and makes the peer an offer, once. That needs no place for data, and the
    /// sooner the source has the offer, the sooner it can probe the path.
    pub fn bind(&mut self) {
        if std::mem::replace(&mut self.bound, true) {
            return;
        }
        let mut offer = Offer::new(&self.plan);
        for transport in &mut self.transports {
            transport.bind(&self.control, &mut offer);
        }
        self.control.send(&Message::Channel(offer.encode()));
    }

    /// The responder has agreed: `plan` has the limits of both ends, and is otherwise that of the
    /// offer. Comes before the peer's offer.
    pub fn agree(&mut self, plan: TransportConfig) {
        self.intake.agree(&plan);
        for transport in &mut self.transports {
            transport.on_agreed(&plan);
        }
        self.plan = plan;
    }

    /// From now on data has a place.
    pub(crate) fn start(&mut self, assembly: &Assembly) {
        for transport in &mut self.transports {
            transport.start(assembly);
        }
        self.tell_ways();
    }

    /// What takes the payload that comes over the control connection.
    pub(crate) fn pipe(&self, assembly: &Assembly) -> Arc<dyn PayloadSink> {
        self.intake.pipe(assembly.clone())
    }

    /// The peer's message about transports.
    ///
    /// # Errors
    /// The two ends cannot go together.
    pub(crate) fn on_channel(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let Some(message) = ControlMessage::decode(bytes) else { return Ok(()) };
        match message {
            ControlMessage::Offer(offer) => self.on_offer(offer)?,
            ControlMessage::Moved(moved) => {
                self.moved = Moved { streams: self.moved.streams.take(), ..moved };
                self.accounted = true;
            }
            ControlMessage::Tcp(bytes) => self.moved.streams = StreamsReport::decode(&bytes),
            message => {
                for transport in &mut self.transports {
                    transport.on_control(&message);
                }
            }
        }
        Ok(())
    }

    /// Whether the source has told since the last call what each transport did.
    pub(crate) fn take_account(&mut self) -> bool {
        std::mem::take(&mut self.accounted)
    }

    fn on_offer(&mut self, offer: Offer) -> Result<(), Failure> {
        if std::mem::replace(&mut self.offered, true) {
            return Ok(());
        }
        offer.check(&self.plan)?;
        for transport in &mut self.transports {
            transport.on_offer(&offer);
        }
        Ok(())
    }

    /// Tells the source, which chooses, of the candidate paths and of what was found out since.
    pub(crate) fn tell_ways(&mut self) {
        let Some(ways) = self.plan.ways.as_ref().filter(|_| self.plan.tcp()) else { return };
        let version = ways.version();
        if self.told != Some(version) {
            self.told = Some(version);
            self.control
                .send(&Message::Channel(ControlMessage::CandidatePaths(ways.encode()).encode()));
        }
    }

    /// The network thread that receives data and its buffers, if there is one.
    pub(crate) fn evidence(&self) -> (Option<Net>, Option<Buffers>) {
        let all = self.transports.iter().map(|transport| transport.report_evidence());
        all.fold((None, None), |(net, buffers), (other, more)| (net.or(other), buffers.or(more)))
    }

    /// Whether depots are in between.
    pub(crate) fn is_relayed(&self) -> bool {
        self.plan.relayed
    }

    /// Whether the data comes encrypted from an end of ours.
    pub(crate) fn is_sealed(&self) -> bool {
        self.is_sealed
    }

    /// What there is to say of the route and of the transports.
    pub(crate) fn said(&mut self) -> Vec<Notice> {
        let mut said = self.plan.via.as_ref().map_or_else(Vec::new, |via| via.route.said());
        let notices = self.transports.iter_mut();
        said.extend(notices.flat_map(|transport| std::iter::from_fn(|| transport.poll_notice())));
        said
    }

    /// The transport over which most came since the last call.
    pub(crate) fn current(&mut self) -> Option<String> {
        let all: Vec<_> =
            self.transports.iter().filter_map(|transport| transport.received()).collect();
        let before = |name: &str| self.seen.iter().find(|seen| seen.0 == name).map(|seen| seen.1);
        let since = |(name, bytes): &(String, ByteCount)| {
            bytes.saturating_sub(before(name).unwrap_or(ByteCount::ZERO))
        };
        let most = all.iter().max_by_key(|share| since(share));
        let most = most.filter(|share| since(share) > ByteCount::ZERO).map(|most| most.0.clone());
        self.seen = all;
        most
    }

    /// What came over each transport, most first. Bytes that came twice count twice.
    fn received(&self) -> Vec<(String, ByteCount)> {
        let mut shares: Vec<_> =
            self.transports.iter().filter_map(|transport| transport.received()).collect();
        shares.retain(|(_, bytes)| *bytes > ByteCount::ZERO);
        shares.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        shares
    }

    /// Ends them all; what the source says they did, or what is known here if it said nothing.
    pub(crate) fn close(&mut self) -> Moved {
        if self.moved.shares.is_empty() {
            self.moved.shares = self.received();
        }
        for transport in &mut self.transports {
            transport.close();
        }
        let mut moved = std::mem::take(&mut self.moved);
        // The source told it as it sees it.
        let told = moved.held.map(HeldBy::seen_from_peer);
        moved.held = told.or(self.plan.held_by(self.intake.limiter().as_ref()));
        if let (Some(ways), Some(streams)) = (&self.plan.ways, &mut moved.streams) {
            // The source gave its reasons; what was found out here comes before them.
            streams.way_reasons.splice(..0, ways.told());
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packtrain_service::TransportChoice;

    #[test]
    fn what_a_store_sends_is_not_sealed() {
        let (near, _far) = crate::control::pair().expect("sockets");
        let plan = || TransportConfig::on_loopback(TransportChoice::Tcp);
        assert!(!SinkTransports::of(plan(), near.tx.clone(), Vec::new()).is_sealed());
        assert!(SinkTransports::new(plan(), near.tx.clone()).is_sealed());
    }
}
