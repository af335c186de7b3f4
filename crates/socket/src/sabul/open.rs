//! Open: the two ends connect over TCP and agree on values.
//!
//! Each end sends 68 bytes, big-endian: `PTSB`, version 1, whether it sends (1 or 0), its UDP port;
//! buffer, first rate in bit/s and datagram size (8 bytes each); the sender then the number (4
//! bytes) and secret (32 bytes) of the flow, the receiver zeros.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use packtrain_net::flow::FeedbackChannel;
use packtrain_net::tcp::tls::{any_name, client_config, server_config};
use packtrain_net::tcp::{ConnectOptions, connect_any, listen, tune};
use packtrain_net::udp::UdpSocket;
use packtrain_os::{clock, entropy};
use packtrain_proto::{FeedbackKind, FlowConfig, FlowKeys, Role, Suite};
use packtrain_units::{ByteCount, DataRate};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use super::{Agreed, Error, MAX_BUFFER, MIN_BUFFER, MTUS, Options};

const HELLO: usize = 68;
const MAGIC: [u8; 5] = *b"PTSB\x01";

/// The message of one end.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hello {
    sends: bool,
    port: u16,
    buffer: ByteCount,
    rate: DataRate,
    mtu: ByteCount,
    flow: u32,
    secret: [u8; 32],
}

impl Hello {
    fn encode(&self) -> [u8; HELLO] {
        let mut out = [0; HELLO];
        out[..5].copy_from_slice(&MAGIC);
        out[5] = u8::from(self.sends);
        out[6..8].copy_from_slice(&self.port.to_be_bytes());
        out[8..16].copy_from_slice(&self.buffer.get().to_be_bytes());
        out[16..24].copy_from_slice(&self.rate.as_bps().to_be_bytes());
        out[24..32].copy_from_slice(&self.mtu.get().to_be_bytes());
        out[32..36].copy_from_slice(&self.flow.to_be_bytes());
        out[36..].copy_from_slice(&self.secret);
        out
    }

    fn decode(bytes: &[u8; HELLO]) -> Option<Self> {
        let long = |at: usize| bytes[at..].first_chunk().map(|b| u64::from_be_bytes(*b));
        let hello = Self {
            sends: bytes[5] == 1,
            port: u16::from_be_bytes([bytes[6], bytes[7]]),
            buffer: ByteCount(long(8)?),
            rate: DataRate::from_bps(long(16)?),
            mtu: ByteCount(long(24)?),
            flow: u32::from_be_bytes(*bytes[32..].first_chunk()?),
            secret: *bytes[36..].first_chunk()?,
        };
        let sane = bytes[..5] == MAGIC
            && bytes[5] <= 1
            && hello.port != 0
            && (MIN_BUFFER..=MAX_BUFFER).contains(&hello.buffer)
            && hello.rate > DataRate::ZERO
            && MTUS.contains(&hello.mtu.get());
        sane.then_some(hello)
    }
}

/// For fuzzers: parses an Open and checks that it is encoded to the same bytes.
///
/// # Panics
/// If it is not.
#[doc(hidden)]
pub fn fuzz_open(bytes: &[u8]) {
    let Some(hello) = bytes.first_chunk().and_then(Hello::decode) else { return };
    assert_eq!(hello.encode()[..], bytes[..HELLO]);
    assert_eq!(Hello::decode(&hello.encode()), Some(hello));
}

/// For fuzzers: a valid Open.
#[doc(hidden)]
pub fn a_good_open() -> Vec<u8> {
    let hello = Hello {
        sends: true,
        port: 9,
        buffer: ByteCount(1 << 20),
        rate: DataRate::from_mbps(5),
        mtu: ByteCount(1_472),
        flow: 7,
        secret: [3; 32],
    };
    hello.encode().to_vec()
}

/// The result of Open.
pub(super) struct Opened {
    pub(super) agreed: Agreed,
    pub(super) config: FlowConfig,
    pub(super) socket: UdpSocket,
    pub(super) channel: Channel,
}

/// The TCP connection, for the flow's feedback channel.
pub(super) struct Channel {
    runtime: Runtime,
    stream: TlsStream<TcpStream>,
}

impl Channel {
    /// Moves the bytes of the feedback channel on a thread of its own, like the paper's TCP thread.
    /// The thread ends with the flow.
    pub(super) fn carry(self, beside: Option<FeedbackChannel>) -> Result<(), Error> {
        let Some(beside) = beside else { return Ok(()) };
        let Self { runtime, stream } = self;
        let work = move || runtime.block_on(beside.carry(stream));
        let thread = std::thread::Builder::new().name("sabul-tcp".to_owned()).spawn(work);
        thread.map(drop).map_err(Error::Open)
    }
}

fn runtime() -> Result<Runtime, Error> {
    Builder::new_current_thread().enable_all().build().map_err(Error::Open)
}

/// Runs one side of Open with its timeout.
fn within<T>(
    options: &Options,
    runtime: &Runtime,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let limit = options.open_timeout.to_std();
    runtime
        .block_on(async { tokio::time::timeout(limit, work).await.unwrap_or(Err(Error::Silent)) })
}

/// The sender's side.
pub(super) fn call(to: SocketAddr, options: &Options) -> Result<Opened, Error> {
    options.check()?;
    let runtime = runtime()?;
    let config = client_config(&options.identity, Arc::clone(&options.trust))
        .map_err(|e| Error::Open(std::io::Error::other(e)))?;
    let met = within(options, &runtime, async {
        let connect = ConnectOptions { timeout: options.open_timeout, ..ConnectOptions::default() };
        let socket = connect_any(&[to], &connect)
            .await
            .map_err(|e| Error::Open(std::io::Error::other(e)))?;
        let stream = TlsConnector::from(config).connect(any_name(), socket).await;
        handshake(options, TlsStream::Client(stream.map_err(Error::Open)?), Role::Sender).await
    })?;
    Ok(met.on(runtime))
}

