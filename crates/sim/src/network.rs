//! Links, the packets in flight over them, and routes.

use packtrain_link::{Element, Link, Pace, QueueConfig, Segments};
use packtrain_units::{Duration, Time};

use crate::ingress::Ingress;
use crate::outcome::Wait;
use crate::route::{NONE, Routes, min_delay};
use crate::spec::Scenario;
use crate::stats::{LinkStats, Record};
use crate::train::Train;

/// The network between the ends.
pub(crate) struct Network {
    /// In the order of the scenario.
    pub(crate) links: Vec<LinkState>,
    /// The routing tables.
    pub(crate) routes: Routes,
    /// When the next event of each node is; an upper bound set by the scheduler, lowered here by
    /// packets sent to the node.
    pub(crate) heads: Vec<Time>,
    /// The waiting time at each link at the instants of samples.
    pub(crate) waits: Vec<Wait>,
    /// Maximum length of a train.
    max_train: u32,
}

/// A link with its traffic.
pub(crate) struct LinkState {
    pub(crate) link: Link<Train>,
    to: usize,
    /// What a delay of zero lacks to the minimum delay.
    extra: Duration,
    /// Whether it decides on departures later than on offers.
    pub(crate) defers_departures: bool,
    /// Its counters.
    pub(crate) stats: LinkStats,
    /// Packets that will arrive at its end.
    pub(crate) arrivals: Ingress,
}

impl Network {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let links = scenario.links.iter().enumerate().map(|(i, spec)| {
            let config = scenario.link_config(i);
            let defers_departures = matches!(config.queue, QueueConfig::CoDel(_));
            let record = (scenario.record == Some(i)).then(Record::default);
            // Only a delay that may be zero is below the minimum.
            let extra = match min_delay(spec) == config.delay {
                true => Duration::ZERO,
                false => Duration::from_nanos(1),
            };
            LinkState {
                link: Link::new(config),
                to: spec.to,
                extra,
                defers_departures,
                stats: LinkStats { record, ..LinkStats::default() },
                arrivals: Ingress::default(),
            }
        });
        Self {
            links: links.collect(),
            routes: Routes::new(scenario),
            heads: vec![Time::MAX; scenario.nodes.len()],
            waits: Vec::new(),
            max_train: scenario.train,
        }
    }

    /// Offers a train at `node` to the next link of its path.
    pub(crate) fn forward(&mut self, node: usize, pace: Pace, train: Train) {
        let next = self.routes.next(node, train.to);
        debug_assert_ne!(next, NONE, "checked with the scenario");
        let Some(link) = self.links.get_mut(next as usize) else { return };
        let head = &mut self.heads[link.to];
        let single = self.max_train == 1 || link.stats.record.is_some();
        if single && train.count() > 1 {
            let (mut rest, mut pace) = (train, pace);
            while rest.count() > 1 {
                let next = rest.split_off(1);
                link.offer(Pace::at(pace.first), rest, self.max_train, head);
                (rest, pace) = (next, pace.from(1));
            }
            link.offer(Pace::at(pace.first), rest, self.max_train, head);
        } else {
            link.offer(pace, train, self.max_train, head);
        }
    }

    /// When link `link` decides on departures without a further offer.
    pub(crate) fn departure_timeout(&self, link: usize) -> Time {
        let link = &self.links[link];
        if link.defers_departures {
            link.link.poll_timeout().unwrap_or(Time::MAX)
        } else {
            Time::MAX
        }
    }

    /// Runs these decisions.
    pub(crate) fn on_departure(&mut self, link: usize, now: Time) {
        let link = &mut self.links[link];
        let head = &mut self.heads[link.to];
        if let Some((pace, train)) = link.link.poll_departure(now, &mut link.stats) {
            link.sent(pace, train, self.max_train, head);
        }
        link.drain(self.max_train, head);
    }
}

impl LinkState {
    fn offer(&mut self, pace: Pace, mut train: Train, max_train: u32, head: &mut Time) {
        self.stats.offered += u64::from(train.count());
        if let Some(record) = &mut self.stats.record {
            record.offered(pace.first, &mut train);
        }
        self.link.offer(pace, train, &mut self.stats);
        self.drain(max_train, head);
    }

    #[inline]
    fn drain(&mut self, max_train: u32, head: &mut Time) {
        while let Some((pace, train)) = self.link.poll_departure(Time::MAX, &mut self.stats) {
            self.sent(pace, train, max_train, head);
        }
    }

    fn sent(&mut self, pace: Pace, mut train: Train, max_train: u32, head: &mut Time) {
        let pace = Pace { first: pace.first + self.extra, gap: pace.gap };
        if let Some(record) = &mut self.stats.record {
            // Offered one by one, they leave one by one.
            record.decided(&mut train, Some(pace.first));
        }
        if max_train == 1 && train.count() > 1 {
            let (mut rest, mut pace) = (train, pace);
            while rest.count() > 1 {
                let next = rest.split_off(1);
                self.arrivals.push(Pace::at(pace.first), rest, 1);
                (rest, pace) = (next, pace.from(1));
            }
            self.arrivals.push(Pace::at(pace.first), rest, 1);
        } else {
            self.arrivals.push(pace, train, max_train);
        }
        *head = (*head).min(self.arrivals.head());
    }
}
