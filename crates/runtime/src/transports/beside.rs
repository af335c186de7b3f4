//! TCP connections beside datagram flows: the channel that loses nothing, which SABUL has.
//!
//! They are made like those of the transport tcp: TLS with keys of this transfer alone, either end
//! to the other, whichever gets through. On one the source first says which flow it is for (its
//! number, 4 bytes, big-endian); the sink takes those that spoke. After that go the messages of
//! the two ends as they are
//! ([ADR 0019](../../../../docs/adr/0019-sabul-sends-state-over-a-reliable-channel.md)).

use parking_lot::Mutex;
use std::sync::Arc;

use packtrain_net::flow::FeedbackChannel;
use packtrain_units::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::TransportConfig;
use super::offer::Offer;
use super::tcp::{Tasks, TcpEnd, TcpStream};
use packtrain_service::executor;
use packtrain_transfer::message::Role;

/// How long flows wait for their connections.
pub(crate) const WAIT: Duration = Duration::from_secs(10);

type Ready = Box<dyn FnOnce() + Send>;

/// A flow without its connection.
struct Waiting {
    flow: u32,
    beside: FeedbackChannel,
    ready: Ready,
}

/// The connections beside the flows of one transfer.
pub struct Channels {
    end: TcpEnd,
    flows: Arc<Mutex<Vec<Waiting>>>,
}

impl Channels {
    /// Listens.
    pub fn listen(plan: &TransportConfig, role: Role) -> std::io::Result<Self> {
        let flows: Arc<Mutex<Vec<Waiting>>> = Arc::default();
        let waiting = Arc::clone(&flows);
        let end = TcpEnd::listen(plan, &Tasks::default(), move |stream| {
            let waiting = Arc::clone(&waiting);
            // Not a task of the end's: it lasts as long as its flow, which says goodbye by itself.
            executor::handle().spawn(async move {
                match role {
                    Role::Source => speak(stream, &waiting).await,
                    Role::Sink => listen(stream, &waiting).await,
                }
            });
        })?;
        Ok(Self { end, flows })
    }

    /// Writes into an offer where this end listens.
    pub fn fill(&self, offer: &mut Offer) {
        offer.tcp = self.end.port();
        offer.tcp_key = self.end.key();
    }

    /// This flow waits for its connection; `ready` is called when it is up.
    pub fn add(&self, flow: u32, beside: FeedbackChannel, ready: impl FnOnce() + Send + 'static) {
        let waiting = Waiting { flow, beside, ready: Box::new(ready) };
        self.flows.lock().push(waiting);
    }

    /// Connects to the peer for each flow that waits, a while later if the peer is to try first.
    /// The flows must have been added.
    pub fn connect(&self, plan: &TransportConfig, peer: &Offer, after: Duration) {
        let count = self.flows.lock().len();
        self.end.connect(plan, peer, count as u32, after);
    }
}

/// The source's end: a connection is for the first flow that has none; more than enough come where
/// both ends got through.
async fn speak(mut stream: TcpStream, flows: &Mutex<Vec<Waiting>>) {
    let next = {
        let mut flows = flows.lock();
        (!flows.is_empty()).then(|| flows.remove(0))
    };
    let Some(Waiting { flow, beside, ready }) = next else { return };
    if stream.write_all(&flow.to_be_bytes()).await.is_ok() && stream.flush().await.is_ok() {
        ready();
        beside.carry(stream).await;
    }
}

/// The sink's end: a connection is for the flow that it names.
async fn listen(mut stream: TcpStream, flows: &Mutex<Vec<Waiting>>) {
    let mut number = [0; 4];
    let named = tokio::time::timeout(WAIT.to_std(), stream.read_exact(&mut number)).await;
    if !matches!(named, Ok(Ok(_))) {
        return;
    }
    let flow = u32::from_be_bytes(number);
    let found = {
        let mut flows = flows.lock();
        let at = flows.iter().position(|waiting| waiting.flow == flow);
        at.map(|at| flows.swap_remove(at))
    };
    if let Some(Waiting { beside, ready, .. }) = found {
        ready();
        beside.carry(stream).await;
    }
}
