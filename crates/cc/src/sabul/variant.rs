//! Options: how the rate falls, the effect of silence, the first rate.

use packtrain_units::{DataRate, parse_rate};

/// The factor of a multiplicative decrease: UDT's 8/9, SABUL's successor.
pub(super) const FACTOR: f64 = 1.0 / 1.125;

/// How the rate falls when more than 1 % is lost. The paper says "linearly" and suggests
/// experiments with other functions (section 6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Decrease {
    /// Linearly in the loss: by its excess over 0.5 %.
    #[default]
    Linear,
    /// By a fixed step of 0.5 %, independent of the loss.
    Step,
    /// By a ninth.
    Multiplicative,
    /// By the lost share: to the rate that arrived, at which a path loses nothing.
    Proportional,
}

/// The rate while no feedback arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Silence {
    /// It stays, as in the paper (section 4). The circuit breaker ends the silence after a second.
    #[default]
    Keep,
    /// It falls every 500 packets (section 6).
    Reduce,
}

/// A variant of the algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Variant {
    /// How the rate falls.
    pub decrease: Decrease,
    /// The rate in silence.
    pub silence: Silence,
    /// The first rate; default 100 Mbit/s.
    pub first: Option<DataRate>,
}

impl Variant {
    /// Parses words joined by `+`: `linear`, `step`, `multiplicative` or `proportional`; `keep` or
    /// `reduce`; a rate. `None` if a word is unknown.
    pub fn named(words: &str) -> Option<Self> {
        let mut variant = Self::default();
        for word in words.split('+') {
            match word {
                "linear" => variant.decrease = Decrease::Linear,
                "step" => variant.decrease = Decrease::Step,
                "multiplicative" => variant.decrease = Decrease::Multiplicative,
                "proportional" => variant.decrease = Decrease::Proportional,
                "keep" => variant.silence = Silence::Keep,
                "reduce" => variant.silence = Silence::Reduce,
                rate => {
                    let rate = parse_rate(rate).ok().filter(|rate| *rate > DataRate::ZERO)?;
                    variant.first = Some(rate);
                }
            }
        }
        Some(variant)
    }

    /// Its name in the registry, without the first rate.
    pub fn name(self) -> &'static str {
        match (self.decrease, self.silence) {
            (Decrease::Linear, Silence::Keep) => "sabul:linear",
            (Decrease::Step, Silence::Keep) => "sabul:step",
            (Decrease::Multiplicative, Silence::Keep) => "sabul:multiplicative",
            (Decrease::Proportional, Silence::Keep) => "sabul:proportional",
            (Decrease::Linear, Silence::Reduce) => "sabul:linear+reduce",
            (Decrease::Step, Silence::Reduce) => "sabul:step+reduce",
            (Decrease::Multiplicative, Silence::Reduce) => "sabul:multiplicative+reduce",
            (Decrease::Proportional, Silence::Reduce) => "sabul:proportional+reduce",
        }
    }
}
