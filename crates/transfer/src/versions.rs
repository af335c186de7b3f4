//! Versions of the control protocol. Each end states the range that it supports; both then use the
//! highest version that is in both ranges.

use std::fmt;

use crate::message::Hello;

/// A range of protocol versions, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The lowest.
    pub lowest: u16,
    /// The highest, which is used if the other end supports it too.
    pub highest: u16,
}

impl Versions {
    /// What this build supports.
    ///
    /// A build that adds or changes a message raises `highest`, and uses the new form only if the
    /// agreed version has it. What an initiator sends before the responder's `Hello` has the form
    /// of `lowest`.
    pub const OWN: Self = Self { lowest: 1, highest: 3 };
    /// The first version with `NeedChanged` and `Same`.
    pub const CHANGED_PIECES: u16 = 2;
    /// The first version whose responders answer queries about their files.
    pub const QUERIES: u16 = 3;
    /// The first version with `Rules`, and with filter rules that name files in directories.
    pub const RULES: u16 = 3;

    /// The versions that are in both ranges; none if the ends cannot understand each other.
    pub fn common(self, other: Self) -> Option<Self> {
        let lowest = self.lowest.max(other.lowest);
        let highest = self.highest.min(other.highest);
        (lowest <= highest).then_some(Self { lowest, highest })
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.lowest, self.highest)
    }
}

impl Hello {
    /// The versions that the sender supports.
    pub fn versions(&self) -> Versions {
        Versions { lowest: self.lowest, highest: self.highest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_common_version_is_used() {
        let range = |lowest, highest| Versions { lowest, highest };
        for (one, other, common) in [
            (range(1, 1), range(1, 1), Some(range(1, 1))),
            (range(1, 3), range(1, 2), Some(range(1, 2))),
            (range(1, 3), range(2, 9), Some(range(2, 3))),
            (range(1, 2), range(3, 4), None),
            // A hostile or broken peer may state an empty range.
            (range(1, 2), range(2, 1), None),
            (range(1, 2), range(u16::MAX, 0), None),
        ] {
            assert_eq!(one.common(other), common, "{one} and {other}");
            assert_eq!(other.common(one), common, "{other} and {one}");
        }
    }
}
