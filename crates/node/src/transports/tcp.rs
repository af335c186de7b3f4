//! TCP streams between the two ends: TLS 1.3 with keys made for this transfer alone, told in the
//! offers, so that only the two ends of this transfer get through.
//!
//! On the wire, from source to sink: offset (u64), length (u32), bytes, and so on, little-endian.
//! From sink to source: the total of bytes taken so far (u64), whenever it grew.

use std::sync::{Arc, Mutex, OnceLock};

use packtrain_io::entropy;
use packtrain_io::tcp::tls::{any_name, client_config, peer_key, server_config};
use packtrain_io::tcp::{ConnectOptions, Identity, PublicKey, connect_any, listen_in, tune};
use packtrain_object::SPACE_END;
use packtrain_transfer::TransportId;
use packtrain_transfer::message::MAX_DATA;
use packtrain_units::{DataRate, Duration, Offset};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use super::mover::{Mover, Tell};
use super::offer::Offer;
use super::sources::Internal;
use super::{Plan, TransportNews};
use crate::assembly::Assembly;
use crate::reader::{Reader, Slice};
use crate::runtime;

/// A connection of this transfer, both keys checked.
pub(crate) type TcpStream = TlsStream<tokio::net::TcpStream>;

const CONNECT: Duration = Duration::from_secs(5);
/// A network that is gone this long ends a connection.
const DEAD: Duration = Duration::from_secs(60);
/// Connections with two tasks each, and some on their way.
const MOST_TASKS: usize = 192;
/// Pieces of payload waiting for the socket.
const WAITING: usize = 8;

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
}

/// The tasks of one transfer's connections: they end with it.
#[derive(Clone, Default)]
pub(super) struct Tasks(Arc<Mutex<Vec<AbortHandle>>>);

impl Tasks {
    /// Runs a task; none beyond the limit.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.0.lock().expect("no holder panics");
        tasks.retain(|task| !task.is_finished());
        if tasks.len() < MOST_TASKS {
            tasks.push(runtime::handle().spawn(work).abort_handle());
        }
    }

    fn abort(&self) {
        for task in self.0.lock().expect("no holder panics").drain(..) {
            task.abort();
        }
    }
}

impl Drop for TcpEnd {
    fn drop(&mut self) {
        self.task.abort();
        self.tasks.abort();
    }
}

