//! A bounded log of the events of a flow: JSON objects with qlog's fields `time` (in milliseconds),
//! `name` and `data`.

use std::collections::VecDeque;

use packtrain_units::Time;
use serde_json::{Value, json};

use crate::config::limits::LOG_LINES;

/// The lines not yet fetched. Disabled until `enable`; a full log counts the lines that it drops.
#[derive(Debug, Default)]
pub(crate) struct Log {
    lines: Option<VecDeque<String>>,
    dropped: u64,
}

impl Log {
    pub(crate) fn enable(&mut self) {
        self.lines.get_or_insert_default();
    }

    /// Logs an event; `data` runs only when the log is enabled.
    pub(crate) fn note(&mut self, now: Time, name: &str, data: impl FnOnce() -> Value) {
        let Some(lines) = &mut self.lines else { return };
        if lines.len() >= LOG_LINES {
            self.dropped += 1;
            return;
        }
        let ms = now.as_nanos() as f64 / 1e6;
        lines.push_back(json!({ "time": ms, "name": name, "data": data() }).to_string());
    }

    pub(crate) fn poll(&mut self) -> Option<String> {
        let lines = self.lines.as_mut()?;
        if lines.is_empty() && self.dropped > 0 {
            let dropped = std::mem::take(&mut self.dropped);
            return Some(
                json!({ "name": "log:dropped", "data": { "lines": dropped } }).to_string(),
            );
        }
        lines.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_off_at_first_and_bounded_when_on() {
        let mut log = Log::default();
        log.note(Time::ZERO, "a", || panic!("off"));
        log.enable();
        (0..LOG_LINES + 5).for_each(|i| log.note(Time::ZERO, "a", || json!({ "i": i })));
        assert_eq!(log.poll().unwrap(), r#"{"data":{"i":0},"name":"a","time":0.0}"#);
        let rest: Vec<_> = std::iter::from_fn(|| log.poll()).collect();
        assert_eq!(rest.len(), LOG_LINES);
        assert_eq!(rest.last().unwrap(), r#"{"data":{"lines":5},"name":"log:dropped"}"#);
    }
}
