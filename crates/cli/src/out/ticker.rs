//! Progress as JSON lines: the first at once, then the newest once a second, and the last.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread::JoinHandle;
use std::time::Duration;

const EVERY: Duration = Duration::from_secs(1);

/// Prints the newest line once a second.
pub(crate) struct Ticker {
    newest: Arc<Mutex<Option<String>>>,
    thread: Mutex<Option<(Sender<()>, JoinHandle<()>)>>,
}

impl Ticker {
    /// A ticker that prints with `print`. If no thread can be started, it prints nothing.
    pub(crate) fn new(print: impl Fn(&str) + Send + 'static) -> Self {
        let newest = Arc::new(Mutex::new(None));
        let (wake, waked) = mpsc::channel();
        let held = Arc::clone(&newest);
        let tick = move || {
            // The first line is printed at the first wake-up, later ones after a time.
            let mut over = waked.recv().is_err();
            loop {
                let line: Option<String> = take(&held);
                if let Some(line) = line {
                    print(&line);
                }
                if over {
                    return;
                }
                over = ended(&waked);
            }
        };
        let thread = std::thread::Builder::new().name("progress".into()).spawn(tick);
        Self { newest, thread: Mutex::new(thread.ok().map(|thread| (wake, thread))) }
    }

    /// Sets the newest line.
    pub(crate) fn set(&self, line: String) {
        *self.newest.lock() = Some(line);
        if let Some((wake, _)) = &*self.thread.lock() {
            let _ = wake.send(());
        }
    }

    /// Prints the last line and ends.
    pub(crate) fn finish(&self) {
        let thread = self.thread.lock().take();
        if let Some((wake, thread)) = thread {
            drop(wake);
            let _ = thread.join();
        }
    }
}

/// Waits a second, in slices so that the end is noticed soon. Returns true at the end.
fn ended(waked: &Receiver<()>) -> bool {
    const SLICES: u32 = 20;
    for _ in 0..SLICES {
        std::thread::sleep(EVERY / SLICES);
        loop {
            match waked.try_recv() {
                Ok(()) => {}
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return true,
            }
        }
    }
    false
}

fn take(newest: &Mutex<Option<String>>) -> Option<String> {
    newest.lock().take()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_always_printed_and_few_in_between() {
        let (out, printed) = mpsc::channel();
        let ticker = Ticker::new(move |line| {
            let _ = out.send(line.to_owned());
        });
        for n in 0..1000 {
            ticker.set(n.to_string());
        }
        ticker.finish();
        ticker.set("too late".to_owned());
        ticker.finish();
        let lines: Vec<String> = printed.iter().collect();
        assert_eq!(lines.last().map(String::as_str), Some("999"));
        assert!(lines.len() < 100, "{lines:?}");
    }
}
