//! The real program as a victim: a home with files that must not change, the memory that the
//! program used, and its end.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use packtrain_identity::tickets::Ticket;
use packtrain_net::tcp::{Identity, tls};

use super::peer::Peer;
use super::script::ASKED;
use crate::rig::{Ended, Rig, Running, TIMEOUT};
use crate::server::{serve, ticket};

/// Maximum memory that a peer may make the program use: its buffers (about 140 MiB), queued frames
/// (4 MiB, up to 20 times as much decoded), and the program itself without optimisation.
pub(super) const PEAK: u64 = 400 << 20;

/// A home directory and its original content.
pub(super) struct Victim {
    pub(super) rig: Rig,
    before: BTreeMap<PathBuf, Kept>,
}

/// What must not change: kind and mode, content or target, time.
type Kept = (u32, Vec<u8>, (i64, i64));

impl Victim {
    pub(super) fn new() -> Self {
        let rig = Rig::local();
        fs::create_dir_all(rig.path("home/kept")).expect("a folder");
        for (name, text) in [("bystander", "mine"), ("kept/file", "too"), (".profile", "PATH=x")] {
            fs::write(rig.path("home").join(name), text).expect("a file");
        }
        let before = look(&rig.path("home"));
        Self { rig, before }
    }

    pub(super) fn home(&self) -> PathBuf {
        self.rig.path("home")
    }

    /// Asserts that only the original files, unchanged, and the requested files exist.
    pub(super) fn check(&self, what: &str) {
        let now = look(&self.home());
        for (path, kept) in &self.before {
            assert_eq!(now.get(path), Some(kept), "{what}: {path:?} changed");
        }
        for path in now.keys().filter(|path| !self.before.contains_key(*path)) {
            let top = path.iter().next().unwrap_or_default().as_bytes();
            // The program's own journal, lock and temporary files.
            let ours = top.starts_with(b".") && top.windows(10).any(|part| part == b"packtrain-");
            assert!(top == ASKED.as_bytes() || ours, "{what}: {path:?} was not asked for");
        }
    }

    /// Removes the requested files, for the next run.
    pub(super) fn clean(&self) {
        for path in look(&self.home()).keys().rev().filter(|p| !self.before.contains_key(*p)) {
            let path = self.home().join(path);
            let _ = fs::set_permissions(&path, fs::Permissions::from_mode(0o700));
            let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
        }
    }

    /// `packtrain cp` whose `user@evil` is this peer.
    pub(super) fn over_ssh(&self, args: &[&str], act: impl FnOnce(&mut Peer) + Send) -> Fallen {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let script = self.rig.path("evil-ssh");
        let text = format!(
            "#!/bin/bash\n[ \"$1\" = -G ] && exit 0\nexec 3<>/dev/tcp/127.0.0.1/{port}\n\
             cat <&0 >&3 &\ncat <&3\nkill $!\n"
        );
        fs::write(&script, text).expect("a script");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("mode");
        let mut command = self.rig.packtrain();
        command.args(["cp", "--retries", "0", "--transport", "pipe", "-e"]).arg(&script).args(args);
        let running = self.rig.start(command.current_dir(self.home()));
        self.meet(running, &listener, |socket| {
            let mut peer = Peer::new(socket);
            peer.raw(b"\nPACKTRAIN-STDIO-1\n");
            act(&mut peer);
        })
    }

    /// `packtrain cp` whose `pt://HOST` is this peer; `HOST` in the arguments is replaced.
    pub(super) fn over_tls(&self, args: &[&str], act: impl FnOnce(&mut Peer) + Send) -> Fallen {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let host = format!("127.0.0.1:{}", listener.local_addr().expect("an address").port());
        let mut command = self.rig.packtrain();
        command.args(["cp", "--retries", "0", "--transport", "pipe", "--accept-new-host"]);
        command.args(args.iter().map(|arg| arg.replace("HOST", &host)));
        let running = self.rig.start(command.current_dir(self.home()));
        let identity = Identity::generate([7; 32]);
        let config = tls::server_config(&identity, Arc::new(|_| true)).expect("a configuration");
        self.meet(running, &listener, |socket| {
            let connection = rustls::ServerConnection::new(config).expect("a connection");
            act(&mut Peer::new(rustls::StreamOwned::new(connection, socket)));
        })
    }

    fn meet(
        &self,
        mut running: Running,
        listener: &TcpListener,
        act: impl FnOnce(TcpStream) + Send,
    ) -> Fallen {
        listener.set_nonblocking(true).expect("a listener");
        std::thread::scope(|scope| {
            let pid = running.pid();
            let acting = scope.spawn(move || {
                let start = Instant::now();
                while start.elapsed() < TIMEOUT {
                    if let Ok((socket, _)) = listener.accept() {
                        socket.set_nonblocking(false).expect("a socket");
                        return act(socket);
                    }
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
            let mut peak = 0;
            let start = Instant::now();
            while !running.ended() && start.elapsed() < TIMEOUT {
                peak = peak.max(peak_of(pid));
                std::thread::sleep(Duration::from_millis(2));
            }
            acting.join().expect("the peer does not panic");
            Fallen { ended: running.wait(), peak }
        })
    }

    /// `packtrain serve --stdio` with this peer as its caller.
    pub(super) fn serve_stdio(&self, act: impl FnOnce(&mut Peer)) -> Fallen {
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        let log = self.rig.path("stdio-log");
        let mut command = self.rig.packtrain();
        command.args(["serve", "--stdio"]).current_dir(self.home());
        command
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs.try_clone().expect("a socket"))));
        command.stdout(Stdio::from(std::os::fd::OwnedFd::from(theirs)));
        command.stderr(File::create(&log).expect("a file"));
        let mut child = Reaped(command.spawn().expect("the command"));
        drop(command);
        let mut peer = Peer::new(ours);
        peer.skip_marker();
        act(&mut peer);
        let mut peak = peak_of(child.0.id());
        drop(peer);
        let start = Instant::now();
        let status = loop {
            peak = peak.max(peak_of(child.0.id()));
            if let Some(status) = child.0.try_wait().expect("a child") {
                break status;
            }
            assert!(start.elapsed() < TIMEOUT, "serve --stdio hangs");
            std::thread::sleep(Duration::from_millis(2));
        };
        let stderr = fs::read_to_string(&log).unwrap_or_default();
        assert!(!stderr.contains("panicked at"), "{stderr}");
        Fallen {
            ended: Ended { code: status.code().unwrap_or(-1), stdout: Vec::new(), stderr },
            peak,
        }
    }
}

