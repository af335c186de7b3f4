//! Bodies of fuzz targets for parsers that are private to this crate, and inputs to start from.
//!
//! Compiled with the feature `fuzzing` alone. A body takes any bytes and must return: a panic, a hang
//! or memory without bound is a finding.

use crate::api::StreamsReport;
use crate::ceilings::Ceilings;
use crate::diagnose::{Evidence, Limiter, Part, PartRole, PathPart, judge, record};
use crate::handshake::Ask;
use crate::knownhosts::{self, Known};
use crate::pubkey::PublicKey;
use crate::ways::{MOST_DEPOTS, Ways};
use crate::{perf, ssh, tickets};
use packtrain_units::{ByteCount, Duration};
use serde_json::{Number, Value};

pub use crate::deposit::fuzzing::{pack, pack_seeds};
pub use crate::stores::fuzzing::{
    http_answer, http_answer_seeds, proxy_answer, proxy_answer_seeds, s3_document,
    s3_document_seeds, s3_profile, s3_profile_seeds,
};
pub use crate::transports::fuzzing::{
    offer, offer_seeds, stream_frames, stream_frames_seeds, stream_name, stream_name_seeds,
};

/// The session request, which the called end reads before it knows who asks: what is read is
/// written and read again the same, and takes no more room than it had. So are the ceilings with which
/// it is answered.
pub fn session_request(data: &[u8]) {
    if let Ok(told) = Ceilings::decode(data) {
        assert!(told.rate_bps != Some(0) && told.streams != Some(0));
        assert_eq!(Ceilings::decode(&told.encode()).expect("what was written is read"), told);
    }
    let Ok(ask) = Ask::decode(data) else { return };
    let written = ask.encode();
    // What the sender left out is written as its default.
    assert!(written.len() <= data.len() + 64, "{} bytes of {}", written.len(), data.len());
    let again = Ask::decode(&written).expect("what was written is read");
    assert_eq!(again, ask);
}

/// Requests: the default one, and one with every part of it.
pub fn session_request_seeds() -> Vec<Vec<u8>> {
    let full = Ask {
        sources: 2,
        choice: 1,
        cc: Some("native".to_owned()),
        streams: 4,
        ports: Some((7880, 7890)),
        ticket: Some([7; 16]),
        peer: vec!["192.0.2.1".parse().expect("an address")],
        ..Ask::default()
    };
    let told = Ceilings {
        rate_bps: Some(20_000_000),
        streams: Some(2),
        transports: Some(vec!["tcp".to_owned()]),
    };
    vec![Ask::default().encode(), full.encode(), told.encode()]
}

/// A word between the two ends of a perf test: what is read is written and read again the same.
pub fn perf_word(data: &[u8]) {
    let Some(written) = perf::rewrite_word(data) else { return };
    assert!(written.len() <= data.len());
    assert_eq!(perf::rewrite_word(&written), Some(written));
}

/// One word of each kind.
pub fn perf_word_seeds() -> Vec<Vec<u8>> {
    vec![
        vec![0, 2, 3, 1, 2, 3, 0],
        vec![1, 0x80, 0x80, 4, 7, 9, 1],
        vec![2, 5, 1, 0xff, 0xff, 3, 7, 9],
        vec![2, 0, 0, 0, 0],
    ]
}

/// JSON that one end tells the other in a control message: evidence, streams, paths. It is cut to
/// what it may hold, it survives being written again, and a verdict on it is sound.
pub fn reported_json(data: &[u8]) {
    if let Some((0xff, choices)) = data.split_first() {
        let part = with_numbers(choices).and_then(|json| record::decode(json.as_bytes()));
        part.into_iter().for_each(judge_part);
        return;
    }
    if let Some(part) = record::decode(data) {
        let cut = part.clone().bound();
        let text = |part: &Part| String::from_utf8(record::encode(part)).expect("JSON is text");
        assert_eq!(text(&cut), text(&part), "cutting twice cuts no more than once");
        judge_part(part);
    }
    if let Some(report) = StreamsReport::decode(data) {
        let texts = report.reasons.iter().chain(&report.way_reasons).chain([&report.congestion]);
        for text in texts.chain(report.ways.iter().map(|way| &way.way)) {
            assert!(!text.chars().any(char::is_control) && text.chars().count() <= 1_000);
        }
        assert!(report.streams.len() + report.ways.len() + report.moments.len() < 2_000);
        let _ = report.encode();
    }
    if let Some(ways) = Ways::told_of(data) {
        assert!((1..=MOST_DEPOTS).contains(&ways.names().len()));
        assert!(ways.is_far());
        ways.learn(data);
        let _ = (ways.told(), ways.version());
    }
}

