//! `cp udt4://host:port/name DST`: the client of the stock library's file server.
//!
//! The client sends the length of the name as a 32-bit number, and the name. The server answers
//! with the size as a 64-bit number (negative if there is no such file), and the bytes. Numbers are
//! in host byte order; the protocol assumes that it is the same at both ends.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use packtrain_disk::{Meta, Root, write};
use packtrain_object::RelPath;
use packtrain_os::{clock, process};
use packtrain_socket::{Error, Options, Socket};
use packtrain_transfer::message::Summary;
use packtrain_transfer::{Failure, FailureKind};
use packtrain_units::{ByteCount, DataRate, Duration, Time, TokenBucket};

use super::{FLOW_WINDOW, MAX_NAME, POLL_INTERVAL, failure, in_clear, lookup, options};
use packtrain_runtime::session::Stop;
use packtrain_runtime::sink::{SingleFile, kind_of, single_file};
use packtrain_service::ceilings::{HELD_SHARE, HeldBy, SEND_BURST};
use packtrain_service::paths::show;
use packtrain_service::{
    CpRequest, Location, Outcome, ProgressSnapshot, Reporter, RequestError, TransportShare,
};

/// Maximum bytes per read.
const PIECE_BYTES: usize = 1 << 20;
/// Timeout for the size, and between two reads. A broken connection is detected sooner; this is for
/// a server that keeps the connection and sends nothing.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout for closing the connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Buffer for bytes that wait for the disk or for a missing packet: twice the bandwidth-delay
/// product of 1 Gbit/s and 200 ms. Memory is allocated as bytes arrive.
const RECEIVE_BUFFER: ByteCount = ByteCount(64 << 20);
/// How often progress is reported.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);
/// Bytes between two starts of write-back, so that the sync at the end is short.
const WRITE_BACK_BYTES: u64 = 64 << 20;

/// Whether standard output was written to.
static STDOUT_BEGUN: AtomicBool = AtomicBool::new(false);

/// Whether standard output has the first bytes of a file: another try would write them again.
pub fn stdout_is_begun() -> bool {
    STDOUT_BEGUN.load(Ordering::Acquire)
}

/// Fetches one file.
pub fn fetch(request: &CpRequest, reporter: &dyn Reporter) -> Result<Outcome, RequestError> {
    let usage = |text: &str| RequestError::new(FailureKind::Usage, text);
    let [Location::Udt4 { host, port, path }] = request.sources.as_slice() else {
        return Err(usage(
            "a udt4:// place is read, one file at a time: name it as the one source",
        ));
    };
    if path.len() > MAX_NAME {
        return Err(usage("the name is longer than 4096 bytes"));
    }
    reporter.notice(&in_clear());
    let begun = clock::now();
    let whom = &request.sources[0];
    let stop = Stop::new(request.stop.clone());
    let address = lookup(host, *port)?;
    let mut target = Target::open(&request.dest, path)?;
    let rate = request.options.rate_bps.map(DataRate::from_bps);
    let mut call =
        Call { socket: dial(address, whom)?, whom, stop, heard: clock::now(), held: false };
    let moved = call.size(path).and_then(|size| {
        target.expect(size)?;
        let mut progress = Progress { reporter, size, told: begun, begun: clock::now() };
        call.receive(size, rate, &mut target, &mut progress)
    });
    let rtt = call.socket.stats().rtt;
    // The server learns the end at once. An error means that it has closed already.
    let _ = call.socket.close();
    let failure = moved.and_then(|()| target.commit()).err();
    let got = target.at;
    let done = failure.is_none();
    Ok(Outcome {
        summary: Summary {
            bytes: if done { got } else { 0 },
            bytes_moved: got,
            entries: u64::from(done),
            files_moved: u64::from(done),
            failed: u64::from(!done),
            ..Summary::default()
        },
        elapsed: clock::now().since(begun),
        transport: "udt4".to_owned(),
        shares: vec![TransportShare { name: "udt4".to_owned(), bytes: ByteCount(got) }],
        rtt: (!rtt.is_zero()).then_some(rtt),
        held_by: call.held.then(|| HeldBy::Rate.word().to_owned()),
        failure,
        ..Outcome::default()
    })
}

