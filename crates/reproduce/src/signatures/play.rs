//! Simulates a flow over a shared bottleneck to a host that reads when it gets the processor.

use packtrain_link::{
    DropCause, Element, Host, HostConfig, Link, LinkConfig, Observer, Pace, Segments,
};
use packtrain_units::{Rng, Time};

use super::source::{Sending, Source};

/// The input of a simulation.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    /// Packet size of the measured flow, and its sending pattern.
    pub(super) ours: (u32, Sending),
    /// The competitors at the bottleneck.
    pub(super) others: Vec<(u32, Sending)>,
    pub(super) link: LinkConfig,
    pub(super) host: HostConfig,
}

/// The outcome of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PacketOutcome {
    Received,
    Network,
    Host,
    Link,
}

/// The result: outcome and delays of each packet of the window, in order.
#[derive(Debug, Default)]
pub(super) struct Played {
    pub(super) outcomes: Vec<PacketOutcome>,
    /// One-way delays in nanoseconds, to the host and to the process; of lost packets zero.
    pub(super) arrival: Vec<u64>,
    pub(super) read: Vec<u64>,
    /// The windows of the other sources, in their order: which packets passed the link. Shorter if
    /// a source sent less.
    pub(super) beside: Vec<Vec<PacketOutcome>>,
}

/// Index of the measured flow among the sources.
const OURS: u32 = 0;

#[derive(Clone, Copy, Debug)]
struct Parcel {
    source: u32,
    first: u64,
    count: u32,
    size: u32,
}

impl Segments for Parcel {
    fn count(&self) -> u32 {
        self.count
    }

    fn size(&self, _: u32) -> u32 {
        self.size
    }

    fn split_off(&mut self, at: u32) -> Self {
        let rest = Self { first: self.first + u64::from(at), count: self.count - at, ..*self };
        self.count = at;
        rest
    }

    fn duplicate(&self) -> Self {
        *self
    }
}

/// Records the causes of losses.
#[derive(Debug)]
struct Watch {
    outcomes: Vec<PacketOutcome>,
    /// Outcomes at the link of each other source's packets.
    beside: Vec<Vec<PacketOutcome>>,
    /// Sources that lost packets, and when.
    losses: Vec<(u32, Time)>,
}

impl Observer<Parcel> for Watch {
    fn dropped(&mut self, at: Pace, parcel: Parcel, cause: DropCause) {
        if parcel.source != OURS {
            let outcomes = &mut self.beside[parcel.source as usize - 1];
            for i in parcel.first..parcel.first + u64::from(parcel.count) {
                if let Some(place) = outcomes.get_mut(i as usize) {
                    *place = PacketOutcome::Network;
                }
            }
            return self.losses.push((parcel.source, at.first));
        }
        let outcome = match cause {
            DropCause::Host => PacketOutcome::Host,
            DropCause::Random => PacketOutcome::Link,
            _ => PacketOutcome::Network,
        };
        if outcome == PacketOutcome::Network {
            self.losses.push((OURS, at.first));
        }
        for i in parcel.first..parcel.first + u64::from(parcel.count) {
            if let Some(place) = self.outcomes.get_mut(i as usize) {
                *place = outcome;
            }
        }
    }
}

/// One run.
struct Run {
    sources: Vec<Source>,
    sent: Vec<u64>,
    link: Link<Parcel>,
    host: Host<Parcel>,
    watch: Watch,
    arrival: Vec<u64>,
    read: Vec<u64>,
    total: usize,
}

/// Runs until `warm` and then `window` packets of the measured flow were sent; returns those of the
/// window.
pub(super) fn play(setup: &Setup, warm: usize, window: usize, rng: &mut Rng) -> Played {
    let total = warm + window;
    let mut of = |(size, sending): &(u32, Sending)| Source::new(sending, *size, rng.fork());
    let mut sources = vec![of(&setup.ours)];
    sources.extend(setup.others.iter().map(of));
    let others = sources.len() - 1;
    let watch = Watch {
        outcomes: vec![PacketOutcome::Received; total],
        beside: vec![Vec::new(); others],
        losses: Vec::new(),
    };
    let mut run = Run {
        sources,
        sent: Vec::with_capacity(total),
        link: Link::new(LinkConfig { seed: rng.next_u64(), ..setup.link.clone() }),
        host: Host::new(&HostConfig { seed: rng.next_u64(), ..setup.host.clone() }),
        watch,
        arrival: vec![0; total],
        read: vec![0; total],
        total,
    };
    while run.sent.len() < total && run.step() {}
    run.finish();
    Played {
        outcomes: run.watch.outcomes.split_off(warm),
        beside: run
            .watch
            .beside
            .into_iter()
            .map(|of| of.into_iter().skip(warm).collect())
            .collect(),
        arrival: run.arrival.split_off(warm),
        read: run.read.split_off(warm),
    }
}

impl Run {
    /// Sends the next packets of the source that is due first; false if none is left.
    fn step(&mut self) -> bool {
        let (mut next, mut due, mut horizon) = (0, Time::MAX, Time::MAX);
        for (i, source) in self.sources.iter().enumerate() {
            let at = source.due();
            if at < due {
                (next, horizon, due) = (i, due, at);
            } else if at < horizon {
                horizon = at;
            }
        }
        let most = if next == 0 { self.total - self.sent.len() } else { usize::MAX };
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        let source = &mut self.sources[next];
        let Some((pace, count)) = source.take(horizon, most) else { return false };
        let first = match next.checked_sub(1) {
            None => self.sent.len(),
            Some(beside) => self.watch.beside[beside].len(),
        } as u64;
        let parcel = Parcel { source: next as u32, first, count, size: source.size };
        match next.checked_sub(1) {
            None => self.sent.extend((0..count).map(|i| pace.time(i).as_nanos())),
            Some(beside) => {
                // Longer than the window is of no use; a source that fills a queue sends much.
                let outcomes = &mut self.watch.beside[beside];
                let more = self.total.saturating_sub(outcomes.len()).min(count as usize);
                outcomes.extend(std::iter::repeat_n(PacketOutcome::Received, more));
            }
        }
        // A queue that decides at its head is polled at this time, then for everything decided.
        self.pass_on(pace.first);
        self.link.offer(pace, parcel, &mut self.watch);
        self.pass_on(Time::MAX);
        while let Some((source, at)) = self.watch.losses.pop() {
            self.sources[source as usize].lost(at);
        }
        true
    }

    /// Delivers the link's departures to the host.
    fn pass_on(&mut self, until: Time) {
        while let Some((pace, parcel)) = self.link.poll_departure(until, &mut self.watch) {
            if parcel.source != OURS {
                continue;
            }
            for i in 0..parcel.count {
                let number = (parcel.first + u64::from(i)) as usize;
                self.arrival[number] = pace.time(i).as_nanos() - self.sent[number];
            }
            self.host.arrive(pace, parcel, &mut self.watch);
            self.take_read(Time::MAX);
        }
    }

    fn take_read(&mut self, until: Time) {
        while let Some(batch) = self.host.poll_read(until, &mut self.watch) {
            for (_, parcel) in batch.packets {
                for number in parcel.first..parcel.first + u64::from(parcel.count) {
                    let number = number as usize;
                    self.read[number] = batch.read.as_nanos() - self.sent[number];
                }
            }
        }
    }

    /// Delivers the packets in flight.
    fn finish(&mut self) {
        while let Some(due) = self.link.poll_timeout() {
            self.pass_on(due);
            self.pass_on(Time::MAX);
        }
        while let Some(due) = self.host.poll_timeout() {
            self.take_read(due);
        }
    }
}
