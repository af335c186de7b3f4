//! A node: selects and executes its next event.

use packtrain_link::{Pace, Segments};
use packtrain_units::{Duration, Time};

use crate::agent::{Agent, Counts, Ctx, Curve, Endpoint};
use crate::network::Network;
use crate::outcome::Wait;
use crate::spec::Scenario;
use crate::trace::Digest;
use crate::train::{Toward, Train};

/// An instant ends when the next nanosecond begins.
const TICK: Duration = Duration::from_nanos(1);

/// A host or router.
#[derive(Debug)]
pub(crate) struct Node {
    index: usize,
    /// Links that end here, in the order of the scenario.
    inward: Vec<usize>,
    /// Links that start here.
    outward: Vec<usize>,
    /// Those of them that decide on departures later than on offers.
    deferring: Vec<usize>,
    /// Ends of flows at this node, in order.
    ends: Vec<usize>,
    marks: Marks,
    /// Digest of all arrivals.
    pub(crate) digest: Digest,
}

/// Instants of observations.
#[derive(Debug)]
struct Marks {
    warm_up: Time,
    sample: Time,
    every: Option<Duration>,
    /// When flows with an end here stop, the latest first.
    stops: Vec<(Time, usize)>,
}

/// All ends of all flows: the sender of flow `i` is at index `2 i`, its receiver after it.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    /// The ends.
    pub(crate) all: Vec<Endpoint>,
    /// Their timeouts.
    timeouts: Vec<Time>,
    /// Their counters at the end of the warm-up.
    pub(crate) at_warm_up: Vec<Counts>,
    /// Their counters when their flow's sender stopped, if it stopped before the end.
    pub(crate) at_stop: Vec<Option<Counts>>,
    /// Samples of senders' curves: time, flow.
    pub(crate) curves: Vec<(Time, usize, Curve)>,
    /// Counters of receivers at the same instants.
    pub(crate) delivered: Vec<(Time, usize, Counts)>,
}

impl Ends {
    pub(crate) fn push(&mut self, end: Endpoint) {
        self.timeouts.push(end.poll_timeout().unwrap_or(Time::MAX));
        self.all.push(end);
        self.at_warm_up.push(Counts::default());
        self.at_stop.push(None);
    }

    /// The end that acts for an end.
    #[inline]
    fn home(&self, end: usize) -> usize {
        match self.all[end] {
            Endpoint::Within(depot) => depot,
            _ => end,
        }
    }

    /// The end for observation, also inside a depot.
    pub(crate) fn agent(&self, end: usize) -> &dyn Agent {
        match &self.all[end] {
            Endpoint::Within(depot) => match &self.all[*depot] {
                Endpoint::Depot(depot) => depot.output(),
                other => other,
            },
            other => other,
        }
    }

    fn refresh(&mut self, end: usize) {
        self.timeouts[end] = self.all[end].poll_timeout().unwrap_or(Time::MAX);
    }
}

/// Kinds of events, in their order at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventKind {
    Arrival(usize),
    Timer(usize),
    Departure(usize),
    Mark,
}

impl Node {
    pub(crate) fn new(scenario: &Scenario, index: usize, net: &Network) -> Self {
        let links = || scenario.links.iter().enumerate();
        let outward: Vec<usize> =
            links().filter(|(_, l)| l.from == index).map(|(i, _)| i).collect();
        let flows = scenario.flows.iter().enumerate();
        let here = flows.clone().filter(|(_, f)| f.from == index || f.to == index);
        let mut stops: Vec<_> = here.filter_map(|(i, f)| Some((f.stop?, i))).collect();
        stops.sort_by(|a, b| b.cmp(a));
        let ends = flows.flat_map(|(i, f)| [(2 * i, f.from), (2 * i + 1, f.to)]);
        Self {
            index,
            inward: links().filter(|(_, l)| l.to == index).map(|(i, _)| i).collect(),
            deferring: outward
                .iter()
                .copied()
                .filter(|i| net.links[*i].defers_departures)
                .collect(),
            outward,
            ends: ends.filter(|(_, at)| *at == index).map(|(end, _)| end).collect(),
            marks: Marks {
                warm_up: match scenario.warm_up.is_zero() {
                    true => Time::MAX,
                    false => Time::ZERO + scenario.warm_up,
                },
                sample: scenario.sample.map_or(Time::MAX, |every| Time::ZERO + every),
                every: scenario.sample,
                stops,
            },
            digest: Digest::default(),
        }
    }

    /// When the next event at this node is.
    pub(crate) fn head(&self, ends: &Ends, net: &Network) -> Time {
        self.next(ends, net).0
    }

    /// The next event: by time, then class, then index.
    #[inline]
    fn next(&self, ends: &Ends, net: &Network) -> (Time, EventKind) {
        let mut best = (Time::MAX, EventKind::Mark);
        for &link in &self.inward {
            let at = net.links[link].arrivals.head();
            if at < best.0 {
                best = (at, EventKind::Arrival(link));
            }
        }
        for &end in &self.ends {
            if ends.timeouts[end] < best.0 {
                best = (ends.timeouts[end], EventKind::Timer(end));
            }
        }
        for &link in &self.deferring {
            let at = net.departure_timeout(link);
            if at < best.0 {
                best = (at, EventKind::Departure(link));
            }
        }
        let mark = self.marks.next();
        if mark < best.0 { (mark, EventKind::Mark) } else { best }
    }

