//! The transport over TCP streams at its receiving end.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use packtrain_plan::route::PathId;
use packtrain_transfer::message::Message;
use packtrain_units::{Backoff, ByteCount, Duration};

use super::{Connector, Tasks, TcpEnd, wire};
use crate::control::ControlSender;
use crate::transports::TransportConfig;
use crate::transports::intake::Intake;
use crate::transports::offer::{ControlMessage, Offer};
use crate::transports::transport::{SinkContext, SinkTransport};

/// The source connects first; the sink tries the other way round a little later.
const HEAD_START: Duration = Duration::from_millis(300);
/// The waits before a connection over depots is tried again.
const RETRY: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_millis(2250));
/// How often within a transfer.
const MAX_AGAIN: u32 = 64;
/// Connections over candidate paths that a source gets in one transfer.
const MAX_DIALLED: u32 = 1024;

/// Connects again over depots where a connection did not come about or broke, as nobody else can:
/// the source does not know them.
#[derive(Clone, Default)]
struct Redial {
    connector: Arc<OnceLock<Connector>>,
    again: Arc<AtomicU32>,
}

impl Redial {
    fn dial(&self, after: Duration) {
        let Some(connector) = self.connector.get() else { return };
        let this = self.clone();
        connector.connect(after, move || this.again());
    }

    fn again(&self) {
        let again = self.again.fetch_add(1, Ordering::Relaxed);
        if again < MAX_AGAIN {
            self.dial(RETRY.after(again));
        }
    }
}

/// All TCP streams of a sink.
pub(in crate::transports) struct TcpSink {
    config: TransportConfig,
    intake: Intake,
    control: Option<ControlSender>,
    end: Option<TcpEnd>,
    connector: Option<Connector>,
    redial: Redial,
    /// Connections made from here.
    connected: u32,
    /// Connections over candidate paths that the source asked for.
    dialled: u32,
    received: Arc<AtomicU64>,
}

impl TcpSink {
    pub(in crate::transports) fn new(config: TransportConfig, intake: Intake) -> Self {
        Self {
            config,
            intake,
            control: None,
            end: None,
            connector: None,
            redial: Redial::default(),
            connected: 0,
            dialled: 0,
            received: Arc::default(),
        }
    }

    /// The source, which cannot reach this end, wants so many streams from here.
    fn on_streams(&mut self, wanted: u32) {
        let Some(connector) = &self.connector else { return };
        let wanted = wanted.min(self.config.most_streams);
        for _ in self.connected..wanted {
            if self.config.via.is_some() {
                self.redial.dial(Duration::ZERO);
            } else {
                connector.connect(Duration::ZERO, || {});
            }
        }
        self.connected = self.connected.max(wanted);
    }

    /// The source wants so many streams over a path that it was told of.
    fn on_dial(&mut self, way: u8, wanted: u32) {
        let Some(control) = self.control.clone().filter(|_| self.config.ways.is_some()) else {
            return;
        };
        for _ in 0..wanted.min(self.config.most_streams) {
            let control = control.clone();
            let failed = move |why: String| {
                control.send(&Message::Channel(ControlMessage::NoWay(way, why).encode()));
            };
            match &self.connector {
                _ if self.dialled >= MAX_DIALLED => failed("too many were wanted".to_owned()),
                Some(connector) => connector.bring(PathId::numbered(way), failed),
                None => failed("no address of the other end is known".to_owned()),
            }
            self.dialled = self.dialled.saturating_add(1);
        }
    }
}

impl SinkTransport for TcpSink {
    fn start(&mut self, context: &SinkContext, offer: &mut Offer) {
        self.control = Some(context.control.clone());
        let assembly = context.assembly.clone();
        let tasks = Tasks::default();
        let running = tasks.clone();
        let (redial, intake) = (self.redial.clone(), self.intake.clone());
        let received = Arc::clone(&self.received);
        let up = move |stream| {
            let redial = redial.clone();
            let broke = move || redial.again();
            let (assembly, received) = (assembly.clone(), Arc::clone(&received));
            wire::receive(&running, stream, &intake, assembly, received, broke);
        };
        let Ok(end) = TcpEnd::listen(&self.config, &tasks, up) else { return };
        // Over depots only this end connects.
        offer.tcp = if self.config.via.is_some() { 0 } else { end.port() };
        offer.tcp_key = end.key();
        self.end = Some(end);
    }

    fn on_offer(&mut self, offer: &Offer) {
        let Some(end) = &self.end else { return };
        self.connector = end.connector(&self.config, offer);
        let Some(connector) = &self.connector else { return };
        if self.config.via.is_some() {
            let _ = self.redial.connector.set(connector.clone());
            self.redial.dial(Duration::ZERO);
        } else {
            connector.connect(HEAD_START, || {});
        }
        self.connected = 1;
    }

    fn on_control(&mut self, message: &ControlMessage) {
        match message {
            ControlMessage::Streams(wanted) => self.on_streams(*wanted),
            ControlMessage::Dial(way, wanted) => self.on_dial(*way, *wanted),
            _ => {}
        }
    }

    fn received(&self) -> Option<(String, ByteCount)> {
        Some(("tcp".to_owned(), ByteCount(self.received.load(Ordering::Relaxed))))
    }

    fn close(&mut self) {
        self.redial.again.store(MAX_AGAIN, Ordering::Relaxed);
        self.end = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_between_dials_over_depots_double_up_to_9_quarters_of_a_second() {
        let waits = (0..6).map(|n| RETRY.after(n).as_millis());
        assert!(waits.eq([250, 500, 1000, 2000, 2250, 2250]));
    }
}
