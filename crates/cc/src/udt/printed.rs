//! Where `udt:paper` departs from the printed text at the sender, or fills a gap in it, and the
//! switches that take the text as printed. The experiment `udt-2003-deviations` has their effects.

/// What `udt:paper` takes as printed, beyond the rest. Each value names one departure that it
/// undoes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AsPrinted {
    /// None: `udt:paper`.
    #[default]
    Nothing,
    /// Formula (1) always takes the arrival rate, also where the window was full on an empty path.
    Window,
    /// A capacity that no packet pair has shown is zero, so that (2) holds.
    Capacity,
    /// The report that ends slow start cuts the rate too, by (7).
    ExitCut,
    /// Every loss ends slow start, however early.
    EarlyLoss,
    /// Timeouts do not change the rate: the paper has none.
    Silence,
    /// All five.
    Everything,
}

impl AsPrinted {
    /// All of them but none.
    pub const ALL: [Self; 6] = [
        Self::Window,
        Self::Capacity,
        Self::ExitCut,
        Self::EarlyLoss,
        Self::Silence,
        Self::Everything,
    ];

    /// The name of the controller.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "udt:paper",
            Self::Window => "udt:paper+window",
            Self::Capacity => "udt:paper+capacity",
            Self::ExitCut => "udt:paper+exit-cut",
            Self::EarlyLoss => "udt:paper+early-loss",
            Self::Silence => "udt:paper+silence",
            Self::Everything => "udt:paper+printed",
        }
    }

    /// The one of this name after `udt:`.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|of| of.name().strip_prefix("udt:") == Some(name))
    }

    /// Whether this departure is undone.
    pub(super) fn has(self, one: Self) -> bool {
        self == one || self == Self::Everything
    }
}
