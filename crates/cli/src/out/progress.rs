//! Progress of the whole transfer.

use parking_lot::Mutex;
use std::io::{IsTerminal as _, Write as _};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use packtrain_service::ProgressSnapshot;
use packtrain_units::{ByteCount, DataRate, Duration};

use super::clean;
use super::done::seconds;
use super::object::Object;
use super::terminal;
use super::ticker::Ticker;
use crate::args::ProgressMode;
use crate::exit::print_stderr;

/// How progress is shown.
pub(crate) enum Progress {
    /// A bar on a terminal, and the most bytes that it has shown.
    Bar(ProgressBar, Mutex<Option<ByteCount>>),
    /// A bar without a terminal: a line that overwrites itself.
    Plain,
    /// Nothing on a terminal that cannot redraw a line; the summary follows.
    Terminal,
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
            ProgressMode::Auto if quiet || !terminal => Self::None,
            ProgressMode::Auto if !terminal::redraws() => Self::Terminal,
            ProgressMode::Bar | ProgressMode::Auto => Self::bar(),
            ProgressMode::None => Self::None,
        }
    }

    fn bar() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        // The template has one part, so that all its values are of the same moment.
        let style = ProgressStyle::with_template("{wide_msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        Self::Bar(bar, Mutex::new(None))
    }

    /// Whether a person watches; then a summary follows.
    pub(crate) const fn is_shown(&self) -> bool {
        matches!(self, Self::Bar(..) | Self::Plain | Self::Terminal)
    }

    /// Shows a snapshot.
    pub(crate) fn show(&self, snapshot: &ProgressSnapshot) {
        match self {
            Self::Bar(bar, known) => draw(bar, known, snapshot),
            Self::Plain => {
                let _ = write!(std::io::stderr().lock(), "\r{}\x1b[K", whole(snapshot));
            }
            Self::Json(ticker) => {
                ticker.set(serde_json::to_string(&event(snapshot)).unwrap_or_default());
            }
            Self::Terminal | Self::None => {}
        }
    }

    /// Shows how much of this program was sent to a host that does not have it.
    pub(crate) fn sending_program(&self, host: &str, sent: ByteCount, of: ByteCount) {
        let what = format!("{sent} of {of}, packtrain itself to {}", clean(host));
        let text = [20, 8]
            .map(|columns| format!("{} {what}", gauge(sent, of, columns)))
            .into_iter()
            .find(|text| text.chars().count() <= room())
            .unwrap_or(what);
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
            Self::Terminal | Self::Json(_) | Self::None => {}
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
            Self::Bar(..) | Self::Terminal | Self::Json(_) | Self::None => speak(),
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
            Self::Terminal | Self::None => {}
        }
    }
}

/// A snapshot as JSON.
pub(crate) fn event(snapshot: &ProgressSnapshot) -> Object {
    Object::event("progress")
        .with("bytes", snapshot.bytes_done.get())
        .with("bytes_total", snapshot.bytes_total.map(ByteCount::get))
        .with("bytes_present", snapshot.bytes_present.get())
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
    bar.set_message(fitted(&snapshot, room()));
    bar.tick();
}

/// Columns that the bar may use. The last one of the terminal stays empty: some start a new line
/// after it.
fn room() -> usize {
    terminal::width().map_or(79, |width| width - 1)
}

/// `[=====>              ]  25%`; `width` columns are between the brackets.
fn gauge(done: ByteCount, total: ByteCount, width: usize) -> String {
    let share = match total.get() {
        0 => 1.0,
        total => (done.get() as f64 / total as f64).min(1.0),
    };
    let full = (share * width as f64) as usize;
    let tip = if full < width { ">" } else { "" };
    let line = format!("{}{tip}", "=".repeat(full));
    format!("[{line:<width$}] {:>3.0}%", (share * 100.0).floor())
}

/// What a line about a snapshot can hold. Narrow terminals get fewer parts.
#[derive(Clone, Copy)]
struct Layout {
    /// Columns within the gauge's brackets; 0 leaves the gauge out.
    gauge: usize,
    total: bool,
    files: bool,
    transport: bool,
    verdict: bool,
}

/// From all parts to the fewest. Rate and remaining time are in each.
const LAYOUTS: [Layout; 7] = {
    let all = Layout { gauge: 20, total: true, files: true, transport: true, verdict: true };
    let transport = Layout { verdict: false, ..all };
    let files = Layout { transport: false, ..transport };
    let short = Layout { gauge: 8, ..files };
    let no_files = Layout { files: false, ..short };
    let no_total = Layout { total: false, ..no_files };
    [all, transport, files, short, no_files, no_total, Layout { gauge: 0, ..no_total }]
};

/// The line with the most parts that has at most `room` columns.
fn fitted(snapshot: &ProgressSnapshot, room: usize) -> String {
    let mut line = String::new();
    for layout in LAYOUTS {
        line = sentence(snapshot, layout);
        if line.chars().count() <= room {
            break;
        }
    }
    line
}

