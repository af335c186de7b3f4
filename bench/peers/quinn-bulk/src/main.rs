//! One encrypted quinn stream from memory to memory.
//!
//! `quinn-bulk server ADDR:PORT` | `quinn-bulk client ADDR:PORT SECONDS [cubic|bbr]`
//!
//! The server reads and throws away; the client prints one JSON line with what the server
//! counted over the time until its answer came.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Endpoint, EndpointConfig, ServerConfig, TokioRuntime, TransportConfig};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};

/// Larger windows break quinn on long paths ("too many gaps in stream buffer").
const WINDOW: u32 = 26 << 20;
/// Asked for; the kernel gives at most `rmem_max` and `wmem_max`.
const SOCKET_BUFFER: usize = 64 << 20;

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[1..] {
        ["server", addr] => server(addr.parse()?).await,
        ["client", addr, seconds] => client(addr.parse()?, seconds.parse()?, "cubic").await,
        ["client", addr, seconds, cc] => client(addr.parse()?, seconds.parse()?, cc).await,
        _ => bail!("quinn-bulk server ADDR:PORT | client ADDR:PORT SECONDS [cubic|bbr]"),
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

fn transport(cc: &str) -> Result<Arc<TransportConfig>> {
    let mut config = TransportConfig::default();
    config.stream_receive_window(WINDOW.into());
    config.receive_window(WINDOW.into());
    config.send_window(u64::from(WINDOW));
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

async fn server(addr: SocketAddr) -> Result<()> {
    let made = rcgen::generate_simple_self_signed(vec!["bench".into()])?;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let mut config = ServerConfig::with_single_cert(vec![made.cert.der().clone()], key)?;
    config.transport_config(transport("cubic")?);
    let endpoint = Endpoint::new(
        EndpointConfig::default(),
        Some(config),
        socket(addr)?,
        Arc::new(TokioRuntime),
    )?;
    while let Some(incoming) = endpoint.accept().await {
        let connection = incoming.await?;
        let (mut send, mut recv) = connection.accept_bi().await?;
        let mut bytes = 0u64;
        while let Some(chunk) = recv.read_chunk(1 << 20, true).await? {
            bytes += chunk.bytes.len() as u64;
        }
        send.write_all(&bytes.to_le_bytes()).await?;
        send.finish()?;
        connection.closed().await;
    }
    Ok(())
}

async fn client(addr: SocketAddr, seconds: u64, cc: &str) -> Result<()> {
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
    config.transport_config(transport(cc)?);
    let connection = endpoint.connect_with(config, addr, "bench")?.await?;
    let (mut send, mut recv) = connection.open_bi().await?;
    let block = vec![0x5a; 1 << 20];
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(seconds) {
        send.write_all(&block).await?;
    }
    send.finish()?;
    let mut count = [0; 8];
    recv.read_exact(&mut count).await.context("the server's count")?;
    let bytes = u64::from_le_bytes(count);
    let time = start.elapsed().as_secs_f64();
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
