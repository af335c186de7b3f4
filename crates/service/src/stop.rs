//! The way a signal reaches a running request.

use tokio::sync::watch;

/// Asks a running request for an orderly end; clones are the same handle.
#[derive(Clone, Debug)]
pub struct StopHandle(watch::Sender<State>);

#[derive(Clone, Copy, Debug, Default)]
struct State {
    signal: Option<i32>,
    at_once: bool,
}

impl StopHandle {
    /// A handle that nobody has used yet.
    pub fn new() -> Self {
        Self(watch::Sender::new(State::default()))
    }

    /// Asks for the end because of signal number `signal`; the first signal is remembered.
    pub fn request(&self, signal: i32) {
        self.0.send_if_modified(|state| {
            let first = state.signal.is_none();
            if first {
                state.signal = Some(signal);
            }
            first
        });
    }

    /// Asks for the end without waiting for what is under way: a server then ends its clients'
    /// transfers instead of letting them finish.
    pub fn request_at_once(&self, signal: i32) {
        self.request(signal);
        self.0.send_modify(|state| state.at_once = true);
    }

    /// The signal that asked for the end, if one did.
    pub fn requested(&self) -> Option<i32> {
        self.0.borrow().signal
    }

    /// Waits until somebody asks for the end; gives the signal.
    pub async fn stopped(&self) -> i32 {
        let mut receiver = self.0.subscribe();
        match receiver.wait_for(|state| state.signal.is_some()).await.map(|state| state.signal) {
            Ok(Some(signal)) => signal,
            // `self` holds the sender, so the channel cannot close meanwhile.
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }

    /// Waits until somebody asks for the end without waiting.
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
