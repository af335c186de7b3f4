//! The output of `perf` and `serve`.

use std::net::SocketAddr;

use packtrain_service::{
    Direction, Notice, NoticeLevel, PerfInterval, PerfOutcome, PerfReporter, ServeReporter,
    ServedTransfer,
};
use packtrain_units::{ByteCount, DataRate, Duration};
use serde::Serialize;

use super::done::{self, millis, seconds};
use super::summary::{self, Work};
use super::{event_line, line};
use crate::exit::{Code, print_message};

/// A reporter for `perf` and `serve`.
pub(crate) struct ServicePrinter {
    /// JSON on stdout instead of text.
    pub(crate) json: bool,
    /// This is the client: the command itself prints finished tests.
    pub(crate) client: bool,
}

#[derive(Serialize)]
struct Listening<'a> {
    event: &'static str,
    address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fingerprint: Option<&'a str>,
}

#[derive(Serialize)]
struct Interval {
    event: &'static str,
    from: f64,
    to: f64,
    bytes: u64,
    goodput_bps: u64,
    retransmitted_bytes: u64,
    rtt_ms: Option<f64>,
    cwnd_bytes: Option<u64>,
    capacity_bps: Option<u64>,
    arrival_bps: Option<u64>,
}

#[derive(Serialize)]
struct Finished<'a> {
    event: &'static str,
    peer: &'a str,
    /// The served path; a measurement has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    direction: Option<&'static str>,
    ok: bool,
    bytes: u64,
    seconds: f64,
    goodput_bps: u64,
    transport: &'a str,
    error: Option<done::Cause<'a>>,
}

#[derive(Serialize)]
struct Noticed<'a> {
    event: &'static str,
    text: &'a str,
}

impl ServicePrinter {
    fn listening(&self, address: SocketAddr, fingerprint: Option<&str>) {
        if self.json {
            let address = address.to_string();
            event_line(&Listening { event: "listening", address, fingerprint });
        } else {
            let key = fingerprint.map(|print| format!(", host key {print}")).unwrap_or_default();
            print_message(&format!("listening on {address}{key}"));
        }
    }

    fn notice(&self, notice: &Notice) {
        if self.json {
            event_line(&Noticed { event: "notice", text: &notice.text });
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
        event_line(&Finished {
            event: "finished",
            peer,
            path: Some(path),
            direction: Some(direction.word()),
            ok: outcome.exit_code() == 0,
            bytes: outcome.summary.bytes_moved,
            seconds: seconds(outcome.elapsed),
            goodput_bps: outcome.goodput().as_bps(),
            transport: &outcome.transport,
            error: outcome.failure.as_ref().map(done::Cause::new),
        });
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
            event_line(&Interval {
                event: "interval",
                from: seconds(interval.from),
                to: seconds(interval.to),
                bytes: interval.bytes.get(),
                goodput_bps: interval.goodput().as_bps(),
                retransmitted_bytes: interval.retransmitted.get(),
                rtt_ms: interval.rtt.map(millis),
                cwnd_bytes: interval.cwnd.map(ByteCount::get),
                capacity_bps: interval.capacity.map(DataRate::as_bps),
                arrival_bps: interval.arrival_rate.map(DataRate::as_bps),
            });
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
        event_line(&Finished {
            event: "finished",
            peer,
            path: None,
            direction: None,
            ok: outcome.failure.is_none(),
            bytes: outcome.bytes.get(),
            seconds: seconds(outcome.elapsed),
            goodput_bps: outcome.goodput().as_bps(),
            transport: &outcome.transport,
            error: outcome.failure.as_ref().map(done::Cause::new),
        });
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
        done::print(&done::Perf::new(outcome, code));
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
    format!("{span:<13} {bytes:>10}  {rate:>14}  {again:>9} again{rtt}")
}
