//! A qlog file for each sending flow (draft-ietf-quic-qlog-main-schema, version 0.3, JSON-SEQ), where
//! the variable `QLOGDIR` names a directory, as for implementations of QUIC.
//!
//! `recovery:metrics_updated` has qlog's names (`congestion_window`, `bytes_in_flight`, `pacing_rate`,
//! `latest_rtt`, `smoothed_rtt`, `min_rtt`) and some of our own; the other events are our own.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use packtrain_os::clock;
use packtrain_units::date;
use serde_json::json;

/// Begins each record (RFC 7464).
const RECORD_SEPARATOR: u8 = 0x1e;

/// The file of one flow. It is not buffered, because the process may end before the flow's thread.
#[derive(Debug)]
pub struct QlogFile {
    file: File,
    /// A write failed: the rest is left out.
    failed: bool,
}

impl QlogFile {
    /// Creates the file of the flow with this id, if `QLOGDIR` is set.
    ///
    /// # Errors
    /// A sentence: no file could be made there.
    pub fn from_environment(flow: u32) -> Result<Option<Self>, String> {
        let Some(dir) = std::env::var_os("QLOGDIR").filter(|dir| !dir.is_empty()) else {
            return Ok(None);
        };
        let dir = Path::new(&dir);
        Self::create(dir, flow)
            .map(Some)
            .map_err(|e| format!("no qlog in {} (QLOGDIR): {e}", dir.display()))
    }

    fn create(dir: &Path, flow: u32) -> io::Result<Self> {
        let started = date::iso8601_basic(clock::wall());
        let path = dir.join(format!("{started}-{flow:08x}.sqlog"));
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        let mut log = Self { file, failed: false };
        let header = json!({
            "qlog_version": "0.3",
            "qlog_format": "JSON-SEQ",
            "title": "packtrain",
            "trace": {
                "title": format!("flow {flow:08x}, the sending end"),
                "vantage_point": { "type": "client" },
                "common_fields": { "time_format": "relative", "reference_time": 0 },
            },
        });
        log.try_write(&header.to_string())?;
        Ok(log)
    }

    /// Appends an event, one JSON object.
    pub fn write(&mut self, event: &str) {
        self.failed = self.failed || self.try_write(event).is_err();
    }

    fn try_write(&mut self, record: &str) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(record.len() + 2);
        bytes.push(RECORD_SEPARATOR);
        bytes.extend_from_slice(record.as_bytes());
        bytes.push(b'\n');
        self.file.write_all(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_a_sequence_of_records() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut log = QlogFile::create(dir.path(), 0xab).expect("a file");
        log.write(r#"{"time":1.0,"name":"a:b","data":{}}"#);
        drop(log);
        let name =
            std::fs::read_dir(dir.path()).expect("list").next().expect("one").expect("entry");
        assert!(name.file_name().to_string_lossy().ends_with("-000000ab.sqlog"), "{name:?}");
        let text = std::fs::read_to_string(name.path()).expect("text");
        let records: Vec<serde_json::Value> = text
            .split('\u{1e}')
            .skip(1)
            .map(|record| serde_json::from_str(record).expect("JSON"))
            .collect();
        assert_eq!(records.len(), 2);
        assert_eq!(records[0]["qlog_format"], "JSON-SEQ");
        assert_eq!(records[1]["name"], "a:b");
    }
}
