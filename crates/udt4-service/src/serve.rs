//! `serve --udt4`: a server for the stock library's file client. Any client may read everything
//! below the root. Nothing can be written, and there is no authentication.

use parking_lot::{Mutex, MutexGuard};
use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use packtrain_disk::Root;
use packtrain_object::RelPath;
use packtrain_os::clock;
use packtrain_socket::{Error, Listener, Options, Socket};
use packtrain_transfer::message::Summary;
use packtrain_transfer::{Failure, FailureKind};
use packtrain_units::{ByteCount, DataRate, Duration};

use super::{MAX_NAME, POLL_INTERVAL, address, failure, in_clear, options};
use packtrain_service::executor::{lower_priority, spawn};
use packtrain_service::history::{self, Kind, Role, Side};
use packtrain_service::paths::show;
use packtrain_service::unauthenticated::network;
use packtrain_service::{
    Direction, HistoryConfig, Notice, NoticeLevel, Outcome, RequestError, ServeReporter,
    ServedTransfer, StopHandle, TransportShare,
};

/// `serve --udt4`.
#[derive(Clone, Debug)]
pub struct Udt4ServeRequest {
    /// The address to listen at, `ADDR:PORT`.
    pub listen: String,
    /// The directory that every client may read.
    pub root: PathBuf,
    /// The congestion controller; the stock library's if `None`.
    pub cc: Option<String>,
    /// Limit of the sending rate to one client.
    pub rate: Option<DataRate>,
    /// Where rows of transfers are stored.
    pub history: HistoryConfig,
    /// Requests an orderly end.
    pub stop: StopHandle,
}

/// Maximum concurrent clients; further ones are closed.
const MAX_CLIENTS: usize = 64;
/// Maximum concurrent clients of one network, so that one host cannot block all others.
const MAX_CLIENTS_PER_NETWORK: usize = 32;
/// Timeout for a client's request, and for its first reads.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout for the delivery of the last bytes.
const LINGER: Duration = Duration::from_secs(60);
/// How long a stopping server waits until its clients are informed.
const CLIENT_CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum unsent bytes per client, since unauthenticated clients determine their number.
const SEND_BUFFER: ByteCount = ByteCount(16 << 20);
/// Clients send only a name.
const RECEIVE_BUFFER: ByteCount = ByteCount(256 << 10);
/// Bytes per read of the file.
const PIECE_BYTES: usize = 256 << 10;

/// The result of one client.
#[derive(Default)]
struct Served {
    /// The requested name, if there was one.
    name: Option<Vec<u8>>,
    /// Bytes handed to the connection.
    bytes: u64,
    failure: Option<Failure>,
}

/// Serves files below a directory until the request to stop.
///
/// # Errors
/// The server cannot listen.
pub fn serve(request: Udt4ServeRequest, reporter: &dyn ServeReporter) -> Result<(), RequestError> {
    reporter.notice(&in_clear());
    let missing = |e: std::io::Error| {
        let text = format!("--root {}: {e}", request.root.display());
        RequestError::new(FailureKind::TargetMissing, text)
    };
    let root = Arc::new(Root::open(&request.root).map_err(missing)?);
    let at = address(&request.listen)?;
    let options = Options {
        linger: LINGER,
        send_buffer: SEND_BUFFER,
        recv_buffer: RECEIVE_BUFFER,
        ..options(request.cc.as_ref(), request.rate)
    };
    let listener = Listener::bind(at, &options).map_err(|e| failure(&at, &e))?;
    listener.set_timeout(Some(POLL_INTERVAL));
    reporter.listening(listener.local_addr(), None);
    let clients = Arc::new(Clients::default());
    let (tell, told) = crossbeam_channel::unbounded();
    while request.stop.requested().is_none() {
        for (peer, took, served) in told.try_iter() {
            report(reporter, &request.history, peer, took, served);
        }
        let (socket, peer) = match listener.accept() {
            Ok(found) => found,
            Err(Error::TimedOut) => continue,
            Err(e) => return Err(failure(&at, &e).into()),
        };
        if let Err(busy) = clients.enter(peer.ip()) {
            let text = format!("{peer}: turned away, {busy} clients are being served");
            reporter.notice(&Notice::new(NoticeLevel::Warning, text));
            continue;
        }
        let (root, stop, tell) = (Arc::clone(&root), request.stop.clone(), tell.clone());
        let clients = Arc::clone(&clients);
        spawn("pt-udt4", move || {
            lower_priority();
            let begun = clock::now();
            let mut served = Served::default();
            served.failure = one(&socket, peer, &root, &stop, &mut served).err();
            match &served.failure {
                None => {}
                // The client is gone or reads nothing, so the remaining data is dropped.
                Some(failure) if failure.kind == FailureKind::Temporary => socket.abort(),
                Some(_) => drop(socket.close()),
            }
            drop(socket);
            // Reported before the client is removed, so that the report precedes the end of the
            // server.
            let _ = tell.send((peer, clock::now().since(begun), served));
            clients.leave(peer.ip());
        });
    }
    // Interrupted clients are informed before the process ends.
    let late = clock::now() + CLIENT_CLOSE_TIMEOUT;
    while !clients.lock().is_empty() && clock::now() < late {
        std::thread::sleep((POLL_INTERVAL / 10).to_std());
    }
    for (peer, took, served) in told.try_iter() {
        report(reporter, &request.history, peer, took, served);
    }
    Ok(())
}

