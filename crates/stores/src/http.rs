//! Connections to HTTP servers: one request at a time on each, HTTP/1.1, since every stream is to
//! be a TCP connection of its own whose socket can be looked at.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, Uri};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use packtrain_net::tcp::{ConnectOptions, connect, tune};
use packtrain_transfer::FailureKind;
use packtrain_units::{ByteCount, Duration};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_rustls::TlsConnector;

use super::answer::Trouble;
use super::body::Outgoing;
use packtrain_runtime::transports::TcpSettings;
use packtrain_service::executor;
use packtrain_service::weburl::WebUrl;

/// A connection and its TLS handshake take no longer.
const CONNECT: Duration = Duration::from_secs(20);
/// A server says something within this, or the connection is given up.
pub(super) const SILENCE: Duration = Duration::from_secs(30);
/// A network that is gone this long ends a connection.
const DEAD: Duration = Duration::from_secs(60);
/// The longest answer of a proxy.
pub(super) const MAX_ANSWER: usize = 16 << 10;
/// The longest document (a list, an error) that is read into memory.
pub(super) const MAX_DOCUMENT: usize = 16 << 20;
/// Variables that name a file of certificates to trust beside the system's.
const CA_FILES: [&str; 2] = ["CURL_CA_BUNDLE", "AWS_CA_BUNDLE"];

/// Headers beside those that every request has.
pub(super) type Headers = Vec<(HeaderName, HeaderValue)>;

/// What makes connections.
pub(super) struct Client {
    tls: TlsConnector,
    proxies: Matcher,
    options: ConnectOptions,
    background: bool,
}

impl Client {
    /// A client that trusts whom the system trusts and goes by the proxies of the environment.
    pub(super) fn new(kernel: &TcpSettings, background: bool) -> Result<Self, Trouble> {
        let options = ConnectOptions {
            timeout: CONNECT,
            congestion: kernel.congestion.clone(),
            buffers: kernel.buffers,
            ..ConnectOptions::default()
        };
        let proxies = Matcher::from_env();
        Ok(Self { tls: TlsConnector::from(trust()?), proxies, options, background })
    }

    /// Connects to the server of `url`.
    pub(super) async fn connect(&self, url: &WebUrl) -> Result<Connection, Trouble> {
        let limit = CONNECT.to_std();
        let connected = tokio::time::timeout(limit, self.open(url)).await;
        connected.unwrap_or_else(|_| {
            Err(Trouble::later(format!("{}: no connection within {CONNECT}", site(url))))
        })
    }

    async fn open(&self, url: &WebUrl) -> Result<Connection, Trouble> {
        let uri: Uri = url.with_secrets().as_str().parse().map_err(|_| unfit(url))?;
        let (host, port) = authority(url)?;
        let secure = url.scheme() == "https";
        let proxy = self.proxies.intercept(&uri);
        let (to, at) = match &proxy {
            Some(proxy) => proxy_address(proxy)?,
            None => (host.clone(), port),
        };
        let name = to.trim_matches(['[', ']']);
        let mut socket = connect(name, at, &self.options)
            .await
            .map_err(|e| Trouble::later(format!("{}: {e}", site(url))))?;
        if self.background {
            let _ = tune::set_lower_effort(&socket);
        }
        let _ = tune::set_dead_after(&socket, DEAD);
        let descriptor = socket.as_fd().try_clone_to_owned();
        let descriptor = descriptor.map_err(|e| Trouble::later(e.to_string()))?;
        let mut through = None;
        if let Some(proxy) = &proxy {
            let secret = proxy.basic_auth().cloned();
            if secure {
                tunnel(&mut socket, &host, port, secret.as_ref()).await?;
            } else {
                through = Some(secret);
            }
        }
        let sender = if secure {
            let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned());
            let name = name.map_err(|_| unfit(url))?;
            let stream = self.tls.connect(name, socket).await.map_err(|e| tls(url, &e))?;
            speak(stream).await
        } else {
            speak(socket).await
        };
        let sender = sender.map_err(|e| Trouble::later(format!("{}: {e}", site(url))))?;
        Ok(Connection { sender, descriptor: Arc::new(descriptor), site: site(url), through })
    }
}

