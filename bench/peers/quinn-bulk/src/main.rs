//! One encrypted quinn stream from memory to memory.
//!
//! `quinn-bulk server ADDR:PORT [WINDOW]`
//! `quinn-bulk client ADDR:PORT SECONDS [cubic|bbr [WINDOW]]`
//!
//! WINDOW, in bytes, limits what is in flight.
//!
//! The server reads and throws away. After so many seconds the client stops writing and asks the
//! server, on a stream of its own that goes first, for the bytes read so far; it prints them over
//! the time of writing as one JSON line. The count is thus of as many seconds as the writing took,
//! half a round trip later, and what is still buffered is not waited for (iperf3 does the same).

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Endpoint, EndpointConfig, ServerConfig, TokioRuntime, TransportConfig};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};

/// The window if none is given. One that is much larger than the path needs makes quinn give up
/// after a burst of losses ("too many gaps in stream buffer").
const WINDOW: u32 = 26 << 20;
/// Asked for; the kernel gives at most `rmem_max` and `wmem_max`.
const SOCKET_BUFFER: usize = 64 << 20;

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[1..] {
        ["server", addr] => server(addr.parse()?, WINDOW).await,
        ["server", addr, window] => server(addr.parse()?, window.parse()?).await,
        ["client", addr, seconds] => client(addr.parse()?, seconds.parse()?, "cubic", WINDOW).await,
        ["client", addr, seconds, cc] => client(addr.parse()?, seconds.parse()?, cc, WINDOW).await,
        ["client", addr, seconds, cc, window] => {
            client(addr.parse()?, seconds.parse()?, cc, window.parse()?).await
        }
        _ => bail!(
            "quinn-bulk server ADDR:PORT [WINDOW] | \
             quinn-bulk client ADDR:PORT SECONDS [cubic|bbr [WINDOW]]"
        ),
    }
}

fn socket(addr: SocketAddr) -> Result<UdpSocket> {
    let socket =
        socket2::Socket::new(socket2::Domain::for_address(addr), socket2::Type::DGRAM, None)?;
    socket.set_recv_buffer_size(SOCKET_BUFFER)?;
    socket.set_send_buffer_size(SOCKET_BUFFER)?;
    socket.bind(&addr.into())?;
    Ok(socket.into())
}

fn transport(cc: &str, window: u32) -> Result<Arc<TransportConfig>> {
    let mut config = TransportConfig::default();
    config.stream_receive_window(window.into());
    config.receive_window(window.into());
    config.send_window(u64::from(window));
    match cc {
        "cubic" => config
            .congestion_controller_factory(Arc::new(quinn::congestion::CubicConfig::default())),
        "bbr" => {
            config.congestion_controller_factory(Arc::new(quinn::congestion::BbrConfig::default()))
        }
        other => bail!("no controller {other}"),
    };
    Ok(Arc::new(config))
}

async fn server(addr: SocketAddr, window: u32) -> Result<()> {
    let made = rcgen::generate_simple_self_signed(vec!["bench".into()])?;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let mut config = ServerConfig::with_single_cert(vec![made.cert.der().clone()], key)?;
    config.transport_config(transport("cubic", window)?);
    let endpoint = Endpoint::new(
        EndpointConfig::default(),
        Some(config),
        socket(addr)?,
        Arc::new(TokioRuntime),
    )?;
    while let Some(incoming) = endpoint.accept().await {
        let connection = incoming.await?;
        let (_, mut data) = connection.accept_bi().await?;
        let bytes = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&bytes);
        let reader = tokio::spawn(async move {
            while let Ok(Some(chunk)) = data.read_chunk(1 << 20, true).await {
                count.fetch_add(chunk.bytes.len() as u64, Ordering::Relaxed);
            }
        });
        let (mut answer, _question) = connection.accept_bi().await?;
        answer.write_all(&bytes.load(Ordering::Relaxed).to_le_bytes()).await?;
        answer.finish()?;
        connection.closed().await;
        reader.abort();
    }
    Ok(())
}

async fn client(addr: SocketAddr, seconds: u64, cc: &str, window: u32) -> Result<()> {
    let any: SocketAddr = if addr.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }.parse()?;
    let endpoint =
        Endpoint::new(EndpointConfig::default(), None, socket(any)?, Arc::new(TokioRuntime))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyServer))
        .with_no_client_auth();
    tls.enable_early_data = false;
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
    config.transport_config(transport(cc, window)?);
    let connection = endpoint.connect_with(config, addr, "bench")?.await?;
    let (mut data, _) = connection.open_bi().await?;
    let block = vec![0x5a; 1 << 20];
    let start = Instant::now();
    let writing = async {
        loop {
            data.write_all(&block).await?;
        }
    };
    match tokio::time::timeout(Duration::from_secs(seconds), writing).await {
        Ok(Err::<(), anyhow::Error>(error)) => return Err(error),
        Ok(Ok(())) | Err(_) => {}
    }
    let time = start.elapsed().as_secs_f64();
    let (mut question, mut answer) = connection.open_bi().await?;
    question.set_priority(1)?;
    question.write_all(b"?").await?;
    let mut count = [0; 8];
    answer.read_exact(&mut count).await.context("the server's count")?;
    let bytes = u64::from_le_bytes(count);
    println!(
        "{{\"ok\":true,\"bytes\":{bytes},\"seconds\":{time:.3},\"goodput_bps\":{:.0}}}",
        bytes as f64 * 8.0 / time
    );
    connection.close(0u32.into(), b"");
    endpoint.wait_idle().await;
    Ok(())
}

/// The bench measures speed inside its own namespaces: who the server is does not matter.
#[derive(Debug)]
struct AnyServer;

impl rustls::client::danger::ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        rustls::crypto::aws_lc_rs::default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}
