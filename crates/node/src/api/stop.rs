//! The way a signal reaches a running request.

use tokio::sync::watch;

/// Asks a running request for an orderly end; clones are the same handle.
#[derive(Clone, Debug)]
pub struct StopHandle(watch::Sender<Option<i32>>);

impl StopHandle {
    /// A handle that nobody has used yet.
    pub fn new() -> Self {
        Self(watch::Sender::new(None))
    }

    /// Asks for the end because of signal number `signal`; the first signal is remembered.
    pub fn request(&self, signal: i32) {
        self.0.send_if_modified(|state| {
            let first = state.is_none();
            if first {
                *state = Some(signal);
            }
            first
        });
    }

    /// The signal that asked for the end, if one did.
    pub fn requested(&self) -> Option<i32> {
        *self.0.borrow()
    }

    /// Waits until somebody asks for the end; gives the signal.
    pub async fn stopped(&self) -> i32 {
        let mut receiver = self.0.subscribe();
        match receiver.wait_for(Option::is_some).await.map(|state| *state) {
            Ok(Some(signal)) => signal,
            // `self` holds the sender, so the channel cannot close meanwhile.
            Ok(None) | Err(_) => std::future::pending().await,
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
}