/// Accepts senders for a receiver.
#[derive(Debug)]
pub struct Listener {
    runtime: Runtime,
    tcp: TcpListener,
    options: Options,
}

impl Listener {
    /// Starts to listen.
    ///
    /// # Errors
    /// Invalid options, or an error of the system.
    pub fn bind(at: SocketAddr, options: &Options) -> Result<Self, Error> {
        options.check()?;
        let runtime = runtime()?;
        let tcp = {
            let _inside = runtime.enter();
            listen(at).map_err(Error::Open)?
        };
        Ok(Self { runtime, tcp, options: options.clone() })
    }

    /// The bound address.
    ///
    /// # Errors
    /// An error of the system.
    pub fn local_addr(&self) -> Result<SocketAddr, Error> {
        self.tcp.local_addr().map_err(Error::Open)
    }

    /// The receiver's side: waits for a connection without limit, then for its Open.
    pub(super) fn answer(&self) -> Result<Opened, Error> {
        let config = server_config(&self.options.identity, Arc::clone(&self.options.trust))
            .map_err(|e| Error::Open(std::io::Error::other(e)))?;
        let (socket, _) = self.runtime.block_on(self.tcp.accept()).map_err(Error::Open)?;
        // A connection may outlive its listener, so it gets a runtime of its own.
        let socket = socket.into_std().map_err(Error::Open)?;
        let runtime = runtime()?;
        let met = within(&self.options, &runtime, async {
            let socket = TcpStream::from_std(socket).map_err(Error::Open)?;
            let stream = TlsAcceptor::from(config).accept(socket).await.map_err(Error::Open)?;
            handshake(&self.options, TlsStream::Server(stream), Role::Receiver).await
        })?;
        Ok(met.on(runtime))
    }
}

struct Handshake {
    agreed: Agreed,
    config: FlowConfig,
    socket: UdpSocket,
    stream: TlsStream<TcpStream>,
}

impl Handshake {
    fn on(self, runtime: Runtime) -> Opened {
        let Self { agreed, config, socket, stream } = self;
        Opened { agreed, config, socket, channel: Channel { runtime, stream } }
    }
}

async fn handshake(
    options: &Options,
    mut stream: TlsStream<TcpStream>,
    role: Role,
) -> Result<Handshake, Error> {
    let tcp = stream.get_ref().0;
    // The option is not required.
    let _ = tune::set_nodelay(tcp);
    let local = tcp.local_addr().map_err(Error::Open)?.ip();
    let peer = tcp.peer_addr().map_err(Error::Open)?.ip();
    let socket = UdpSocket::bind(SocketAddr::new(local, 0))?;
    let sends = role == Role::Sender;
    let own = Hello {
        sends,
        port: socket.local_addr().port(),
        buffer: options.buffer,
        rate: options.rate,
        mtu: options.mtu,
        flow: if sends { entropy::seed() as u32 } else { 0 },
        secret: if sends { entropy::bytes() } else { [0; 32] },
    };
    stream.write_all(&own.encode()).await.map_err(Error::Open)?;
    stream.flush().await.map_err(Error::Open)?;
    let mut bytes = [0; HELLO];
    stream.read_exact(&mut bytes).await.map_err(Error::Open)?;
    let other = Hello::decode(&bytes).filter(|other| other.sends != sends);
    let other = other.ok_or(Error::Malformed)?;
    let agreed = Agreed {
        buffer: own.buffer.min(other.buffer),
        rate: own.rate.min(other.rate),
        mtu: own.mtu.min(other.mtu),
    };
    let config = config(role, &agreed, if sends { &own } else { &other }, (peer, other.port));
    Ok(Handshake { agreed, config, socket, stream })
}

fn config(role: Role, agreed: &Agreed, sender: &Hello, (ip, port): (IpAddr, u16)) -> FlowConfig {
    let keys = FlowKeys { suite: Suite::Aes128Gcm, secret: sender.secret };
    let peers = vec![vec![SocketAddr::new(ip, port)]];
    FlowConfig {
        max_mtu: agreed.mtu,
        room: agreed.buffer,
        buffer: agreed.buffer,
        seed: entropy::seed() ^ clock::now().as_nanos(),
        feedback: FeedbackKind::Sabul,
        ..FlowConfig::new(role, keys, sender.flow, peers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            sends: true,
            port: 9,
            buffer: ByteCount(1 << 20),
            rate: DataRate::from_mbps(5),
            mtu: ByteCount(1_472),
            flow: 7,
            secret: [3; 32],
        }
    }

    #[test]
    fn what_is_said_is_heard() {
        assert_eq!(Hello::decode(&hello().encode()), Some(hello()));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let bytes = hello().encode();
        // Magic, version, role, port, buffer, rate, datagram size.
        for (at, len, with) in
            [(0, 1, 0), (4, 1, 2), (5, 1, 2), (6, 2, 0), (8, 8, 0xff), (16, 8, 0), (24, 8, 0xff)]
        {
            let mut bytes = bytes;
            bytes[at..at + len].fill(with);
            assert_eq!(Hello::decode(&bytes), None, "{at}");
        }
        // Any single byte changed: parsed or refused.
        for at in 0..HELLO {
            let mut bytes = bytes;
            bytes[at] ^= 0x81;
            let _ = Hello::decode(&bytes);
        }
    }
}
