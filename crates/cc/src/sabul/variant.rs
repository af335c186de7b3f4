//! What may be chosen: how the rate falls, what silence does, with which rate to begin.

use packtrain_units::{DataRate, parse_rate};

/// By this the rate is multiplied where it falls so: UDT's 8/9, SABUL's successor.
pub(super) const FACTOR: f64 = 1.0 / 1.125;

/// How the rate falls when more than 1 % is lost. The paper says "linearly" and wants other
/// functions tried (section 6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Decrease {
    /// Linearly in the loss: by what it is above 0.5 %.
    #[default]
    Linear,
    /// By a fixed step of 0.5 %, however much is lost.
    Step,
    /// By a ninth.
    Multiplicative,
    /// By the share that was lost: to the rate that arrived, at which a path loses nothing.
    Proportional,
}

/// What happens to the rate while nothing is heard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Silence {
    /// Nothing: the paper's (section 4). The circuit breaker ends it after a second.
    #[default]
    Keep,
    /// It falls every 500 packets (section 6).
    Reduce,
}

/// One of the algorithms that go by this name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Variant {
    /// How the rate falls.
    pub decrease: Decrease,
    /// What silence does.
    pub silence: Silence,
    /// The first rate; none: 100 Mbit/s.
    pub first: Option<DataRate>,
}

impl Variant {
    /// The variant that these words make, joined by `+`: `linear`, `step`,
    /// `multiplicative` or `proportional`; `keep` or `reduce`; a rate. None if one of them is no such word.
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

    /// Its name in the registry, the first rate left out.
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