/// A server of this home, and how a client of this kind reaches it.
pub(super) struct Served {
    running: Running,
    port: u16,
    token: [u8; 16],
}

impl Served {
    pub(super) fn new(victim: &Victim) -> Self {
        std::os::unix::fs::symlink(victim.home(), victim.rig.path("root")).expect("a link");
        let (running, port) = serve(&victim.rig, &[]);
        let text = ticket(&victim.rig);
        let text = fs::read_to_string(text.trim_start_matches('@')).expect("a ticket");
        let token = text.parse::<Ticket>().expect("a ticket").token();
        Self { running, port, token }
    }

    /// The field `channel` of `Open`, which contains the ticket.
    pub(super) fn channel(&self) -> Vec<u8> {
        packtrain_runtime::sample_request(Some(self.token))
    }

    /// The server as a destination.
    pub(super) fn place(&self) -> String {
        format!("pt://127.0.0.1:{}/", self.port)
    }

    /// A connection to the server.
    pub(super) fn connect(&self) -> Peer {
        let socket = TcpStream::connect(("127.0.0.1", self.port)).expect("a server");
        let identity = Identity::generate([9; 32]);
        let config = tls::client_config(&identity, Arc::new(|_| true)).expect("a configuration");
        let connection =
            rustls::ClientConnection::new(config, tls::any_name()).expect("a connection");
        Peer::new(rustls::StreamOwned::new(connection, socket))
    }

    /// Asserts that the server still runs and used no more memory than allowed.
    pub(super) fn check(&mut self, what: &str) {
        assert!(!self.running.ended(), "{what}: the server ended: {}", self.running.stderr());
        let peak = peak_of(self.running.pid());
        assert!(peak < PEAK, "{what}: {} MiB", peak >> 20);
        assert!(!self.running.stderr().contains("panicked at"), "{}", self.running.stderr());
    }
}

/// The end of a victim, and the most memory it used.
#[derive(Debug)]
pub(super) struct Fallen {
    pub(super) ended: Ended,
    pub(super) peak: u64,
}

impl Fallen {
    /// Asserts that the program ended by itself, with a reason unless it succeeded, within its
    /// memory limit.
    pub(super) fn check(&self, what: &str) {
        let Ended { code, stderr, .. } = &self.ended;
        assert!((0..101).contains(code), "{what}: ended with {code}: {stderr}");
        assert!(self.peak < PEAK, "{what}: {} MiB", self.peak >> 20);
    }

    /// Asserts that the program failed and named this.
    pub(super) fn check_refused(&self, what: &str, named: &str) {
        self.check(what);
        let Ended { code, stderr, .. } = &self.ended;
        assert_eq!(*code, 7, "{what}: {stderr}");
        assert!(stderr.contains(named), "{what}: `{named}` is not in: {stderr}");
    }
}

/// A child process that is killed with its test.
struct Reaped(std::process::Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The peak memory of a process so far, in bytes; 0 after its end.
fn peak_of(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or_default() << 10
}

/// Everything below a folder. Times of folders change with their entries and are left out.
fn look(folder: &Path) -> BTreeMap<PathBuf, Kept> {
    fn add(root: &Path, at: &Path, found: &mut BTreeMap<PathBuf, Kept>) {
        for item in fs::read_dir(at).into_iter().flatten().flatten() {
            let path = item.path();
            let Ok(meta) = fs::symlink_metadata(&path) else { continue };
            let (content, time) = if meta.is_dir() {
                add(root, &path, found);
                (Vec::new(), (0, 0))
            } else if meta.is_symlink() {
                let target = fs::read_link(&path).unwrap_or_default();
                (target.as_os_str().as_bytes().to_vec(), (0, 0))
            } else {
                // No file that must stay is large; a copied file may be.
                let small = meta.len() < 1 << 20;
                let content = if small { fs::read(&path).unwrap_or_default() } else { vec![] };
                (content, (meta.mtime(), meta.mtime_nsec()))
            };
            let below = path.strip_prefix(root).expect("below").to_path_buf();
            found.insert(below, (meta.mode(), content, time));
        }
    }
    let mut found = BTreeMap::new();
    add(folder, folder, &mut found);
    found
}

impl Peer {
    /// Reads the preamble of a called end before its first message.
    fn skip_marker(&mut self) {
        let marker = b"\nPACKTRAIN-STDIO-1\n";
        let mut seen = Vec::new();
        while !seen.ends_with(marker) {
            let Some(byte) = self.read_byte() else { return };
            seen.push(byte);
        }
    }
}
