//! SIGINT, SIGTERM and SIGHUP: the first asks for an orderly end, the second kills (of a server, the
//! third). One that was
//! ignored when the command began (`nohup`, a job behind `&`) stays ignored.

use packtrain_service::StopHandle;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::exit::complain;

/// Turns signals into requests to `stop` from now on.
pub(crate) fn watch(stop: &StopHandle, quiet: bool) {
    let stop = stop.clone();
    handle(move |signal| {
        if stop.requested().is_some() {
            // Ends the process; what was safe stays safe without our help.
            let _ = emulate_default_handler(signal);
        }
        stop.request(signal);
        if !quiet {
            complain("stopping and keeping what is safe: once more to stop at once");
        }
    });
}

/// The same for a server that lets its clients end first: a second signal asks it to end them, so
/// that they hear of it, and the third kills.
pub(crate) fn watch_server(stop: &StopHandle) {
    let stop = stop.clone();
    let mut count = 0_u32;
    handle(move |signal| {
        count = count.saturating_add(1);
        match count {
            1 => stop.request(signal),
            2 => stop.request_at_once(signal),
            _ => {
                let _ = emulate_default_handler(signal);
            }
        }
    });
}

/// Calls `on_signal` for each signal from now on, in a thread.
fn handle(mut on_signal: impl FnMut(i32) + Send + 'static) {
    let ignored = std::fs::read_to_string("/proc/self/status").map_or(0, |text| ignored(&text));
    let wanted = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|n| ignored >> (n - 1) & 1 == 0);
    let mut signals = match Signals::new(wanted) {
        Ok(signals) => signals,
        Err(error) => {
            complain(&format!("signals cannot be handled ({error}): an interrupt ends at once"));
            return;
        }
    };
    let watcher = move || {
        for signal in signals.forever() {
            on_signal(signal);
        }
    };
    if let Err(error) = std::thread::Builder::new().name("signals".into()).spawn(watcher) {
        complain(&format!("signals cannot be handled ({error}): an interrupt is ignored"));
    }
}

/// The set of ignored signals in what the kernel says of a process; signal n is bit n - 1.
fn ignored(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_what_is_ignored() {
        let status = "Name:\tx\nSigBlk:\t00000000000000ff\nSigIgn:\t0000000000001001\nx";
        assert_eq!(ignored(status), 1 << (SIGHUP - 1) | 1 << 12);
        assert_eq!(ignored("SigIgn:\tnonsense"), 0);
        assert_eq!(ignored(""), 0);
    }
}
