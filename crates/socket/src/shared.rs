//! What the network thread of a port and the threads that use its sockets share.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::task::{Context, Waker as Task};

use packtrain_os::clock;
use packtrain_os::thread::Waker;
use packtrain_udt4::{EndReason, Endpoint, Event, Perf, SocketId};
use packtrain_units::{Duration, Time};

use crate::bell::Bell;
use crate::error::Error;

/// How long the last word of a connection may take to leave.
const FLUSH: Duration = Duration::from_millis(200);

/// A port: the engine behind a lock, and who waits for what.
pub(crate) struct Shared {
    state: Mutex<State>,
    waker: Waker,
}

/// What the lock guards.
pub(crate) struct State {
    pub(crate) endpoint: Endpoint,
    /// The connections that somebody has, or had and that are lingering.
    pub(crate) ends: HashMap<SocketId, End>,
    /// Who waits for connections.
    pub(crate) door: Waiters,
    /// Ports, listeners and sockets that are in somebody's hands.
    pub(crate) handles: usize,
    /// Nobody listens any more.
    pub(crate) closed: bool,
    /// The network thread is gone.
    pub(crate) failed: bool,
    /// Times that the network thread had nothing left to send.
    pub(crate) idle: u64,
    /// Somebody waits for that.
    pub(crate) flushing: bool,
    /// They.
    pub(crate) quiet: Waiters,
    /// Datagrams that this host dropped before we read them, estimated.
    pub(crate) host_drops: u32,
}

/// One connection.
#[derive(Default)]
pub(crate) struct End {
    pub(crate) reading: Waiters,
    pub(crate) writing: Waiters,
    pub(crate) connected: bool,
    /// It was closed here, and delivers what is left.
    pub(crate) closing: bool,
    /// Nobody has it any more: it goes when it has ended.
    pub(crate) orphan: bool,
    pub(crate) ended: Option<EndReason>,
    /// Bytes that the engine took for sending.
    pub(crate) accepted: u64,
    /// Of those, what was not acknowledged when the connection ended.
    pub(crate) unacknowledged: u64,
    /// The last statistics.
    pub(crate) last: Perf,
    pub(crate) bells: Vec<Weak<Bell>>,
}

/// Those who wait for one thing.
#[derive(Default)]
pub(crate) struct Waiters {
    threads: usize,
    condvar: Arc<Condvar>,
    task: Option<Task>,
}

/// Those to be told, once the lock is free.
#[derive(Default)]
pub(crate) struct Calls {
    threads: Vec<Arc<Condvar>>,
    tasks: Vec<Task>,
    bells: Vec<Arc<Bell>>,
}

impl Waiters {
    /// This task waits.
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
    /// Tells them; not to be done under the lock that they wait for.
    pub(crate) fn make(&mut self) {
        self.threads.drain(..).for_each(|condvar| {
            condvar.notify_all();
        });
        self.tasks.drain(..).for_each(Task::wake);
        self.bells.drain(..).for_each(|bell| bell.ring());
    }
}

impl End {
    fn call_all(&mut self, calls: &mut Calls) {
        self.reading.call(calls);
        self.writing.call(calls);
        self.ring(calls);
    }

    fn ring(&mut self, calls: &mut Calls) {
        self.bells.retain(|bell| match bell.upgrade() {
            Some(bell) => {
                calls.bells.push(bell);
                true
            }
            None => false,
        });
    }
}

impl State {
    /// Passes on what the engine has to tell.
    pub(crate) fn tell(&mut self, now: Time, calls: &mut Calls) {
        while let Some((id, event)) = self.endpoint.poll_event() {
            if matches!(event, Event::Incoming) {
                self.door.call(calls);
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
                    end.ring(calls);
                }
                Event::Writable => {
                    end.writing.call(calls);
                    end.ring(calls);
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
            // One that was closed is gone when its end is told.
            if end.closing
                && let Some(connection) = self.endpoint.get(*id)
            {
                end.unacknowledged = connection.unacknowledged().get();
            }
        }
    }

    /// Nothing is left to do and nobody left to do it for.
    pub(crate) fn is_over(&self) -> bool {
        // What nobody accepted is still being told that nobody will.
        self.handles == 0 && self.ends.is_empty() && self.endpoint.ids().next().is_none()
    }

    /// Everybody is told that there is no network thread any more.
    pub(crate) fn fail(&mut self, calls: &mut Calls) {
        self.failed = true;
        self.door.call(calls);
        self.quiet.call(calls);
        self.ends.values_mut().for_each(|end| end.call_all(calls));
    }
}

impl Shared {
    pub(crate) fn new(endpoint: Endpoint, waker: Waker) -> Self {
        let state = State {
            endpoint,
            ends: HashMap::new(),
            door: Waiters::default(),
            handles: 0,
            closed: false,
            failed: false,
            idle: 0,
            flushing: false,
            quiet: Waiters::default(),
            host_drops: 0,
        };
        Self { state: Mutex::new(state), waker }
    }

    /// The state, whatever became of a thread that held it.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Makes the network thread look at the engine.
    pub(crate) fn wake(&self) {
        self.waker.wake();
    }

    /// Waits until everything that was to be sent now has left, the last word of a connection
    /// that was closed among it; not for long, whatever the network does.
    pub(crate) fn flush(&self) {
        let mut state = self.lock();
        // The turn that it is in may have passed by what was put there meanwhile.
        let enough = state.idle + 2;
        state.flushing = true;
        drop(state);
        self.wake();
        let reached = |state: &mut State, _| Ok((state.idle >= enough).then_some(()));
        let until = clock::now() + FLUSH;
        // Being late is nothing that a caller could do anything about.
        let _ = self.wait(Some(until), reached, |state| Some(&mut state.quiet));
    }

    /// Calls `attempt` under the lock until it gives something, waiting in between with those
    /// that `waiters` names, at the longest until `until`.
    pub(crate) fn wait<T>(
        &self,
        until: Option<Time>,
        mut attempt: impl FnMut(&mut State, Time) -> Result<Option<T>, Error>,
        waiters: impl Fn(&mut State) -> Option<&mut Waiters>,
    ) -> Result<T, Error> {
        let mut state = self.lock();
        loop {
            // The clock is read under the lock: for the engine it never goes back.
            let now = clock::now();
            if let Some(done) = attempt(&mut state, now)? {
                return Ok(done);
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
