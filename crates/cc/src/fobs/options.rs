//! What follows the colon in the controller's name.

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

/// Whose word on the cause counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Judge {
    /// Our classifier's.
    #[default]
    Ours,
    /// That of the paper's classifier.
    Paper,
    /// Nobody's: each loss is taken for the network's.
    Blind,
}

/// What the long-term loss rate is a rate of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Count {
    /// Loss events, as the response functions mean it (RFC 5348 section 5.2): a queue that
    /// overflows once is one, however much it drops. A loss that the host's counter does not
    /// explain ends a window early.
    #[default]
    Events,
    /// Lost packets, by whole windows: the paper's law to the letter.
    Packets,
}

/// One way to run the controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// When the rate may change.
    pub mode: Mode,
    /// Whose word on the cause counts.
    pub judge: Judge,
    /// What is counted.
    pub count: Count,
    /// Wire bytes of a window; none: 97,656 packets, fewer on slow paths.
    pub window: Option<ByteCount>,
    /// The rate that is asked for; none: what the path turns out to have.
    pub rate: Option<DataRate>,
}

impl Options {
    /// Reads words separated by commas, such as `rate,paper` or `window,800mbit,25MB`.
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