impl TcpEnd {
    /// Listens; `up` gets every connection whose key is the peer's.
    pub(super) fn listen(
        plan: &Plan,
        tasks: &Tasks,
        up: impl Fn(TcpStream) + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let _runtime = runtime::handle().enter();
        let listener = listen_in(None, plan.ports.map(|p| p.first..=p.last))?;
        let port = listener.local_addr()?.port();
        let background = plan.background;
        let identity = Arc::new(Identity::generate(entropy::bytes()));
        let (tasks, welcomes) = (tasks.clone(), tasks.clone());
        let config = server_config(&identity, Arc::new(|_| true)).map_err(std::io::Error::other)?;
        let acceptor = TlsAcceptor::from(config);
        let expected: Arc<OnceLock<PublicKey>> = Arc::default();
        let known: Arc<tokio::sync::Notify> = Arc::default();
        let up: Arc<dyn Fn(TcpStream) + Send + Sync> = Arc::new(up);
        let task = {
            let (expected, known, up) =
                (Arc::clone(&expected), Arc::clone(&known), Arc::clone(&up));
            runtime::handle().spawn(async move {
                while let Ok((socket, _)) = listener.accept().await {
                    let (acceptor, expected) = (acceptor.clone(), Arc::clone(&expected));
                    let (known, up) = (Arc::clone(&known), Arc::clone(&up));
                    let welcome = async move {
                        tune_socket(&socket, background);
                        let stream = acceptor.accept(socket).await.ok()?;
                        let key = peer_key(stream.get_ref().1)?;
                        (key == wait_for(&expected, &known).await).then_some(())?;
                        up(TlsStream::Server(stream));
                        Some(())
                    };
                    // A stranger who says nothing is dropped.
                    welcomes.spawn(async move {
                        let _ = tokio::time::timeout(CONNECT.to_std(), welcome).await;
                    });
                }
            })
        };
        Ok(Self { identity, port, expected, known, up, task, tasks })
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

    /// Learns the peer's key and connects to it, `streams` times.
    pub(super) fn connect(&self, plan: &Plan, peer: &Offer, streams: u32, after: Duration) {
        let Some(expected) = self.expect(peer) else { return };
        let addresses = peer.candidates(&plan.hints, peer.tcp);
        if addresses.is_empty() {
            return;
        }
        let decide = Arc::new(move |key: &PublicKey| *key == expected);
        let Ok(config) = client_config(&self.identity, decide) else { return };
        let background = plan.background;
        for _ in 0..streams.clamp(1, 64) {
            let (addresses, up) = (addresses.clone(), Arc::clone(&self.up));
            let connector = TlsConnector::from(Arc::clone(&config));
            self.tasks.spawn(async move {
                let connect = async move {
                    tokio::time::sleep(after.to_std()).await;
                    let options = ConnectOptions { timeout: CONNECT, ..ConnectOptions::default() };
                    let socket = connect_any(&addresses, &options).await.ok()?;
                    tune_socket(&socket, background);
                    let stream = connector.connect(any_name(), socket).await.ok()?;
                    up(TlsStream::Client(stream));
                    Some(())
                };
                let _: Option<()> = connect.await;
            });
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

/// Starts moving over a connection.
pub(super) fn start_sender(
    id: TransportId,
    tasks: &Tasks,
    stream: TcpStream,
    reader: Reader,
    tell: Tell,
    rate: Option<DataRate>,
) -> Mover {
    let (queue, mut waiting) = mpsc::channel::<(Offset, Slice)>(WAITING);
    let over = Arc::clone(&tell);
    let mover = Mover::start(id, "tcp", reader, tell, rate, move |at, slice| {
        queue.blocking_send((at, slice)).is_ok()
    });
    let (mut input, mut output) = tokio::io::split(stream);
    let told = Arc::clone(&over);
    tasks.spawn(async move {
        let result: std::io::Result<()> = async {
            while let Some((at, slice)) = waiting.recv().await {
                let mut header = [0; 12];
                header[..8].copy_from_slice(&at.get().to_le_bytes());
                header[8..].copy_from_slice(&(slice.len() as u32).to_le_bytes());
                output.write_all(&header).await?;
                output.write_all(slice.bytes()).await?;
                if waiting.is_empty() {
                    output.flush().await?;
                }
            }
            output.shutdown().await
        }
        .await;
        if let Err(e) = result {
            told(TransportNews::Internal(Internal::TcpOver(id, format!("TCP: {e}"))));
        }
    });
    let taker = mover.clone();
    tasks.spawn(async move {
        let why = loop {
            match input.read_u64_le().await {
                Ok(total) => taker.taken(total),
                Err(e) => break e,
            }
        };
        over(TransportNews::Internal(Internal::TcpOver(id, format!("TCP: {why}"))));
    });
    mover
}

/// Starts taking what comes over a connection.
pub(super) fn start_receiver(tasks: &Tasks, stream: TcpStream, assembly: Assembly) {
    tasks.spawn(async move {
        let (mut input, mut output) = tokio::io::split(stream);
        let mut buffer = vec![0; MAX_DATA];
        let mut total = 0u64;
        loop {
            let mut header = [0; 12];
            if input.read_exact(&mut header).await.is_err() {
                return;
            }
            let (at, size) = header.split_at(8);
            let at = u64::from_le_bytes(at.try_into().unwrap_or_default());
            let size = u32::from_le_bytes(size.try_into().unwrap_or_default()) as usize;
            // Longer or farther than ever sent: the peer is broken, and nothing is taken by its word.
            let beyond = at.saturating_add(size as u64) > SPACE_END.get();
            if size > MAX_DATA || beyond || input.read_exact(&mut buffer[..size]).await.is_err() {
                return;
            }
            let bytes = &buffer[..size];
            tokio::task::block_in_place(|| assembly.place_waiting(Offset(at), bytes));
            total += size as u64;
            if output.write_all(&total.to_le_bytes()).await.is_err()
                || output.flush().await.is_err()
            {
                return;
            }
        }
    });
}
