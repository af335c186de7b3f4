//! TLS to a PostgreSQL server. The certificate is always verified.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

/// Paths of the system's trusted certificates: Debian, Fedora, openSUSE.
const SYSTEM_ROOTS: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
];

/// Creates connections with one configuration.
#[derive(Clone)]
pub(crate) struct Tls {
    config: Arc<ClientConfig>,
}

impl Tls {
    /// For servers whose certificates are signed by `roots`, or else by a root of the system.
    pub(crate) fn new(
        roots: Option<&Path>,
        config: &tokio_postgres::Config,
    ) -> Result<Self, String> {
        let store = match config.get_ssl_mode() {
            // Nothing will be verified, so nothing is read.
            SslMode::Disable => RootCertStore::empty(),
            _ => trusted(roots)?,
        };
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| e.to_string())?
            .with_root_certificates(store)
            .with_no_client_auth();
        Ok(Self { config: Arc::new(config) })
    }
}

fn trusted(roots: Option<&Path>) -> Result<RootCertStore, String> {
    let path = match roots {
        Some(path) => path,
        None => SYSTEM_ROOTS.iter().map(Path::new).find(|path| path.exists()).ok_or_else(|| {
            "this system has no list of certificates to trust: name one with sslrootcert=FILE"
                .to_owned()
        })?,
    };
    let failed = |e: &dyn std::fmt::Display| format!("sslrootcert {}: {e}", path.display());
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|e| failed(&e))? {
        // The system's list may contain certificates that this library cannot parse.
        let added = store.add(certificate.map_err(|e| failed(&e))?);
        if roots.is_some() {
            added.map_err(|e| failed(&e))?;
        }
    }
    if store.is_empty() { Err(failed(&"it holds no certificate")) } else { Ok(store) }
}

impl<S> MakeTlsConnect<S> for Tls
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Stream<S>;
    type TlsConnect = One;
    type Error = std::io::Error;

    fn make_tls_connect(&mut self, domain: &str) -> std::io::Result<One> {
        let name = ServerName::try_from(domain.to_owned()).map_err(std::io::Error::other);
        // A local socket has no host name and is not encrypted.
        Ok(One { name: name.ok(), connector: TlsConnector::from(Arc::clone(&self.config)) })
    }
}

/// Creates one connection.
pub(crate) struct One {
    name: Option<ServerName<'static>>,
    connector: TlsConnector,
}

impl<S> TlsConnect<S> for One
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Stream<S>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = std::io::Result<Stream<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let name = self.name.ok_or_else(|| std::io::Error::other("the server has no name"))?;
            Ok(Stream(Box::new(self.connector.connect(name, stream).await?)))
        })
    }
}

/// A connection.
pub(crate) struct Stream<S>(Box<tokio_rustls::client::TlsStream<S>>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Stream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, out)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
