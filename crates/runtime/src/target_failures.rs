//! Failures of names at the target that the source cannot know as entries: what `--delete` left
//! there, and directories that could not be put in their place.

use packtrain_transfer::{Failure, Outcome};

/// Maximum failures that one end tells the other.
const MAX_TOLD: usize = 100;
/// Maximum bytes of paths and texts of these failures.
const MAX_TOLD_BYTES: usize = 256 << 10;

/// The first failures, within the limits of number and size. The count of all failures is in the
/// sink's summary.
#[derive(Debug, Default)]
pub struct TargetFailures {
    told: Vec<(Vec<u8>, Failure)>,
    bytes: usize,
}

impl TargetFailures {
    /// Keeps those of these failures for which there is room, and returns them.
    pub fn add(&mut self, failures: Vec<(Vec<u8>, Failure)>) -> Vec<(Vec<u8>, Failure)> {
        let mut fresh = Vec::new();
        for (path, failure) in failures {
            let failure = failure.bounded();
            let bytes = path.len() + failure.text.len();
            if self.told.len() == MAX_TOLD || self.bytes + bytes > MAX_TOLD_BYTES {
                break;
            }
            self.bytes += bytes;
            self.told.push((path.clone(), failure.clone()));
            fresh.push((path, failure));
        }
        fresh
    }

    /// Adds the failures to those that the outcome lists.
    pub fn append_to(self, outcome: &mut Outcome) {
        let room = MAX_TOLD.saturating_sub(outcome.failed.len());
        outcome.failed.extend(self.told.into_iter().take(room));
    }
}

#[cfg(test)]
mod tests {
    use packtrain_transfer::FailureKind;

    use super::*;

    fn failures(count: usize, size: usize) -> Vec<(Vec<u8>, Failure)> {
        let one = (vec![b'x'; size], Failure::new(FailureKind::TargetRefused, "not deleted"));
        vec![one; count]
    }

    #[test]
    fn a_peer_that_tells_more_than_the_limits_is_cut_short() {
        let mut told = TargetFailures::default();
        assert_eq!(told.add(failures(60, 10)).len(), 60);
        assert_eq!(told.add(failures(60, 10)).len(), MAX_TOLD - 60);
        assert!(told.add(failures(1, 10)).is_empty());
        let mut outcome = crate::sink::ended(Failure::new(FailureKind::Fatal, "x"));
        outcome.failed = failures(99, 1);
        told.append_to(&mut outcome);
        assert_eq!(outcome.failed.len(), MAX_TOLD);

        let mut told = TargetFailures::default();
        let long = told.add(failures(10, 100_000));
        assert_eq!(long.len(), MAX_TOLD_BYTES / 100_011);
        let text = Failure::new(FailureKind::TargetRefused, "y".repeat(1 << 20));
        assert!(told.add(vec![(Vec::new(), text)])[0].1.text.len() < 1 << 10);
    }
}
