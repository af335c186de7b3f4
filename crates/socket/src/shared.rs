//! The state that a port's network thread shares with the callers of its sockets.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::task::{Context, Waker as Task};

use packtrain_os::clock;
use packtrain_os::thread::Waker;
use packtrain_udt4::{EndReason, Endpoint, Event, Perf, SocketId};
use packtrain_units::{Duration, Time};

use crate::error::Error;
use crate::signal::PollSignal;

/// Timeout for sending the last messages of a connection.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(200);

/// A port: the engine behind a lock, and the waiting callers.
pub(crate) struct Shared {
    state: Mutex<State>,
    waker: Waker,
}

/// The state that the lock guards.
pub(crate) struct State {
    pub(crate) endpoint: Endpoint,
    /// The connections with a socket, and closed ones that linger.
    pub(crate) ends: HashMap<SocketId, End>,
    /// Waits for connections.
    pub(crate) accept_waiters: Waiters,
    /// Number of ports, listeners and sockets that refer to the port.
    pub(crate) handles: usize,
    /// The listener was closed.
    pub(crate) closed: bool,
    /// The network thread has ended.
    pub(crate) failed: bool,
    /// How many times the network thread had nothing left to send.
    pub(crate) idle: u64,
    /// A caller waits for that.
    pub(crate) flushing: bool,
    /// The callers that wait for it.
    pub(crate) flush_waiters: Waiters,
    /// Estimated number of datagrams that this host dropped before they were read.
    pub(crate) host_drops: u32,
    /// A caller changed something because of which the network thread must run the engine.
    pub(crate) must_run: bool,
}

/// One connection.
#[derive(Default)]
pub(crate) struct End {
    pub(crate) reading: Waiters,
    pub(crate) writing: Waiters,
    pub(crate) connected: bool,
    /// It was closed by this end and delivers the remaining data.
    pub(crate) closing: bool,
    /// It has no socket any more, and is removed after its end.
    pub(crate) orphan: bool,
    pub(crate) ended: Option<EndReason>,
    /// Bytes that the engine accepted for sending.
    pub(crate) accepted: u64,
    /// Bytes of these that were not acknowledged when the connection ended.
    pub(crate) unacknowledged: u64,
    /// The last statistics.
    pub(crate) last: Perf,
    pub(crate) signals: Vec<Weak<PollSignal>>,
}

/// The callers that wait for one condition.
#[derive(Default)]
pub(crate) struct Waiters {
    threads: usize,
    condvar: Arc<Condvar>,
    task: Option<Task>,
}

/// The callers to wake after the lock is released.
#[derive(Default)]
pub(crate) struct Calls {
    threads: Vec<Arc<Condvar>>,
    tasks: Vec<Task>,
    signals: Vec<Arc<PollSignal>>,
}

impl Waiters {
    /// Adds a task.
    pub(crate) fn register(&mut self, context: &Context<'_>) {
        match &mut self.task {
            Some(task) => task.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
    }

    pub(crate) fn call(&mut self, calls: &mut Calls) {
        if self.threads > 0 {
            calls.threads.push(Arc::clone(&self.condvar));
        }
        calls.tasks.extend(self.task.take());
    }
}

impl Calls {
    /// Wakes them. Do not call it while holding the lock that they wait for.
    pub(crate) fn make(&mut self) {
        self.threads.drain(..).for_each(|condvar| {
            condvar.notify_all();
        });
        self.tasks.drain(..).for_each(Task::wake);
        self.signals.drain(..).for_each(|signal| signal.notify());
    }
}

impl End {
    fn call_all(&mut self, calls: &mut Calls) {
        self.reading.call(calls);
        self.writing.call(calls);
        self.notify(calls);
    }

