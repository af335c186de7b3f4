//! Many short connections in one flow.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use packtrain_link::{Histogram, Pace, Segments};
use packtrain_units::{Duration, Rng, Time};

use super::build::Place;
use super::tcp::{Receiver, Sender, Shape};
use super::{Agent, Counts, Ctx};
use crate::SimError;
use crate::ingress::before;
use crate::spec::{Arrivals, ShortSpec};
use crate::trace::mix;
use crate::train::Train;

/// The alarms of connections: at most one instant each, never later than requested.
#[derive(Debug, Default)]
struct Alarms {
    heap: BinaryHeap<Reverse<(Time, u32)>>,
    set: BTreeMap<u32, Time>,
}

impl Alarms {
    /// Requests a call of connection `conn` at `at`.
    fn request(&mut self, conn: u32, at: Option<Time>) {
        let Some(at) = at else { return };
        if self.set.get(&conn).is_none_or(|set| at < *set) {
            self.set.insert(conn, at);
            self.heap.push(Reverse((at, conn)));
        }
    }

    /// The earliest instant at which a connection may request a call.
    fn next(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes a connection whose instant has come.
    fn take(&mut self, now: Time) -> Option<u32> {
        let Reverse((at, conn)) = *self.heap.peek()?;
        if at > now {
            return None;
        }
        self.heap.pop();
        if self.set.get(&conn) == Some(&at) {
            self.set.remove(&conn);
        }
        Some(conn)
    }
}

/// Splits `train` where the timer at `timeout` comes before its packets; at the same instant the
/// packet comes first.
fn cut(pace: Pace, train: &mut Train, timeout: Option<Time>) -> Option<Train> {
    let bound = timeout? + Duration::from_nanos(1);
    let within = before(pace, train.count(), bound);
    (within < train.count()).then(|| train.split_off(within))
}

/// Opens connections and sends the scenario's data on each.
#[derive(Debug)]
pub(crate) struct ShortSender {
    spec: ShortSpec,
    place: Place,
    rng: Rng,
    active: BTreeMap<u32, Sender>,
    alarms: Alarms,
    /// Connections begun so far, and when the next one begins without a trigger.
    begun: u32,
    arrival: Option<Time>,
    /// Counters of those that ended.
    ended: Counts,
    times: Histogram,
}

impl ShortSender {
    /// # Errors
    /// An unknown controller.
    pub(crate) fn new(spec: &ShortSpec, place: &Place) -> Result<Self, SimError> {
        // Building one that is never used checks the configuration.
        Sender::connection(&spec.tcp, Shape::new(&spec.tcp, place, 0, place.start), place.seed)?;
        Ok(Self {
            spec: spec.clone(),
            place: place.clone(),
            rng: Rng::new(place.seed),
            active: BTreeMap::new(),
            alarms: Alarms::default(),
            begun: 0,
            arrival: Some(place.start),
            ended: Counts::default(),
            times: Histogram::default(),
        })
    }

    fn begin(&mut self, now: Time, ctx: &mut Ctx<'_>) {
        if self.begun >= self.spec.count || now >= self.place.stop {
            return;
        }
        let conn = self.begun;
        self.begun += 1;
        let shape = Shape::new(&self.spec.tcp, &self.place, conn, now);
        let seed = mix(self.place.seed ^ mix(u64::from(conn)));
        // `new` checked the configuration.
        let Ok(mut sender) = Sender::connection(&self.spec.tcp, shape, seed) else { return };
        sender.run_timers(now + Duration::from_nanos(1), ctx);
        self.alarms.request(conn, sender.poll_timeout());
        self.active.insert(conn, sender);
    }

    /// Begins the connections that are due.
    fn arrive(&mut self, now: Time, ctx: &mut Ctx<'_>) {
        self.arrival = None;
        match self.spec.arrivals {
            Arrivals::Concurrent(n) => (0..n).for_each(|_| self.begin(now, ctx)),
            Arrivals::Poisson(rate) => {
                self.begin(now, ctx);
                let gap = -libm::log(1.0 - self.rng.unit()) / rate;
                let next = now + Duration::from_secs_f64(gap).max(Duration::from_nanos(1));
                let more = self.begun < self.spec.count && next < self.place.stop;
                self.arrival = more.then_some(next);
            }
        }
    }

