//! Parses quantities with units: `10gbit`, `1GiB`, `250ms`. A bare number is an error that shows
//! the two possible units.

use crate::{ByteCount, DataRate, Duration};

/// Why a quantity is invalid; the message contains a valid form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// A number without a unit.
    #[error("`{text}` needs a unit: write `{first}` or `{second}`")]
    NoUnit {
        /// The text.
        text: String,
        /// One interpretation.
        first: String,
        /// The other interpretation.
        second: String,
    },
    /// Not a number at all, negative, or not finite.
    #[error("`{text}` is not a {what}: write a number and a unit, such as `{example}`")]
    NotANumber {
        /// The text.
        text: String,
        /// The kind of quantity.
        what: &'static str,
        /// A valid example.
        example: &'static str,
    },
    /// A unit that this quantity does not have.
    #[error("`{unit}` in `{text}` is not a unit of a {what}: use one of {known}")]
    UnknownUnit {
        /// The text.
        text: String,
        /// The unit in it.
        unit: String,
        /// The kind of quantity.
        what: &'static str,
        /// The known units.
        known: &'static str,
    },
    /// More than 2^64 - 1 bits per second, bytes or nanoseconds.
    #[error("`{text}` is too large for a {what}")]
    TooLarge {
        /// The text.
        text: String,
        /// The kind of quantity.
        what: &'static str,
    },
}

struct Kind {
    what: &'static str,
    example: &'static str,
    known: &'static str,
    readings: (&'static str, &'static str),
    /// Units in lower case with their size in bits, bytes or nanoseconds.
    units: &'static [(&'static str, u64)],
}

const RATE: Kind = Kind {
    what: "rate",
    example: "500mbit",
    known: "bit, kbit, mbit, gbit, tbit, B/s, kB/s, MB/s, GB/s, KiB/s, MiB/s, GiB/s",
    readings: ("mbit", "MB/s"),
    units: &[
        ("bit", 1),
        ("kbit", 1_000),
        ("mbit", 1_000_000),
        ("gbit", 1_000_000_000),
        ("tbit", 1_000_000_000_000),
        ("b/s", 8),
        ("kb/s", 8_000),
        ("mb/s", 8_000_000),
        ("gb/s", 8_000_000_000),
        ("kib/s", 8 << 10),
        ("mib/s", 8 << 20),
        ("gib/s", 8 << 30),
    ],
};

const BYTES: Kind = Kind {
    what: "size",
    example: "1GiB",
    known: "B, kB, MB, GB, TB, KiB, MiB, GiB, TiB",
    readings: ("MB", "MiB"),
    units: &[
        ("b", 1),
        ("kb", 1_000),
        ("mb", 1_000_000),
        ("gb", 1_000_000_000),
        ("tb", 1_000_000_000_000),
        ("kib", 1 << 10),
        ("mib", 1 << 20),
        ("gib", 1 << 30),
        ("tib", 1 << 40),
    ],
};

const DURATION: Kind = Kind {
    what: "duration",
    example: "250ms",
    known: "ns, us, ms, s, m, h, d",
    readings: ("s", "ms"),
    units: &[
        ("ns", 1),
        ("us", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("m", 60_000_000_000),
        ("h", 3_600_000_000_000),
        ("d", 86_400_000_000_000),
    ],
};

/// Parses a rate such as `500mbit` or `60MB/s`. `Mb/s` is refused because it is ambiguous: some
/// mean bits, some bytes. Fractions of a bit are dropped.
pub fn parse_rate(text: &str) -> Result<DataRate, ParseError> {
    quantity(text, &RATE).map(DataRate::from_bps)
}

/// Parses a size such as `1GiB` or `1.5MB`. Fractions of a byte are dropped.
pub fn parse_bytes(text: &str) -> Result<ByteCount, ParseError> {
    quantity(text, &BYTES).map(ByteCount)
}

/// Parses a duration such as `250ms` or `10m`. Fractions of a nanosecond are dropped.
pub fn parse_duration(text: &str) -> Result<Duration, ParseError> {
    quantity(text, &DURATION).map(Duration::from_nanos)
}

fn quantity(text: &str, kind: &Kind) -> Result<u64, ParseError> {
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (digits, unit) = (&trimmed[..split], trimmed[split..].trim());
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && part.is_empty() || part.contains('.') {
        let (what, example) = (kind.what, kind.example);
        return Err(ParseError::NotANumber { text: text.to_owned(), what, example });
    }
    if unit.is_empty() {
        if digits.bytes().all(|b| b == b'0' || b == b'.') {
            return Ok(0);
        }
        let (first, second) = kind.readings;
        return Err(ParseError::NoUnit {
            text: text.to_owned(),
            first: format!("{digits}{first}"),
            second: format!("{digits}{second}"),
        });
    }
    let factor = factor(unit, kind).ok_or_else(|| ParseError::UnknownUnit {
        text: text.to_owned(),
        unit: unit.to_owned(),
        what: kind.what,
        known: kind.known,
    })?;
    scaled(whole, part, factor)
        .ok_or_else(|| ParseError::TooLarge { text: text.to_owned(), what: kind.what })
}

fn factor(unit: &str, kind: &Kind) -> Option<u64> {
    // Case is ignored, except that `b/s` and `B/s` differ.
    if unit.ends_with("b/s") {
        return None;
    }
    let lower = unit.to_ascii_lowercase();
    let stem = lower.strip_suffix("ps").or(lower.strip_suffix("/s"));
    let name = stem.filter(|stem| stem.ends_with("bit")).unwrap_or(&lower);
    kind.units.iter().find(|(known, _)| *known == name).map(|(_, factor)| *factor)
}

/// `whole.part` times `factor`, rounded down, in integers so that no digit is lost; `None` if the
/// result exceeds 64 bits.
fn scaled(whole: &str, part: &str, factor: u64) -> Option<u64> {
    let factor = u128::from(factor);
    let number = |digits: &str| match digits {
        "" => Some(0),
        _ => digits.parse::<u128>().ok(),
    };
    // The largest factor is below 10^14: digits after the twentieth have no effect.
    let part = &part[..part.len().min(20)];
    let fraction = number(part)? * factor / 10u128.pow(part.len() as u32);
    let total = number(whole)?.checked_mul(factor)?.checked_add(fraction)?;
    u64::try_from(total).ok()
}

#[cfg(test)]
mod tests;
