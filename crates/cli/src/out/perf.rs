//! The output of `perf` and `serve`.

use std::net::SocketAddr;

use packtrain_service::{
    Direction, Notice, NoticeLevel, PerfInterval, PerfOutcome, PerfReporter, ServeReporter,
    ServedTransfer,
};
use packtrain_units::{ByteCount, DataRate, Duration};

use super::done::{self, millis, seconds};
use super::object::Object;
use super::summary::{self, Work};
use super::{event_line, json_line, line, notice_line};
use crate::exit::{Code, print_message};

/// A reporter for `perf` and `serve`.
pub(crate) struct ServicePrinter {
    /// JSON on stdout instead of text.
    pub(crate) json: bool,
    /// This is the client: the command itself prints finished tests.
    pub(crate) client: bool,
}

impl ServicePrinter {
    fn listening(&self, address: SocketAddr, fingerprint: Option<&str>) {
        if self.json {
            let event = Object::event("listening").with("address", address.to_string());
            event_line(&event.with_some("fingerprint", fingerprint));
        } else {
            let key = fingerprint.map(|print| format!(", host key {print}")).unwrap_or_default();
            print_message(&format!("listening on {address}{key}"));
        }
    }

    fn notice(&self, notice: &Notice) {
        if self.json {
            notice_line(notice);
        }
        if !self.json || notice.level == NoticeLevel::Warning {
            print_message(&notice.text);
        }
    }
}

impl ServeReporter for ServicePrinter {
    fn listening(&self, address: SocketAddr, fingerprint: Option<&str>) {
        self.listening(address, fingerprint);
    }

    fn finished(&self, transfer: &ServedTransfer<'_>) {
        let ServedTransfer { peer, path, direction, outcome } = *transfer;
        if !self.json {
            let text = match &outcome.failure {
                Some(failure) => failure.text.clone(),
                None => summary::sentence(outcome, Work::Copy),
            };
            let way = match direction {
                Direction::In => "to",
                Direction::Out => "from",
            };
            print_message(&format!("{peer} {way} {path}: {text}"));
            return;
        }
        let event = Object::event("finished").with("peer", peer).with("path", path);
        event_line(
            &event
                .with("direction", direction.word())
                .with("ok", outcome.exit_code() == 0)
                .with("bytes", outcome.summary.bytes_moved)
                .with("seconds", seconds(outcome.elapsed))
                .with("goodput_bps", outcome.goodput().as_bps())
                .with("transport", &outcome.transport)
                .with("error", outcome.failure.as_ref().map(done::cause)),
        );
    }

    fn notice(&self, notice: &Notice) {
        self.notice(notice);
    }
}

impl PerfReporter for ServicePrinter {
    fn listening(&self, address: SocketAddr, fingerprint: Option<&str>) {
        self.listening(address, fingerprint);
    }

    fn interval(&self, interval: &PerfInterval) {
        if self.json {
            event_line(
                &Object::event("interval")
                    .with("from", seconds(interval.from))
                    .with("to", seconds(interval.to))
                    .with("bytes", interval.bytes.get())
                    .with("goodput_bps", interval.goodput().as_bps())
                    .with("retransmitted_bytes", interval.retransmitted.get())
                    .with("rtt_ms", interval.rtt.map(millis))
                    .with("cwnd_bytes", interval.cwnd.map(ByteCount::get))
                    .with("capacity_bps", interval.capacity.map(DataRate::as_bps))
                    .with("arrival_bps", interval.arrival_rate.map(DataRate::as_bps)),
            );
        } else {
            line(&row(
                (interval.from, interval.to),
                interval.bytes,
                interval.goodput(),
                interval.retransmitted,
                interval.rtt,
            ));
        }
    }

    fn finished(&self, peer: &str, outcome: &PerfOutcome) {
        if self.client {
            return;
        }
        if !self.json {
            line(&format!("{peer}: {}", total(outcome)));
            return;
        }
        event_line(
            &Object::event("finished")
                .with("peer", peer)
                .with("ok", outcome.failure.is_none())
                .with("bytes", outcome.bytes.get())
                .with("seconds", seconds(outcome.elapsed))
                .with("goodput_bps", outcome.goodput().as_bps())
                .with("transport", &outcome.transport)
                .with("error", outcome.failure.as_ref().map(done::cause)),
        );
    }

    fn notice(&self, notice: &Notice) {
        self.notice(notice);
    }
}

/// Prints the result of a test at the client.
pub(crate) fn print_outcome(outcome: &PerfOutcome, code: Code, json: bool) {
    if let Some(failure) = &outcome.failure {
        print_message(&failure.text);
    }
    if json {
        json_line(&done::perf(outcome, code));
    } else if outcome.bytes.get() > 0 {
        line(&total(outcome));
    }
}

fn total(outcome: &PerfOutcome) -> String {
    let begin = Duration::from_secs(0);
    let mut text = row(
        (begin, outcome.elapsed),
        outcome.bytes,
        outcome.goodput(),
        outcome.retransmitted,
        outcome.rtt,
    );
    for (end, cpu) in [("sender", outcome.cpu_sender), ("receiver", outcome.cpu_receiver)] {
        if let Some(cpu) = cpu {
            let busy = cpu.user.as_secs_f64() + cpu.system.as_secs_f64();
            let span = outcome.elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
            text.push_str(&format!("  {end} {:.0} % of a core", busy / span * 100.0));
        }
    }
    format!("{text}  over {}", outcome.transport)
}

fn row(
    (from, to): (Duration, Duration),
    bytes: ByteCount,
    rate: DataRate,
    again: ByteCount,
    rtt: Option<Duration>,
) -> String {
    let span = format!("{:.1}-{:.1} s", from.as_secs_f64(), to.as_secs_f64());
    let (bytes, rate, again) = (bytes.to_string(), rate.to_string(), again.to_string());
    let rtt = rtt.map(|rtt| format!("  rtt {:.3} ms", rtt.as_secs_f64() * 1e3)).unwrap_or_default();
    format!("{span:<13} {bytes:>10}  {rate:>14}  {again:>9} retransmitted{rtt}")
}
