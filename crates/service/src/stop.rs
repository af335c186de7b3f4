//! Stops a running request, for example after a signal.

use tokio::sync::watch;

/// What a request that was stopped says.
pub const STOPPED: &str = "stopped on request";

/// Requests an orderly end of a running request. Clones share their state.
#[derive(Clone, Debug)]
pub struct StopHandle(watch::Sender<State>);

#[derive(Clone, Copy, Debug, Default)]
struct State {
    signal: Option<i32>,
    at_once: bool,
}

impl StopHandle {
    /// A handle without a request to stop.
    pub fn new() -> Self {
        Self(watch::Sender::new(State::default()))
    }

    /// Requests the end because of the signal `signal`; the first signal is kept.
    pub fn request(&self, signal: i32) {
        self.0.send_if_modified(|state| {
            let first = state.signal.is_none();
            if first {
                state.signal = Some(signal);
            }
            first
        });
    }

    /// Requests the end at once: a server then ends the transfers of its clients instead of waiting
    /// for them.
    pub fn request_at_once(&self, signal: i32) {
        self.request(signal);
        self.0.send_modify(|state| state.at_once = true);
    }

    /// The signal of the request to stop, if there was one.
    pub fn requested(&self) -> Option<i32> {
        self.0.borrow().signal
    }

    /// Waits for a request to stop; returns its signal.
    pub async fn stopped(&self) -> i32 {
        let mut receiver = self.0.subscribe();
        match receiver.wait_for(|state| state.signal.is_some()).await.map(|state| state.signal) {
            Ok(Some(signal)) => signal,
            // `self` holds the sender, so the channel cannot close meanwhile.
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }

    /// Runs `work` until its end, or until a request to stop drops it.
    pub async fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            done = work => Some(done),
            _ = self.stopped() => None,
        }
    }

    /// Waits for a request to stop at once.
    pub async fn stopped_at_once(&self) {
        let mut receiver = self.0.subscribe();
        if receiver.wait_for(|state| state.at_once).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Default for StopHandle {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_signal_counts_and_wakes_every_clone() {
        let stop = StopHandle::new();
        assert_eq!(stop.requested(), None);
        let other = stop.clone();
        let waiter = tokio::spawn(async move { other.stopped().await });
        tokio::task::yield_now().await;
        stop.request(15);
        stop.request(2);
        assert_eq!(waiter.await.expect("the waiter does not panic"), 15);
        assert_eq!(stop.stopped().await, 15, "a late waiter sees it too");
        assert_eq!(stop.requested(), Some(15));
    }

    #[tokio::test]
    async fn an_end_at_once_is_an_end_too() {
        let stop = StopHandle::new();
        let waits = |stop: &StopHandle| {
            let stop = stop.clone();
            tokio::spawn(async move { stop.stopped_at_once().await })
        };
        let waiter = waits(&stop);
        stop.request(15);
        tokio::task::yield_now().await;
        assert!(!waiter.is_finished());
        stop.request_at_once(2);
        waiter.await.expect("it wakes");
        assert_eq!(stop.requested(), Some(15));
        let other = StopHandle::new();
        other.request_at_once(2);
        assert_eq!(other.stopped().await, 2);
    }
}
