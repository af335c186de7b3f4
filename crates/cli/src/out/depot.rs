//! The output of `depot`.

use std::net::SocketAddr;

use packtrain_depot::{DepotReporter, DepotSession, DepotSpoolEvent, DepotStats, SpoolStats};
use packtrain_service::{Notice, NoticeLevel};

use super::done::seconds;
use super::object::Object;
use super::{event_line, notice_line};
use crate::exit::print_message;

/// A reporter for `depot`.
pub(crate) struct DepotPrinter {
    /// JSON on stdout instead of text on stderr.
    pub(crate) json: bool,
}

/// Counters of kept sessions.
fn spool(stats: &SpoolStats) -> Object {
    Object::default()
        .with("sessions", stats.sessions)
        .with("bytes", stats.bytes.get())
        .with("reserved_bytes", stats.reserved.get())
        .with("deposited", stats.deposited)
        .with("forwarded", stats.forwarded)
        .with("claimed_bytes", stats.claimed.get())
        .with("expired", stats.expired)
        .with("released", stats.released)
        .with("refused", stats.refused)
        .with("dropped", stats.dropped)
}

impl DepotReporter for DepotPrinter {
    fn listening(&self, address: SocketAddr, metrics: Option<SocketAddr>) {
        let metrics = metrics.map(|address| address.to_string());
        if self.json {
            let event = Object::event("listening").with("address", address.to_string());
            event_line(&event.with_some("metrics", metrics));
            return;
        }
        let figures = metrics.map(|at| format!(", figures at http://{at}/")).unwrap_or_default();
        print_message(&format!("listening on {address}{figures}"));
    }

    fn session(&self, session: &DepotSession) {
        let (there, back) = session.bytes;
        if self.json {
            event_line(
                &Object::event("session")
                    .with("id", &session.id)
                    .with("peer", &session.peer)
                    .with("to", &session.to)
                    .with("from_by", session.by.0)
                    .with("to_by", session.by.1)
                    .with("from_datagrams", session.carried.0)
                    .with("to_datagrams", session.carried.1)
                    .with("fell_back", session.fell_back.0 || session.fell_back.1)
                    .with("seconds", seconds(session.elapsed))
                    .with("bytes_there", there.get())
                    .with("bytes_back", back.get())
                    .with("refused", session.refused)
                    .with("error", &session.failure),
            );
            return;
        }
        let DepotSession { peer, to, elapsed, .. } = session;
        let text = match (session.refused, &session.failure) {
            (Some(_), Some(why)) => format!("{peer}: refused: {why}"),
            (_, Some(why)) => format!("{peer} to {to}: {there} there, {back} back: {why}"),
            _ => format!("{peer} to {to}: {there} there, {back} back in {elapsed}"),
        };
        let text = match session.fell_back {
            (true, _) => format!("{text}; no datagram arrived from there, TCP was used"),
            (_, true) => format!("{text}; no datagram arrived there, TCP was used"),
            _ => text,
        };
        print_message(&text);
    }

    fn stats(&self, stats: &DepotStats) {
        if !self.json {
            return;
        }
        event_line(
            &Object::event("stats")
                .with("sessions", stats.sessions)
                .with("accepted", stats.accepted)
                .with("refused", &stats.refused)
                .with("strangers", stats.unauthenticated)
                .with("bytes_there", stats.bytes.0.get())
                .with("bytes_back", stats.bytes.1.get())
                .with("rate_bps", stats.rate.as_bps())
                .with("held_bytes", stats.held.0.get())
                .with("held_bytes_max", stats.held.1.get())
                .with("load_per_core", stats.load)
                .with_some("spool", stats.spool.as_ref().map(spool)),
        );
    }

    fn kept(&self, kept: &DepotSpoolEvent) {
        let DepotSpoolEvent { what, session, key, bytes, place } = kept;
        if self.json {
            // The direction of the bytes as seen from the depot; none if no byte moved.
            let direction = match *what {
                "kept" => Some("in"),
                "forwarded" | "claimed" => Some("out"),
                _ => None,
            };
            event_line(
                &Object::event("spool")
                    .with("what", what)
                    .with_some("direction", direction)
                    .with("session", session)
                    .with("key", key)
                    .with("bytes", bytes.get())
                    .with_some("to", (!place.is_empty()).then_some(place)),
            );
            return;
        }
        let to = if place.is_empty() { String::new() } else { format!(" to {place}") };
        print_message(&format!("session {session} of {key}: {what}{to}, {bytes}"));
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