/// Everything but the gauge.
fn whole(snapshot: &ProgressSnapshot) -> String {
    sentence(snapshot, Layout { gauge: 0, ..LAYOUTS[0] })
}

/// `[=====>   ]  25%  1.2 GiB of 4.0 GiB, 3 of 5 files, 4.01 Gbit/s, 1:05 left, native`.
fn sentence(snapshot: &ProgressSnapshot, layout: Layout) -> String {
    let mut parts = vec![match snapshot.bytes_total {
        Some(total) if layout.total => format!("{} of {total}", snapshot.bytes_done),
        Some(_) => snapshot.bytes_done.to_string(),
        None => format!("{} so far", snapshot.bytes_done),
    }];
    match snapshot.files_total {
        _ if !layout.files => {}
        Some(1) => {}
        Some(total) => parts.push(format!("{} of {total} files", snapshot.files_done)),
        None if snapshot.files_done == 1 => parts.push("1 file so far".to_owned()),
        None => parts.push(format!("{} files so far", snapshot.files_done)),
    }
    // Before there is a rate, there is nothing to say about it.
    if snapshot.rate > DataRate::ZERO {
        parts.push(snapshot.rate.to_string());
    }
    parts.extend(snapshot.eta.map(|eta| format!("{} left", clock(eta))));
    if layout.transport && !snapshot.transport.is_empty() {
        parts.push(snapshot.transport.clone());
    }
    if layout.verdict {
        parts.extend(snapshot.verdict.as_deref().map(clean));
    }
    let parts = parts.join(", ");
    match snapshot.bytes_total {
        Some(total) if layout.gauge > 0 => {
            format!("{}  {parts}", gauge(snapshot.bytes_done, total, layout.gauge))
        }
        _ => parts,
    }
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
    use super::*;

    fn snapshot() -> ProgressSnapshot {
        ProgressSnapshot {
            bytes_done: ByteCount(1 << 30),
            files_done: 3,
            rate: DataRate::from_mbps(4010),
            transport: "native".into(),
            ..ProgressSnapshot::default()
        }
    }

    #[test]
    fn the_bar_says_what_is_known() {
        let mut snapshot = snapshot();
        assert_eq!(whole(&snapshot), "1.0 GiB so far, 3 files so far, 4.01 Gbit/s, native");
        snapshot.files_done = 1;
        assert_eq!(whole(&snapshot), "1.0 GiB so far, 1 file so far, 4.01 Gbit/s, native");
        snapshot.files_done = 3;
        snapshot.bytes_total = Some(ByteCount(4 << 30));
        snapshot.files_total = Some(5);
        snapshot.eta = Some(Duration::from_millis(64_200));
        snapshot.verdict = Some("bounded by the disk".into());
        let all = "1.0 GiB of 4.0 GiB, 3 of 5 files, 4.01 Gbit/s, 1:05 left, native, \
                   bounded by the disk";
        assert_eq!(whole(&snapshot), all);
        assert_eq!(clock(Duration::from_secs(10_809)), "3:00:09");
        let begin = ProgressSnapshot { rate: DataRate::ZERO, eta: None, ..snapshot };
        assert!(!whole(&begin).contains("bit/s"), "no rate is known yet");
    }

    #[test]
    fn rate_and_remaining_time_stay_on_narrow_terminals() {
        let snapshot = ProgressSnapshot {
            bytes_done: ByteCount(1023 << 30),
            bytes_total: Some(ByteCount(1 << 40)),
            files_done: 123_456,
            files_total: Some(1_234_567),
            eta: Some(Duration::from_secs(100_000)),
            verdict: Some("bounded by the disk at the receiving end".into()),
            ..snapshot()
        };
        for width in [30, 40, 60, 80, 132, 200] {
            let line = fitted(&snapshot, width - 1);
            assert!(line.len() < width.max(45), "{width}: {line}");
            assert!(line.contains("4.01 Gbit/s, 27:46:40 left"), "{width}: {line}");
        }
        assert!(fitted(&snapshot, 59).starts_with("[=======>]  99%"), "{}", fitted(&snapshot, 59));
        assert!(fitted(&snapshot, 199).ends_with("receiving end"));
    }

    #[test]
    fn the_gauge_fills_up() {
        let at = |done| gauge(ByteCount(done), ByteCount(1000), 20);
        assert_eq!(at(0), "[>                   ]   0%");
        assert_eq!(at(256), "[=====>              ]  25%");
        assert_eq!(at(999), "[===================>]  99%");
        assert_eq!(at(1000), "[====================] 100%");
        assert_eq!(gauge(ByteCount(0), ByteCount(0), 8), "[========] 100%");
        assert!(ProgressStyle::with_template("{wide_msg}").is_ok());
    }
}