/// The networks of the current clients: their IPv4 addresses, or a /64 of IPv6.
#[derive(Default)]
struct Clients(Mutex<Vec<IpAddr>>);

impl Clients {
    fn lock(&self) -> MutexGuard<'_, Vec<IpAddr>> {
        self.0.lock()
    }

    /// Adds a client, or returns the current number if a limit is reached.
    fn enter(&self, from: IpAddr) -> Result<(), usize> {
        let from = network(from);
        let mut all = self.lock();
        let same = all.iter().filter(|other| **other == from).count();
        if all.len() >= MAX_CLIENTS || same >= MAX_CLIENTS_PER_NETWORK {
            return Err(all.len());
        }
        all.push(from);
        Ok(())
    }

    fn leave(&self, from: IpAddr) {
        let from = network(from);
        let mut all = self.lock();
        if let Some(at) = all.iter().position(|other| *other == from) {
            all.swap_remove(at);
        }
    }
}

fn report(
    reporter: &dyn ServeReporter,
    keep: &HistoryConfig,
    peer: SocketAddr,
    elapsed: Duration,
    served: Served,
) {
    let mut row = history::begin(Kind::Cp, Side::Called);
    row.began = row.began.saturating_sub(elapsed);
    (row.role, row.peer) = (Role::Source, peer.to_string());
    (row.from_host, row.to_host) = (row.host.clone(), peer.ip().to_canonical().to_string());
    "udt4".clone_into(&mut row.transport);
    let Served { name, bytes, failure } = served;
    if let Some(name) = &name {
        row.source = show(name);
        let text = format!("{peer} asked for {}", row.source);
        reporter.notice(&Notice::new(NoticeLevel::Info, text));
    }
    let whole = u64::from(failure.is_none());
    let outcome = Outcome {
        summary: Summary {
            bytes,
            bytes_moved: bytes,
            entries: whole,
            files_moved: whole,
            failed: 1 - whole,
            ..Summary::default()
        },
        elapsed,
        transport: "udt4".to_owned(),
        shares: vec![TransportShare { name: "udt4".into(), bytes: ByteCount(bytes) }],
        failure,
        ..Outcome::default()
    };
    history::finish_cp(&mut row, &outcome);
    reporter.finished(&ServedTransfer {
        peer: &row.peer,
        path: &row.source,
        direction: Direction::Out,
        outcome: &outcome,
    });
    row.elapsed = elapsed;
    if let Some(text) = history::keep(keep, &row) {
        reporter.notice(&Notice::new(NoticeLevel::Warning, text));
    }
}

/// Serves one client and records its progress in `served`.
fn one(
    socket: &Socket,
    peer: SocketAddr,
    root: &Root,
    stop: &StopHandle,
    served: &mut Served,
) -> Result<(), Failure> {
    socket.set_recv_timeout(Some(POLL_INTERVAL));
    socket.set_send_timeout(Some(REQUEST_TIMEOUT));
    let failed = |e: &Error| failure(&peer, e);
    let name = &*served.name.insert(asked(socket, peer, stop)?);
    let opened = open(root, name);
    let size = opened.as_ref().map_or(-1, |(_, size)| *size);
    socket.send_all(&size.to_ne_bytes()).map_err(|e| failed(&e))?;
    let (mut file, size) = match opened {
        Ok((file, size)) => (file, size as u64),
        Err(why) => {
            let _ = socket.close();
            let text = format!("{peer} asked for {}: {why}", show(name));
            return Err(Failure::new(FailureKind::SourceMissing, text));
        }
    };
    let mut piece = vec![0; PIECE_BYTES];
    let mut at = 0;
    while at < size {
        if stop.requested().is_some() {
            return Err(Failure::new(FailureKind::Cancelled, format!("{peer}: cut off, stopping")));
        }
        let want = piece.len().min((size - at).try_into().unwrap_or(usize::MAX));
        let got = file
            .read(&mut piece[..want])
            .map_err(|e| Failure::new(FailureKind::Unreadable, format!("{}: {e}", show(name))))?;
        if got == 0 {
            // The client waits for more bytes than the file has; closing the connection ends that.
            let text = format!("{} became shorter while {peer} read it", show(name));
            return Err(Failure::new(FailureKind::Changed, text));
        }
        socket.send_all(&piece[..got]).map_err(|e| failed(&e))?;
        at += got as u64;
        served.bytes = at;
    }
    socket.close().map_err(|e| failed(&e))
}

