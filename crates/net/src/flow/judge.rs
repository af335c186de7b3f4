//! The thread that names the causes of losses.
//!
//! A verdict on 100,000 packets takes a fraction of a millisecond, in which the network thread
//! would send or receive hundreds of them. So the windows go to a thread of their own, which is
//! started with the first: most flows lose nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use packtrain_loss::{Classifier, Model, Verdict};
use packtrain_os::thread::{self, Waker};
use packtrain_proto::{LossWindow, judge};
use packtrain_units::Duration;

/// Windows that may wait for the thread. One that finds no place is not judged, which a
/// controller takes for the network's doing.
const MAX_WAITING: usize = 4;

/// The way to the thread and back.
type Ways = (Sender<LossWindow>, Receiver<(LossWindow, Verdict)>);

/// The network thread's way to it.
pub(super) struct Judge {
    waker: Waker,
    thread: Option<Ways>,
    /// No thread could be had.
    none: bool,
    spent: Arc<Spent>,
}

/// What the thread has done.
#[derive(Debug, Default)]
struct Spent {
    windows: AtomicU64,
    nanos: AtomicU64,
}

impl Judge {
    /// Wakes `waker` with each verdict.
    pub(super) fn new(waker: Waker) -> Self {
        Self { waker, thread: None, none: false, spent: Arc::default() }
    }

    /// Has a window judged.
    pub(super) fn ask(&mut self, window: LossWindow) {
        if self.thread.is_none() && !self.none {
            self.thread = start(self.waker.clone(), Arc::clone(&self.spent));
            self.none = self.thread.is_none();
        }
        if let Some((to, _)) = &self.thread {
            match to.try_send(window) {
                Ok(()) | Err(TrySendError::Full(_)) => {}
                Err(TrySendError::Disconnected(_)) => (self.thread, self.none) = (None, true),
            }
        }
    }

    /// How many windows were judged, and the processor time that took.
    pub(super) fn spent(&self) -> (u64, Duration) {
        let nanos = self.spent.nanos.load(Ordering::Relaxed);
        (self.spent.windows.load(Ordering::Relaxed), Duration::from_nanos(nanos))
    }

    /// A verdict that is there.
    pub(super) fn verdict(&self) -> Option<(LossWindow, Verdict)> {
        self.thread.as_ref()?.1.try_recv().ok()
    }
}

/// The thread ends when the network thread has gone.
fn start(waker: Waker, spent: Arc<Spent>) -> Option<Ways> {
    let (to, windows) = bounded::<LossWindow>(MAX_WAITING);
    let (verdicts, from) = bounded(MAX_WAITING);
    let work = move || {
        let mut classifier = Classifier::new(Model::builtin());
        for window in windows {
            let verdict = judge(&window, &mut classifier);
            spent.windows.fetch_add(1, Ordering::Relaxed);
            spent.nanos.store(thread::cpu().as_nanos(), Ordering::Relaxed);
            if verdicts.send((window, verdict)).is_err() {
                return;
            }
            waker.wake();
        }
    };
    std::thread::Builder::new().name("pt-judge".to_owned()).spawn(work).ok()?;
    Some((to, from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use packtrain_os::thread::pair;

    #[test]
    fn a_window_comes_back_judged_and_wakes() {
        let (waker, sleeper) = pair().unwrap();
        let mut judge = Judge::new(waker);
        assert!(judge.verdict().is_none());
        let signature = "1110111".parse().unwrap();
        judge.ask(LossWindow { number: 3, signature, host_drops: None });
        let (window, verdict) = loop {
            if let Some(found) = judge.verdict() {
                break found;
            }
            std::thread::yield_now();
        };
        assert_eq!((window.number, verdict.lost), (3, 1));
        assert_eq!(judge.spent().0, 1);
        assert!(judge.spent().1 > Duration::ZERO);
        while !sleeper.take_calls() {
            std::thread::yield_now();
        }
    }
}
