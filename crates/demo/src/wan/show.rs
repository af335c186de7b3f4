//! Progress bars, and the table at the end.

use std::io::{IsTerminal, Write};

use packtrain_units::Duration;

use super::lane::Moved;

const WIDTH: usize = 30;

/// The line of one program. It is redrawn on a terminal; otherwise only its last state is printed.
pub(super) struct Bar {
    name: &'static str,
    live: bool,
    total: f64,
}

impl Bar {
    pub(super) fn new(name: &'static str, total: u64) -> Self {
        Self { name, live: std::io::stdout().is_terminal(), total: total as f64 }
    }

    pub(super) fn draw(&mut self, share: f64, since: Duration) {
        if self.live {
            let mut out = std::io::stdout().lock();
            let _ = write!(out, "\r\x1b[K{}", self.line(share, since.as_secs_f64()));
            let _ = out.flush();
        }
    }

    /// Prints the final line.
    pub(super) fn end(&self, moved: &Result<Moved, String>) {
        let mut out = std::io::stdout().lock();
        let start = if self.live { "\r\x1b[K" } else { "" };
        let _ = match moved {
            Ok(moved) => {
                let share = moved.bytes as f64 / self.total.max(1.0);
                let stopped = if moved.stopped { "  (stopped)" } else { "" };
                writeln!(out, "{start}{}{stopped}", self.line(share, moved.seconds))
            }
            Err(why) => writeln!(out, "{start}  {:<12} not run: {why}", self.name),
        };
        let _ = out.flush();
    }

    fn line(&self, share: f64, seconds: f64) -> String {
        let share = share.clamp(0.0, 1.0);
        let full = (share * WIDTH as f64).round() as usize;
        let rate = share * self.total * 8.0 / seconds.max(1e-3) / 1e6;
        format!(
            "  {:<12} {}{} {:>3.0} % {:>6.0} Mbit/s {:>5.1} s",
            self.name,
            "█".repeat(full),
            "░".repeat(WIDTH - full),
            share * 100.0,
            rate,
            seconds
        )
    }
}

/// The table of results.
pub(super) fn table(rows: &[(&'static str, Result<Moved, String>)]) -> String {
    let mut text = format!(
        "  {:<12} {:>8} {:>8} {:>7} {:>16} {:>9}\n",
        "", "Mbit/s", "seconds", "moved", "packets lost", "of them"
    );
    text += &format!(
        "  {:<12} {:>8} {:>8} {:>7} {:>16} {:>9}\n",
        "", "", "", "", "by the path", "overflow"
    );
    for (name, moved) in rows {
        text += &match moved {
            Ok(m) => format!(
                "  {name:<12} {:>8.0} {:>8} {:>7} {:>8} {:>7} {:>9}\n",
                m.goodput() / 1e6,
                format!("{}{:.1}", if m.stopped { ">" } else { "" }, m.seconds),
                if m.whole { "whole" } else { "part" },
                m.lost,
                format!("{:.3} %", m.lost as f64 * 100.0 / m.packets.max(1) as f64),
                m.overflow
            ),
            Err(why) => format!("  {name:<12} {:>8}  {why}\n", "-"),
        };
    }
    text
}