    fn notify(&mut self, calls: &mut Calls) {
        self.signals.retain(|signal| match signal.upgrade() {
            Some(signal) => {
                calls.signals.push(signal);
                true
            }
            None => false,
        });
    }
}

impl State {
    /// Forwards the events of the engine.
    pub(crate) fn forward_events(&mut self, now: Time, calls: &mut Calls) {
        while let Some((id, event)) = self.endpoint.poll_event() {
            if matches!(event, Event::Incoming) {
                self.accept_waiters.call(calls);
                continue;
            }
            let Some(end) = self.ends.get_mut(&id) else { continue };
            match event {
                Event::Incoming => {}
                Event::Connected => {
                    end.connected = true;
                    end.call_all(calls);
                }
                Event::Readable => {
                    end.reading.call(calls);
                    end.notify(calls);
                }
                Event::Writable => {
                    end.writing.call(calls);
                    end.notify(calls);
                }
                Event::Ended(reason) => {
                    if let Some(connection) = self.endpoint.get(id) {
                        end.last = connection.perf(now);
                        end.unacknowledged = connection.unacknowledged().get();
                    }
                    end.ended = Some(reason);
                    end.call_all(calls);
                    if end.orphan {
                        self.endpoint.abort(now, id);
                        self.ends.remove(&id);
                    }
                }
            }
        }
        for (id, end) in &mut self.ends {
            // A closed connection is removed when its end is reported.
            if end.closing
                && let Some(connection) = self.endpoint.get(*id)
            {
                end.unacknowledged = connection.unacknowledged().get();
            }
        }
    }

    /// Whether there is no work left and no handle.
    pub(crate) fn is_over(&self) -> bool {
        // The callers of connections that were never accepted are still informed.
        self.handles == 0 && self.ends.is_empty() && self.endpoint.ids().next().is_none()
    }

    /// Informs all callers that the network thread has ended.
    pub(crate) fn fail(&mut self, calls: &mut Calls) {
        self.failed = true;
        self.accept_waiters.call(calls);
        self.flush_waiters.call(calls);
        self.ends.values_mut().for_each(|end| end.call_all(calls));
    }
}

impl Shared {
    pub(crate) fn new(endpoint: Endpoint, waker: Waker) -> Self {
        let state = State {
            endpoint,
            ends: HashMap::new(),
            accept_waiters: Waiters::default(),
            handles: 0,
            closed: false,
            failed: false,
            idle: 0,
            flushing: false,
            flush_waiters: Waiters::default(),
            host_drops: 0,
            must_run: false,
        };
        Self { state: Mutex::new(state), waker }
    }

    /// The state, also after a panic of a thread that held the lock.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Makes the network thread run the engine.
    pub(crate) fn wake(&self) {
        self.waker.wake();
    }

    /// Waits until everything that is due was sent, including the last message of a closed
    /// connection. The wait is short, whatever the network does.
    pub(crate) fn flush(&self) {
        let mut state = self.lock();
        // The current turn may have missed messages that were added during it.
        let enough = state.idle + 2;
        state.flushing = true;
        drop(state);
        self.wake();
        let reached = |state: &mut State, _| Ok((state.idle >= enough).then_some(()));
        let until = clock::now() + FLUSH_TIMEOUT;
        // A timeout is ignored, because the caller could do nothing about it.
        let _ = self.wait(Some(until), reached, |state| Some(&mut state.flush_waiters));
    }

    /// Calls `attempt` with the lock until it returns a value, and then makes the network thread run
    /// the engine if `attempt` has set `must_run`. Between calls it waits for the condition that
    /// `waiters` selects, at most until `until`.
    pub(crate) fn wait<T>(
        &self,
        until: Option<Time>,
        mut attempt: impl FnMut(&mut State, Time) -> Result<Option<T>, Error>,
        waiters: impl Fn(&mut State) -> Option<&mut Waiters>,
    ) -> Result<T, Error> {
        let mut state = self.lock();
        loop {
            // The clock is read under the lock, so the engine's time never goes back.
            let now = clock::now();
            if let Some(done) = attempt(&mut state, now).transpose() {
                let must_run = std::mem::take(&mut state.must_run);
                drop(state);
                if must_run {
                    self.wake();
                }
                return done;
            }
            if state.failed {
                return Err(Error::Failed);
            }
            if until.is_some_and(|until| until <= now) {
                return Err(Error::TimedOut);
            }
            let waiting = waiters(&mut state).ok_or(Error::Closed)?;
            waiting.threads += 1;
            let condvar = Arc::clone(&waiting.condvar);
            match until {
                None => condvar.wait(&mut state),
                Some(until) => {
                    condvar.wait_for(&mut state, until.since(now).to_std());
                }
            }
            if let Some(waiting) = waiters(&mut state) {
                waiting.threads -= 1;
            }
        }
    }
}