fn dial(address: SocketAddr, whom: &Location) -> Result<Socket, Failure> {
    let options = Options {
        linger: CLOSE_TIMEOUT,
        recv_buffer: RECEIVE_BUFFER,
        flow_window: FLOW_WINDOW,
        ..options(None, None)
    };
    let socket = Socket::connect(address, &options).map_err(|e| failure(whom, &e))?;
    socket.set_recv_timeout(Some(POLL_INTERVAL));
    socket.set_send_timeout(Some(STALL_TIMEOUT));
    Ok(socket)
}

/// A connection to the server.
struct Call<'a> {
    socket: Socket,
    whom: &'a Location,
    stop: Stop,
    /// When bytes last arrived.
    heard: Time,
    /// The rate limit was the bottleneck.
    held: bool,
}

impl Call<'_> {
    /// Requests a file; returns its size, or an error if the server has no such file.
    fn size(&mut self, name: &[u8]) -> Result<u64, Failure> {
        let size = self.ask(name)?;
        u64::try_from(size).map_err(|_| {
            let whom = self.whom;
            let text =
                format!("{whom}: the server has no such file (it answered with size {size})");
            Failure::new(FailureKind::SourceMissing, text)
        })
    }

    /// Requests a file; returns the size that the server sends.
    fn ask(&mut self, name: &[u8]) -> Result<i64, Failure> {
        let mut words = (name.len() as i32).to_ne_bytes().to_vec();
        words.extend_from_slice(name);
        self.socket.send_all(&words).map_err(|e| failure(self.whom, &e))?;
        let mut size = [0; 8];
        let mut have = 0;
        while have < size.len() {
            match self.read(&mut size[have..])? {
                0 => return Err(self.early("before it sent the file's size")),
                n => have += n,
            }
        }
        Ok(i64::from_ne_bytes(size))
    }

    /// Receives the file.
    fn receive(
        &mut self,
        size: u64,
        rate: Option<DataRate>,
        target: &mut Target,
        progress: &mut Progress<'_>,
    ) -> Result<(), Failure> {
        let mut piece = vec![0; PIECE_BYTES];
        // After a pause the reader must not take more than a burst at once.
        let mut bucket = rate.map(|rate| TokenBucket::new(rate, SEND_BURST));
        while target.at < size {
            let want = piece.len().min((size - target.at).try_into().unwrap_or(usize::MAX));
            let got = self.read(&mut piece[..want])?;
            if got == 0 {
                return Err(self.early(&format!("after {} of {size} bytes", target.at)));
            }
            target.write(&piece[..got])?;
            progress.report(target.at);
            // A slower reader closes the advertised window, so the server sends slower.
            let due = bucket.as_mut().map(|bucket| {
                bucket.charge(clock::now(), ByteCount(got as u64));
                bucket.due()
            });
            while due.is_some_and(|due| due > clock::now()) && self.stop.asked().is_none() {
                let left = due.map_or(Duration::ZERO, |due| due.since(clock::now()));
                std::thread::sleep(left.min(POLL_INTERVAL).to_std());
                self.heard = clock::now();
            }
        }
        progress.told = Time::ZERO;
        progress.report(target.at);
        self.held = bucket.is_some_and(|bucket| bucket.limited(clock::now()) >= HELD_SHARE);
        Ok(())
    }

    /// Reads bytes; 0 at the end.
    fn read(&mut self, out: &mut [u8]) -> Result<usize, Failure> {
        loop {
            if let Some(failure) = self.stop.asked() {
                return Err(failure);
            }
            match self.socket.recv(out) {
                Ok(n) => {
                    self.heard = clock::now();
                    return Ok(n);
                }
                Err(Error::TimedOut) if clock::now().since(self.heard) < STALL_TIMEOUT => {}
                Err(e) => return Err(failure(self.whom, &e)),
            }
        }
    }

    fn early(&self, when: &str) -> Failure {
        let text = format!("{}: the server closed the connection {when}", self.whom);
        Failure::new(FailureKind::Temporary, text)
    }
}

/// Reports progress.
struct Progress<'a> {
    reporter: &'a dyn Reporter,
    size: u64,
    told: Time,
    begun: Time,
}

