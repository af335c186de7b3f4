//! Fuzz bodies and seed inputs for parsers that are private to this crate.
//!
//! Compiled only with the feature `fuzzing`. A body must accept any bytes: a panic, a hang or
//! unbounded memory is a finding.

use packtrain_plan::route::{MAX_CHAINS, PathSelector};
use packtrain_service::ExtraOptions;
use packtrain_service::StreamsReport;
use packtrain_service::ceilings::Ceilings;
use packtrain_units::Duration;

use crate::candidate_paths::{CandidatePaths, MAX_DEPOTS};
use crate::checksum_list::HashKind;
use crate::handshake::SessionRequest;
use crate::marker;
use crate::query::{self, Query};

pub use crate::pack::fuzzing::{pack, pack_seeds};
pub use crate::transports::fuzzing::{
    offer, offer_seeds, stream_frames, stream_frames_seeds, stream_name, stream_name_seeds,
};

/// The session request, which the responder parses before it knows the caller's identity. A parsed
/// request must encode and parse to the same value, and must not take more room than its input. The
/// same applies to the ceilings in the answer.
pub fn session_request(data: &[u8]) {
    if let Ok(told) = Ceilings::decode(data) {
        assert!(told.rate_bps != Some(0) && told.streams != Some(0));
        assert_eq!(Ceilings::decode(&told.encode()).expect("what was written is read"), told);
    }
    let Ok(ask) = SessionRequest::decode(data) else { return };
    let written = ask.encode();
    // Fields that the sender left out are written as their defaults.
    assert!(written.len() <= data.len() + 64, "{} bytes of {}", written.len(), data.len());
    let again = SessionRequest::decode(&written).expect("what was written is read");
    assert_eq!(again, ask);
}

/// Seed inputs: the default request, one with every field set, and ceilings.
pub fn session_request_seeds() -> Vec<Vec<u8>> {
    let full = SessionRequest {
        sources: 2,
        choice: 1,
        cc: Some("native".to_owned()),
        streams: 4,
        ports: Some((7880, 7890)),
        ticket: Some([7; 16]),
        peer: vec!["192.0.2.1".parse().expect("an address")],
        query: Some(Query::Digests(HashKind::Sha256)),
        options: ExtraOptions { max_size: Some(7), patterns: true, ..ExtraOptions::default() },
        ..SessionRequest::default()
    };
    let told = Ceilings {
        rate_bps: Some(20_000_000),
        streams: Some(2),
        transports: Some(vec!["tcp".to_owned()]),
    };
    vec![SessionRequest::default().encode(), full.encode(), told.encode()]
}

/// A part of the answer to a query.
pub fn query_answer(data: &[u8]) {
    let Some(written) = query::rewrite_answer(data) else { return };
    assert!(written.len() <= data.len());
    assert_eq!(query::rewrite_answer(&written), Some(written));
}

/// Seed inputs: each kind of part, a failure, and a path that leads out.
pub fn query_answer_seeds() -> Vec<Vec<u8>> {
    query::sample_answers()
}

/// JSON in control messages: streams and paths. The parser must enforce their limits.
pub fn reported_json(data: &[u8]) {
    if let Some(report) = StreamsReport::decode(data) {
        let texts = report.reasons.iter().chain(&report.way_reasons).chain([&report.congestion]);
        for text in texts.chain(report.ways.iter().map(|way| &way.way)) {
            assert!(!text.chars().any(char::is_control) && text.chars().count() <= 1_000);
        }
        assert!(report.streams.len() + report.ways.len() + report.moments.len() < 2_000);
        let _ = report.encode();
    }
    if let Some(ways) = CandidatePaths::from_report(data) {
        assert!((1..=MAX_DEPOTS).contains(&ways.names().len()));
        assert!(ways.is_far());
        ways.update(data);
        let _ = (ways.told(), ways.version());
        let mut selector = PathSelector::new();
        for name in ways.names() {
            selector.add(name.clone());
        }
        ways.update_selector(&mut selector, Some(Duration::from_millis(50)));
        assert!(selector.len() <= 1 + MAX_DEPOTS + MAX_CHAINS);
        assert!((1..selector.len()).all(|way| ways.has(way as u8)));
    }
}

/// Seed inputs: one message of each kind.
pub fn reported_json_seeds() -> Vec<Vec<u8>> {
    let ways = br#"{"direct":{"rate":9000000,"error":0.5},"ways":[{"depot":"a.example:7879",
                    "near":1000000,"beyond":20000000,"earlier":{"rate":1,"error":2.0}}],
                    "chains":[{"depot":"a.example:7879,b:1","near":1000000,"middle":[5000000]}]}"#;
    let streams = br#"{"last":1,"most":2,"congestion":"cubic","reasons":["one"],
                       "ways":[{"way":"direct"}],"moments":[{"at":1,"lost":0.1}]}"#;
    vec![StreamsReport::default().encode(), ways.to_vec(), streams.to_vec()]
}

/// The output of ssh before the responder starts. The parser must find the end of the marker and
/// leave the following bytes to the control connection.
pub fn ssh_marker(data: &[u8]) {
    let mut rest = data;
    let found = marker::skip_noise(&mut rest).expect("reading memory does not fail");
    let line = &marker::MARKER[1..];
    let begins = |at: usize| at == 0 || data[at - 1] == b'\n';
    let first = (0..data.len()).find(|&at| begins(at) && data[at..].starts_with(line));
    assert_eq!(found, first.is_some());
    if let Some(at) = first {
        assert_eq!(rest, &data[at + line.len()..]);
    }
}

/// Seed inputs: output of login shells before the marker, and bytes after it.
pub fn ssh_marker_seeds() -> Vec<Vec<u8>> {
    let greeted = [b"Welcome!\nlast login".as_slice(), marker::MARKER, b"PKTR"].concat();
    vec![marker::MARKER.to_vec(), greeted, b"\nPACKTRAIN-STDIO\n".to_vec()]
}
