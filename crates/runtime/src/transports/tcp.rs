//! TCP streams between the two ends: TLS 1.3 with keys made for this transfer alone, told in the
//! offers, so that only the two ends of this transfer get through.

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

/// A connection of this transfer, both keys checked.
pub(crate) type TcpStream = TlsStream<Carrier>;
type ClientStream = tokio_rustls::client::TlsStream<Carrier>;

const CONNECT: Duration = Duration::from_secs(5);
/// The wait after a connection that could not be accepted.
const AGAIN: Duration = Duration::from_millis(50);
/// A network that is gone this long ends a connection.
const DEAD: Duration = Duration::from_secs(60);
/// Connections with two tasks each, on two ways for a while, and some on their way.
const MAX_TASKS: usize = 320;
/// Strangers and friends at the door, whose keys are being checked.
const MAX_WELCOMES: usize = 96;
/// Streams of a transfer, at most.
pub const MAX_STREAMS: u32 = 64;

/// The way that a connection takes, as who made it says.
pub(super) fn way(stream: &TcpStream) -> PathId {
    let named = match stream {
        TcpStream::Server(stream) => stream.get_ref().1.server_name().and_then(way_of),
        TcpStream::Client(_) => None,
    };
    named.map_or(PathId::DIRECT, PathId::numbered)
}

/// Settings of the kernel's TCP that the user asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TcpSettings {
    /// Congestion control; the system's if none.
    pub congestion: Option<String>,
    /// Buffers; the kernel's autotuning if none.
    pub buffers: Option<ByteCount>,
}

/// This end's listening socket and keys.
pub(super) struct TcpEnd {
    identity: Arc<Identity>,
    port: u16,
    /// The peer's key, once its offer came.
    expected: Arc<OnceLock<PublicKey>>,
    known: Arc<tokio::sync::Notify>,
    up: Arc<dyn Fn(TcpStream) + Send + Sync>,
    task: tokio::task::JoinHandle<()>,
    tasks: Tasks,
    welcomes: Tasks,
}

/// The tasks of one transfer's connections: they end with it.
#[derive(Clone, Default)]
pub(super) struct Tasks(Arc<Mutex<Vec<AbortHandle>>>);

impl Tasks {
    /// Runs a task; none beyond the limit.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.0.lock();
        tasks.retain(|task| !task.is_finished());
        if tasks.len() < MAX_TASKS {
            tasks.push(executor::handle().spawn(work).abort_handle());
        }
    }

    /// Runs a task; where there are `most`, the oldest makes room.
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
        self.welcomes.abort();
    }
}

/// Connects to the peer, as often as it is asked to.
#[derive(Clone)]
pub(super) struct Connector {
    /// Over depots, while they work.
    via: Option<(Via, u16)>,
    /// The ways to choose from, and the other end's port.
    ways: Option<(Arc<CandidatePaths>, u16)>,
    addresses: Vec<std::net::SocketAddr>,
    connector: TlsConnector,
    /// The same, which tells the way.
    telling: TlsConnector,
    options: ConnectOptions,
    background: bool,
    tasks: Tasks,
    up: Arc<dyn Fn(TcpStream) + Send + Sync>,
}

impl Connector {
    /// Connects once, after a while; `failed` is told if that comes to nothing.
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
    /// Connects once over the depots of a way; `up` gets the connection, `failed` why there is none.
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

    /// The same where this end receives: what comes about is taken like any other.
    pub(super) fn bring(&self, way: PathId, failed: impl FnOnce(String) + Send + 'static) {
        let up = Arc::clone(&self.up);
        self.connect_over(way, move |stream| up(stream), failed);
    }

    async fn direct(&self) -> Option<ClientStream> {
        let socket = connect_any(&self.addresses, &self.options).await.ok()?;
        tune_socket(&socket, self.background);
        let handshake = self.connector.connect(any_name(), Carrier::Tcp(socket));
        // A peer that takes the connection and says nothing is none.
        tokio::time::timeout(CONNECT.to_std(), handshake).await.ok()?.ok()
    }

    /// Once over depots; they say themselves what is wrong.
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
    /// Listens; `up` gets every connection whose key is the peer's.
    pub(super) fn listen(
        plan: &TransportConfig,
        tasks: &Tasks,
        up: impl Fn(TcpStream) + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let _runtime = executor::handle().enter();
        let listener = listen_in(None, plan.ports.map(|p| p.first..=p.last))?;
        let port = listener.local_addr()?.port();
        // Connections that come in have what their listener has.
        if let Some(name) = &plan.kernel.congestion {
            let _ = tune::set_congestion(&listener, name);
        }
        if let Some(size) = plan.kernel.buffers {
            let _ = tune::set_buffers(&listener, size);
        }
        let background = plan.background;
        let identity = Arc::new(Identity::generate(entropy::bytes()));
        let (tasks, welcomes) = (tasks.clone(), Tasks::default());
        let config = server_config(&identity, Arc::new(|_| true)).map_err(std::io::Error::other)?;
        let acceptor = TlsAcceptor::from(config);
        let expected: Arc<OnceLock<PublicKey>> = Arc::default();
        let known: Arc<tokio::sync::Notify> = Arc::default();
        let up: Arc<dyn Fn(TcpStream) + Send + Sync> = Arc::new(up);
        let task = {
            let (expected, known, up) =
                (Arc::clone(&expected), Arc::clone(&known), Arc::clone(&up));
            let welcomes = welcomes.clone();
            executor::handle().spawn(async move {
                loop {
                    let Ok((socket, _)) = listener.accept().await else {
                        // Out of descriptors, or whoever came is gone: that passes.
                        tokio::time::sleep(AGAIN.to_std()).await;
                        continue;
                    };
                    let (acceptor, expected) = (acceptor.clone(), Arc::clone(&expected));
                    let (known, up) = (Arc::clone(&known), Arc::clone(&up));
                    let welcome = async move {
                        tune_socket(&socket, background);
                        let stream = acceptor.accept(Carrier::Tcp(socket)).await.ok()?;
                        let key = peer_key(stream.get_ref().1)?;
                        (key == wait_for(&expected, &known).await).then_some(())?;
                        up(TlsStream::Server(stream));
                        Some(())
                    };
                    // A stranger who says nothing is dropped, and first of all when many come.
                    welcomes.spawn_latest(MAX_WELCOMES, async move {
                        let _ = tokio::time::timeout(CONNECT.to_std(), welcome).await;
                    });
                }
            })
        };
        Ok(Self { identity, port, expected, known, up, task, tasks, welcomes })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn key(&self) -> Vec<u8> {
        self.identity.public().0.to_vec()
    }

    /// Learns the peer's key; connections that show it are let in from now on.
    pub(super) fn expect(&self, peer: &Offer) -> Option<PublicKey> {
        let key = PublicKey(<[u8; 32]>::try_from(peer.tcp_key.as_slice()).ok()?);
        // A second offer changes nothing.
        let _ = self.expected.set(key);
        self.known.notify_waiters();
        Some(key)
    }

    /// Learns the peer's key; gives what connects to it, if it can be reached at all.
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
            timeout: CONNECT,
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

    /// Learns the peer's key and connects to it, `streams` times.
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
    // What a system lacks of these, it does without.
    let _ = tune::set_nodelay(socket);
    let _ = tune::set_dead_after(socket, DEAD);
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