    /// Handles all events before `limit`; returns their number.
    pub(crate) fn run(&mut self, limit: Time, ends: &mut Ends, net: &mut Network) -> u64 {
        let mut events = 0;
        loop {
            let (at, what) = self.next(ends, net);
            if at >= limit {
                net.heads[self.index] = at;
                return events;
            }
            events += 1;
            match what {
                EventKind::Arrival(link) => self.arrival(link, limit, ends, net),
                EventKind::Timer(end) => {
                    let horizon = self.bound(what, Some(end), limit, ends, net);
                    let mut ctx = Ctx { net, node: self.index, horizon };
                    ends.all[end].on_timer(at, &mut ctx);
                    ends.refresh(end);
                    debug_assert!(ends.timeouts[end] > at, "an end's timer stands still");
                }
                EventKind::Departure(link) => net.on_departure(link, at),
                EventKind::Mark => self.mark(at, ends, net),
            }
        }
    }

    /// Until when no other event intervenes for an event of kind `what`, without the timer of end
    /// `own`: an event at the same instant but of a later class or index does not.
    fn bound(
        &self,
        what: EventKind,
        own: Option<usize>,
        limit: Time,
        ends: &Ends,
        net: &Network,
    ) -> Time {
        let mut bound = limit;
        let arrival = matches!(what, EventKind::Arrival(_));
        for &link in &self.inward {
            let at = net.links[link].arrivals.head();
            match what {
                EventKind::Arrival(own) if own == link => {}
                EventKind::Arrival(own) if own < link => bound = bound.min(at + TICK),
                _ => bound = bound.min(at),
            }
        }
        for &end in &self.ends {
            let at = ends.timeouts[end];
            match own {
                Some(own) if own == end => {}
                Some(own) if arrival || own < end => bound = bound.min(at + TICK),
                None => bound = bound.min(at + TICK),
                _ => bound = bound.min(at),
            }
        }
        for &link in &self.deferring {
            bound = bound.min(net.departure_timeout(link) + TICK);
        }
        bound.min(self.marks.next() + TICK)
    }

    /// Packets arrive on `link`.
    fn arrival(&mut self, link: usize, limit: Time, ends: &mut Ends, net: &mut Network) {
        let Some((end, here)) = net.links[link].arrivals.front().map(|train| {
            let end = 2 * train.flow as usize + usize::from(train.toward == Toward::Receiver);
            (ends.home(end), train.to as usize == self.index)
        }) else {
            return;
        };
        let own = here.then_some(end);
        let horizon = self.bound(EventKind::Arrival(link), own, limit, ends, net);
        let Some((pace, train)) = net.links[link].arrivals.take(horizon) else { return };
        if !here {
            self.digest.train(pace, &train, 0);
            return net.forward(self.index, pace, train);
        }
        // Later trains of the same link limit the horizon too.
        let horizon = horizon.min(net.links[link].arrivals.head()).max(last(pace, &train) + TICK);
        self.deliver(end, link, (pace, train), ends, Ctx { net, node: self.index, horizon });
    }

    fn deliver(
        &mut self,
        end: usize,
        link: usize,
        (pace, train): (Pace, Train),
        ends: &mut Ends,
        mut ctx: Ctx<'_>,
    ) {
        let count = train.count();
        let before = self.digest;
        self.digest.train(pace, &train, 0);
        let rest = ends.all[end].on_train(pace, train, &mut ctx);
        ends.refresh(end);
        let Some(rest) = rest else { return };
        // Not all packets were taken: the rest arrives again.
        debug_assert!(rest.count() < count, "an end takes at least one packet");
        let taken = count - rest.count();
        let rest_pace = pace.from(taken);
        self.digest = before;
        self.digest.taken(pace, &rest, taken);
        ctx.net.links[link].arrivals.put_back(rest_pace, rest);
    }

    /// The end of the warm-up, the stop of a flow, or a sample.
    fn mark(&mut self, now: Time, ends: &mut Ends, net: &mut Network) {
        if self.marks.warm_up == now {
            self.marks.warm_up = Time::MAX;
            for &end in &self.ends {
                ends.at_warm_up[end] = ends.agent(end).counts();
            }
            for &link in &self.outward {
                let state = &mut net.links[link];
                state.stats.warmed_up(state.link.busy_until());
            }
        }
        while let Some((_, flow)) = self.marks.stops.pop_if(|(at, _)| *at == now) {
            for &end in self.ends.iter().filter(|end| **end / 2 == flow) {
                ends.at_stop[end] = Some(ends.agent(end).counts());
            }
        }
        if self.marks.sample == now {
            self.marks.sample = self.marks.every.map_or(Time::MAX, |every| now + every);
            for &link in &self.outward {
                let wait = net.links[link].link.busy_until().since(now);
                net.waits.push(Wait { at: now, link, wait });
            }
            for &end in &self.ends {
                match (end % 2, ends.agent(end).curve()) {
                    (0, curve) => ends.curves.push((now, end / 2, curve.unwrap_or_default())),
                    _ => ends.delivered.push((now, end / 2, ends.agent(end).counts())),
                }
            }
        }
    }
}

impl Marks {
    fn next(&self) -> Time {
        let stop = self.stops.last().map_or(Time::MAX, |(at, _)| *at);
        self.warm_up.min(self.sample).min(stop)
    }
}

fn last(pace: Pace, train: &Train) -> Time {
    pace.time(train.count() - 1)
}
