//! Ranges of local ports, as in `--ports A-B`.

use std::fmt;
use std::str::FromStr;

/// Local ports that a firewall permits, both ends included. Port 0 means any port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    first: u16,
    last: u16,
}

/// Why a text is not a port range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortRangeError {
    /// It does not have the form `A-B` or `A` with numbers from 1 to 65535.
    #[error("`{0}` is not a port range: give two ports from 1 to 65535, as in 50000-50100")]
    Malformed(String),
    /// The first port lies above the last.
    #[error("the port range {0}-{1} is empty: its first port lies above its last")]
    Empty(u16, u16),
}

impl PortRange {
    /// Any port, chosen by the system.
    pub const ANY: Self = Self { first: 0, last: 0 };

    /// The ports `first..=last`.
    ///
    /// # Errors
    /// [`PortRangeError::Empty`] if `first` is above `last`.
    pub fn new(first: u16, last: u16) -> Result<Self, PortRangeError> {
        if first > last {
            return Err(PortRangeError::Empty(first, last));
        }
        Ok(Self { first, last })
    }

    /// Whether the system chooses the port.
    pub(crate) fn is_any(self) -> bool {
        self.first == 0
    }

    /// The number of ports; zero if the system chooses.
    pub fn count(self) -> usize {
        if self.is_any() { 0 } else { usize::from(self.last - self.first) + 1 }
    }

    /// The ports in an order that starts `turn` places into the range, so that processes that start
    /// at the same time do not all try the same port first.
    pub(super) fn rotated(self, turn: u64) -> impl Iterator<Item = u16> {
        let (first, count) = (u64::from(self.first), self.count() as u64);
        (0..count).map(move |i| (first + turn.wrapping_add(i) % count) as u16)
    }
}

impl FromStr for PortRange {
    type Err = PortRangeError;

    fn from_str(text: &str) -> Result<Self, PortRangeError> {
        let malformed = || PortRangeError::Malformed(text.to_owned());
        let port = |s: &str| s.trim().parse::<u16>().ok().filter(|p| *p > 0).ok_or_else(malformed);
        match text.split_once('-') {
            Some((first, last)) => Self::new(port(first)?, port(last)?),
            None => port(text).and_then(|p| Self::new(p, p)),
        }
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_any() { f.write_str("any") } else { write!(f, "{}-{}", self.first, self.last) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_ranges_or_errors() {
        assert_eq!("5000-5001".parse(), PortRange::new(5000, 5001));
        assert_eq!("5000".parse(), PortRange::new(5000, 5000));
        assert_eq!("2-1".parse::<PortRange>(), Err(PortRangeError::Empty(2, 1)));
        for bad in ["", "-", "0-5", "1-", "a-b", "1-70000", "1-2-3"] {
            assert!(matches!(bad.parse::<PortRange>(), Err(PortRangeError::Malformed(_))), "{bad}");
        }
    }

    #[test]
    fn rotation_visits_every_port_once() {
        let range = PortRange::new(65_530, 65_535).unwrap();
        for turn in [0, 3, 7, u64::MAX - 5] {
            let mut seen: Vec<_> = range.rotated(turn).collect();
            seen.sort_unstable();
            assert_eq!(seen, (65_530..=65_535).collect::<Vec<_>>());
        }
    }
}
