//! The round trips of a copy, counted on the messages of the real ends.
//!
//! Between the two ends is a path on which time passes only when there is nothing else to do: what
//! one end sends is held until every thread of this process sleeps, and then all of it arrives at
//! once. Each arrival is half a round trip. How fast this machine is does not matter.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::time::Duration;

use packtrain_runtime::calling;
use packtrain_runtime::control::{Control, Incoming, pair};
use packtrain_runtime::handshake::SessionRequest;
use packtrain_runtime::permissions::Permissions;
use packtrain_runtime::session::{Observer, Stop};
use packtrain_runtime::sink::{Destination, SinkSetup};
use packtrain_runtime::source::{self, Agree, Prepared, SourceSetup, SourceSpec};
use packtrain_runtime::transports::offer::{ControlMessage, Offer};
use packtrain_runtime::transports::{Caller, Hints, SinkTransports, SourceTransports};
use packtrain_service::StopHandle;
use packtrain_service::ceilings::Ceilings;
use packtrain_transfer::message::{Message, Open, Options, Role};
use packtrain_transfer::{FileReport, Outcome, SinkTotals, SourceTotals};

use crate::session;

/// How often, and how far apart, all threads must be found asleep. The threads that drive the ends
/// look around every 50 ms at the latest.
const LOOKS: u32 = 4;
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);
/// Sizes of datagrams: no report is larger than the one, and a ping is padded to the other.
const LARGEST_REPORT: usize = 1_000;
const PADDED_PING: usize = 1_472;
/// Bytes of the copied file. Its last packet is larger than a report and smaller than a padded ping,
/// whether packets have 1,200 or 1,472 bytes.
const FILE_BYTES: usize = 5_668;
/// More than any copy may take.
const MAX_HALVES: usize = 24;

struct Nobody;

impl Observer for Nobody {
    fn file(&self, _: &[u8], _: &FileReport) {}
    fn source(&self, _: &SourceTotals) {}
    fn sink(&self, _: &SinkTotals) {}
    fn transport(&self, _: &str) {}
    fn notice(&self, _: &packtrain_service::Notice) {}
}

/// Whether every other thread of this process waits for something.
fn others_sleep() -> bool {
    let own = fs::read_link("/proc/thread-self").expect("Linux");
    let own = own.file_name().expect("a number").to_owned();
    fs::read_dir("/proc/self/task").expect("Linux").flatten().all(|task| {
        // The state follows the name, which is in parentheses. A thread that is gone does nothing.
        let Ok(stat) = fs::read_to_string(task.path().join("stat")) else { return true };
        let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
        task.file_name() == own || !matches!(state, Some('R' | 'D'))
    })
}

/// One end as the path sees it.
struct Side {
    control: Control,
    /// The ports of its lanes, and the sockets that stand for them at the other end.
    ports: Vec<u16>,
    stands: Vec<UdpSocket>,
    messages: Vec<Message>,
    datagrams: Vec<(usize, Vec<u8>)>,
}

impl Side {
    fn new(control: Control) -> Self {
        let (ports, stands, messages, datagrams) = Default::default();
        Self { control, ports, stands, messages, datagrams }
    }

    /// Takes what this end has sent: messages, and datagrams to the sockets that stand for the
    /// other end. Tells whether there was something.
    fn collect(&mut self, other: &Side) -> bool {
        let before = self.messages.len() + self.datagrams.len();
        while let Ok(Incoming::Message(message)) = self.control.rx.try_recv() {
            let offer = match &message {
                Message::Channel(bytes) => Offer::decode(bytes),
                _ => None,
            };
            let message = match offer {
                Some(offer) => self.stand_in(offer),
                None => message,
            };
            self.messages.push(message);
        }
        let mut buffer = [0; 9_000];
        for (lane, socket) in other.stands.iter().enumerate() {
            while let Ok(length) = socket.recv(&mut buffer) {
                self.datagrams.push((lane, buffer[..length].to_vec()));
            }
        }
        self.messages.len() + self.datagrams.len() > before
    }

