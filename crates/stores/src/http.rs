//! Connections to HTTP servers. Each carries one request at a time over HTTP/1.1, so that every
//! stream is a TCP connection whose socket can be queried.

mod trust;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, Uri, Version};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use packtrain_net::tcp::{ConnectOptions, connect, describe, tune};
use packtrain_transfer::FailureKind;
use packtrain_units::{ByteCount, Duration};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_rustls::TlsConnector;

use super::answer::Trouble;
use super::body::Outgoing;
use packtrain_runtime::transports::TcpSettings;
use packtrain_service::executor;
use packtrain_service::weburl::WebUrl;

/// Limit for a connection and its TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// Time without data after which a connection is closed.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time without acknowledgements after which the kernel closes a connection.
const DEAD_PEER_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum bytes of a proxy's response header.
pub(super) const MAX_ANSWER: usize = 16 << 10;
/// Maximum bytes of a document (a list, an error) that is read into memory.
pub(super) const MAX_DOCUMENT: usize = 16 << 20;
/// Headers in addition to those that every request has.
pub(super) type Headers = Vec<(HeaderName, HeaderValue)>;

/// Makes connections.
pub(super) struct Client {
    tls: TlsConnector,
    proxies: Matcher,
    options: ConnectOptions,
    background: bool,
}

impl Client {
    /// A client with the certificates of the system and the proxies of the environment.
    pub(super) fn new(kernel: &TcpSettings, background: bool) -> Result<Self, Trouble> {
        let options = ConnectOptions {
            timeout: CONNECT_TIMEOUT,
            congestion: kernel.congestion.clone(),
            buffers: kernel.buffers,
            ..ConnectOptions::default()
        };
        let proxies = Matcher::from_env();
        Ok(Self { tls: TlsConnector::from(trust::tls_config()?), proxies, options, background })
    }

    /// Connects to the server of `url`.
    pub(super) async fn connect(&self, url: &WebUrl) -> Result<Connection, Trouble> {
        let limit = CONNECT_TIMEOUT.to_std();
        let connected = tokio::time::timeout(limit, self.open(url)).await;
        connected.unwrap_or_else(|_| {
            let limit = CONNECT_TIMEOUT.to_readable();
            Err(Trouble::later(format!("{}: no connection within {limit}", site(url))))
        })
    }

    async fn open(&self, url: &WebUrl) -> Result<Connection, Trouble> {
        let uri: Uri = url.with_secrets().as_str().parse().map_err(|_| invalid_url(url))?;
        let (host, port) = authority(url)?;
        let secure = url.scheme() == "https";
        let proxy = self.proxies.intercept(&uri);
        let (to, at) = match &proxy {
            Some(proxy) => proxy_address(proxy)?,
            None => (host.clone(), port),
        };
        let name = to.trim_matches(['[', ']']);
        let mut socket =
            connect(name, at, &self.options).await.map_err(|e| match e.is_final() {
                // The same command will not find it either: nothing is to be resumed.
                true => Trouble::never(FailureKind::SourceMissing, e.to_string()),
                false => Trouble::later(format!("{}: {e}", site(url))),
            })?;
        if self.background {
            let _ = tune::set_lower_effort(&socket);
        }
        let _ = tune::set_dead_after(&socket, DEAD_PEER_TIMEOUT);
        let descriptor = socket.as_fd().try_clone_to_owned();
        let descriptor = descriptor.map_err(|e| Trouble::later(describe(&e)))?;
        let mut forward_proxy = None;
        if let Some(proxy) = &proxy {
            let secret = proxy.basic_auth().cloned();
            if secure {
                tunnel(&mut socket, &host, port, secret.as_ref()).await?;
            } else {
                forward_proxy = Some(secret);
            }
        }
        let sender = if secure {
            let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned());
            let name = name.map_err(|_| invalid_url(url))?;
            let stream =
                self.tls.connect(name, socket).await.map_err(|e| trust::refused(url, &e))?;
            handshake(stream).await
        } else {
            handshake(socket).await
        };
        let sender = sender.map_err(|e| broken(&site(url), &e))?;
        Ok(Connection { sender, descriptor: Arc::new(descriptor), site: site(url), forward_proxy })
    }
}

fn invalid_url(url: &WebUrl) -> Trouble {
    Trouble::never(FailureKind::Usage, format!("{url}: no address that can be asked"))
}

/// Host and port of a URL, the host with its brackets if it is an IPv6 address.
fn authority(url: &WebUrl) -> Result<(String, u16), Trouble> {
    let host = url.with_secrets().host_str().ok_or_else(|| invalid_url(url))?;
    let port = url.with_secrets().port_or_known_default().ok_or_else(|| invalid_url(url))?;
    Ok((host.to_owned(), port))
}

/// The server of a URL, for texts to the user.
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

/// Requests a tunnel from a proxy with CONNECT (RFC 9110, section 9.3.6).
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
    let away = |e: std::io::Error| Trouble::later(format!("the proxy: {}", describe(&e)));
    socket.write_all(&request).await.map_err(away)?;
    proxy_answer(socket, &format!("{host}:{port}")).await
}

