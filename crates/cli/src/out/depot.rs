//! The output of `depot`.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use packtrain_depot::{DepotReporter, DepotSession, DepotSpoolEvent, DepotStats, SpoolStats};
use packtrain_service::{Notice, NoticeLevel};
use serde::Serialize;

use super::done::seconds;
use super::event_line;
use crate::exit::print_message;

/// A reporter for `depot`.
pub(crate) struct DepotPrinter {
    /// JSON on stdout instead of text on stderr.
    pub(crate) json: bool,
}

#[derive(Serialize)]
struct Listening {
    event: &'static str,
    address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<String>,
}

#[derive(Serialize)]
struct Session<'a> {
    event: &'static str,
    id: Option<&'a str>,
    peer: &'a str,
    to: &'a str,
    from_by: &'a str,
    to_by: &'a str,
    from_datagrams: bool,
    to_datagrams: bool,
    fell_back: bool,
    seconds: f64,
    bytes_there: u64,
    bytes_back: u64,
    refused: Option<&'a str>,
    error: Option<&'a str>,
}

#[derive(Serialize)]
struct Stats<'a> {
    event: &'static str,
    sessions: u32,
    accepted: u64,
    refused: &'a BTreeMap<&'static str, u64>,
    strangers: u64,
    bytes_there: u64,
    bytes_back: u64,
    rate_bps: u64,
    held_bytes: u64,
    held_bytes_max: u64,
    load_per_core: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    spool: Option<Spool>,
}

/// Counters of kept sessions.
#[derive(Serialize)]
struct Spool {
    sessions: u64,
    bytes: u64,
    reserved_bytes: u64,
    deposited: u64,
    forwarded: u64,
    claimed_bytes: u64,
    expired: u64,
    released: u64,
    refused: u64,
    dropped: u64,
}

impl Spool {
    fn new(stats: &SpoolStats) -> Self {
        Self {
            sessions: stats.sessions,
            bytes: stats.bytes.get(),
            reserved_bytes: stats.reserved.get(),
            deposited: stats.deposited,
            forwarded: stats.forwarded,
            claimed_bytes: stats.claimed.get(),
            expired: stats.expired,
            released: stats.released,
            refused: stats.refused,
            dropped: stats.dropped,
        }
    }
}

#[derive(Serialize)]
struct Kept<'a> {
    event: &'static str,
    what: &'a str,
    /// The direction of the bytes as seen from the depot; none if no byte moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    direction: Option<&'static str>,
    session: &'a str,
    key: &'a str,
    bytes: u64,
    #[serde(skip_serializing_if = "str::is_empty")]
    to: &'a str,
}

#[derive(Serialize)]
struct Noticed<'a> {
    event: &'static str,
    text: &'a str,
}

impl DepotReporter for DepotPrinter {
    fn listening(&self, address: SocketAddr, metrics: Option<SocketAddr>) {
        let metrics = metrics.map(|address| address.to_string());
        if self.json {
            let address = address.to_string();
            event_line(&Listening { event: "listening", address, metrics });
            return;
        }
        let figures = metrics.map(|at| format!(", figures at http://{at}/")).unwrap_or_default();
        print_message(&format!("listening on {address}{figures}"));
    }

    fn session(&self, session: &DepotSession) {
        let (there, back) = session.bytes;
        if self.json {
            event_line(&Session {
                event: "session",
                id: session.id.as_deref(),
                peer: &session.peer,
                to: &session.to,
                from_by: session.by.0,
                to_by: session.by.1,
                from_datagrams: session.carried.0,
                to_datagrams: session.carried.1,
                fell_back: session.fell_back.0 || session.fell_back.1,
                seconds: seconds(session.elapsed),
                bytes_there: there.get(),
                bytes_back: back.get(),
                refused: session.refused,
                error: session.failure.as_deref(),
            });
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
        event_line(&Stats {
            event: "stats",
            sessions: stats.sessions,
            accepted: stats.accepted,
            refused: &stats.refused,
            strangers: stats.unauthenticated,
            bytes_there: stats.bytes.0.get(),
            bytes_back: stats.bytes.1.get(),
            rate_bps: stats.rate.as_bps(),
            held_bytes: stats.held.0.get(),
            held_bytes_max: stats.held.1.get(),
            load_per_core: stats.load,
            spool: stats.spool.as_ref().map(Spool::new),
        });
    }

    fn kept(&self, kept: &DepotSpoolEvent) {
        let DepotSpoolEvent { what, session, key, bytes, place } = kept;
        if self.json {
            let bytes = bytes.get();
            let direction = match *what {
                "kept" => Some("in"),
                "forwarded" | "claimed" => Some("out"),
                _ => None,
            };
            event_line(&Kept { event: "spool", what, direction, session, key, bytes, to: place });
            return;
        }
        let to = if place.is_empty() { String::new() } else { format!(" to {place}") };
        print_message(&format!("session {session} of {key}: {what}{to}, {bytes}"));
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
