//! A web server whose answers a test chooses.

use parking_lot::Mutex;
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    headers: Vec<(String, String)>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// The requested range; its end is exclusive.
    pub(crate) fn range(&self) -> Option<(usize, usize)> {
        let (first, last) = self.header("range")?.strip_prefix("bytes=")?.split_once('-')?;
        Some((first.parse().ok()?, last.parse::<usize>().ok()? + 1))
    }
}

/// The answer.
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
    /// Cuts the connection after this many bytes of the body.
    pub(crate) cut: Option<usize>,
    /// Rate in bytes per second.
    pub(crate) rate: Option<usize>,
    /// Sends no length: the end of the connection ends the body.
    pub(crate) endless: bool,
}

impl Response {
    pub(crate) fn new(status: u16) -> Self {
        let (headers, body) = (Vec::new(), Vec::new());
        Self { status, headers, body, cut: None, rate: None, endless: false }
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// The whole file or the requested range, as HTTP specifies.
    pub(crate) fn file(request: &Request, body: &[u8], tag: &str) -> Self {
        let (status, from, to) = match request.range() {
            Some((from, _)) if from >= body.len() => {
                return Self::new(416).with("Content-Range", format!("bytes */{}", body.len()));
            }
            Some((from, to)) => (206, from, to.min(body.len())),
            None => (200, 0, body.len()),
        };
        let condition = request.header("if-range").is_none_or(|wanted| wanted == tag);
        let (status, from, to) = if condition { (status, from, to) } else { (200, 0, body.len()) };
        let mut response = Self::new(status).with("ETag", tag);
        if status == 206 {
            response =
                response.with("Content-Range", format!("bytes {from}-{}/{}", to - 1, body.len()));
        }
        response.body = body[from..to].to_vec();
        response
    }
}

type Rule = dyn Fn(&Request, usize) -> Response + Send + Sync;

/// The server. It ends with the test program.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    connections: Arc<AtomicUsize>,
}

impl Server {
    /// A server that answers with `rule`, which gets the number of earlier requests.
    pub(crate) fn new(rule: impl Fn(&Request, usize) -> Response + Send + Sync + 'static) -> Self {
        Self::over(rule, |socket| Some(Box::new(socket)))
    }

    pub(crate) fn over(
        rule: impl Fn(&Request, usize) -> Response + Send + Sync + 'static,
        wrap: impl Fn(TcpStream) -> Option<Box<dyn Stream>> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let (requests, connections) = (Arc::default(), Arc::new(AtomicUsize::new(0)));
        let server = Self { address, requests: Arc::clone(&requests), connections };
        let (rule, wrap): (Arc<Rule>, _) = (Arc::new(rule), Arc::new(wrap));
        let count = Arc::clone(&server.connections);
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                count.fetch_add(1, Ordering::Relaxed);
                let (rule, requests, wrap) =
                    (Arc::clone(&rule), Arc::clone(&requests), Arc::clone(&wrap));
                std::thread::spawn(move || {
                    if let Some(stream) = wrap(socket) {
                        talk(stream, &*rule, &requests);
                    }
                });
            }
        });
        server
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

pub(crate) trait Stream: Read + Write + Send {}
impl<S: Read + Write + Send> Stream for S {}

fn talk(stream: Box<dyn Stream>, rule: &Rule, all: &Mutex<Vec<Request>>) {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read_request(&mut stream) {
        let before = {
            let mut all = all.lock();
            all.push(request.clone());
            all.len() - 1
        };
        let response = rule(&request, before);
        if write_response(stream.get_mut(), &response).is_err()
            || response.cut.is_some()
            || response.endless
        {
            return;
        }
    }
}

fn read_request(stream: &mut impl std::io::BufRead) -> Option<Request> {
    let mut line = String::new();
    stream.read_line(&mut line).ok().filter(|n| *n > 0)?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).ok().filter(|n| *n > 0)?;
        match line.trim_end().split_once(':') {
            Some((name, value)) => headers.push((name.to_owned(), value.trim().to_owned())),
            None => break,
        }
    }
    let request = Request { method, path, headers };
    let length = request.header("content-length").and_then(|length| length.parse().ok());
    std::io::copy(&mut stream.take(length.unwrap_or(0)), &mut std::io::sink()).ok()?;
    Some(request)
}

fn write_response(stream: &mut dyn Stream, response: &Response) -> std::io::Result<()> {
    let mut head = format!("HTTP/1.1 {} Test\r\n", response.status);
    for (name, value) in &response.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let length = response.headers.iter().any(|(name, _)| *name == "Content-Length");
    match response.endless {
        true => head.push_str("Connection: close\r\n"),
        false if !length => head.push_str(&format!("Content-Length: {}\r\n", response.body.len())),
        false => {}
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes())?;
    let body =
        &response.body[..response.cut.unwrap_or(response.body.len()).min(response.body.len())];
    match response.rate {
        None => stream.write_all(body)?,
        Some(rate) => {
            for part in body.chunks((rate / 50).max(1)) {
                stream.write_all(part)?;
                stream.flush()?;
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
    stream.flush()
}