impl Progress<'_> {
    fn report(&mut self, at: u64) {
        let now = clock::now();
        if now.since(self.told) < PROGRESS_INTERVAL {
            return;
        }
        self.told = now;
        let span = now.since(self.begun);
        let rate = match at {
            0 => DataRate::ZERO,
            at => DataRate::from_bytes_over(ByteCount(at), span),
        };
        let left = ByteCount(self.size - at);
        self.reporter.progress(&ProgressSnapshot {
            bytes_done: ByteCount(at),
            bytes_present: ByteCount::ZERO,
            bytes_total: Some(ByteCount(self.size)),
            files_done: 0,
            files_total: Some(1),
            rate,
            eta: (rate > DataRate::ZERO).then(|| rate.time_for(left)),
            verdict: None,
            transport: "udt4".to_owned(),
        });
    }
}

/// The destination.
struct Target {
    to: To,
    at: u64,
    /// Number of bytes whose write-back was started.
    flushed: u64,
}

enum To {
    File { place: SingleFile, file: Option<std::fs::File> },
    Stdout,
}

impl Target {
    /// Resolves the destination; nothing is written yet.
    fn open(dest: &Location, name: &[u8]) -> Result<Self, Failure> {
        let to = match dest {
            Location::Local(path) => {
                let own = name.rsplit(|b| *b == b'/').next().unwrap_or_default();
                To::File { place: single_file(path, own)?, file: None }
            }
            Location::Stdio => {
                process::stdout().map_err(|e| stdout(&e))?;
                To::Stdout
            }
            _ => {
                let text = "what a udt4:// server has is copied to this machine: name a path or -";
                return Err(Failure::new(FailureKind::Usage, text));
            }
        };
        Ok(Self { to, at: 0, flushed: 0 })
    }

    /// Called when the size is known.
    fn expect(&mut self, size: u64) -> Result<(), Failure> {
        let To::File { place: SingleFile { root, name, tag, .. }, file } = &mut self.to else {
            return Ok(());
        };
        if root.free_space().is_ok_and(|space| space.available < ByteCount(size)) {
            let text = format!(
                "the file has {}, and the target's file system has less room: free some space",
                ByteCount(size)
            );
            return Err(Failure::new(FailureKind::TargetFull, text));
        }
        // The file grows as bytes arrive, because the size from the server is not trusted.
        let made = root.open_temp(name, tag, 0, false);
        *file = Some(made.map_err(|e| disk_failure(root, name, &e))?);
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        match &mut self.to {
            To::File { place: SingleFile { root, name, .. }, file: Some(file) } => {
                write::write_all_at(file, self.at, bytes)
                    .map_err(|e| disk_failure(root, name, &e))?;
            }
            To::File { file: None, .. } => {}
            To::Stdout => {
                let mut out = process::stdout().map_err(|e| stdout(&e))?.lock();
                STDOUT_BEGUN.store(true, Ordering::Release);
                out.write_all(bytes).map_err(|e| stdout(&e))?;
            }
        }
        self.at += bytes.len() as u64;
        if let To::File { file: Some(file), .. } = &self.to
            && self.at - self.flushed >= WRITE_BACK_BYTES
        {
            write::start_writeback(file, self.flushed, ByteCount(self.at - self.flushed));
            self.flushed = self.at;
        }
        Ok(())
    }

    /// Makes the complete file durable, and renames it to its target.
    fn commit(&mut self) -> Result<(), Failure> {
        match &mut self.to {
            To::File { place: SingleFile { root, name, tag, .. }, file } => {
                let Some(open) = file.take() else { return Ok(()) };
                let done = write::sync_data(&open)
                    .and_then(|()| root.commit(name, tag, &Meta::default()))
                    .and_then(|()| root.sync());
                *file = Some(open);
                done.map_err(|e| disk_failure(root, name, &e))
            }
            To::Stdout => {
                let mut out = process::stdout().map_err(|e| stdout(&e))?.lock();
                out.flush().map_err(|e| stdout(&e))
            }
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // After the commit there is no temporary any more.
        if let To::File { place: SingleFile { root, name, tag, .. }, file: Some(_) } = &self.to {
            let _ = root.remove_temp(name, tag);
        }
    }
}

fn stdout(error: &io::Error) -> Failure {
    Failure::new(FailureKind::TargetRefused, format!("standard output: {error}"))
}

fn disk_failure(root: &Root, name: &RelPath, error: &io::Error) -> Failure {
    let trouble = root.trouble(error);
    let place = root.path().join(Path::new(&*show(name.as_bytes())));
    Failure::new(kind_of(trouble), format!("{}: {}", place.display(), trouble.sentence()))
}
