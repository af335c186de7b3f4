//! Memory to memory over one native flow, between two processes or two network namespaces: measures
//! the engine and the sockets without disks, control connection and manifest.
//!
//!     rawflow recv --bind 10.9.0.2 --peer 10.9.0.1 --port 7000 --lanes 8
//!     rawflow send --bind 10.9.0.1 --peer 10.9.0.2 --port 7000 --lanes 8 --seconds 10 --cc native
//!
//! `--judge off` disables the loss classifier, to measure its cost: the last line has the processor
//! time of both threads. `--feedback fobs` at both ends changes the feedback. `--train 100` at both
//! ends says that a control connection has a round trip of 100 ms, as in a fetch.
//!
//! Lane `i` uses port `--port` + `i` on both sides. The key is fixed and public, so use it only for
//! measurements.
#![allow(clippy::print_stdout)]

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::process::ExitCode;

use crossbeam_channel::{Receiver, unbounded};
use packtrain_cc::{
    CongestionController, ControllerConfig, Feedback, ProbeTrain, Sent, Signals, build,
};
use packtrain_net::flow::{FlowEvent, FlowSnapshot, spawn_receiver, spawn_sender};
use packtrain_net::udp::UdpSocket;
use packtrain_os::{clock, entropy};
use packtrain_proto::{
    CloseReason, Event, FeedbackKind, Fill, Flow, FlowConfig, FlowKeys, Payload, Placed, Placement,
    Role, Suite, TrainTarget,
};
use packtrain_units::{ByteCount, DataRate, Duration, Offset, Time};

type Failure = Box<dyn std::error::Error>;

/// Memory that replaces the slabs of the reader and the writer.
const POOL: usize = 8 << 20;
/// Bytes that are assigned ahead.
const MAX_LEAD: u64 = 4 << 30;

struct Args {
    role: String,
    bind: IpAddr,
    peer: IpAddr,
    port: u16,
    lanes: u16,
    seconds: u64,
    cc: String,
    mtu: u64,
    max_mtu: u64,
    feedback: FeedbackKind,
    classifier: bool,
    train: Option<Duration>,
}

/// A controller without loss classification: it claims to collect losses itself, and does not.
#[derive(Debug)]
struct Unwatched(Box<dyn CongestionController>);

impl CongestionController for Unwatched {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn needs(&self) -> Signals {
        self.0.needs()
    }

    fn on_path(&mut self, rtt: Duration) {
        self.0.on_path(rtt);
    }

    fn launches_at_capacity(&self) -> bool {
        self.0.launches_at_capacity()
    }

    fn on_capacity(&mut self, capacity: DataRate) {
        self.0.on_capacity(capacity);
    }

    fn answers_marks(&self) -> bool {
        self.0.answers_marks()
    }

    fn set_mtu(&mut self, mtu: ByteCount) {
        self.0.set_mtu(mtu);
    }

    fn on_sent(&mut self, sent: &Sent) {
        self.0.on_sent(sent);
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        self.0.on_feedback(feedback);
    }

    fn on_timeout(&mut self, now: Time) {
        self.0.on_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.0.poll_timeout()
    }

    fn cwnd(&self) -> ByteCount {
        self.0.cwnd()
    }

    fn paces_itself(&self) -> bool {
        self.0.paces_itself()
    }

    fn pacing_rate(&self) -> Option<DataRate> {
        self.0.pacing_rate()
    }

    fn frozen_until(&self) -> Option<Time> {
        self.0.frozen_until()
    }

    fn send_quantum(&self) -> ByteCount {
        self.0.send_quantum()
    }

    fn probe(&self) -> Option<ProbeTrain> {
        self.0.probe()
    }

    fn collects(&self) -> bool {
        true
    }

    fn state(&self) -> String {
        self.0.state()
    }
}

/// A payload that copies from a slab, like that of a reader.
struct Source(Vec<u8>);

impl Payload for Source {
    fn fill(&mut self, at: Offset, out: &mut [u8]) -> Fill {
        let from = at.get() as usize % (POOL - (1 << 16));
        out.copy_from_slice(&self.0[from..from + out.len()]);
        Fill::Ready
    }

    fn release(&mut self, _range: Range<Offset>) {}
}

/// A placement that copies to a slab, like that of a writer.
struct Sink(Vec<u8>);

impl Placement for Sink {
    fn place(&mut self, at: Offset, bytes: &[u8]) -> Placed {
        let to = at.get() as usize % (POOL - (1 << 16));
        self.0[to..to + bytes.len()].copy_from_slice(bytes);
        Placed::New
    }

    fn room(&self) -> ByteCount {
        ByteCount(32 << 20)
    }
}

