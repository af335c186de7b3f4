//! The single measurements of a depot: the answer to code 5 of option 24.
//!
//! Their length (4, without itself), then the measurements of each neighbour on the requested host,
//! the oldest first, each of them
//!
//! ```text
//! 0         1 relayed sessions, 2 a probe
//! 1..9      when, in milliseconds since 1970
//! 9..17     rate of all streams together, bit/s
//! 17..21    number of streams
//! 21..25    minimum round trip in microseconds; 0 unknown
//! 25..29    bytes sent again, parts per million
//! ```

use packtrain_units::{DataRate, Duration};

use super::{BrokenReport, REPORT_HEAD, REPORT_MAX, Sensor};

const POINT: usize = 29;

/// One measurement of a hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// The source of the measurement.
    pub sensor: Sensor,
    /// Time since 1970; encoded in milliseconds.
    pub at: Duration,
    /// Rate of all streams together.
    pub rate: DataRate,
    /// Number of streams.
    pub streams: u32,
    /// The minimum round trip; encoded in microseconds.
    pub min_rtt: Option<Duration>,
    /// Retransmitted bytes, in parts per million.
    pub lost_ppm: u32,
}

/// The encoded measurements with their head. If there are too many, the first ones are left out.
pub fn write_points(points: &[Point]) -> Vec<u8> {
    let skipped = points.len().saturating_sub(REPORT_MAX / POINT);
    let points = points.get(skipped..).unwrap_or_default();
    let mut out = Vec::with_capacity(REPORT_HEAD + points.len() * POINT);
    out.extend(((points.len() * POINT) as u32).to_be_bytes());
    for point in points {
        out.push(point.sensor.code());
        out.extend(point.at.as_millis().to_be_bytes());
        out.extend(point.rate.as_bps().to_be_bytes());
        out.extend(point.streams.to_be_bytes());
        out.extend(super::micros(point.min_rtt).to_be_bytes());
        out.extend(point.lost_ppm.to_be_bytes());
    }
    out
}

/// Parses measurements after their head, whose length is that of a report
/// ([`report_len`](super::report_len)).
///
/// # Errors
/// They are invalid.
pub fn read_points(bytes: &[u8]) -> Result<Vec<Point>, BrokenReport> {
    let (points, odd) = bytes.as_chunks::<POINT>();
    if !odd.is_empty() || bytes.len() > REPORT_MAX {
        return Err(BrokenReport);
    }
    points.iter().map(|point| read(point).ok_or(BrokenReport)).collect()
}

fn read(point: &[u8; POINT]) -> Option<Point> {
    let (sensor, rest) = point.split_first()?;
    let (at, rest) = rest.split_first_chunk()?;
    let (rate, rest) = rest.split_first_chunk()?;
    let (streams, rest) = rest.split_first_chunk()?;
    let (rtt, rest) = rest.split_first_chunk()?;
    let micros = u32::from_be_bytes(*rtt);
    Some(Point {
        sensor: Sensor::of(*sensor)?,
        at: Duration::from_nanos(u64::from_be_bytes(*at).checked_mul(1_000_000)?),
        rate: DataRate::from_bps(u64::from_be_bytes(*rate)),
        streams: u32::from_be_bytes(*streams),
        min_rtt: (micros > 0).then(|| Duration::from_micros(micros.into())),
        lost_ppm: u32::from_be_bytes(*rest.first_chunk()?),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn point() -> impl Strategy<Value = Point> {
        (any::<bool>(), 0u64..1 << 43, any::<u64>(), any::<u32>(), any::<u32>(), any::<u32>())
            .prop_map(|(probed, ms, rate, streams, rtt, lost_ppm)| Point {
                sensor: if probed { Sensor::Probed } else { Sensor::Relayed },
                at: Duration::from_millis(ms),
                rate: DataRate::from_bps(rate),
                streams,
                min_rtt: (rtt > 0).then(|| Duration::from_micros(rtt.into())),
                lost_ppm,
            })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(points in proptest::collection::vec(point(), 0..40)) {
            let bytes = write_points(&points);
            let (head, rest) = bytes.split_first_chunk().unwrap();
            prop_assert_eq!(super::super::report_len(head), Ok(rest.len()));
            prop_assert_eq!(read_points(rest), Ok(points));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(points) = read_points(&bytes) {
                prop_assert_eq!(&write_points(&points)[REPORT_HEAD..], &bytes[..]);
            }
        }
    }

    #[test]
    fn of_too_many_the_last_are_told() {
        let point = |n: u32| Point {
            sensor: Sensor::Relayed,
            at: Duration::ZERO,
            rate: DataRate::ZERO,
            streams: n,
            min_rtt: None,
            lost_ppm: 0,
        };
        let points: Vec<Point> = (0..5000).map(point).collect();
        let bytes = write_points(&points);
        let read = read_points(&bytes[REPORT_HEAD..]).unwrap();
        assert!(bytes.len() <= REPORT_HEAD + REPORT_MAX && read.len() > 2000);
        assert_eq!(read.last(), points.last());
    }
}