    /// Updates the state after connection `conn` acted.
    fn settle(&mut self, conn: u32, ctx: &mut Ctx<'_>) {
        let Some(sender) = self.active.get(&conn) else { return };
        let Some(at) = sender.done_at() else {
            return self.alarms.request(conn, sender.poll_timeout());
        };
        let took = at.since(sender.started());
        self.ended = self.ended.and(&sender.counts());
        self.active.remove(&conn);
        if at >= self.place.warm_up {
            self.times.add(took, 1);
        }
        if let Arrivals::Concurrent(_) = self.spec.arrivals {
            self.begin(at, ctx);
        }
    }
}

impl Agent for ShortSender {
    fn on_train(&mut self, pace: Pace, mut train: Train, ctx: &mut Ctx<'_>) -> Option<Train> {
        let rest = cut(pace, &mut train, self.poll_timeout());
        let conn = train.conn;
        if let Some(sender) = self.active.get_mut(&conn) {
            sender.on_train(pace, train, ctx);
            self.settle(conn, ctx);
        }
        rest
    }

    fn on_timer(&mut self, now: Time, ctx: &mut Ctx<'_>) {
        if self.arrival == Some(now) {
            self.arrive(now, ctx);
        }
        while let Some(conn) = self.alarms.take(now) {
            if let Some(sender) = self.active.get_mut(&conn) {
                sender.run_timers(now + Duration::from_nanos(1), ctx);
                self.settle(conn, ctx);
            }
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        match (self.arrival, self.alarms.next()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    fn counts(&self) -> Counts {
        self.active.values().fold(self.ended, |sum, sender| sum.and(&sender.counts()))
    }

    fn completions(&self) -> Option<(u64, Duration, Duration)> {
        Some((self.times.count(), self.times.mean(), self.times.quantile(0.99)))
    }
}

/// The receiving ends of short connections.
#[derive(Debug)]
pub(crate) struct ShortReceiver {
    spec: ShortSpec,
    place: Place,
    active: BTreeMap<u32, Receiver>,
    alarms: Alarms,
    /// One bit per connection: whether it is complete and its state dropped.
    complete: Vec<u64>,
    ended: Counts,
}

impl ShortReceiver {
    pub(crate) fn new(spec: &ShortSpec, place: &Place) -> Self {
        Self {
            spec: spec.clone(),
            place: place.clone(),
            active: BTreeMap::new(),
            alarms: Alarms::default(),
            complete: Vec::new(),
            ended: Counts::default(),
        }
    }

    fn is_complete(&self, conn: u32) -> bool {
        self.complete.get(conn as usize / 64).is_some_and(|bits| bits >> (conn % 64) & 1 == 1)
    }

    fn set_complete(&mut self, conn: u32) {
        let word = conn as usize / 64;
        if word >= self.complete.len() {
            self.complete.resize(word + 1, 0);
        }
        self.complete[word] |= 1 << (conn % 64);
    }

    fn shape(&self, conn: u32) -> Shape {
        Shape::new(&self.spec.tcp, &self.place, conn, self.place.start)
    }
}

impl Agent for ShortReceiver {
    fn on_train(&mut self, pace: Pace, mut train: Train, ctx: &mut Ctx<'_>) -> Option<Train> {
        let rest = cut(pace, &mut train, self.poll_timeout());
        let conn = train.conn;
        if self.is_complete(conn) {
            // Data that arrives now was retransmitted needlessly: its sender missed the last
            // acknowledgement.
            let shape = self.shape(conn);
            for i in 0..train.count() {
                ctx.send(Pace::at(pace.time(i)), shape.acknowledge_all());
            }
            return rest;
        }
        if !self.active.contains_key(&conn) {
            let receiver = Receiver::connection(&self.spec.tcp, self.shape(conn));
            self.active.insert(conn, receiver);
        }
        let Some(receiver) = self.active.get_mut(&conn) else { return rest };
        receiver.on_train(pace, train, ctx);
        if receiver.complete() {
            self.ended = self.ended.and(&receiver.counts());
            self.active.remove(&conn);
            self.set_complete(conn);
        } else {
            self.alarms.request(conn, receiver.poll_timeout());
        }
        rest
    }

    fn on_timer(&mut self, now: Time, ctx: &mut Ctx<'_>) {
        while let Some(conn) = self.alarms.take(now) {
            if let Some(receiver) = self.active.get_mut(&conn) {
                receiver.on_timer(now, ctx);
                self.alarms.request(conn, receiver.poll_timeout());
            }
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.alarms.next()
    }

    fn counts(&self) -> Counts {
        self.active.values().fold(self.ended, |sum, receiver| sum.and(&receiver.counts()))
    }
}