    /// The offer with ports of the path in place of its own.
    fn stand_in(&mut self, offer: Offer) -> Message {
        let bind = |_: &u16| {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
            socket.set_nonblocking(true).expect("fine");
            socket
        };
        self.stands = offer.udp.iter().map(bind).collect();
        self.ports.clone_from(&offer.udp);
        let port = |socket: &UdpSocket| socket.local_addr().expect("bound").port();
        let udp = self.stands.iter().map(port).collect();
        Message::Channel(Offer { udp, ..offer }.encode())
    }

    /// Hands over to the other end what this one has sent; what it was, in order, each kind once.
    fn deliver(&mut self, other: &Side) -> Vec<&'static str> {
        let mut kinds = Vec::new();
        for message in self.messages.drain(..) {
            other.control.tx.send(&message);
            let kind = match &message {
                Message::Channel(bytes) => word(bytes),
                message => message.name(),
            };
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        let (mut any, mut data) = (false, false);
        for (lane, bytes) in self.datagrams.drain(..) {
            let (Some(socket), Some(port)) = (self.stands.get(lane), other.ports.get(lane)) else {
                continue;
            };
            let _ = socket.send_to(&bytes, (Ipv4Addr::LOCALHOST, *port));
            any = true;
            data |= bytes.len() > LARGEST_REPORT && bytes.len() != PADDED_PING;
        }
        // Sealed: only their size tells data from probes and reports.
        match (any, data) {
            (false, _) => {}
            (true, false) => kinds.push("control packets"),
            (true, true) => kinds.push("data packets"),
        }
        kinds
    }
}

fn word(bytes: &[u8]) -> &'static str {
    match ControlMessage::decode(bytes) {
        Some(ControlMessage::Offer(_)) => "Offer",
        Some(ControlMessage::Moved(_)) => "Moved",
        _ => "Channel",
    }
}

/// What was under way in each half of a round trip, from the caller first, until it was done.
fn halves(work: impl FnOnce(Control) -> Outcome + Send + 'static, root: &Path) -> Vec<String> {
    let ((near, near_path), (far_path, far)) = (pair().expect("fine"), pair().expect("fine"));
    let stop = StopHandle::new();
    let called = {
        let (stop, hints, root) = (stop.clone(), called_here(), root.to_owned());
        let admit = move |_: &SessionRequest| {
            assert!(root.is_absolute());
            Ok(Permissions::default())
        };
        std::thread::spawn(move || {
            session::serve(far, hints, admit, &Nobody, Stop::of_called_end(stop))
        })
    };
    let caller = std::thread::spawn(move || work(near));
    let mut sides = (Side::new(near_path), Side::new(far_path));
    let mut halves = Vec::new();
    while halves.len() < MAX_HALVES {
        wait_until_quiet(&mut sides);
        if caller.is_finished() {
            break;
        }
        let there = sides.0.deliver(&sides.1);
        let back = sides.1.deliver(&sides.0);
        halves.push(format!("> {} < {}", there.join(", "), back.join(", ")));
    }
    let outcome = caller.join().expect("no panic");
    assert_eq!((outcome.failure, outcome.summary.files_moved), (None, 1), "{halves:#?}");
    drop(sides);
    stop.request(15);
    let _ = called.join().expect("no panic");
    halves
}

/// Collects what the ends send until neither will send more before something arrives.
fn wait_until_quiet((near, far): &mut (Side, Side)) {
    let mut quiet = 0;
    while quiet < LOOKS {
        std::thread::sleep(BETWEEN_LOOKS);
        let sent = near.collect(far) | far.collect(near);
        quiet = if sent || !others_sleep() { 0 } else { quiet + 1 };
    }
}

fn here() -> Hints {
    Hints { peer: vec![Ipv4Addr::LOCALHOST.into()], ..Hints::default() }
}

/// What the called end knows, as at a server.
fn called_here() -> Hints {
    let host = Ipv4Addr::LOCALHOST.into();
    let rtt = Some(packtrain_units::Duration::from_millis(100));
    Hints { caller: Some(Caller { host, rtt }), ..here() }
}

fn request() -> SessionRequest {
    SessionRequest { sources: 1, choice: 1, ..SessionRequest::default() }
}

