//! The emulator's process: sets up namespaces and devices while it has one thread, runs the engine
//! in a second, supervises the programs, and cleans up.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use packtrain_os::clock;
use packtrain_units::Duration;
use rustix::event::EventfdFlags;

use crate::channel::{Channel, Reply, Request, wait};
use crate::control_socket::ControlSocket;
use crate::engine::{Counts, Engine};
use crate::error::{EmuError, Tried};
use crate::hosts::{self, CreatedHosts, Host, HostOptions};
use crate::namespace::{self, Away};
use crate::parent::VARIABLE;
use crate::plan::Plan;
use crate::programs::{Environment, Programs};
use crate::summary;
use crate::sys::{self, Signals};
use crate::topology::Topology;

/// Maximum time until the background programs listen.
const LISTENER_TIMEOUT: Duration = Duration::from_secs(2);

/// The emulator's process before any set-up.
#[derive(Debug)]
pub struct Child {
    channel: Channel,
    caller: u32,
    payload: String,
}

/// Returns this process as an emulator if [`crate::supervise`] started it.
///
/// # Errors
///
/// If the environment names a channel that is not one.
pub fn child() -> Result<Option<Child>, EmuError> {
    let Some(text) = std::env::var_os(VARIABLE) else { return Ok(None) };
    let number = text.to_str().and_then(|text| text.parse().ok());
    let stray = || EmuError::Died(format!("{VARIABLE} is set, but nobody is there"));
    let fd = sys::inherit(number.ok_or_else(stray)?).map_err(|_| stray())?;
    let mut channel = Channel::new(UnixStream::from(fd));
    match channel.receive() {
        Some(Request::Hello { pid, payload }) => Ok(Some(Child { channel, caller: pid, payload })),
        _ => Err(stray()),
    }
}

impl Child {
    /// The payload passed to [`crate::supervise`].
    pub fn payload(&self) -> &str {
        &self.payload
    }

    /// Runs an emulation and reports to the caller. This process must have one thread.
    pub fn run(mut self, plan: &Plan) {
        let reply = match self.emulate(plan) {
            Ok(reply) => reply,
            Err(error) => Reply::Failed(error.into()),
        };
        self.channel.send(&reply);
    }

    fn emulate(&mut self, plan: &Plan) -> Result<Reply, EmuError> {
        plan.topology.check()?;
        let on = find(&plan.topology, &plan.on)?;
        for (host, _) in &plan.others {
            find(&plan.topology, host)?;
        }
        let signals = Signals::block(&[
            libc::SIGTERM,
            libc::SIGHUP,
            libc::SIGINT,
            libc::SIGQUIT,
            libc::SIGCHLD,
        ])
        .tried("signals")?;
        rustix::process::set_child_subreaper(rustix::process::Pid::from_raw(1)).tried("prctl")?;
        // The address belongs to the network namespace in which callers connect.
        let control_socket = ControlSocket::open(self.caller)?;
        let away = namespace::leave()?;
        let options =
            HostOptions { kind: plan.device, per_packet: plan.per_packet, buffers: plan.buffers };
        let CreatedHosts { mut hosts, devices, kind } =
            hosts::make(&plan.topology, &away, options)?;
        let environment = Environment::new(&plan.topology);
        let runner = Runner::start(plan, devices)?;
        let mut programs = Programs::new(environment, away.user.is_some());
        let code = self.supervise_programs(
            plan,
            on,
            &hosts,
            &away,
            &signals,
            &control_socket,
            &mut programs,
        );
        programs.end_all();
        let counts = runner.stop();
        let code = code?;
        let report = summary::report(plan, kind, &mut hosts, counts?);
        Ok(Reply::Ended { code, report: Box::new(report) })
    }

