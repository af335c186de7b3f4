//! Throughputs in the JSON formats of perfSONAR: the time series of an esmond archive, and results
//! of pScheduler's test `throughput`.

use packtrain_units::{DataRate, Duration};
use serde_json::{Value, json};

use super::Measurement;

/// A file without throughputs.
#[derive(Debug, thiserror::Error)]
pub enum PerfsonarError {
    /// The file is not JSON.
    #[error("not JSON: {0}")]
    NotJson(#[from] serde_json::Error),
    /// The JSON contains no throughput.
    #[error(
        "no throughput in it: an esmond series is [{{\"ts\": SECONDS, \"val\": BITS_PER_SECOND}}, \
         ...], a pScheduler result has summary.summary.throughput-bits"
    )]
    NoThroughput,
}

/// The content of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Throughputs between the requested machines, or between unnamed ones.
    pub measurements: Vec<Measurement>,
    /// Number of results between other machines.
    pub of_others: usize,
    /// Number of failed tests.
    pub failed: usize,
}

/// Maximum nesting in pScheduler's output: an array of runs, their result, its summary.
const DEPTH: usize = 6;

/// Parses one JSON value, or one per line. Results that name their ends count only if these are
/// `from` and `to`.
///
/// # Errors
/// The text is not JSON, or contains no throughput.
/// It is not JSON, or holds nothing that could be a throughput.
pub fn read(text: &str, from: &str, to: &str) -> Result<Found, PerfsonarError> {
    let mut reading = Reading { from, to, found: Found::default() };
    for value in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
        reading.take(&value?, None, DEPTH);
    }
    let found = reading.found;
    if found.measurements.is_empty() && found.of_others == 0 && found.failed == 0 {
        return Err(PerfsonarError::NoThroughput);
    }
    Ok(found)
}

/// Formats an esmond series.
pub fn write(measurements: &[Measurement]) -> Value {
    let points = measurements
        .iter()
        .map(|one| json!({"ts": one.at.as_nanos() / 1_000_000_000, "val": one.rate.as_bps()}));
    points.collect()
}

struct Reading<'a> {
    from: &'a str,
    to: &'a str,
    found: Found,
}

impl Reading<'_> {
    /// Reads `value`; `at` is the time of the measurement, if an enclosing value has it.
    fn take(&mut self, value: &Value, at: Option<Duration>, deeper: usize) {
        if deeper == 0 {
            return;
        }
        if let Value::Array(all) = value {
            all.iter().for_each(|one| self.take(one, at, deeper - 1));
            return;
        }
        let Value::Object(_) = value else { return };
        if let (Some(ts), Some(val)) = (value["ts"].as_f64(), value["val"].as_f64()) {
            self.keep(seconds(ts), val);
            return;
        }
        let spec = &value["test"]["spec"];
        let other = |end: &Value, asked: &str| end.as_str().is_some_and(|name| name != asked);
        if other(&spec["source"], self.from) || other(&spec["dest"], self.to) {
            self.found.of_others += 1;
            return;
        }
        let started = ["start-time", "start"].iter().find_map(|name| value[*name].as_str());
        let at = started.and_then(iso8601).or(at);
        for around in ["result-merged", "result"] {
            if value[around].is_object() {
                self.take(&value[around], at, deeper - 1);
                return;
            }
        }
        match value["summary"]["summary"]["throughput-bits"].as_f64() {
            Some(bits) if value["succeeded"] != false => self.keep(at, bits),
            Some(_) => self.found.failed += 1,
            None if value["succeeded"] == false => self.found.failed += 1,
            None => {}
        }
    }

    /// A measurement without a time gets the position that it has in the file.
    fn keep(&mut self, at: Option<Duration>, bits: f64) {
        if !bits.is_finite() || bits < 0.0 {
            self.found.failed += 1;
            return;
        }
        let before = self.found.measurements.last().map_or(Duration::ZERO, |one| one.at);
        let rate = DataRate::from_bps(bits.round() as u64);
        self.found.measurements.push(Measurement { at: at.unwrap_or(before), rate, rtt: None });
    }
}

fn seconds(ts: f64) -> Option<Duration> {
    (0.0..1e11).contains(&ts).then(|| Duration::from_micros((ts * 1e6) as u64))
}