fn main() -> ExitCode {
    match parse().and_then(|args| if args.role == "send" { send(&args) } else { recv(&args) }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("rawflow: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn parse() -> Result<Args, Failure> {
    let mut words = std::env::args().skip(1);
    let role = words.next().filter(|r| r == "send" || r == "recv").ok_or("say send or recv")?;
    let any = IpAddr::from([127, 0, 0, 1]);
    let cc = "native".to_owned();
    let mut args = Args {
        role,
        bind: any,
        peer: any,
        port: 7_000,
        lanes: 8,
        seconds: 10,
        cc,
        mtu: 1_472,
        max_mtu: 1_472,
        feedback: FeedbackKind::Native,
        classifier: true,
        train: None,
    };
    while let Some(flag) = words.next() {
        let value = words.next().ok_or("a flag needs a value")?;
        match flag.as_str() {
            "--bind" => args.bind = value.parse()?,
            "--peer" => args.peer = value.parse()?,
            "--port" => args.port = value.parse()?,
            "--lanes" => args.lanes = value.parse()?,
            "--seconds" => args.seconds = value.parse()?,
            "--cc" => args.cc = value,
            "--mtu" => args.mtu = value.parse()?,
            "--judge" => args.classifier = value == "on",
            "--feedback" => {
                let known = FeedbackKind::labelled(&value);
                args.feedback = known.ok_or("no feedback of this name")?;
            }
            "--train" => args.train = Some(Duration::from_millis(value.parse()?)),
            "--max-mtu" => args.max_mtu = value.parse()?,
            other => return Err(format!("unknown flag {other}").into()),
        }
    }
    Ok(args)
}

fn sockets(args: &Args) -> Result<Vec<UdpSocket>, Failure> {
    let lane = |i| UdpSocket::bind(SocketAddr::new(args.bind, args.port + i));
    Ok((0..args.lanes).map(lane).collect::<Result<_, _>>()?)
}

fn config(args: &Args, role: Role) -> FlowConfig {
    let keys = FlowKeys { suite: Suite::Aes128Gcm, secret: [42; 32] };
    let peers = (0..args.lanes).map(|i| vec![SocketAddr::new(args.peer, args.port + i)]);
    let mut config = FlowConfig::new(role, keys, 1, peers.collect());
    config.mtu = ByteCount(args.mtu);
    config.max_mtu = ByteCount(args.max_mtu.max(args.mtu));
    config.feedback = args.feedback;
    match role {
        Role::Sender => {
            config.train_to = args.train.map(|rtt| TrainTarget { host: args.peer, rtt });
        }
        Role::Receiver => config.known_rtt = args.train,
    }
    config
}

fn send(args: &Args) -> Result<(), Failure> {
    let sockets = sockets(args)?;
    println!("receive buffer {:?}", sockets[0].buffer_sizes()?);
    let (config, now) = (config(args, Role::Sender), clock::now());
    let control =
        ControllerConfig { mtu: config.mtu, seed: entropy::seed(), now, ceiling: None, rtt: None };
    let built = build(&args.cc, &control)?;
    let controller = if args.classifier { built } else { Box::new(Unwatched(built)) };
    let flow = Flow::new(config, Some(controller), now)?;
    let (tell, told) = unbounded();
    let source = Source((0..POOL).map(|i| i as u8).collect());
    let handle = spawn_sender(sockets, flow, source, move |e| drop(tell.send(e)))?;
    let mut assigned = 0;
    let start = clock::now();
    let mut last = handle.stats();
    while clock::now() < start + Duration::from_secs(args.seconds) {
        let acked = last.flow.acked_bytes.get();
        if assigned < acked + MAX_LEAD {
            handle.assign(Offset(assigned)..Offset(assigned + MAX_LEAD));
            assigned += MAX_LEAD;
        }
        if watch(&told, clock::now() + Duration::from_secs(1)) {
            break;
        }
        let next = handle.stats();
        line(&last, &next, next.flow.acked_bytes - last.flow.acked_bytes);
        last = next;
    }
    handle.close(CloseReason::Done);
    let end = handle.join();
    let goodput = DataRate::from_bytes_over(end.flow.acked_bytes, last.at.since(start));
    println!("goodput {goodput} cpu {} {:?} {:?}", end.cpu, end.io, end.flow);
    let share = end.io.judge_cpu.as_secs_f64() / end.cpu.as_secs_f64().max(1e-9);
    println!(
        "judged {} windows in {}: {:.2} % of the network thread's {}",
        end.io.judged,
        end.io.judge_cpu,
        100.0 * share,
        end.cpu
    );
    Ok(())
}

fn recv(args: &Args) -> Result<(), Failure> {
    let sockets = sockets(args)?;
    let flow = Flow::new(config(args, Role::Receiver), None, clock::now())?;
    let (tell, told) = unbounded();
    let handle = spawn_receiver(sockets, flow, Sink(vec![0; POOL]), move |e| drop(tell.send(e)))?;
    let mut last = handle.stats();
    while !watch(&told, clock::now() + Duration::from_secs(1)) {
        let next = handle.stats();
        line(&last, &next, next.flow.received_bytes - last.flow.received_bytes);
        last = next;
    }
    let end = handle.join();
    println!("cpu {} {:?} {:?}", end.cpu, end.io, end.flow);
    Ok(())
}

/// Prints the events until `until`; true at the end of the flow.
fn watch(told: &Receiver<FlowEvent>, until: Time) -> bool {
    while let Ok(event) = told.recv_timeout(until.since(clock::now()).to_std()) {
        match event {
            FlowEvent::Flow(Event::Placed(_) | Event::HostLimited { .. }) => {}
            FlowEvent::Flow(Event::Closed(reason)) => {
                println!("closed: {reason}");
                return true;
            }
            FlowEvent::Ended(_) | FlowEvent::Panicked => return true,
            FlowEvent::Buffers(warning) => println!("warning: {warning}"),
            other => println!("{other:?}"),
        }
    }
    false
}

fn line(last: &FlowSnapshot, next: &FlowSnapshot, bytes: ByteCount) {
    let span = next.at.since(last.at);
    let busy = next.cpu.saturating_sub(last.cpu).as_secs_f64() / span.as_secs_f64().max(1e-9);
    let flow = &next.flow;
    println!(
        "{} cpu {:.0}% rtt {:?} cwnd {} pace {:?} lost {} spurious {} drops {} refused {} {:?} {}",
        DataRate::from_bytes_over(bytes, span),
        busy * 100.0,
        flow.rtt,
        flow.cwnd,
        flow.pacing_rate,
        flow.lost_packets - last.flow.lost_packets,
        flow.spurious_packets - last.flow.spurious_packets,
        next.io.drops + flow.host_drops - last.io.drops - last.flow.host_drops,
        flow.refused_packets,
        flow.limit,
        flow.controller,
    );
}
