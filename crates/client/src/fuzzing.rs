//! Bodies of fuzz targets for private parsers of this crate, and their seeds.
//!
//! Compiled only with the feature `fuzzing`. A body takes any bytes and must return: a panic, a
//! hang or unbounded memory is a finding.

use crate::{completion, forecast, ssh};

/// The other end's description of its system, before the program is sent.
pub fn bootstrap_line(data: &[u8]) {
    for line in data.split(|byte| *byte == b'\n') {
        let system = ssh::described_system(line);
        assert!(system.is_none_or(|system| system.len() <= line.len()));
    }
}

/// Seeds: a line, and a line with a greeting before it.
pub fn bootstrap_line_seeds() -> Vec<Vec<u8>> {
    let line = b"PACKTRAIN-BOOTSTRAP-2 Linux x86_64 gzip absent\n";
    vec![line.to_vec(), [b"Welcome!\n".as_slice(), line].concat()]
}

/// The names that another machine offers for completion.
pub fn completion_names(data: &[u8]) {
    let names = completion::names_in(data);
    assert!(names.len() <= 1000);
    for name in names {
        assert!(!name.is_empty() && !name.chars().any(char::is_control) && name.len() <= 256);
    }
}

/// Seeds: some names after a greeting, and hostile ones.
pub fn completion_names_seeds() -> Vec<Vec<u8>> {
    let begin = b"motd\nPACKTRAIN-NAMES-1\0";
    let names = [&b"a\0b c/\0"[..], b"\x1b[2J\0a/b\0\xff\0cut off"];
    names.map(|names| [begin, names].concat()).to_vec()
}

/// An archive of perfSONAR: throughputs of the requested path, and the counts of others.
pub fn perfsonar(data: &[u8]) {
    use crate::forecast::perfsonar::{read, write};
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(found) = read(text, "a", "b") else { return };
    assert!(found.measurements.len() + found.of_others + found.failed <= data.len());
    if found.measurements.is_empty() {
        return;
    }
    // A series has a resolution of one second, so writing it again does not change it.
    let series = |found: &forecast::perfsonar::Found| write(&found.measurements).to_string();
    let once = read(&series(&found), "a", "b").expect("what was written is read");
    assert_eq!(once.measurements.len() + once.failed, found.measurements.len());
    if !once.measurements.is_empty() {
        let twice = read(&series(&once), "a", "b").expect("what was written is read");
        assert_eq!(twice.measurements.len() + twice.failed, once.measurements.len());
    }
}

/// Seeds: a series, and results of pScheduler.
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
