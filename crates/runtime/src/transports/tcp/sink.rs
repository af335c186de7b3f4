//! The receiving end of the TCP transport.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use packtrain_plan::route::PathId;
use packtrain_transfer::message::Message;
use packtrain_units::{Backoff, ByteCount, Duration};

use super::{Connector, Tasks, TcpEnd, wire};
use crate::assembly::Assembly;
use crate::control::ControlSender;
use crate::transports::TransportConfig;
use crate::transports::intake::Intake;
use crate::transports::offer::{ControlMessage, Offer};
use crate::transports::transport::SinkTransport;

/// The source connects first; the sink connects to the source after this delay.
const HEAD_START: Duration = Duration::from_millis(300);
/// Delays before a connection over depots is retried.
const RETRY: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_millis(2250));
/// Maximum retries within a transfer.
const MAX_RETRIES: u32 = 64;
/// Maximum connections over candidate paths that a source may request in one transfer.
const MAX_DIALLED: u32 = 1024;

/// Reconnects over depots after a connection failed or broke. The source cannot do this, because it
/// does not know the depots.
#[derive(Clone, Default)]
struct Redial {
    connector: Arc<OnceLock<Connector>>,
    retries: Arc<AtomicU32>,
}

impl Redial {
    fn dial(&self, after: Duration) {
        let Some(connector) = self.connector.get() else { return };
        let this = self.clone();
        connector.connect(after, move || this.retry());
    }

    fn retry(&self) {
        let again = self.retries.fetch_add(1, Ordering::Relaxed);
        if again < MAX_RETRIES {
            self.dial(RETRY.after(again));
        }
    }
}

/// All TCP streams of a sink.
pub(in crate::transports) struct TcpSink {
    config: TransportConfig,
    intake: Intake,
    control: Option<ControlSender>,
    assembly: Arc<OnceLock<Assembly>>,
    end: Option<TcpEnd>,
    connector: Option<Connector>,
    redial: Redial,
    /// Number of connections made from this end.
    connected: u32,
    /// Number of connections over candidate paths that the source requested.
    dialled: u32,
    received: Arc<AtomicU64>,
}

impl TcpSink {
    pub(in crate::transports) fn new(config: TransportConfig, intake: Intake) -> Self {
        Self {
            config,
            intake,
            control: None,
            assembly: Arc::default(),
            end: None,
            connector: None,
            redial: Redial::default(),
            connected: 0,
            dialled: 0,
            received: Arc::default(),
        }
    }

    /// The source, which cannot reach this end, requests this number of streams from it.
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

    /// The source requests this number of streams over a candidate path.
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
    fn bind(&mut self, control: &ControlSender, offer: &mut Offer) {
        self.control = Some(control.clone());
        let assembly = Arc::clone(&self.assembly);
        let tasks = Tasks::default();
        let running = tasks.clone();
        let (redial, intake) = (self.redial.clone(), self.intake.clone());
        let received = Arc::clone(&self.received);
        let up = move |stream| {
            let redial = redial.clone();
            let broke = move || redial.retry();
            let (assembly, received) = (Arc::clone(&assembly), Arc::clone(&received));
            wire::receive(&running, stream, &intake, assembly, received, broke);
        };
        let Ok(end) = TcpEnd::listen(&self.config, &tasks, up) else { return };
        // Over depots only this end connects.
        offer.tcp = if self.config.via.is_some() { 0 } else { end.port() };
        offer.tcp_key = end.key();
        self.end = Some(end);
    }

    fn on_agreed(&mut self, config: &TransportConfig) {
        self.config = config.clone();
    }

    fn start(&mut self, assembly: &Assembly) {
        let _ = self.assembly.set(assembly.clone());
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
        self.redial.retries.store(MAX_RETRIES, Ordering::Relaxed);
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
