//! Links, what is on its way over them, and routes.

use packtrain_link::{Element, Link, Pace, QueueConfig, Segments};
use packtrain_units::{Duration, Time};

use crate::ingress::Ingress;
use crate::outcome::Wait;
use crate::route::{NONE, Routes, least_delay};
use crate::spec::Scenario;
use crate::stats::{LinkStats, Record};
use crate::train::Train;

/// All that lies between the ends.
pub(crate) struct Network {
    /// In the order of the scenario.
    pub(crate) links: Vec<LinkState>,
    /// Who goes where.
    pub(crate) routes: Routes,
    /// When the next event of each node is; kept from above by the scheduler and lowered here by
    /// what is sent to the node.
    pub(crate) heads: Vec<Time>,
    /// What waited at each link at the instants of samples.
    pub(crate) waits: Vec<Wait>,
    /// The longest train.
    most: u32,
}

/// A link with what it sent.
pub(crate) struct LinkState {
    pub(crate) link: Link<Train>,
    to: usize,
    /// What a delay of zero is short of the least delay.
    extra: Duration,
    /// Whether it decides on departures later than on offers.
    pub(crate) late: bool,
    /// What it counted.
    pub(crate) stats: LinkStats,
    /// What will arrive at its far end.
    pub(crate) arrivals: Ingress,
}

impl Network {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let links = scenario.links.iter().enumerate().map(|(i, spec)| {
            let config = scenario.link_config(i);
            let late = matches!(config.queue, QueueConfig::CoDel(_));
            let record = (scenario.record == Some(i)).then(Record::default);
            // Only a delay that may be zero is short of the least one.
            let extra = match least_delay(spec) == config.delay {
                true => Duration::ZERO,
                false => Duration::from_nanos(1),
            };
            LinkState {
                link: Link::new(config),
                to: spec.to,
                extra,
                late,
                stats: LinkStats { record, ..LinkStats::default() },
                arrivals: Ingress::default(),
            }
        });
        Self {
            links: links.collect(),
            routes: Routes::new(scenario),
            heads: vec![Time::MAX; scenario.nodes.len()],
            waits: Vec::new(),
            most: scenario.train,
        }
    }

    /// Offers a train at `node` to the next link of its way.
    pub(crate) fn forward(&mut self, node: usize, pace: Pace, train: Train) {
        let next = self.routes.next(node, train.to);
        debug_assert_ne!(next, NONE, "checked with the scenario");
        let Some(link) = self.links.get_mut(next as usize) else { return };
        let head = &mut self.heads[link.to];
        let single = self.most == 1 || link.stats.record.is_some();
        if single && train.count() > 1 {
            let (mut rest, mut pace) = (train, pace);
            while rest.count() > 1 {
                let next = rest.split_off(1);
                link.offer(Pace::at(pace.first), rest, self.most, head);
                (rest, pace) = (next, pace.from(1));
            }
            link.offer(Pace::at(pace.first), rest, self.most, head);
        } else {
            link.offer(pace, train, self.most, head);
        }
    }

    /// When link `link` decides on departures without another offer.
    pub(crate) fn late_timeout(&self, link: usize) -> Time {
        let link = &self.links[link];
        if link.late { link.link.poll_timeout().unwrap_or(Time::MAX) } else { Time::MAX }
    }

    /// That instant came.
    pub(crate) fn on_late(&mut self, link: usize, now: Time) {
        let link = &mut self.links[link];
        let head = &mut self.heads[link.to];
        if let Some((pace, train)) = link.link.poll_departure(now, &mut link.stats) {
            link.sent(pace, train, self.most, head);
        }
        link.drain(self.most, head);
    }
}

impl LinkState {
    fn offer(&mut self, pace: Pace, mut train: Train, most: u32, head: &mut Time) {
        self.stats.offered += u64::from(train.count());
        if let Some(record) = &mut self.stats.record {
            record.offered(pace.first, &mut train);
        }
        self.link.offer(pace, train, &mut self.stats);
        self.drain(most, head);
    }

    #[inline]
    fn drain(&mut self, most: u32, head: &mut Time) {
        while let Some((pace, train)) = self.link.poll_departure(Time::MAX, &mut self.stats) {
            self.sent(pace, train, most, head);
        }
    }

    fn sent(&mut self, pace: Pace, mut train: Train, most: u32, head: &mut Time) {
        let pace = Pace { first: pace.first + self.extra, gap: pace.gap };
        if let Some(record) = &mut self.stats.record {
            // Offered one by one, they leave one by one.
            record.decided(&mut train, Some(pace.first));
        }
        if most == 1 && train.count() > 1 {
            let (mut rest, mut pace) = (train, pace);
            while rest.count() > 1 {
                let next = rest.split_off(1);
                self.arrivals.push(Pace::at(pace.first), rest, 1);
                (rest, pace) = (next, pace.from(1));
            }
            self.arrivals.push(Pace::at(pace.first), rest, 1);
        } else {
            self.arrivals.push(pace, train, most);
        }
        *head = (*head).min(self.arrivals.head());
    }
}