/// Evidence in which each number is one that `choices` picks; mutated text rarely has large ones.
fn with_numbers(choices: &[u8]) -> Option<String> {
    const NUMBERS: [f64; 8] = [0.0, 1.0, 1e3, 1e6, 1e9, 1e12, 1e15, 1.8e19];
    fn walk(value: &mut Value, choices: &mut impl Iterator<Item = u8>) {
        match value {
            Value::Array(all) => all.iter_mut().for_each(|one| walk(one, choices)),
            Value::Object(all) => all.values_mut().for_each(|one| walk(one, choices)),
            Value::Number(number) => {
                let choice = NUMBERS[usize::from(choices.next().unwrap_or(0)) % NUMBERS.len()];
                *number = match Number::from_f64(choice / 1e6).filter(|_| number.is_f64()) {
                    Some(float) => float,
                    None => Number::from(choice as u64),
                };
            }
            Value::Bool(truth) => *truth = choices.next().unwrap_or(0) % 2 == 1,
            // A quantity that was not measured.
            Value::Null => match choices.next().unwrap_or(0) {
                choice if choice % 2 == 1 => {
                    let number = NUMBERS[usize::from(choice / 2) % NUMBERS.len()];
                    *value = Value::from(number as u64);
                }
                _ => {}
            },
            Value::String(_) => {}
        }
    }
    let mut json = serde_json::to_value(full_part(choices.first()? % 2 == 1)).ok()?;
    walk(&mut json, &mut choices.iter().skip(1).copied().cycle().take(4_096));
    Some(json.to_string())
}

/// A part with everything in it.
fn full_part(sink: bool) -> Part {
    let role = if sink { PartRole::Sink } else { PartRole::Source };
    let path = PathPart {
        tcp: Some(Default::default()),
        loss: Some(Default::default()),
        samples: vec![Default::default(); 8],
        ..PathPart::default()
    };
    let mut part = Part { role, path: Some(path), ..Part::default() };
    part.end.net = Some(Default::default());
    part.end.buffers = Some(Default::default());
    part.end.cpu.network = Some(Default::default());
    part.end.cpu.hungriest = Some(Default::default());
    part
}

/// A foreign end's evidence is judged beside none of ours.
fn judge_part(part: Part) {
    let mut evidence = Evidence {
        elapsed: Duration::from_secs(60),
        bytes: ByteCount(1 << 30),
        files: 1,
        ..Evidence::default()
    };
    match part.role {
        PartRole::Source => evidence.source = Some(part.end),
        PartRole::Sink => evidence.sink = Some(part.end),
    }
    evidence.path = part.path;
    let diagnosis = judge(&evidence);
    for finding in &diagnosis.findings {
        let sound = finding.cause == Limiter::Inconclusive || (0.0..=1.0).contains(&finding.sure);
        assert!(sound, "{finding:?}");
        assert!(!finding.says.chars().any(char::is_control), "{finding:?}");
    }
}

/// One message of each kind.
pub fn reported_json_seeds() -> Vec<Vec<u8>> {
    let sink = Part { role: PartRole::Sink, path: None, ..Part::default() };
    let source = Part { path: Some(Default::default()), ..Part::default() };
    let ways = br#"{"direct":{"rate":9000000,"error":0.5},"ways":[{"depot":"a.example:7879",
                    "near":1000000,"beyond":20000000,"earlier":{"rate":1,"error":2.0}}]}"#;
    let streams = br#"{"last":1,"most":2,"congestion":"cubic","reasons":["one"],
                       "ways":[{"way":"direct"}],"moments":[{"at":1,"lost":0.1}]}"#;
    let recorded = br#"{"role":"Sink","end":{"cpu":{"network":{"name":"net","busy":5}}}}"#;
    vec![
        [&[0xff, 0][..], &[3, 5, 1, 7, 2, 6, 4, 0]].concat(),
        [&[0xff, 1][..], &[4; 40], &[3; 40], &[1; 40]].concat(),
        record::encode(&full_part(true)),
        record::encode(&sink),
        record::encode(&source),
        StreamsReport::default().encode(),
        ways.to_vec(),
        streams.to_vec(),
        recorded.to_vec(),
    ]
}

