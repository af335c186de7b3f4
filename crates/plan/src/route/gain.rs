//! The gain of one TCP stream from shorter hops, by the limit of the stream.
//!
//! The rate of a loss-based sender falls with the round trip R and the loss p: Reno's is
//! proportional to 1 / (R p^0.5) (Mathis and others, 1997), CUBIC's in its own region to 1 /
//! (R^0.25 p^0.75) (RFC 9438, section 5.1). If losses are evenly spread, a hop with the fraction s
//! of the round trip has the fraction s of the losses too: it gains s^-1.5 with Reno and s^-1 with
//! CUBIC. A window of fixed size gains s^-1. A session is as fast as its slowest hop, which is the
//! longest one here.

use packtrain_units::{ByteCount, Duration};

/// The reaction of a congestion control to losses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Response {
    /// Halves its window and adds a segment each round trip.
    Reno,
    /// Grows with time since the last loss, not with round trips.
    Cubic,
    /// Sends at the arriving rate, whatever is lost.
    #[default]
    Rate,
}

impl Response {
    /// The response of a congestion control by its kernel name; an unknown one is assumed to gain
    /// nothing.
    pub fn of(name: &str) -> Self {
        match name {
            "reno" | "lp" => Self::Reno,
            "cubic" | "bic" | "htcp" => Self::Cubic,
            _ => Self::Rate,
        }
    }
}

/// What limits a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Unknown so far.
    Unknown,
    /// A queue stands before the slowest link: the path is full.
    Path,
    /// Losses that no queue explains.
    Losses(Response),
    /// A buffer at either end.
    Window,
}

/// Kernel counters of all streams together over a period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Symptoms {
    /// Mean round trip less the minimum.
    pub queue: Duration,
    /// The minimum round trip.
    pub min_rtt: Duration,
    /// Retransmitted bytes.
    pub lost: ByteCount,
    /// Share of the busy time in which a buffer limited the streams.
    pub limited: f64,
}

/// A queue of this fraction of the round trip, and at least `MIN_FULL_QUEUE`, means that the path
/// is full.
const FULL_QUEUE_FRACTION: f64 = 0.10;
const MIN_FULL_QUEUE: Duration = Duration::from_millis(1);
/// Share of the time above which a buffer counts as the limit.
const MIN_LIMITED_SHARE: f64 = 0.5;

impl Limit {
    /// The limit that the counters show, for a sender with this response.
    pub fn of(symptoms: &Symptoms, response: Response) -> Self {
        let full = symptoms.min_rtt.mul_f64(FULL_QUEUE_FRACTION).max(MIN_FULL_QUEUE);
        if symptoms.limited > MIN_LIMITED_SHARE {
            Self::Window
        } else if symptoms.queue >= full {
            Self::Path
        } else if symptoms.lost > ByteCount::ZERO {
            Self::Losses(response)
        } else {
            Self::Unknown
        }
    }

    /// Ratio of the rate of the longest of `hops` to that of the path `whole` without depots.
    pub fn gain(self, whole: Duration, hops: &[Duration]) -> f64 {
        let Some(longest) = hops.iter().max().filter(|_| !whole.is_zero()) else { return 1.0 };
        // A hop of zero length has another bottleneck.
        let part = (longest.as_secs_f64() / whole.as_secs_f64()).max(MIN_HOP_FRACTION);
        match self {
            Self::Unknown | Self::Path | Self::Losses(Response::Rate) => 1.0,
            Self::Losses(Response::Reno) => libm::pow(part, -1.5),
            Self::Losses(Response::Cubic) | Self::Window => 1.0 / part,
        }
    }
}

/// Minimum fraction of the path that a hop is assumed to have.
const MIN_HOP_FRACTION: f64 = 0.05;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_halves_thirds_and_quarters_gain_what_theory_says() {
        let ms = Duration::from_millis;
        let gain = |response, hops: &[Duration]| Limit::Losses(response).gain(ms(120), hops);
        for (k, reno) in [(2u64, 2.828), (3, 5.196), (4, 8.0)] {
            let hops = vec![ms(120 / k); k as usize];
            assert!((gain(Response::Reno, &hops) - reno).abs() < 0.01);
            assert!((gain(Response::Cubic, &hops) - k as f64).abs() < 0.01);
            assert!((gain(Response::Rate, &hops) - 1.0).abs() < 1e-9);
            assert!((Limit::Window.gain(ms(120), &hops) - k as f64).abs() < 0.01);
            assert!((Limit::Path.gain(ms(120), &hops) - 1.0).abs() < 1e-9);
        }
        assert!(gain(Response::Reno, &[ms(100), ms(100)]) < 1.4, "a detour");
        assert!(gain(Response::Reno, &[ms(240), ms(1)]) < 0.4);
        assert!((gain(Response::Reno, &[]) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn limits_are_told_by_their_symptoms() {
        let ms = Duration::from_millis;
        let calm = Symptoms { min_rtt: ms(100), ..Symptoms::default() };
        let of = |symptoms| Limit::of(&symptoms, Response::Reno);
        assert_eq!(of(calm), Limit::Unknown);
        let lossy = Symptoms { lost: ByteCount(1448), ..calm };
        assert_eq!(of(lossy), Limit::Losses(Response::Reno));
        assert_eq!(of(Symptoms { queue: ms(11), ..lossy }), Limit::Path);
        assert_eq!(of(Symptoms { limited: 0.9, ..calm }), Limit::Window);
        assert_eq!(Response::of("bbr"), Response::Rate);
        assert_eq!(Response::of("cubic"), Response::Cubic);
    }
}