/// The roots of trust.
fn trust() -> Result<Arc<ClientConfig>, Trouble> {
    let mut roots = RootCertStore::empty();
    // Looks at SSL_CERT_FILE and SSL_CERT_DIR first.
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    for path in CA_FILES.iter().filter_map(std::env::var_os).filter(|path| !path.is_empty()) {
        let bad = |why: String| {
            let path = path.to_string_lossy();
            Trouble::never(FailureKind::Usage, format!("certificates of {path}: {why}"))
        };
        let all = CertificateDer::pem_file_iter(&path).map_err(|e| bad(e.to_string()))?;
        for one in all {
            roots.add(one.map_err(|e| bad(e.to_string()))?).map_err(|e| bad(e.to_string()))?;
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let broken = |e: rustls::Error| Trouble::never(FailureKind::Fatal, format!("TLS: {e}"));
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(broken)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn tls(url: &WebUrl, error: &std::io::Error) -> Trouble {
    let text = format!("{}: TLS: {error}", site(url));
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        // Trying again does not make a certificate good.
        Some(rustls::Error::InvalidCertificate(_)) => {
            Trouble::never(FailureKind::NotAuthorised, text)
        }
        _ => Trouble::later(text),
    }
}

fn unfit(url: &WebUrl) -> Trouble {
    Trouble::never(FailureKind::Usage, format!("{url}: no address that can be asked"))
}

/// Host and port of a URL, the host as it was written.
fn authority(url: &WebUrl) -> Result<(String, u16), Trouble> {
    let host = url.with_secrets().host_str().ok_or_else(|| unfit(url))?;
    let port = url.with_secrets().port_or_known_default().ok_or_else(|| unfit(url))?;
    Ok((host.to_owned(), port))
}

/// The server of a URL, for people.
pub(super) fn site(url: &WebUrl) -> String {
    let host = url.with_secrets().host_str().unwrap_or("?");
    match url.with_secrets().port() {
        Some(port) => format!("{}://{host}:{port}", url.scheme()),
        None => format!("{}://{host}", url.scheme()),
    }
}

fn proxy_address(proxy: &Intercept) -> Result<(String, u16), Trouble> {
    let uri = proxy.uri();
    if uri.scheme_str() != Some("http") {
        let scheme = uri.scheme_str().unwrap_or("?");
        let text = format!("the environment names a proxy by {scheme}://: only http:// is spoken");
        return Err(Trouble::never(FailureKind::Usage, text));
    }
    let host = uri.host().unwrap_or_default().to_owned();
    Ok((host, uri.port_u16().unwrap_or(80)))
}

/// Asks a proxy for a way through (RFC 9110, section 9.3.6).
async fn tunnel(
    socket: &mut tokio::net::TcpStream,
    host: &str,
    port: u16,
    secret: Option<&HeaderValue>,
) -> Result<(), Trouble> {
    let mut request =
        format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n").into_bytes();
    if let Some(secret) = secret {
        request.extend_from_slice(b"Proxy-Authorization: ");
        request.extend_from_slice(secret.as_bytes());
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    let away = |e: std::io::Error| Trouble::later(format!("the proxy: {e}"));
    socket.write_all(&request).await.map_err(away)?;
    proxy_answer(socket, &format!("{host}:{port}")).await
}

/// Reads a proxy's answer to a request for a connection to `to`.
pub(super) async fn proxy_answer(
    input: &mut (impl AsyncRead + Unpin),
    to: &str,
) -> Result<(), Trouble> {
    let away = |e: std::io::Error| Trouble::later(format!("the proxy: {e}"));
    let mut answer = Vec::new();
    // Byte by byte: what follows the answer is not ours to read.
    while !answer.ends_with(b"\r\n\r\n") {
        if answer.len() >= MAX_ANSWER {
            return Err(Trouble::later("the proxy: its answer has no end"));
        }
        answer.push(input.read_u8().await.map_err(away)?);
    }
    let line = String::from_utf8_lossy(answer.split(|b| *b == b'\r').next().unwrap_or_default());
    let status = line.split(' ').nth(1).and_then(|code| code.parse::<u16>().ok());
    match status {
        Some(200..=299) => Ok(()),
        Some(407) => Err(Trouble::never(
            FailureKind::NotAuthorised,
            "the proxy wants a name and a password: put them into its address",
        )),
        _ => {
            let line: String = line.chars().filter(|c| !c.is_control()).take(80).collect();
            Err(Trouble::later(format!("the proxy does not connect to {to}: {line}")))
        }
    }
}

async fn speak<S>(stream: S) -> Result<SendRequest<Outgoing>, hyper::Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) =
        http1::Builder::new().max_buf_size(512 << 10).handshake(TokioIo::new(stream)).await?;
    executor::handle().spawn(async move {
        // Its end shows where it is used.
        let _ = connection.await;
    });
    Ok(sender)
}

/// One connection.
pub(super) struct Connection {
    sender: SendRequest<Outgoing>,
    descriptor: Arc<OwnedFd>,
    /// Whom it goes to.
    site: String,
    /// It goes to a proxy that passes requests on, with this word of who we are.
    through: Option<Option<HeaderValue>>,
}

impl Connection {
    /// The socket, to be asked about.
    pub(super) fn socket(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.descriptor)
    }

    /// Whether it can take another request for this server.
    pub(super) fn is_for(&self, url: &WebUrl) -> bool {
        self.site == site(url) && !self.sender.is_closed()
    }

    /// Sends a request and waits for the head of the answer.
    pub(super) async fn ask(
        &mut self,
        method: Method,
        url: &WebUrl,
        headers: &Headers,
        body: Outgoing,
    ) -> Result<Response<Incoming>, Trouble> {
        let (host, _) = authority(url)?;
        let whole = url.with_secrets();
        let host = whole.port().map_or_else(|| host.clone(), |port| format!("{host}:{port}"));
        let target = match (&self.through, whole.query()) {
            (Some(_), _) => whole.to_string(),
            (None, Some(query)) => format!("{}?{query}", url.path()),
            (None, None) => url.path().to_owned(),
        };
        let mut request = Request::builder()
            .method(method)
            .uri(target)
            .header(header::HOST, host)
            .header(header::USER_AGENT, concat!("packtrain/", env!("CARGO_PKG_VERSION")))
            .header(header::ACCEPT_ENCODING, "identity");
        if let Some(Some(secret)) = &self.through {
            request = request.header(header::PROXY_AUTHORIZATION, secret.clone());
        }
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let progress = body.progress();
        let request = request.body(body).map_err(|_| unfit(url))?;
        let away = |why: String| Trouble::later(format!("{}: {why}", self.site));
        self.sender.ready().await.map_err(|e| away(e.to_string()))?;
        let mut answer = std::pin::pin!(self.sender.send_request(request));
        let mut before = progress.sent();
        loop {
            match tokio::time::timeout(SILENCE.to_std(), &mut answer).await {
                Ok(answer) => return answer.map_err(|e| away(reason(&e))),
                // As long as the request moves the answer is not late.
                Err(_) if progress.sent() != before || progress.is_paused() => {
                    before = progress.sent();
                }
                Err(_) => return Err(away(format!("no answer within {SILENCE}"))),
            }
        }
    }
}