/// A file of known hosts, in front of or behind lines of ours: a revocation and a match count
/// wherever they stand, and nothing else makes a key known.
pub fn known_hosts(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let name = "[host]:7876";
    let key = PublicKey([1; 32]);
    let known = knownhosts::check(&text, name, &key);
    if known == Known::Yes {
        assert!(text.contains(name) && text.contains(&key.to_string()[18..]));
    }
    for revoked in [format!("@revoked * {key}\n{text}"), format!("{text}\n@revoked {name} {key}\n")]
    {
        assert!(matches!(knownhosts::check(&revoked, name, &key), Known::Revoked { .. }));
    }
    let kept = format!("{text}\n{name} {key}\n");
    let wanted = match known {
        Known::Revoked { line } => Known::Revoked { line },
        _ => Known::Yes,
    };
    assert_eq!(knownhosts::check(&kept, name, &key), wanted);
}

/// A match, another key, revocations, comments.
pub fn known_hosts_seeds() -> Vec<Vec<u8>> {
    let (ours, other) = (PublicKey([1; 32]), PublicKey([2; 32]));
    [
        format!("[host]:7876 {ours} me\n# a comment\n\n[other]:1 {other}\n"),
        format!("[host]:7876 {other}\n@revoked * {other}\n"),
        format!("@revoked [host]:7876 {ours}\n"),
    ]
    .map(String::into_bytes)
    .to_vec()
}

/// The file of tickets that a server gave out: what is kept of it is kept again.
pub fn ticket_file(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let kept = tickets::rewrite(&text);
    assert!(kept.lines().count() <= text.lines().count());
    assert_eq!(tickets::rewrite(&kept), kept);
}

/// Lines of tickets, used and not.
pub fn ticket_file_seeds() -> Vec<Vec<u8>> {
    let id = blake3::hash(b"a ticket");
    let key = PublicKey([3; 32]);
    let used = format!("{id} {id} 4000000000 read-only,perf {key}\nx\n");
    [format!("{id} {id} 99 - unused\n{used}"), used].map(String::into_bytes).to_vec()
}

/// What comes over ssh before the called end speaks: the marker is found exactly where it ends, and
/// what follows is left for the control connection.
pub fn ssh_marker(data: &[u8]) {
    let mut rest = data;
    let found = ssh::skip_noise(&mut rest).expect("reading memory does not fail");
    let line = &ssh::MARKER[1..];
    let begins = |at: usize| at == 0 || data[at - 1] == b'\n';
    let first = (0..data.len()).find(|&at| begins(at) && data[at..].starts_with(line));
    assert_eq!(found, first.is_some());
    if let Some(at) = first {
        assert_eq!(rest, &data[at + line.len()..]);
    }
    for line in data.split(|byte| *byte == b'\n') {
        let system = ssh::system_told(line);
        assert!(system.is_none_or(|system| system.len() <= line.len()));
    }
}

/// Greetings of login shells before the marker, and words after it.
pub fn ssh_marker_seeds() -> Vec<Vec<u8>> {
    let greeted = [b"Welcome!\nlast login".as_slice(), ssh::MARKER, b"PKTR"].concat();
    let system = b"\nPACKTRAIN-BOOTSTRAP-1 Linux x86_64 gzip absent\n".to_vec();
    vec![ssh::MARKER.to_vec(), greeted, b"\nPACKTRAIN-STDIO\n".to_vec(), system]
}

/// An archive of perfSONAR: throughputs of the path that was asked for, and counts of others.
pub fn perfsonar(data: &[u8]) {
    use crate::forecast::perfsonar::{read, write};
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(found) = read(text, "a", "b") else { return };
    assert!(found.measurements.len() + found.of_others + found.failed <= data.len());
    if found.measurements.is_empty() {
        return;
    }
    // A series is in whole seconds: written once more it stays as it is.
    let series = |found: &crate::forecast::perfsonar::Found| write(&found.measurements).to_string();
    let once = read(&series(&found), "a", "b").expect("what was written is read");
    assert_eq!(once.measurements.len() + once.failed, found.measurements.len());
    if !once.measurements.is_empty() {
        let twice = read(&series(&once), "a", "b").expect("what was written is read");
        assert_eq!(twice.measurements.len() + twice.failed, once.measurements.len());
    }
}

/// A series, and results of the scheduler.
pub fn perfsonar_seeds() -> Vec<Vec<u8>> {
    [
        r#"[{"ts": 1700000000, "val": 9.1e9}, {"ts": 1700003600, "val": 8e9}]"#,
        r#"{"start-time": "2026-11-22T08:30:00+01:00", "test": {"spec": {"source": "a", "dest": "b"}},
            "result-merged": {"succeeded": true, "summary": {"summary": {"throughput-bits": 5e9}}}}"#,
        r#"[{"result": {"succeeded": false}}, {"test": {"spec": {"source": "x"}}}]"#,
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}
