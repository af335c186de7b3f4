//! The options after the colon in the controller's name.

use packtrain_units::{ByteCount, DataRate, parse_bytes, parse_rate};

/// When the rate may change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// After each window.
    #[default]
    Window,
    /// At a congestion event: a round trip after the first loss since the last one.
    Rate,
}

/// Which classifier decides on the cause of losses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Judge {
    /// Our classifier.
    #[default]
    Ours,
    /// The paper's classifier.
    Paper,
    /// None: each loss counts as a loss in the network.
    Blind,
}

/// What the long-term loss rate counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Count {
    /// Loss events, as the response functions define them (RFC 5348 section 5.2): one overflow of a
    /// queue is one event, however many packets it drops. A loss that the host's counter does not
    /// explain ends a window early.
    #[default]
    Events,
    /// Lost packets, by whole windows: exactly the paper's rule.
    Packets,
}

/// Options of the controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// When the rate may change.
    pub mode: Mode,
    /// Which classifier decides on the cause of losses.
    pub judge: Judge,
    /// What is counted.
    pub count: Count,
    /// Wire bytes of a window; none: 97,656 packets, fewer on slow paths.
    pub window: Option<ByteCount>,
    /// The requested rate; none: the measured capacity of the path.
    pub rate: Option<DataRate>,
}

impl Options {
    /// Parses words separated by commas, such as `rate,paper` or `window,800mbit,25MB`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut options = Self::default();
        for word in text.split(',') {
            match word {
                "window" => options.mode = Mode::Window,
                "rate" => options.mode = Mode::Rate,
                "ours" => options.judge = Judge::Ours,
                "paper" => options.judge = Judge::Paper,
                "packets" => options.count = Count::Packets,
                "events" => options.count = Count::Events,
                "blind" => options.judge = Judge::Blind,
                _ => match (parse_rate(word), parse_bytes(word)) {
                    (Ok(rate), _) if rate > DataRate::ZERO => options.rate = Some(rate),
                    (Err(_), Ok(bytes)) if bytes > ByteCount::ZERO => options.window = Some(bytes),
                    _ => return None,
                },
            }
        }
        Some(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_in_any_order() {
        assert_eq!(Options::parse("window"), Some(Options::default()));
        let all = Options::parse("25MB,rate,800mbit,paper").unwrap();
        assert_eq!((all.mode, all.judge), (Mode::Rate, Judge::Paper));
        assert_eq!(all.count, Count::Events);
        assert_eq!(Options::parse("packets").unwrap().count, Count::Packets);
        assert_eq!(all.window, Some(ByteCount(25_000_000)));
        assert_eq!(all.rate, Some(DataRate::from_mbps(800)));
        for bad in ["", "fast", "rate,", "0mbit", "0B", "12"] {
            assert_eq!(Options::parse(bad), None, "{bad}");
        }
    }
}