/// Parses `2026-11-22T08:30:00Z`, or an offset in the place of the Z; returns the time since 1970.
fn iso8601(text: &str) -> Option<Duration> {
    let number = |range: std::ops::Range<usize>| -> Option<i64> {
        let digits = text.get(range)?;
        digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let [year, month, day] = [number(0..4)?, number(5..7)?, number(8..10)?];
    let [hour, minute, second] = [number(11..13)?, number(14..16)?, number(17..19)?];
    let fits = (1970..10_000).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second < 61;
    if !fits {
        return None;
    }
    let rest = text.get(19..)?;
    let zone = rest.find(['Z', '+', '-']).map_or("Z", |at| &rest[at..]);
    let offset = match zone.as_bytes()[0] {
        b'Z' => 0,
        sign => {
            let digits: String = zone.chars().filter(char::is_ascii_digit).collect();
            let hours: i64 = digits.get(0..2)?.parse().ok()?;
            let minutes: i64 = digits.get(2..4).map_or(Some(0), |text| text.parse().ok())?;
            (hours * 60 + minutes) * if sign == b'-' { -60 } else { 60 }
        }
    };
    // Days since 1970, with years that begin in March, so that a leap day is the last day of its
    // year.
    let years = if month > 2 { year } else { year - 1 };
    let months = (month + 9) % 12;
    let days = years * 365 + years / 4 - years / 100 + years / 400 + (months * 153 + 2) / 5 + day
        - 719_469;
    let whole = ((days * 24 + hour) * 60 + minute) * 60 + second - offset;
    Some(Duration::from_secs(whole.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(found: &Found) -> Vec<u64> {
        found.measurements.iter().map(|one| one.rate.as_bps()).collect()
    }

    #[test]
    fn a_series_goes_out_and_comes_back() {
        let text = r#"[{"ts": 1397482734, "val": 9483740000.0}, {"ts": 1397482800, "val": 1e9}]"#;
        let found = read(text, "a", "b").unwrap();
        assert_eq!(rates(&found), [9_483_740_000, 1_000_000_000]);
        assert_eq!(found.measurements[0].at, Duration::from_secs(1_397_482_734));
        let again = read(&write(&found.measurements).to_string(), "a", "b").unwrap();
        assert_eq!(again, found);
    }

    #[test]
    fn results_of_the_scheduler_are_read_if_they_are_of_this_path() {
        let run = |dest: &str, ok: bool, bits: u64| {
            json!({
                "test": {"type": "throughput", "spec": {"source": "a", "dest": dest}},
                "start-time": "2026-11-22T08:30:05+01:00",
                "result-merged": {
                    "succeeded": ok,
                    "summary": {"summary": {"throughput-bits": bits, "retransmits": 3}},
                    "intervals": [],
                },
            })
        };
        let text = format!("{}\n{}\n{}", run("b", true, 7), run("c", true, 8), run("b", false, 0));
        let found = read(&text, "a", "b").unwrap();
        assert_eq!((rates(&found), found.of_others, found.failed), (vec![7], 1, 1));
        assert_eq!(found.measurements[0].at, Duration::from_secs(1_795_332_605));
        let bare = r#"{"succeeded": true, "summary": {"summary": {"throughput-bits": 5}}}"#;
        assert_eq!(rates(&read(bare, "x", "y").unwrap()), [5]);
    }

    #[test]
    fn times_are_read_with_their_zone() {
        for (text, wanted) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2000-02-29T12:00:00Z", Some(951_825_600)),
            ("2026-11-22T08:30:05.123456-05:30", Some(1_795_356_005)),
            ("2026-11-22 08:30:05", Some(1_795_336_205)),
            ("2026-13-22T08:30:05Z", None),
            ("yesterday", None),
            ("2026-11-22T08:30:05+", None),
            ("\u{e9}\u{e9}26-11-22T08:30:05Z", None),
        ] {
            assert_eq!(iso8601(text), wanted.map(Duration::from_secs), "{text}");
        }
    }

    #[test]
    fn other_json_is_refused() {
        for text in ["", "{}", "[1, 2]", "[{\"ts\": 3}]", "null"] {
            assert!(matches!(read(text, "a", "b"), Err(PerfsonarError::NoThroughput)), "{text}");
        }
        assert!(matches!(read("[{", "a", "b"), Err(PerfsonarError::NotJson(_))));
        let negative = read(r#"[{"ts": 1, "val": -4}]"#, "a", "b").unwrap();
        assert_eq!((negative.measurements.len(), negative.failed), (0, 1));
    }
}
