//! Sessions of type 4: measurements of the speed of depots' hops.
//!
//! The header has option 24: the purpose (1 byte) and its data:
//!
//! ```text
//! 1 ask     none: asks for the depot's forecast towards its neighbours, and towards the
//!           destination of this header. A report follows `accepted`
//! 2 token   epoch (8), author (8), serial (8): passes the right to probe
//! 3 claim   epoch (8), author (8): claims the right to make a new token if no member objects
//! 4 probe   bytes (8): this many follow the header and are discarded; when all have arrived, the
//!           depot sends their number (8) after `accepted`
//! 5 points  none: asks for the depot's measurements towards the host of the destination of this
//!           header. Measurements ([`Point`]) follow `accepted`
//! ```
//!
//! A reply to 2 and 3 follows `accepted`: 1 taken or 0 stale (1 byte), and the highest known epoch
//! and its author (8 + 8).
//!
//! A report is its length (4, without itself) and series, each of them
//!
//! ```text
//! 0         1 relayed sessions, 2 probes
//! 1..9      age of the newest measurement, in milliseconds
//! 9..13     number of measurements
//! 13..21    expected rate of all streams together, bit/s
//! 21..29    lower end of its 80 % interval
//! 29..37    upper end of its 80 % interval
//! 37..41    deviation, parts per million
//! 41..49    expected rate of one stream, bit/s
//! 49..53    minimum round trip in microseconds; 0 unknown
//! 53..57    bytes sent again, parts per million
//! 57..59    length of the place
//! 59..      destination: a place as in headers (port 1 stands for any)
//! ```

mod points;

use packtrain_units::{ByteCount, DataRate, Duration};

use super::address::Place;

pub use points::{Point, read_points, write_points};

/// Bytes of a report's head.
pub const REPORT_HEAD: usize = 4;
/// Maximum series of a report.
pub(crate) const MAX_SERIES: usize = 128;
/// Maximum bytes of a report after its head.
pub const REPORT_MAX: usize = 64 << 10;
/// Length of a reply in bytes.
pub const REPLY: usize = 17;

const SERIES: usize = 57;

/// Identifies a token; the greater epoch stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch {
    /// Greater than all numbers that its author knew.
    pub number: u64,
    /// The depot that made it.
    pub author: u64,
}

/// The purpose of a session of this type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Requests the depot's forecasts.
    Ask,
    /// Passes the probe token, with the number of passes.
    Token(Epoch, u64),
    /// Claims a new token.
    Claim(Epoch),
    /// A probe: this many bytes follow.
    Probe(ByteCount),
    /// Requests the depot's measurements.
    Points,
}

/// The reply to a token or a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Whether it was taken.
    pub taken: bool,
    /// The highest known epoch.
    pub highest: Epoch,
}

/// The source of measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sensor {
    /// Relayed sessions.
    Relayed,
    /// Probes.
    Probed,
}

/// A depot's forecast of a hop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// The destination.
    pub to: Place,
    /// The source of the measurements.
    pub sensor: Sensor,
    /// Age of the newest measurement.
    pub age: Duration,
    /// Number of measurements.
    pub samples: u32,
    /// Rate of all streams together.
    pub rate: DataRate,
    /// The 80 % interval of this rate.
    pub interval: (DataRate, DataRate),
    /// One standard deviation, in parts per million.
    pub error_ppm: u32,
    /// Rate of one stream.
    pub each: DataRate,
    /// The minimum round trip.
    pub min_rtt: Option<Duration>,
    /// Retransmitted bytes, in parts per million.
    pub lost_ppm: u32,
}

/// The bytes are not a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the depot's report is broken")]
pub struct BrokenReport;

impl Measure {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let (code, numbers): (u8, [Option<u64>; 3]) = match *self {
            Self::Ask => (1, [None; 3]),
            Self::Token(epoch, n) => (2, [Some(epoch.number), Some(epoch.author), Some(n)]),
            Self::Claim(epoch) => (3, [Some(epoch.number), Some(epoch.author), None]),
            Self::Probe(bytes) => (4, [Some(bytes.get()), None, None]),
            Self::Points => (5, [None; 3]),
        };
        out.push(code);
        for number in numbers.into_iter().flatten() {
            out.extend(number.to_be_bytes());
        }
    }

    pub(super) fn read(value: &[u8]) -> Option<Self> {
        let (&code, rest) = value.split_first()?;
        let (numbers, odd) = rest.as_chunks::<8>();
        let number = |n: usize| numbers.get(n).map(|bytes| u64::from_be_bytes(*bytes));
        let epoch = || Some(Epoch { number: number(0)?, author: number(1)? });
        let (measure, count) = match code {
            1 => (Self::Ask, 0),
            2 => (Self::Token(epoch()?, number(2)?), 3),
            3 => (Self::Claim(epoch()?), 2),
            4 => (Self::Probe(ByteCount(number(0)?)), 1),
            5 => (Self::Points, 0),
            _ => return None,
        };
        (odd.is_empty() && numbers.len() == count).then_some(measure)
    }
}