    /// Starts the programs and waits for the main program.
    #[allow(clippy::too_many_arguments)]
    fn supervise_programs(
        &mut self,
        plan: &Plan,
        on: usize,
        hosts: &[Host],
        away: &Away,
        signals: &Signals,
        control_socket: &ControlSocket,
        programs: &mut Programs,
    ) -> Result<i32, EmuError> {
        let host = |node| hosts.iter().find(|host: &&Host| host.node == node);
        let mut before = Vec::new();
        for (name, line) in &plan.others {
            let node = find(&plan.topology, name)?;
            if let Some(host) = host(node) {
                before.push(programs.background(host, line)?);
            }
        }
        await_listeners(programs, &before);
        let host = host(on).ok_or_else(|| unknown(&plan.topology, &plan.on))?;
        programs.foreground(host, &plan.command)?;
        loop {
            if let Some(code) = programs.reap() {
                return Ok(code);
            }
            let [caller_ready, signal_ready, visitor_ready] =
                wait([self.channel.as_fd(), signals.fd.as_fd(), control_socket.as_fd()], None);
            while signal_ready && signals.next().is_some() {}
            if caller_ready {
                match self.channel.receive() {
                    Some(Request::Signal(number)) => programs.signal(number),
                    Some(Request::Hello { .. }) => {}
                    // The caller has ended: end the emulation.
                    None => return Ok(128 + libc::SIGKILL),
                }
            }
            if visitor_ready {
                control_socket.answer(hosts, away, programs.environment());
            }
        }
    }
}

/// Waits until a socket listens on every host with a background program, the program has ended, or
/// the time limit has passed.
fn await_listeners(programs: &mut Programs, started: &[u32]) {
    let start = clock::now();
    while clock::now().since(start) < LISTENER_TIMEOUT {
        programs.reap();
        if started.iter().all(|pid| programs.is_ready(*pid)) {
            return;
        }
        wait([], Some(5));
    }
}

fn find(topology: &Topology, name: &str) -> Result<usize, EmuError> {
    topology.host(name).ok_or_else(|| unknown(topology, name))
}

fn unknown(topology: &Topology, name: &str) -> EmuError {
    let names: Vec<&str> = topology.hosts().map(|h| topology.nodes[h].name.as_str()).collect();
    EmuError::Topology(format!("there is no host {name:?}; there are {}", names.join(", ")))
}

/// The engine's thread.
struct Runner {
    stop: Arc<AtomicBool>,
    wake: Arc<OwnedFd>,
    thread: JoinHandle<Result<Counts, EmuError>>,
}

impl Runner {
    fn start(plan: &Plan, devices: Vec<Option<crate::device::Device>>) -> Result<Self, EmuError> {
        let stop = Arc::new(AtomicBool::new(false));
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = Arc::new(rustix::event::eventfd(0, flags).tried("eventfd")?);
        let (topology, record) = (plan.topology.clone(), plan.record.clone());
        let tick = plan.tick.unwrap_or_else(|| topology.tick());
        let (stopped, woken) = (Arc::clone(&stop), Arc::clone(&wake));
        let (sender, receiver) = std::sync::mpsc::channel();
        let work = move || {
            let engine = Engine::new(&topology, devices, record.as_deref());
            let engine = match engine {
                Ok(engine) => engine,
                Err(error) => {
                    let _ = sender.send(Err(error));
                    return Err(EmuError::Died("it never started".to_owned()));
                }
            };
            let _ = sender.send(Ok(()));
            // Without the engine the hosts have no network and the program might wait forever: a
            // panic ends the process.
            let _guard = AbortOnPanic;
            Ok(engine.run(tick, &stopped, &woken))
        };
        let thread =
            std::thread::Builder::new().name("emulator".into()).spawn(work).tried("a thread")?;
        match receiver.recv() {
            Ok(Ok(())) => Ok(Self { stop, wake, thread }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(EmuError::Died("its thread".to_owned())),
        }
    }

    fn stop(self) -> Result<Counts, EmuError> {
        self.stop.store(true, Ordering::Release);
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        self.thread.join().unwrap_or_else(|_| Err(EmuError::Died("its thread".to_owned())))
    }
}

/// Ends the process when it is dropped by a panic.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}
