//! The thread that classifies losses.
//!
//! The classification of 100,000 packets takes a fraction of a millisecond, in which the network
//! thread would send or receive hundreds of packets. Therefore it runs on a separate thread, which
//! starts with the first window: most flows lose nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use packtrain_loss::{Classifier, Model, Verdict};
use packtrain_os::thread::{self, Waker};
use packtrain_proto::{LossWindow, judge};
use packtrain_units::Duration;

/// Maximum number of queued windows. A further window is not classified, and a controller treats
/// its losses as those of the network.
const MAX_WAITING: usize = 4;

/// The channels to the thread and back.
type Ways = (Sender<LossWindow>, Receiver<(LossWindow, Verdict)>);

/// The network thread's side.
pub(super) struct LossClassifier {
    waker: Waker,
    thread: Option<Ways>,
    /// No thread could be started.
    none: bool,
    spent: Arc<Spent>,
}

/// The work of the thread so far.
#[derive(Debug, Default)]
struct Spent {
    windows: AtomicU64,
    nanos: AtomicU64,
}

impl LossClassifier {
    /// Verdicts wake `waker`.
    pub(super) fn new(waker: Waker) -> Self {
        Self { waker, thread: None, none: false, spent: Arc::default() }
    }

    /// Passes a window to the thread.
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

    /// The number of classified windows, and their processor time.
    pub(super) fn spent(&self) -> (u64, Duration) {
        let nanos = self.spent.nanos.load(Ordering::Relaxed);
        (self.spent.windows.load(Ordering::Relaxed), Duration::from_nanos(nanos))
    }

    /// The next verdict, if there is one.
    pub(super) fn verdict(&self) -> Option<(LossWindow, Verdict)> {
        self.thread.as_ref()?.1.try_recv().ok()
    }
}

/// The thread ends after the network thread.
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
        let mut classifier = LossClassifier::new(waker);
        assert!(classifier.verdict().is_none());
        let signature = "1110111".parse().unwrap();
        classifier.ask(LossWindow { number: 3, signature, host_drops: None });
        let (window, verdict) = loop {
            if let Some(found) = classifier.verdict() {
                break found;
            }
            std::thread::yield_now();
        };
        assert_eq!((window.number, verdict.lost), (3, 1));
        assert_eq!(classifier.spent().0, 1);
        assert!(classifier.spent().1 > Duration::ZERO);
        while !sleeper.take_wakes() {
            std::thread::yield_now();
        }
    }
}
