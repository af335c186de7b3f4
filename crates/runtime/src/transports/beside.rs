//! TCP connections in addition to datagram flows: the reliable feedback channel of SABUL.
//!
//! They are made like the connections of the transport tcp: TLS with keys of this transfer, from
//! either end to the other. On a connection the source first sends the number of its flow (4 bytes,
//! big-endian), and the sink uses only connections with such a number. The messages of both ends
//! follow unchanged ([ADR
//! 0019](../../../../docs/adr/0019-sabul-sends-state-over-a-reliable-channel.md)).

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

/// Time that flows wait for their connections.
pub(crate) const WAIT: Duration = Duration::from_secs(10);

type Ready = Box<dyn FnOnce() + Send>;

/// A flow that waits for its connection.
struct Waiting {
    flow: u32,
    beside: FeedbackChannel,
    ready: Ready,
}

/// The feedback connections of the flows of one transfer.
pub struct Channels {
    end: TcpEnd,
    flows: Arc<Mutex<Vec<Waiting>>>,
}

impl Channels {
    /// Listens for connections.
    pub fn listen(plan: &TransportConfig, role: Role) -> std::io::Result<Self> {
        let flows: Arc<Mutex<Vec<Waiting>>> = Arc::default();
        let waiting = Arc::clone(&flows);
        let end = TcpEnd::listen(plan, &Tasks::default(), move |stream| {
            let waiting = Arc::clone(&waiting);
            // Not among the tasks of the end: it lasts as long as its flow, which closes it.
            executor::handle().spawn(async move {
                match role {
                    Role::Source => serve_source(stream, &waiting).await,
                    Role::Sink => serve_sink(stream, &waiting).await,
                }
            });
        })?;
        Ok(Self { end, flows })
    }

    /// Adds the port and key of this end to an offer.
    pub fn fill(&self, offer: &mut Offer) {
        offer.tcp = self.end.port();
        offer.tcp_key = self.end.key();
    }

    /// Registers a flow that waits for its connection; `ready` is called when it is up.
    pub fn add(&self, flow: u32, beside: FeedbackChannel, ready: impl FnOnce() + Send + 'static) {
        let waiting = Waiting { flow, beside, ready: Box::new(ready) };
        self.flows.lock().push(waiting);
    }

    /// Connects to the peer once for each waiting flow, after a delay if the peer connects first.
    /// The flows must have been added.
    pub fn connect(&self, plan: &TransportConfig, peer: &Offer, after: Duration) {
        let count = self.flows.lock().len();
        self.end.connect(plan, peer, count as u32, after);
    }
}

/// The source's end: assigns a connection to the first waiting flow. There are more connections
/// than flows if both ends succeed.
async fn serve_source(mut stream: TcpStream, flows: &Mutex<Vec<Waiting>>) {
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

/// The sink's end: assigns a connection to the flow with the received number.
async fn serve_sink(mut stream: TcpStream, flows: &Mutex<Vec<Waiting>>) {
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