/// What broke, with what is behind it.
pub(super) fn reason(error: &hyper::Error) -> String {
    use std::error::Error as _;
    match error.source() {
        Some(inner) => format!("{error}: {inner}"),
        None => error.to_string(),
    }
}

/// The next bytes of a body; none at its end.
pub(super) async fn next(body: &mut Incoming, whom: &str) -> Result<Option<Bytes>, Trouble> {
    loop {
        let frame = tokio::time::timeout(SILENCE.to_std(), body.frame()).await;
        let frame = frame.map_err(|_| Trouble::later(format!("{whom}: silent for {SILENCE}")))?;
        match frame {
            None => return Ok(None),
            Some(Err(e)) => return Err(Trouble::later(format!("{whom}: {}", reason(&e)))),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) if data.is_empty() => {}
                Ok(data) => return Ok(Some(data)),
                // Trailers.
                Err(_) => {}
            },
        }
    }
}

/// A whole body that is no data.
pub(super) async fn document(body: &mut Incoming, whom: &str) -> Result<Vec<u8>, Trouble> {
    let mut whole = Vec::new();
    while let Some(bytes) = next(body, whom).await? {
        if whole.len() + bytes.len() > MAX_DOCUMENT {
            let text = format!("{whom}: an answer of more than {}", ByteCount(MAX_DOCUMENT as u64));
            return Err(Trouble::never(FailureKind::Protocol, text));
        }
        whole.extend_from_slice(&bytes);
    }
    Ok(whole)
}
