//! The variants of UDT.

use super::printed::AsPrinted;

/// A variant. The feedback `udt` of `packtrain-proto` differs with it too, so both ends of a flow
/// must use the same one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Variant {
    /// Gu and Grossman, "End-to-End Congestion Control for High Performance Data Transfer" (2003),
    /// sections III.B to III.E as printed, units and cross references corrected.
    Paper,
    /// The same with the changes of section V for computational grids: formula (3) removed, no
    /// decrease for the first single loss.
    #[default]
    Grid,
    /// The author's agent for ns-2 of 2003, which departs from the paper.
    Ns2,
    /// The deployed library, UDT4, without its defects.
    Udt4,
}

impl Variant {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Paper, Self::Grid, Self::Ns2, Self::Udt4];

    /// Its name after `udt:`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Paper => "paper",
            Self::Grid => "grid",
            Self::Ns2 => "ns2-2003",
            Self::Udt4 => "udt4",
        }
    }

    /// The variant of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|variant| variant.name() == name)
    }

    /// The variant that a controller's name requires of the feedback: `udt:paper` and so on; `udt`
    /// and all controllers other than UDT's use `grid`. `udt:ns2-2003-grid` and `udt:paper+WORD`
    /// differ at the sender only.
    pub fn of_controller(name: &str) -> Self {
        if name == super::NS2_WITHOUT_FORMULA_3 {
            return Self::Ns2;
        }
        let named = |name: &str| match AsPrinted::named(name) {
            Some(_) => Some(Self::Paper),
            None => Self::named(name),
        };
        name.strip_prefix("udt:").and_then(named).unwrap_or_default()
    }
}