fn agreement() -> Agree<'static> {
    Box::new(|agreed| {
        let plan = request().plan(here(), &Permissions::default(), &Ceilings::default(), None);
        request().agree(plan, &Permissions::default(), &agreed, None)
    })
}

fn open(role: Role, path: &Path) -> Open {
    let paths = vec![path.as_os_str().as_encoded_bytes().to_vec()];
    let (options, channel) = (Options::default(), request().encode());
    Open { role, paths, sources: None, options, channel }
}

/// A directory with the file: the data of four or five packets.
fn place() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("from"), [7; FILE_BYTES]).expect("fine");
    dir
}

fn push(dir: &Path) -> Vec<String> {
    let (from, to) = (dir.join("from"), dir.join("to"));
    let work = move |control| {
        let from = from.into_os_string().into_encoded_bytes();
        let prepared = Prepared::start(SourceSpec::Paths(vec![from]), &Options::default());
        let plan = request().plan(here(), &Permissions::default(), &Ceilings::default(), None);
        let setup = SourceSetup {
            control,
            options: Options::default(),
            observer: &Nobody,
            transports: SourceTransports::new(plan),
            stop: Stop::new(StopHandle::new()),
        };
        let ended = source::run_calling(setup, prepared, open(Role::Sink, &to), agreement());
        ended.expect("it agrees").0
    };
    halves(work, dir)
}

fn fetch(dir: &Path) -> Vec<String> {
    let (from, to) = (dir.join("from"), dir.join("to"));
    let work = move |control: Control| {
        let path = to.into_os_string().into_encoded_bytes();
        let plan = request().plan(here(), &Permissions::default(), &Ceilings::default(), None);
        let setup = SinkSetup {
            changed_pieces: false,
            transports: SinkTransports::new(plan, control.tx.clone()),
            control,
            options: Options::default(),
            destination: Destination {
                path,
                confined: None,
                sources: 1,
                names: None,
                owners: false,
            },
            observer: &Nobody,
            stop: Stop::new(StopHandle::new()),
        };
        let ended = calling::run_sink(setup, open(Role::Source, &from), agreement());
        ended.expect("it agrees").0
    };
    halves(work, dir)
}

/// The half in which each kind first crossed the path, in each direction.
fn first(halves: &[String]) -> BTreeMap<String, usize> {
    let mut first = BTreeMap::new();
    for (at, half) in halves.iter().enumerate() {
        let (there, back) = half.trim_start_matches("> ").split_once('<').expect("both");
        for (kinds, way) in [(there, '>'), (back, '<')] {
            for kind in kinds.split(", ").map(str::trim).filter(|kind| !kind.is_empty()) {
                first.entry(format!("{way} {kind}")).or_insert(at + 1);
            }
        }
    }
    first
}

/// When these kinds first crossed, and in how many halves all was done.
fn seen<const N: usize>(halves: &[String], kinds: [&str; N]) -> ([usize; N], usize) {
    let first = first(halves);
    (kinds.map(|kind| first.get(kind).copied().unwrap_or(0)), halves.len())
}

#[test]
fn a_push_takes_two_round_trips_after_the_connection() {
    let dir = place();
    let halves = push(dir.path());
    let asked = seen(&halves, ["> Open", "> Offer", "> Manifest", "> ManifestEnd"]);
    let answered = seen(&halves, ["< Opened", "< Offer", "< Need"]);
    let moved = seen(&halves, ["> data packets", "> Moved", "< Finished"]);
    assert_eq!(asked, ([1; 4], 4), "{halves:#?}");
    assert_eq!((answered, moved), (([2; 3], 4), ([3, 3, 4], 4)), "{halves:#?}");
}

#[test]
fn a_fetch_takes_two_round_trips_after_the_connection() {
    let dir = place();
    let halves = fetch(dir.path());
    let asked = seen(&halves, ["> Open", "> Offer"]);
    let answered = seen(&halves, ["< Opened", "< Offer", "< Manifest", "< control packets"]);
    let moved = seen(&halves, ["> Need", "< data packets", "< Moved"]);
    assert_eq!(asked, ([1; 2], 4), "{halves:#?}");
    assert_eq!((answered, moved), (([2; 4], 4), ([3, 4, 4], 4)), "{halves:#?}");
}
