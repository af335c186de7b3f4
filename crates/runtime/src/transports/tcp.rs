//! TCP streams between the two ends: TLS 1.3 with keys made for this transfer and exchanged in the
//! offers, so that only the two ends of this transfer can connect.

pub(super) mod group;
pub(super) mod path_feed;
pub(super) mod record;
pub(super) mod sink;
pub(super) mod source;
pub(super) mod stream_count;
pub(super) mod stream_count_tuner;
pub(super) mod stream_pool;
pub(super) mod streams;
pub(super) mod stripe_scheduler;
pub(super) mod wire;

use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};

use packtrain_net::tcp::tls::{
    any_name, client_config, peer_key, server_config, telling, way_name, way_of,
};
use packtrain_net::tcp::{ConnectOptions, Identity, PublicKey, connect_any, listen_in, tune};
use packtrain_os::entropy;
use packtrain_plan::route::PathId;
use packtrain_session::Place;
use packtrain_units::{ByteCount, Duration};
use tokio::task::AbortHandle;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use super::TransportConfig;
use super::offer::Offer;
use crate::candidate_paths::CandidatePaths;
use packtrain_hops::Carrier;
use packtrain_hops::route::Via;
use packtrain_service::executor;

/// A connection of this transfer with both keys checked.
pub(crate) type TcpStream = TlsStream<Carrier>;
type ClientStream = tokio_rustls::client::TlsStream<Carrier>;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Delay after a failed accept.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);
/// Time without acknowledgements after which the kernel closes a connection.
const DEAD_PEER_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum tasks: two per connection, with connections on two paths for a while, and some being
/// made.
const MAX_TASKS: usize = 320;
/// Maximum concurrent handshakes with unauthenticated peers.
const MAX_UNAUTHENTICATED: usize = 96;
/// Maximum streams of a transfer.
pub const MAX_STREAMS: u32 = 64;

/// The path of a connection, as the end that made it names it.
pub(super) fn way(stream: &TcpStream) -> PathId {
    let named = match stream {
        TcpStream::Server(stream) => stream.get_ref().1.server_name().and_then(way_of),
        TcpStream::Client(_) => None,
    };
    named.map_or(PathId::DIRECT, PathId::numbered)
}

/// Settings of the kernel's TCP, as the user requested them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TcpSettings {
    /// Congestion control; none for the system's default.
    pub congestion: Option<String>,
    /// Buffer sizes; none for the kernel's autotuning.
    pub buffers: Option<ByteCount>,
}

/// This end's listening socket and keys.
pub(super) struct TcpEnd {
    identity: Arc<Identity>,
    port: u16,
    /// The peer's key, once its offer arrived.
    expected: Arc<OnceLock<PublicKey>>,
    known: Arc<tokio::sync::Notify>,
    up: Arc<dyn Fn(TcpStream) + Send + Sync>,
    task: tokio::task::JoinHandle<()>,
    tasks: Tasks,
    handshakes: Tasks,
}

/// The tasks of one transfer's connections, which end with it.
#[derive(Clone, Default)]
pub(super) struct Tasks(Arc<Mutex<Vec<AbortHandle>>>);

impl Tasks {
    /// Starts a task; above the limit it does nothing.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.0.lock();
        tasks.retain(|task| !task.is_finished());
        if tasks.len() < MAX_TASKS {
            tasks.push(executor::handle().spawn(work).abort_handle());
        }
    }

    /// Starts a task; at `most` tasks it aborts the oldest.
    fn spawn_latest(&self, most: usize, work: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.0.lock();
        tasks.retain(|task| !task.is_finished());
        if tasks.len() >= most {
            tasks.remove(0).abort();
        }
        tasks.push(executor::handle().spawn(work).abort_handle());
    }

    fn abort(&self) {
        for task in self.0.lock().drain(..) {
            task.abort();
        }
    }
}

impl Drop for TcpEnd {
    fn drop(&mut self) {
        self.task.abort();
        self.tasks.abort();
        self.handshakes.abort();
    }
}