/// Reads the name that a client requests.
fn asked(socket: &Socket, peer: SocketAddr, stop: &StopHandle) -> Result<Vec<u8>, Failure> {
    let begun = clock::now();
    let read = |out: &mut [u8]| -> Result<(), Failure> {
        let mut have = 0;
        while have < out.len() {
            match socket.recv(&mut out[have..]) {
                Ok(0) => {
                    let text = format!("{peer} left before it named a file");
                    return Err(Failure::new(FailureKind::Temporary, text));
                }
                Ok(n) => have += n,
                Err(Error::TimedOut)
                    if clock::now().since(begun) < REQUEST_TIMEOUT
                        && stop.requested().is_none() => {}
                Err(e) => return Err(failure(&peer, &e)),
            }
        }
        Ok(())
    };
    let mut len = [0; 4];
    read(&mut len)?;
    let len = i32::from_ne_bytes(len);
    let good = usize::try_from(len).ok().filter(|len| (1..=MAX_NAME).contains(len));
    let len = good.ok_or_else(|| {
        let text =
            format!("{peer} requested a file with a name of {len} bytes: it uses another protocol");
        Failure::new(FailureKind::Protocol, text)
    })?;
    let mut name = vec![0; len];
    read(&mut name)?;
    Ok(name)
}

/// Opens a file below the root; the error is the reason for the client.
fn open(root: &Root, name: &[u8]) -> Result<(File, i64), String> {
    // Clients that expect a whole file system send names with a leading slash or `./`.
    let mut rest = name;
    while let Some(shorter) = rest.strip_prefix(b"/").or_else(|| rest.strip_prefix(b"./")) {
        rest = shorter;
    }
    let path = RelPath::new(rest.to_vec()).map_err(|e| e.to_string())?;
    let file = root.open_read(&path).map_err(|e| root.trouble(&e).to_string())?;
    let size = file.metadata().map_err(|e| e.to_string())?.len();
    Ok((file, i64::try_from(size).unwrap_or(i64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_network_does_not_take_every_place() {
        let clients = Clients::default();
        let at = |last| IpAddr::from([192, 0, 2, last]);
        for _ in 0..MAX_CLIENTS_PER_NETWORK {
            assert_eq!(clients.enter(at(1)), Ok(()));
        }
        assert_eq!(clients.enter(at(1)), Err(MAX_CLIENTS_PER_NETWORK));
        for _ in MAX_CLIENTS_PER_NETWORK..MAX_CLIENTS {
            assert_eq!(clients.enter(at(2)), Ok(()));
        }
        assert_eq!(clients.enter(at(3)), Err(MAX_CLIENTS));
        clients.leave(at(2));
        assert_eq!(clients.enter(at(3)), Ok(()));
        // The addresses of one host with IPv6.
        let clients = Clients::default();
        let at = |last: u16| IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, last]);
        for last in 0..32 {
            assert_eq!(clients.enter(at(last)), Ok(()));
        }
        assert_eq!(clients.enter(at(32)), Err(32));
        clients.leave(at(99));
        assert_eq!(clients.enter(at(32)), Ok(()), "any of them has left");
    }

    #[test]
    fn names_stay_below_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let inside = dir.path().join("in");
        std::fs::create_dir_all(inside.join("sub")).unwrap();
        std::fs::write(dir.path().join("secret"), b"x").unwrap();
        std::fs::write(inside.join("a"), b"abc").unwrap();
        std::fs::write(inside.join("sub/b"), b"").unwrap();
        std::os::unix::fs::symlink("../secret", inside.join("link")).unwrap();
        std::os::unix::fs::symlink("..", inside.join("up")).unwrap();
        let root = Root::open(&inside).unwrap();
        for (name, size) in [("a", 3), ("/a", 3), ("./a", 3), ("sub/b", 0), ("//./sub/b", 0)] {
            assert_eq!(open(&root, name.as_bytes()).map(|f| f.1), Ok(size), "{name}");
        }
        for name in ["../secret", "/../secret", "link", "up/secret", "sub", "none", "", "/", "a\0b"]
        {
            assert!(open(&root, name.as_bytes()).is_err(), "{name}");
        }
    }
}
