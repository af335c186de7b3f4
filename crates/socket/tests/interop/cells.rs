//! The connections of the test.

use packtrain_units::Duration;

/// The impairments of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Road {
    Clean,
    Lossy,
    Reordering,
}

impl Road {
    pub(crate) const ALL: [Self; 3] = [Self::Clean, Self::Lossy, Self::Reordering];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Lossy => "lossy",
            Self::Reordering => "reordering",
        }
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Lossy => "1 % loss each way",
            Self::Reordering => "2 % of packets late by 2 ms",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|road| road.name() == name)
    }
}

/// How the sender connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Calls,
    IsCalled,
    Rendezvous,
}

impl How {
    pub(crate) const ALL: [Self; 3] = [Self::Calls, Self::IsCalled, Self::Rendezvous];
}

/// Flow windows and buffers of both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Windows {
    Stock,
    Small,
    Large,
}

impl Windows {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Stock => "default",
            Self::Small => "32 packets",
            Self::Large => "100000 packets, 64 MB",
        }
    }

    /// The arguments for both ends.
    fn words(self) -> &'static str {
        match self {
            Self::Stock => "",
            Self::Small => " fc=32 rcvbuf=64000 sndbuf=64000",
            Self::Large => " fc=100000 rcvbuf=64000000 sndbuf=64000000",
        }
    }
}

/// One connection, from one sender to one receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) road: Road,
    pub(crate) message: bool,
    pub(crate) windows: Windows,
    /// This crate's end sends and the stock library's receives; otherwise the reverse.
    pub(crate) ours_sends: bool,
    pub(crate) how: How,
}

/// A search for a rare failure, set by environment variables: only connections whose names contain
/// a text, each repeated this many times.
pub(crate) struct Hunt {
    only: String,
    times: usize,
}

impl Hunt {
    pub(crate) fn wanted() -> Option<Self> {
        let only = std::env::var("PACKTRAIN_INTEROP_ONLY").ok()?;
        let times = std::env::var("PACKTRAIN_INTEROP_TIMES").map_or(Ok(1), |text| text.parse());
        Some(Self { only, times: times.expect("a number of times") })
    }

    /// Loss of the lossy path, in percent.
    pub(crate) fn loss() -> f64 {
        let loss = std::env::var("PACKTRAIN_INTEROP_LOSS").map_or(Ok(1.0), |text| text.parse());
        loss.expect("a percentage")
    }

    /// Delay of each path, one way.
    pub(crate) fn delay() -> Duration {
        let delay = std::env::var("PACKTRAIN_INTEROP_DELAY").map_or(Ok(5), |text| text.parse());
        Duration::from_millis(delay.expect("milliseconds"))
    }
}

impl Cell {
    /// The connections of one path to run.
    pub(crate) fn chosen(road: Road) -> Vec<Self> {
        let all = Self::all(road);
        let Some(hunt) = Hunt::wanted() else { return all.collect() };
        let found = all.filter(|cell| cell.name().contains(&hunt.only));
        found.flat_map(|cell| std::iter::repeat_n(cell, hunt.times)).collect()
    }

    /// All connections of one path, row by row of the table.
    fn all(road: Road) -> impl Iterator<Item = Self> {
        let windows = match road {
            Road::Clean | Road::Lossy => &[Windows::Stock, Windows::Small, Windows::Large][..],
            Road::Reordering => &[Windows::Stock, Windows::Small][..],
        };
        let rows = windows.iter().flat_map(|w| [(*w, false), (*w, true)]);
        rows.flat_map(move |(windows, message)| {
            [true, false].into_iter().flat_map(move |ours_sends| {
                let cell = move |how| Self { road, message, windows, ours_sends, how };
                How::ALL.into_iter().map(cell)
            })
        })
    }

    /// Number of bytes to move.
    pub(crate) fn bytes(self) -> u64 {
        match (self.road, self.windows) {
            (Road::Clean, Windows::Large) => 6_000_000,
            (Road::Clean, Windows::Stock) => 3_000_000,
            _ => 1_000_000,
        }
    }

    /// Size of the largest message; small buffers cannot hold large ones.
    pub(crate) fn largest(self) -> usize {
        if self.windows == Windows::Small { 8_000 } else { 40_000 }
    }

    pub(crate) fn name(self) -> String {
        let kind = if self.message { "messages" } else { "stream" };
        let way = if self.ours_sends { "ours to stock" } else { "stock to ours" };
        let (road, windows, how) = (self.road.title(), self.windows.title(), self.how);
        format!("{road}, {kind}, windows {windows}, {way}, sender {how:?}")
    }

    /// The arguments for both ends, without role and address.
    pub(crate) fn words(self) -> String {
        let mode = if self.message { "message" } else { "stream" };
        let (bytes, largest) = (self.bytes(), self.largest());
        let windows = self.windows.words();
        format!("mode={mode} bytes={bytes} message={largest}{windows}")
    }

    /// The arguments of an end for connecting, with ports that no other connection uses.
    pub(crate) fn meeting(self, sends: bool, peer: &str, number: usize) -> String {
        let port = 20_000 + 2 * number;
        let (own, other) = if sends { (port, port + 1) } else { (port + 1, port) };
        match (self.how, sends) {
            (How::Rendezvous, _) => {
                format!("how=rendezvous addr={peer} port={other} local={own}")
            }
            (How::Calls, true) | (How::IsCalled, false) => {
                format!("how=connect addr={peer} port={port}")
            }
            (How::Calls, false) | (How::IsCalled, true) => format!("how=listen port={port}"),
        }
    }
}