/// Reads the response of a proxy to a CONNECT request for `to`.
pub(super) async fn proxy_answer(
    input: &mut (impl AsyncRead + Unpin),
    to: &str,
) -> Result<(), Trouble> {
    let away = |e: std::io::Error| Trouble::later(format!("the proxy: {}", describe(&e)));
    let mut answer = Vec::new();
    // Reads byte by byte, because the data after the response belongs to TLS.
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

async fn handshake<S>(stream: S) -> Result<SendRequest<Outgoing>, hyper::Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) =
        http1::Builder::new().max_buf_size(512 << 10).handshake(TokioIo::new(stream)).await?;
    executor::handle().spawn(async move {
        // An error of the connection appears in the request that uses it.
        let _ = connection.await;
    });
    Ok(sender)
}

/// One connection.
pub(super) struct Connection {
    sender: SendRequest<Outgoing>,
    descriptor: Arc<OwnedFd>,
    /// Scheme, host and port of the server.
    site: String,
    /// Set if requests go to a forwarding proxy; the inner value is its `Proxy-Authorization`.
    forward_proxy: Option<Option<HeaderValue>>,
}

impl Connection {
    /// The socket, for queries of its TCP state.
    pub(super) fn socket(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.descriptor)
    }

    /// Whether it can carry another request to the server of `url`.
    pub(super) fn is_for(&self, url: &WebUrl) -> bool {
        self.site == site(url) && !self.sender.is_closed()
    }

    /// Sends a request and waits for the head of the response.
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
        let target = match (&self.forward_proxy, whole.query()) {
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
        if let Some(Some(secret)) = &self.forward_proxy {
            request = request.header(header::PROXY_AUTHORIZATION, secret.clone());
        }
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let progress = body.progress();
        let request = request.body(body).map_err(|_| invalid_url(url))?;
        let away = |why: String| Trouble::later(format!("{}: {why}", self.site));
        self.sender.ready().await.map_err(|e| broken(&self.site, &e))?;
        let mut answer = std::pin::pin!(self.sender.send_request(request));
        let mut before = progress.sent();
        loop {
            match tokio::time::timeout(IDLE_TIMEOUT.to_std(), &mut answer).await {
                Ok(answer) => return answer.map_err(|e| broken(&self.site, &e)),
                // While the body is being sent, or the rate limit holds it, the response is not
                // overdue.
                Err(_) if progress.sent() != before || progress.is_paused() => {
                    before = progress.sent();
                }
                Err(_) => {
                    return Err(away(format!("no answer within {}", IDLE_TIMEOUT.to_readable())));
                }
            }
        }
    }
}

/// What an error of HTTP means for the user. `whom` names the server.
fn broken(whom: &str, error: &hyper::Error) -> Trouble {
    let io = || {
        let mut source = std::error::Error::source(error);
        while let Some(below) = source {
            if let Some(io) = below.downcast_ref::<std::io::Error>() {
                return Some(describe(io));
            }
            source = below.source();
        }
        None
    };
    if error.is_parse() {
        let text = format!("{whom}: what answers there does not speak HTTP: check the port");
        return Trouble::never(FailureKind::Protocol, text);
    }
    let why = match io() {
        Some(why) => why,
        None if error.is_timeout() => "it does not answer".to_owned(),
        None if error.is_user() => "the request could not be sent".to_owned(),
        None => "the server closed the connection before its answer was complete".to_owned(),
    };
    Trouble::later(format!("{whom}: {why}"))
}

/// Whether the connection stays open after this response (RFC 9112 section 9.3).
pub(super) fn keeps_connection<B>(answer: &Response<B>) -> bool {
    let says = |what: &str| {
        let values = answer.headers().get_all(header::CONNECTION).iter();
        let mut options = values.filter_map(|value| value.to_str().ok()).flat_map(|v| v.split(','));
        options.any(|option| option.trim().eq_ignore_ascii_case(what))
    };
    if says("close") {
        return false;
    }
    answer.version() >= Version::HTTP_11 || says("keep-alive")
}

/// The next bytes of a body; none at its end. `whom` names the server in errors.
pub(super) async fn next(body: &mut Incoming, whom: &str) -> Result<Option<Bytes>, Trouble> {
    loop {
        let frame = tokio::time::timeout(IDLE_TIMEOUT.to_std(), body.frame()).await;
        let frame = frame.map_err(|_| {
            Trouble::later(format!("{whom}: silent for {}", IDLE_TIMEOUT.to_readable()))
        })?;
        match frame {
            None => return Ok(None),
            Some(Err(e)) => return Err(broken(whom, &e)),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) if data.is_empty() => {}
                Ok(data) => return Ok(Some(data)),
                // Trailers.
                Err(_) => {}
            },
        }
    }
}

/// Reads a whole document of at most [`MAX_DOCUMENT`] bytes.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_says_whether_the_connection_stays() {
        let cases = [
            (Version::HTTP_11, None, true),
            (Version::HTTP_11, Some("Upgrade, Close"), false),
            (Version::HTTP_10, None, false),
            (Version::HTTP_10, Some("keep-alive"), true),
            (Version::HTTP_10, Some("keep-alive, close"), false),
        ];
        for (version, connection, stays) in cases {
            let mut answer = Response::builder().version(version);
            if let Some(connection) = connection {
                answer = answer.header(header::CONNECTION, connection);
            }
            let answer = answer.body(()).expect("a response");
            assert_eq!(keeps_connection(&answer), stays, "{version:?} {connection:?}");
        }
    }
}
