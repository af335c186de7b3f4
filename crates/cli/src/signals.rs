//! SIGINT, SIGTERM and SIGHUP. The first signal requests an orderly end; the second kills the
//! process (the third for a server). A signal that was ignored when the command started (`nohup`, a
//! background job) stays ignored.

use packtrain_service::StopHandle;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::exit::{self, print_message};

/// Converts signals to requests to `stop` from now on.
pub(crate) fn watch(stop: &StopHandle, quiet: bool) {
    let text = "stopping; durable data is kept (a second signal stops at once)";
    watch_with(stop, (!quiet).then_some(text));
}

/// The same for what writes no data.
pub(crate) fn watch_measurement(stop: &StopHandle) {
    watch_with(stop, Some("stopping (a second signal stops at once)"));
}

fn watch_with(stop: &StopHandle, text: Option<&'static str>) {
    let stop = stop.clone();
    handle(move |signal| {
        if stop.requested().is_some() {
            // Ends the process. Durable data needs no further action.
            let _ = emulate_default_handler(signal);
        }
        stop.request(signal);
        if let Some(text) = text {
            print_message(text);
        }
    });
}

/// The same for a server that lets its clients finish. The second signal ends the clients with a
/// failure message; the third kills.
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
            print_message(&format!(
                "signals cannot be handled ({error}): an interrupt ends at once"
            ));
            return;
        }
    };
    let watcher = move || {
        for signal in signals.forever() {
            exit::set_stop_signal(signal);
            on_signal(signal);
        }
    };
    if let Err(error) = std::thread::Builder::new().name("signals".into()).spawn(watcher) {
        print_message(&format!("signals cannot be handled ({error}): an interrupt is ignored"));
    }
}

/// The mask of ignored signals in `/proc/self/status`; signal n is bit n - 1.
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