/// Makes connections to the peer.
#[derive(Clone)]
pub(super) struct Connector {
    /// The depots to connect over, while they work, and the other end's port.
    via: Option<(Via, u16)>,
    /// The candidate paths, and the other end's port.
    ways: Option<(Arc<CandidatePaths>, u16)>,
    addresses: Vec<std::net::SocketAddr>,
    connector: TlsConnector,
    /// The same connector, with the path in the TLS server name.
    telling: TlsConnector,
    options: ConnectOptions,
    background: bool,
    tasks: Tasks,
    up: Arc<dyn Fn(TcpStream) + Send + Sync>,
}

impl Connector {
    /// Connects once, after a delay; calls `failed` if that fails.
    pub(super) fn connect(&self, after: Duration, failed: impl FnOnce() + Send + 'static) {
        let this = self.clone();
        self.tasks.spawn(async move {
            let connect = async {
                tokio::time::sleep(after.to_std()).await;
                let stream = match &this.via {
                    Some((via, port)) if !via.route.is_direct() => this.relayed(via, *port).await?,
                    _ => this.direct().await?,
                };
                (this.up)(TlsStream::Client(stream));
                Some(())
            };
            if connect.await.is_none() {
                failed();
            }
        });
    }
}

impl Connector {
    /// Connects once over the depots of a path; calls `up` with the connection or `failed` with the
    /// reason.
    pub(super) fn connect_over(
        &self,
        way: PathId,
        up: impl FnOnce(TcpStream) + Send + 'static,
        failed: impl FnOnce(String) + Send + 'static,
    ) {
        let Some((ways, port)) = self.ways.clone() else {
            return failed("the other end takes no connections".to_owned());
        };
        let this = self.clone();
        self.tasks.spawn(async move {
            let found = ways.route(way);
            let Some((host, route)) = found else { return failed("no such way".to_owned()) };
            let place = Place { host: host.clone(), port };
            let name = way_name(way.index() as u8);
            match route.dial_once(place, (&this.telling, name), &this.options).await {
                Ok(stream) => {
                    if this.background {
                        let _ = tune::set_lower_effort(stream.get_ref().0);
                    }
                    up(TlsStream::Client(stream));
                }
                Err(error) => failed(error.to_string()),
            }
        });
    }

    /// The same at a receiving end, which handles the connection like any other.
    pub(super) fn bring(&self, way: PathId, failed: impl FnOnce(String) + Send + 'static) {
        let up = Arc::clone(&self.up);
        self.connect_over(way, move |stream| up(stream), failed);
    }

    async fn direct(&self) -> Option<ClientStream> {
        let socket = connect_any(&self.addresses, &self.options).await.ok()?;
        tune_socket(&socket, self.background);
        let handshake = self.connector.connect(any_name(), Carrier::Tcp(socket));
        // A peer that accepts the connection and does not complete the handshake counts as failed.
        tokio::time::timeout(CONNECT_TIMEOUT.to_std(), handshake).await.ok()?.ok()
    }

    /// Connects once over depots, which report their errors themselves.
    async fn relayed(&self, via: &Via, port: u16) -> Option<ClientStream> {
        let place = Place { host: via.host.clone(), port };
        let stream = via.route.dial(place, &self.connector, &self.options).await.ok()?;
        if self.background {
            let _ = tune::set_lower_effort(stream.get_ref().0);
        }
        Some(stream)
    }
}

