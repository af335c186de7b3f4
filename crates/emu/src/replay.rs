//! Reads records. The same arrivals at the same link give the same drops.

use std::fs;
use std::io;
use std::path::Path;

use packtrain_link::{Count, DropCause, Element, Link, LinkConfig, Observer, Pace};
use packtrain_units::{ByteCount, Time};

use crate::counters;

/// A packet that arrived at a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Time since the start.
    pub at: Time,
    /// Index of the link.
    pub link: usize,
    /// Its number among all arrivals there.
    pub number: u64,
    /// Its size from the network header on.
    pub bytes: ByteCount,
}

/// A packet that a link dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dropped {
    /// Index of the link.
    pub link: usize,
    /// Its number among all arrivals there.
    pub number: u64,
    /// The cause, by its name in records.
    pub cause: &'static str,
}

/// Reads `PREFIX.arrivals`.
///
/// # Errors
///
/// An error of the file system, or a line that is not of a record.
pub fn arrivals(path: &Path) -> io::Result<Vec<Arrival>> {
    rows(path, |fields| {
        let [at, link, number, bytes] = fields else { return None };
        Some(Arrival {
            at: Time::from_nanos(at.parse().ok()?),
            link: link.parse().ok()?,
            number: number.parse().ok()?,
            bytes: ByteCount(bytes.parse().ok()?),
        })
    })
}

/// Reads `PREFIX.drops`.
///
/// # Errors
///
/// An error of the file system, or a line that is not of a record.
pub fn drops(path: &Path) -> io::Result<Vec<Dropped>> {
    rows(path, |fields| {
        let [_, link, number, _, cause] = fields else { return None };
        let (link, number) = (link.parse().ok()?, number.parse().ok()?);
        Some(Dropped { link, number, cause: counters::known(cause)? })
    })
}

/// Offers the arrivals of link `link` to a new link with this configuration and returns the drops.
pub fn replay(config: &LinkConfig, link: usize, arrivals: &[Arrival]) -> Vec<Dropped> {
    struct Dead(usize, Vec<Dropped>);
    impl Observer<Count> for Dead {
        fn dropped(&mut self, _: Pace, packet: Count, cause: DropCause) {
            let cause = counters::word(cause);
            let numbers = packet.first..packet.first + u64::from(packet.count);
            self.1.extend(numbers.map(|number| Dropped { link: self.0, number, cause }));
        }
    }
    let mut element: Link<Count> = Link::new(config.clone());
    let mut dead = Dead(link, Vec::new());
    for arrival in arrivals.iter().filter(|arrival| arrival.link == link) {
        let size = u32::try_from(arrival.bytes.get()).unwrap_or(u32::MAX);
        // Run the delayed decisions of the queue up to this packet.
        while element.poll_departure(arrival.at, &mut dead).is_some() {}
        let packet = Count { count: 1, size, first: arrival.number };
        element.offer(Pace::at(arrival.at), packet, &mut dead);
    }
    while element.poll_departure(Time::MAX, &mut dead).is_some() {}
    dead.1.sort_unstable();
    dead.1
}

fn rows<T>(path: &Path, read: impl Fn(&[&str]) -> Option<T>) -> io::Result<Vec<T>> {
    let text = fs::read_to_string(path)?;
    let rows = text.lines().enumerate().skip(1).map(|(i, line)| {
        let fields: Vec<&str> = line.split(',').collect();
        let what = || io::Error::new(io::ErrorKind::InvalidData, format!("line {}", i + 1));
        read(&fields).ok_or_else(what)
    });
    rows.collect()
}
