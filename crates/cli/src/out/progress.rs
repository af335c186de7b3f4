//! Progress of the whole transfer.

use parking_lot::Mutex;
use std::io::{IsTerminal as _, Write as _};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use packtrain_service::ProgressSnapshot;
use packtrain_units::{ByteCount, Duration};

use super::clean;
use super::done::seconds;
use super::object::Object;
use super::ticker::Ticker;
use crate::args::ProgressMode;
use crate::exit::print_stderr;

/// How progress is shown.
pub(crate) enum Progress {
    /// A bar on a terminal, and the most bytes that it has shown.
    Bar(ProgressBar, Mutex<Option<ByteCount>>),
    /// A bar without a terminal: a line that overwrites itself.
    Plain,
    /// JSON lines.
    Json(Ticker),
    /// No progress.
    None,
}

impl Progress {
    /// The progress display for `mode` on this stderr.
    pub(crate) fn new(mode: ProgressMode, quiet: bool) -> Self {
        let terminal = std::io::stderr().is_terminal();
        match mode {
            ProgressMode::Json => Self::Json(Ticker::new(print_stderr)),
            ProgressMode::Bar if !terminal => Self::Plain,
            ProgressMode::Bar => Self::bar(),
            ProgressMode::Auto if terminal && !quiet => Self::bar(),
            ProgressMode::Auto | ProgressMode::None => Self::None,
        }
    }

    fn bar() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        // The template has one part, so that all its values are of the same moment.
        let style = ProgressStyle::with_template("{wide_msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        Self::Bar(bar, Mutex::new(None))
    }

    /// Whether a bar is shown; then a summary follows.
    pub(crate) const fn is_bar(&self) -> bool {
        matches!(self, Self::Bar(..) | Self::Plain)
    }

    /// Shows a snapshot.
    pub(crate) fn show(&self, snapshot: &ProgressSnapshot) {
        match self {
            Self::Bar(bar, known) => draw(bar, known, snapshot),
            Self::Plain => {
                let _ = write!(std::io::stderr().lock(), "\r{}\x1b[K", sentence(snapshot));
            }
            Self::Json(ticker) => {
                ticker.set(serde_json::to_string(&event(snapshot)).unwrap_or_default());
            }
            Self::None => {}
        }
    }

    /// Shows how much of this program was sent to a host that does not have it.
    pub(crate) fn sending_program(&self, host: &str, sent: ByteCount, of: ByteCount) {
        let text =
            format!("{}{sent} of {of}, packtrain itself to {}", gauge(sent, of), clean(host));
        match self {
            Self::Bar(bar, known) => {
                // From here on other output must make room for the bar.
                known.lock().get_or_insert(ByteCount::ZERO);
                bar.set_message(text);
                bar.tick();
            }
            Self::Plain => {
                let _ = write!(std::io::stderr().lock(), "\r{text}\x1b[K");
            }
            Self::Json(_) | Self::None => {}
        }
    }

    /// Lets the next snapshot show fewer bytes than the last one.
    pub(crate) fn restart(&self) {
        if let Self::Bar(_, most) = self
            && let Some(most) = most.lock().as_mut()
        {
            *most = ByteCount::ZERO;
        }
    }

    /// Prints other output without corrupting the bar.
    pub(crate) fn around(&self, speak: impl FnOnce()) {
        match self {
            Self::Bar(bar, drawn) if drawn.lock().is_some() => {
                bar.suspend(speak);
            }
            Self::Plain => {
                let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
                speak();
            }
            Self::Bar(..) | Self::Json(_) | Self::None => speak(),
        }
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        match self {
            Self::Bar(bar, _) => bar.finish_and_clear(),
            Self::Plain => {
                let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
            }
            Self::Json(ticker) => ticker.finish(),
            Self::None => {}
        }
    }
}

/// A snapshot as JSON.
pub(crate) fn event(snapshot: &ProgressSnapshot) -> Object {
    Object::event("progress")
        .with("bytes", snapshot.bytes_done.get())
        .with("bytes_total", snapshot.bytes_total.map(ByteCount::get))
        .with("files", snapshot.files_done)
        .with("files_total", snapshot.files_total)
        .with("rate_bps", snapshot.rate.as_bps())
        .with("eta_seconds", snapshot.eta.map(seconds))
        .with("transport", &snapshot.transport)
        .with("verdict", &snapshot.verdict)
}