impl TcpEnd {
    /// Listens; `up` gets every connection with the peer's key.
    pub(super) fn listen(
        plan: &TransportConfig,
        tasks: &Tasks,
        up: impl Fn(TcpStream) + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let _runtime = executor::handle().enter();
        let listener = listen_in(None, plan.ports.map(|p| p.first..=p.last))?;
        let port = listener.local_addr()?.port();
        // Accepted connections inherit the settings of the listener.
        if let Some(name) = &plan.kernel.congestion {
            let _ = tune::set_congestion(&listener, name);
        }
        if let Some(size) = plan.kernel.buffers {
            let _ = tune::set_buffers(&listener, size);
        }
        let background = plan.background;
        let identity = Arc::new(Identity::generate(entropy::bytes()));
        let (tasks, handshakes) = (tasks.clone(), Tasks::default());
        let config = server_config(&identity, Arc::new(|_| true)).map_err(std::io::Error::other)?;
        let acceptor = TlsAcceptor::from(config);
        let expected: Arc<OnceLock<PublicKey>> = Arc::default();
        let known: Arc<tokio::sync::Notify> = Arc::default();
        let up: Arc<dyn Fn(TcpStream) + Send + Sync> = Arc::new(up);
        let task = {
            let (expected, known, up) =
                (Arc::clone(&expected), Arc::clone(&known), Arc::clone(&up));
            let handshakes = handshakes.clone();
            executor::handle().spawn(async move {
                loop {
                    let Ok((socket, _)) = listener.accept().await else {
                        // Out of descriptors, or the peer has already closed: temporary.
                        tokio::time::sleep(ACCEPT_RETRY_DELAY.to_std()).await;
                        continue;
                    };
                    let (acceptor, expected) = (acceptor.clone(), Arc::clone(&expected));
                    let (known, up) = (Arc::clone(&known), Arc::clone(&up));
                    let handshake = async move {
                        tune_socket(&socket, background);
                        let stream = acceptor.accept(Carrier::Tcp(socket)).await.ok()?;
                        let key = peer_key(stream.get_ref().1)?;
                        (key == wait_for(&expected, &known).await).then_some(())?;
                        up(TlsStream::Server(stream));
                        Some(())
                    };
                    // Unauthenticated connections have a time limit, and the oldest are dropped
                    // first when there are many.
                    handshakes.spawn_latest(MAX_UNAUTHENTICATED, async move {
                        let _ = tokio::time::timeout(CONNECT_TIMEOUT.to_std(), handshake).await;
                    });
                }
            })
        };
        Ok(Self { identity, port, expected, known, up, task, tasks, handshakes })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn key(&self) -> Vec<u8> {
        self.identity.public().0.to_vec()
    }

    /// Sets the peer's key; connections with this key are accepted from now on.
    pub(super) fn expect(&self, peer: &Offer) -> Option<PublicKey> {
        let key = PublicKey(<[u8; 32]>::try_from(peer.tcp_key.as_slice()).ok()?);
        // A second offer changes nothing.
        let _ = self.expected.set(key);
        self.known.notify_waiters();
        Some(key)
    }

    /// Sets the peer's key. Returns a connector to the peer, if it is reachable at all.
    pub(super) fn connector(&self, plan: &TransportConfig, peer: &Offer) -> Option<Connector> {
        let expected = self.expect(peer)?;
        let addresses = peer.candidates(&plan.hints, peer.tcp);
        let via = plan.via.clone().filter(|_| peer.tcp != 0).map(|via| (via, peer.tcp));
        let ways = plan.ways.clone().filter(|_| peer.tcp != 0).map(|ways| (ways, peer.tcp));
        if addresses.is_empty() && via.is_none() {
            return None;
        }
        let decide = Arc::new(move |key: &PublicKey| *key == expected);
        let config = client_config(&self.identity, decide).ok()?;
        let options = ConnectOptions {
            timeout: CONNECT_TIMEOUT,
            congestion: plan.kernel.congestion.clone(),
            buffers: plan.kernel.buffers,
            ..ConnectOptions::default()
        };
        Some(Connector {
            via,
            ways,
            addresses,
            telling: TlsConnector::from(telling(&config)),
            connector: TlsConnector::from(config),
            options,
            background: plan.background,
            tasks: self.tasks.clone(),
            up: Arc::clone(&self.up),
        })
    }

    /// Sets the peer's key and connects `streams` times.
    pub(super) fn connect(
        &self,
        plan: &TransportConfig,
        peer: &Offer,
        streams: u32,
        after: Duration,
    ) {
        if let Some(connector) = self.connector(plan, peer) {
            for _ in 0..streams.clamp(1, MAX_STREAMS) {
                connector.connect(after, || {});
            }
        }
    }
}

fn tune_socket(socket: &tokio::net::TcpStream, background: bool) {
    if background {
        let _ = tune::set_lower_effort(socket);
    }
    // These settings are optional: errors of systems without them are ignored.
    let _ = tune::set_nodelay(socket);
    let _ = tune::set_dead_after(socket, DEAD_PEER_TIMEOUT);
}

async fn wait_for(expected: &OnceLock<PublicKey>, known: &tokio::sync::Notify) -> PublicKey {
    loop {
        let notified = known.notified();
        if let Some(key) = expected.get() {
            return *key;
        }
        notified.await;
    }
}
