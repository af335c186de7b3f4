//! Bodies of fuzz targets for private parsers of this crate, and their seeds.
//!
//! Compiled only with the feature `fuzzing`. A body takes any bytes and must return: a panic, a
//! hang or unbounded memory is a finding.

use packtrain_service::evidence::{self, Evidence, Part, PartRole, PathPart};
use packtrain_units::{ByteCount, Duration};
use serde_json::{Number, Value};

use crate::{Limiter, judge};

/// Measurements that one end sends to the other in a control message. They are truncated to their
/// limits, they can be encoded again, and a diagnosis of them is valid.
pub fn reported_evidence(data: &[u8]) {
    if let Some((0xff, choices)) = data.split_first() {
        let part = with_numbers(choices).and_then(|json| evidence::decode(json.as_bytes()));
        part.into_iter().for_each(judge_part);
        return;
    }
    if let Some(part) = evidence::decode(data) {
        let cut = part.clone().bound();
        let text = |part: &Part| String::from_utf8(evidence::encode(part)).expect("JSON is text");
        assert_eq!(text(&cut), text(&part), "cutting twice cuts no more than once");
        judge_part(part);
    }
}

/// A part whose numbers are selected by `choices`, because mutated text rarely has large numbers.
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

/// A part with all fields set.
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

/// Diagnoses a part of the other end without any local measurement.
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

/// Seeds: one message of each kind.
pub fn reported_evidence_seeds() -> Vec<Vec<u8>> {
    let sink = Part { role: PartRole::Sink, path: None, ..Part::default() };
    let source = Part { path: Some(Default::default()), ..Part::default() };
    let recorded = br#"{"role":"Sink","end":{"cpu":{"network":{"name":"net","busy":5}}}}"#;
    vec![
        [&[0xff, 0][..], &[3, 5, 1, 7, 2, 6, 4, 0]].concat(),
        [&[0xff, 1][..], &[4; 40], &[3; 40], &[1; 40]].concat(),
        evidence::encode(&full_part(true)),
        evidence::encode(&sink),
        evidence::encode(&source),
        recorded.to_vec(),
    ]
}