/// Draws the bar. Snapshots can come from both ends of a transfer, whose counts differ, so the bar
/// only moves forward.
fn draw(bar: &ProgressBar, most: &Mutex<Option<ByteCount>>, snapshot: &ProgressSnapshot) {
    let mut most = most.lock();
    let done = most.map_or(snapshot.bytes_done, |most| most.max(snapshot.bytes_done));
    *most = Some(done);
    let snapshot = ProgressSnapshot { bytes_done: done, ..snapshot.clone() };
    let drawn = snapshot.bytes_total.map(|total| gauge(done, total)).unwrap_or_default();
    bar.set_message(format!("{drawn}{}", sentence(&snapshot)));
    bar.tick();
}

/// `[=====>              ]  25%  `.
fn gauge(done: ByteCount, total: ByteCount) -> String {
    const WIDTH: usize = 20;
    let share = match total.get() {
        0 => 1.0,
        total => (done.get() as f64 / total as f64).min(1.0),
    };
    let full = (share * WIDTH as f64) as usize;
    let tip = if full < WIDTH { ">" } else { "" };
    let line = format!("{}{tip}", "=".repeat(full));
    format!("[{line:<WIDTH$}] {:>3.0}%  ", (share * 100.0).floor())
}

/// `1.2 GiB of 4.0 GiB, 3 of 5 files, 4.01 Gbit/s, 1:05 left, native, bounded by the disk`.
fn sentence(snapshot: &ProgressSnapshot) -> String {
    let mut parts = vec![match snapshot.bytes_total {
        Some(total) => format!("{} of {total}", snapshot.bytes_done),
        None => format!("{} so far", snapshot.bytes_done),
    }];
    match snapshot.files_total {
        Some(1) => {}
        Some(total) => parts.push(format!("{} of {total} files", snapshot.files_done)),
        None => parts.push(format!("{} files so far", snapshot.files_done)),
    }
    parts.push(snapshot.rate.to_string());
    parts.extend(snapshot.eta.map(|eta| format!("{} left", clock(eta))));
    if !snapshot.transport.is_empty() {
        parts.push(snapshot.transport.clone());
    }
    parts.extend(snapshot.verdict.as_deref().map(clean));
    parts.join(", ")
}

/// `0:07`, `12:05`, `3:00:09`.
pub(crate) fn clock(span: Duration) -> String {
    let whole = span.as_secs_f64().ceil() as u64;
    let (hours, minutes, seconds) = (whole / 3600, whole / 60 % 60, whole % 60);
    if hours > 0 {
        format!("{hours}:{minutes:02}:{seconds:02}")
    } else {
        format!("{minutes}:{seconds:02}")
    }
}

#[cfg(test)]
mod tests {
    use packtrain_units::DataRate;

    use super::*;

    #[test]
    fn the_bar_says_what_is_known() {
        let mut snapshot = ProgressSnapshot {
            bytes_done: ByteCount(1 << 30),
            files_done: 3,
            rate: DataRate::from_mbps(4010),
            transport: "native".into(),
            ..ProgressSnapshot::default()
        };
        assert_eq!(sentence(&snapshot), "1.0 GiB so far, 3 files so far, 4.01 Gbit/s, native");
        snapshot.bytes_total = Some(ByteCount(4 << 30));
        snapshot.files_total = Some(5);
        snapshot.eta = Some(Duration::from_millis(64_200));
        snapshot.verdict = Some("bounded by the disk".into());
        let all = "1.0 GiB of 4.0 GiB, 3 of 5 files, 4.01 Gbit/s, 1:05 left, native, \
                   bounded by the disk";
        assert_eq!(sentence(&snapshot), all);
        assert_eq!(clock(Duration::from_secs(10_809)), "3:00:09");
    }

    #[test]
    fn the_gauge_fills_up() {
        let at = |done| gauge(ByteCount(done), ByteCount(1000));
        assert_eq!(at(0), "[>                   ]   0%  ");
        assert_eq!(at(256), "[=====>              ]  25%  ");
        assert_eq!(at(999), "[===================>]  99%  ");
        assert_eq!(at(1000), "[====================] 100%  ");
        assert_eq!(gauge(ByteCount(0), ByteCount(0)), "[====================] 100%  ");
        assert!(ProgressStyle::with_template("{wide_msg}").is_ok());
    }
}
