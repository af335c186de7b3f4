//! When formula (7) cuts the rate: at the first loss report of an epoch, and at increasingly rare
//! further reports of the same epoch. An epoch ends with the packets that were in flight when it
//! began (`last_dec_seq`).

use packtrain_units::Rng;

use super::average::Average;
use super::variant::Variant;

/// The factor of (7): the packet interval grows, the rate falls by a ninth.
pub(super) const CUT: f64 = 1.0 / 1.125;
/// The first e: further reports cut when dc = 2^e.
const FIRST_EXPONENT: u32 = 4;
/// The agent of 2003 starts its count this far below zero with the threshold 2^1, so that the 18th
/// further report cuts; then, counting from zero, the 4th, the 8th and so on.
const NS2_START: i64 = -16;
/// Maximum cuts of UDT4 in an epoch (draft-gg-udt-03 section 6).
const UDT4_CUTS: u32 = 5;

/// A cut of the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// It begins an epoch: `last_dec_seq` moved.
    Opening,
    /// It occurs within an epoch.
    Within,
}

/// The state of the current loss epoch.
#[derive(Debug)]
pub(super) struct Epochs {
    /// One past the highest index sent.
    next: u64,
    /// `last_dec_seq` + 1: losses below belong to the epoch.
    end: u64,
    /// Section V: whether the first single loss may still be ignored; none: never.
    ignore_single: Option<bool>,
    within: Within,
}

/// Which further reports of an epoch cut.
#[derive(Debug)]
enum Within {
    /// III.C: when dc = 2^e.
    Powers { dc: u64, e: u32 },
    /// The agent of 2003.
    Ns2 { further: i64, e: u32 },
    /// UDT4: every `step`th, a random number near the mean number of reports per epoch, so that
    /// flows that lose packets together do not cut together.
    Random { rng: Rng, naks: u64, mean: Average, step: u64, cuts: u32 },
}

impl Within {
    fn new(variant: Variant, seed: u64) -> Self {
        match variant {
            Variant::Paper | Variant::Grid => Self::Powers { dc: 1, e: FIRST_EXPONENT },
            Variant::Ns2 => Self::Ns2 { further: NS2_START, e: 1 },
            Variant::Udt4 => {
                let rng = Rng::new(seed);
                Self::Random { rng, naks: 1, mean: Average::from(1.0), step: 1, cuts: 1 }
            }
        }
    }

    /// Begins a new epoch.
    fn restart(&mut self) {
        match self {
            Self::Powers { dc, e } => (*dc, *e) = (1, FIRST_EXPONENT),
            Self::Ns2 { further, e } => (*further, *e) = (NS2_START, 1),
            Self::Random { rng, naks, mean, step, cuts } => {
                mean.add(*naks as f64);
                let mean = mean.get().unwrap_or(1.0).ceil().clamp(1.0, 1e6);
                *step = 1 + rng.below(mean as u64);
                (*naks, *cuts) = (1, 1);
            }
        }
    }

    /// Whether a further report of the epoch cuts.
    fn is_cut(&mut self) -> bool {
        match self {
            Self::Powers { dc, e } => {
                *dc = dc.saturating_add(1);
                let cut = 1u64.checked_shl(*e) == Some(*dc);
                *e += u32::from(cut);
                cut
            }
            Self::Ns2 { further, e } => {
                *further = further.saturating_add(1);
                let cut = 1i64.checked_shl(*e).is_some_and(|threshold| *further >= threshold);
                if cut {
                    (*further, *e) = (0, (*e + 1).min(62));
                }
                cut
            }
            Self::Random { naks, step, cuts, .. } => {
                *naks = naks.saturating_add(1);
                let cut = *cuts < UDT4_CUTS && naks.is_multiple_of(*step);
                *cuts += u32::from(cut);
                cut
            }
        }
    }
}

impl Epochs {
    pub(super) fn new(variant: Variant, seed: u64) -> Self {
        let ignore_single = matches!(variant, Variant::Grid | Variant::Ns2).then_some(true);
        Self { next: 0, end: 0, ignore_single, within: Within::new(variant, seed) }
    }

    /// Indices below `next` were sent.
    pub(super) fn on_sent(&mut self, next: u64) {
        self.next = self.next.max(next);
    }

    /// A NAK with `packets` losses, the last of them below the index `end`.
    pub(super) fn on_nak(&mut self, packets: u64, end: u64) -> Option<Cut> {
        if end > self.end {
            if packets == 1 && self.ignore_single == Some(true) {
                self.ignore_single = Some(false);
                return None;
            }
            return Some(self.open());
        }
        if !self.within.is_cut() {
            return None;
        }
        if let Within::Random { .. } = self.within {
            self.end = self.next.max(self.end);
        }
        Some(Cut::Within)
    }

    /// Begins an epoch, for any reason.
    pub(super) fn open(&mut self) -> Cut {
        self.end = self.next.max(self.end);
        self.ignore_single = self.ignore_single.map(|_| true);
        self.within.restart();
        Cut::Opening
    }
}
