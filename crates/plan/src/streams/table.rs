//! Parses samples from CSV: lines under a header.

use std::num::NonZeroU32;

use super::Sample;
use super::point::from_mbps;

/// The columns, by name; others are ignored.
const STREAMS: &str = "streams";
const THROUGHPUT: &str = "throughput_mbps";

/// Maximum number of streams accepted.
const MAX_STREAMS: u32 = 65_535;

/// Maximum number of lines, so that a wrong file does not use all memory.
const MAX_SAMPLES: usize = 1_000_000;

/// An error in a table, with its correction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// The first line does not name the columns.
    #[error(
        "line {line}: there is no column `{column}`: the first line must name the columns, \
             as in `streams,throughput_mbps`"
    )]
    NoColumn {
        /// Line number, from 1.
        line: usize,
        /// The missing column.
        column: &'static str,
    },
    /// A line is shorter than the first.
    #[error("line {line}: there is no value for `{column}`: write one for each column")]
    Missing {
        /// Line number, from 1.
        line: usize,
        /// The missing column.
        column: &'static str,
    },
    /// Not a number of streams.
    #[error(
        "line {line}: `{value}` is not a number of streams: write a whole number from 1 to \
             65535"
    )]
    Streams {
        /// Line number, from 1.
        line: usize,
        /// The text.
        value: String,
    },
    /// Not a throughput.
    #[error(
        "line {line}: `{value}` is not a throughput: write megabits a second as a number, \
             such as 940.5, zero or more and without a unit"
    )]
    Throughput {
        /// Line number, from 1.
        line: usize,
        /// The text.
        value: String,
    },
    /// Too many lines.
    #[error("line {line}: more than a million samples: give the last of them, or medians")]
    TooMany {
        /// Line number, from 1.
        line: usize,
    },
    /// No samples.
    #[error("there is no sample: write lines such as `4,940.5` below `streams,throughput_mbps`")]
    Empty,
}

/// Parses `streams,throughput_mbps` and the lines below it. The columns may be in any order, with
/// others beside them; empty lines and lines that begin with `#` are skipped.
///
/// # Errors
/// The first error with its line, or there is no sample.
pub fn samples_from_csv(text: &str) -> Result<Vec<Sample>, TableError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = (1..).zip(text.lines()).filter(|(_, line)| {
        let line = line.trim();
        !line.is_empty() && !line.starts_with('#')
    });
    let Some((first, header)) = lines.next() else { return Err(TableError::Empty) };
    let column = |column| {
        let found = fields(header).position(|name| name.eq_ignore_ascii_case(column));
        found.ok_or(TableError::NoColumn { line: first, column })
    };
    let (streams_at, throughput_at) = (column(STREAMS)?, column(THROUGHPUT)?);
    let mut samples = Vec::new();
    for (line, text) in lines {
        if samples.len() == MAX_SAMPLES {
            return Err(TableError::TooMany { line });
        }
        let field = |at: usize, column| {
            let found = fields(text).nth(at).filter(|value| !value.is_empty());
            found.ok_or(TableError::Missing { line, column })
        };
        samples.push(Sample {
            streams: streams(field(streams_at, STREAMS)?, line)?,
            throughput: throughput(field(throughput_at, THROUGHPUT)?, line)?,
        });
    }
    if samples.is_empty() { Err(TableError::Empty) } else { Ok(samples) }
}

fn fields(line: &str) -> impl Iterator<Item = &str> {
    line.split(',').map(|field| {
        let field = field.trim();
        field.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(field).trim()
    })
}

fn streams(value: &str, line: usize) -> Result<NonZeroU32, TableError> {
    let number = value.parse().ok().filter(|n| *n <= MAX_STREAMS).and_then(NonZeroU32::new);
    number.ok_or_else(|| TableError::Streams { line, value: shortened(value) })
}

fn throughput(value: &str, line: usize) -> Result<packtrain_units::DataRate, TableError> {
    let number = value.parse::<f64>().ok().filter(|mbps| mbps.is_finite() && *mbps >= 0.0);
    number.map(from_mbps).ok_or_else(|| TableError::Throughput { line, value: shortened(value) })
}

/// The beginning of a value, enough to recognise it.
fn shortened(value: &str) -> String {
    const MAX_TEXT: usize = 40;
    let mut short: String = value.chars().take(MAX_TEXT).collect();
    if short.len() < value.len() {
        short.push_str("...");
    }
    short
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Result<Vec<(u32, u64)>, String> {
        samples_from_csv(text)
            .map(|all| all.iter().map(|s| (s.streams.get(), s.throughput.as_bps())).collect())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn columns_in_any_order_comments_and_other_columns() {
        let plain = read("streams,throughput_mbps\n1,10.5\n2,20\n");
        assert_eq!(plain, Ok(vec![(1, 10_500_000), (2, 20_000_000)]));
        let other = "\u{feff}# a comment\r\n\"Throughput_mbps\" ,runs, streams\r\n\r\n 5,9, 3\r\n";
        assert_eq!(read(other), Ok(vec![(3, 5_000_000)]));
        assert_eq!(read("streams,throughput_mbps\n1,0\n"), Ok(vec![(1, 0)]));
        assert_eq!(read("streams,throughput_mbps\n1,1e300\n"), Ok(vec![(1, u64::MAX)]));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        for (text, expected) in [
            ("", "there is no sample"),
            ("streams,throughput_mbps\n", "there is no sample"),
            ("1,2\n", "line 1: there is no column `streams`"),
            ("streams,mbps\n1,2\n", "line 1: there is no column `throughput_mbps`"),
            ("streams,throughput_mbps\n1\n", "line 2: there is no value for `throughput_mbps`"),
            ("streams,throughput_mbps\n\n0,5\n", "line 3: `0` is not a number of streams"),
            ("streams,throughput_mbps\n-1,5\n", "line 2: `-1` is not a number of streams"),
            ("streams,throughput_mbps\n1.5,5\n", "line 2: `1.5` is not a number of streams"),
            ("streams,throughput_mbps\n65536,5\n", "line 2: `65536` is not a number of streams"),
            ("streams,throughput_mbps\n1,fast\n", "line 2: `fast` is not a throughput"),
            ("streams,throughput_mbps\n1,nan\n", "line 2: `nan` is not a throughput"),
            ("streams,throughput_mbps\n1,inf\n", "line 2: `inf` is not a throughput"),
            ("streams,throughput_mbps\n1,-3\n", "line 2: `-3` is not a throughput"),
        ] {
            let said = read(text).expect_err(text);
            assert!(said.starts_with(expected), "{text:?}: {said}");
        }
        let long = format!("streams,throughput_mbps\n1,{}\n", "x".repeat(10_000));
        assert!(read(&long).expect_err("no number").len() < 200);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        /// Any text is parsed or refused.
        #[test]
        fn any_text_is_read_or_refused(text in "(streams,throughput_mbps\n)?[ -~\n\"é,0-9.]{0,80}") {
            let _ = samples_from_csv(&text);
        }

        /// Written samples are parsed again.
        #[test]
        fn what_was_written_is_read(rows in prop::collection::vec((1u32..=65_535, 0u32..), 1..20)) {
            let mut text = "streams,throughput_mbps\n".to_owned();
            for (streams, kbps) in &rows {
                text.push_str(&format!("{streams},{}.{:03}\n", kbps / 1000, kbps % 1000));
            }
            let expected: Vec<_> =
                rows.iter().map(|(n, kbps)| (*n, u64::from(*kbps) * 1000)).collect();
            prop_assert_eq!(read(&text), Ok(expected));
        }
    }
}