impl Reply {
    /// The encoded reply.
    pub fn write(&self) -> [u8; REPLY] {
        let mut out = [u8::from(self.taken); REPLY];
        out[1..9].copy_from_slice(&self.highest.number.to_be_bytes());
        out[9..].copy_from_slice(&self.highest.author.to_be_bytes());
        out
    }

    /// Parses a reply; `None` if it is invalid.
    pub fn read(bytes: &[u8; REPLY]) -> Option<Self> {
        let number = |at: usize| {
            let mut eight = [0; 8];
            eight.copy_from_slice(&bytes[at..at + 8]);
            u64::from_be_bytes(eight)
        };
        let highest = Epoch { number: number(1), author: number(9) };
        (bytes[0] <= 1).then_some(Self { taken: bytes[0] == 1, highest })
    }
}

/// The encoded report with its head; series beyond the maximum are left out.
pub fn write_report(series: &[Series]) -> Vec<u8> {
    let mut out = vec![0; REPORT_HEAD];
    for one in series.iter().take(MAX_SERIES) {
        let begin = out.len();
        one.write(&mut out);
        if out.len() - REPORT_HEAD > REPORT_MAX {
            out.truncate(begin);
            break;
        }
    }
    let len = (out.len() - REPORT_HEAD) as u32;
    out[..REPORT_HEAD].copy_from_slice(&len.to_be_bytes());
    out
}

/// Number of bytes after a report's head.
///
/// # Errors
/// It exceeds the maximum.
pub fn report_len(head: &[u8; REPORT_HEAD]) -> Result<usize, BrokenReport> {
    let len = u32::from_be_bytes(*head) as usize;
    if len <= REPORT_MAX { Ok(len) } else { Err(BrokenReport) }
}

/// Parses a report without its head.
///
/// # Errors
/// It is invalid.
pub fn read_report(mut bytes: &[u8]) -> Result<Vec<Series>, BrokenReport> {
    let mut series = Vec::new();
    while !bytes.is_empty() {
        if series.len() == MAX_SERIES {
            return Err(BrokenReport);
        }
        let (one, rest) = Series::read(bytes).ok_or(BrokenReport)?;
        series.push(one);
        bytes = rest;
    }
    Ok(series)
}

impl Sensor {
    fn code(self) -> u8 {
        match self {
            Self::Relayed => 1,
            Self::Probed => 2,
        }
    }

    fn of(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Relayed),
            2 => Some(Self::Probed),
            _ => None,
        }
    }
}

/// A round trip as encoded; 0 if unknown.
fn micros(rtt: Option<Duration>) -> u32 {
    rtt.map_or(0, |rtt| rtt.as_micros().clamp(1, u64::from(u32::MAX)) as u32)
}

impl Series {
    fn write(&self, out: &mut Vec<u8>) {
        out.push(self.sensor.code());
        out.extend(self.age.as_millis().to_be_bytes());
        out.extend(self.samples.to_be_bytes());
        for rate in [self.rate, self.interval.0, self.interval.1] {
            out.extend(rate.as_bps().to_be_bytes());
        }
        out.extend(self.error_ppm.to_be_bytes());
        out.extend(self.each.as_bps().to_be_bytes());
        out.extend(micros(self.min_rtt).to_be_bytes());
        out.extend(self.lost_ppm.to_be_bytes());
        let mut place = Vec::new();
        self.to.write(&mut place);
        // A place has at most 256 bytes.
        out.extend((place.len() as u16).to_be_bytes());
        out.extend(place);
    }

    fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (head, rest) = bytes.split_first_chunk::<SERIES>()?;
        let (len, rest) = rest.split_first_chunk::<2>()?;
        let (place, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
        let long = |at: usize| {
            let mut eight = [0; 8];
            eight.copy_from_slice(&head[at..at + 8]);
            u64::from_be_bytes(eight)
        };
        let short = |at: usize| (long(at - 4) & u64::from(u32::MAX)) as u32;
        let rate = |at: usize| DataRate::from_bps(long(at));
        let sensor = Sensor::of(head[0])?;
        let micros = short(49);
        let series = Self {
            to: Place::read(place)?,
            sensor,
            age: Duration::from_nanos(long(1).checked_mul(1_000_000)?),
            samples: short(9),
            rate: rate(13),
            interval: (rate(21), rate(29)),
            error_ppm: short(37),
            each: rate(41),
            min_rtt: (micros > 0).then(|| Duration::from_micros(micros.into())),
            lost_ppm: short(53),
        };
        Some((series, rest))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A regression found by the fuzz target: an age of more than 2^64 nanoseconds.
    #[test]
    fn an_age_beyond_all_time_is_no_report() {
        let mut text = vec![1, 128, 0, 0, 0, 0, 0, 0, 0];
        text.extend([0; SERIES - 9]);
        let mut place = Vec::new();
        "d:1".parse::<Place>().unwrap().write(&mut place);
        text.extend((place.len() as u16).to_be_bytes());
        text.extend(place);
        assert_eq!(read_report(&text), Err(BrokenReport));
        text[1..9].fill(0);
        assert_eq!(read_report(&text).map(|series| series.len()), Ok(1));
    }

    fn series() -> impl Strategy<Value = Series> {
        let numbers = (0u64..1 << 40, any::<u32>(), any::<u64>(), any::<u64>(), any::<u64>());
        let more = (any::<u32>(), any::<u64>(), 0u32..u32::MAX, any::<u32>(), any::<bool>());
        (numbers, more, prop_oneof!["d[a-z]{1,40}:[1-9]", Just("[2001:db8::1]:7".to_owned())])
            .prop_map(
                |((ms, samples, rate, low, high), (error_ppm, each, rtt, lost, probed), to)| {
                    Series {
                        to: to.parse().unwrap(),
                        sensor: if probed { Sensor::Probed } else { Sensor::Relayed },
                        age: Duration::from_millis(ms.min(1 << 43)),
                        samples,
                        rate: DataRate::from_bps(rate),
                        interval: (DataRate::from_bps(low), DataRate::from_bps(high)),
                        error_ppm,
                        each: DataRate::from_bps(each),
                        min_rtt: (rtt > 0).then(|| Duration::from_micros(rtt.into())),
                        lost_ppm: lost,
                    }
                },
            )
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(all in proptest::collection::vec(series(), 0..20)) {
            let bytes = write_report(&all);
            let (head, rest) = bytes.split_first_chunk().unwrap();
            prop_assert_eq!(report_len(head), Ok(rest.len()));
            let read = read_report(rest).unwrap();
            prop_assert_eq!(write_report(&read), bytes.clone());
            for (one, other) in all.iter().zip(&read) {
                prop_assert_eq!(one, other);
            }
            for cut in 1..rest.len().min(80) {
                let _ = read_report(&rest[..cut]);
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(series) = read_report(&bytes) {
                prop_assert_eq!(&write_report(&series)[REPORT_HEAD..], &bytes[..]);
            }
            if let Some(measure) = Measure::read(&bytes) {
                let mut out = Vec::new();
                measure.write(&mut out);
                prop_assert_eq!(out, bytes);
            }
        }
    }

    #[test]
    fn a_report_is_bounded() {
        assert_eq!(report_len(&(REPORT_MAX as u32 + 1).to_be_bytes()), Err(BrokenReport));
        let to: Place = format!("{}:1", ["d".repeat(60).as_str(); 4].join(".")).parse().unwrap();
        let one = Series {
            to,
            sensor: Sensor::Probed,
            age: Duration::ZERO,
            samples: 1,
            rate: DataRate::ZERO,
            interval: (DataRate::ZERO, DataRate::ZERO),
            error_ppm: 0,
            each: DataRate::ZERO,
            min_rtt: None,
            lost_ppm: 0,
        };
        let bytes = write_report(&vec![one; 5000]);
        assert_eq!(read_report(&bytes[REPORT_HEAD..]).unwrap().len(), MAX_SERIES);
        let reply = Reply { taken: true, highest: Epoch { number: 7, author: 9 } };
        assert_eq!(Reply::read(&reply.write()), Some(reply));
        assert_eq!(Reply::read(&[2; REPLY]), None);
    }
}
