//! Cross traffic: packets without acknowledgements.

use packtrain_link::{Count, Cross, CrossConfig, Pace, Segments};
use packtrain_units::Time;

use super::build::Place;
use super::{Agent, Counts, Ctx};
use crate::ingress::before;
use crate::train::{Body, Toward, Train};

/// Maximum length of a train.
const MAX_TRAIN_PACKETS: u32 = 64;

/// Sends the packets of the link crate's generator.
#[derive(Debug)]
pub(crate) struct Source {
    generator: Cross,
    next: Option<(Pace, Count)>,
    place: Place,
    sent: u64,
}

impl Source {
    pub(crate) fn new(config: &CrossConfig, place: &Place) -> Self {
        let mut source = Self {
            generator: Cross::new(config, place.seed),
            next: None,
            place: place.clone(),
            sent: 0,
        };
        source.next = source.generate();
        source
    }

    /// The next train, in the time of the scenario.
    fn generate(&mut self) -> Option<(Pace, Count)> {
        let (pace, count) = self.generator.next_train(MAX_TRAIN_PACKETS)?;
        let first = self.place.start + pace.first.since(Time::ZERO);
        Some((Pace { first, gap: pace.gap }, count))
    }

    fn emit(&mut self, pace: Pace, packets: Count, ctx: &mut Ctx<'_>) {
        let train = Train {
            flow: self.place.flow,
            conn: 0,
            to: self.place.to,
            size: packets.size,
            count: packets.count,
            toward: Toward::Receiver,
            first: self.sent,
            ecn: 0,
            body: Body::Bare,
        };
        self.sent += u64::from(packets.count);
        ctx.send(pace, train);
    }
}

impl Agent for Source {
    fn on_train(&mut self, _: Pace, _: Train, _: &mut Ctx<'_>) -> Option<Train> {
        None
    }

    fn on_timer(&mut self, _: Time, ctx: &mut Ctx<'_>) {
        let limit = ctx.horizon().min(self.place.stop);
        while let Some((pace, mut packets)) = self.next {
            if pace.first >= limit {
                break;
            }
            let within = before(pace, packets.count, limit);
            if within < packets.count {
                let rest = packets.split_off(within);
                self.next = Some((pace.from(within), rest));
            } else {
                self.next = self.generate();
            }
            self.emit(pace, packets, ctx);
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.next.map(|(pace, _)| pace.first).filter(|first| *first < self.place.stop)
    }

    fn counts(&self) -> Counts {
        Counts { sent_packets: self.sent, ..Counts::default() }
    }
}

/// Counts the packets that arrive.
#[derive(Debug, Default)]
pub(crate) struct Sink {
    delivered: u64,
}

impl Agent for Sink {
    fn on_train(&mut self, _: Pace, train: Train, _: &mut Ctx<'_>) -> Option<Train> {
        self.delivered += u64::from(train.size) * u64::from(train.count);
        None
    }

    fn on_timer(&mut self, _: Time, _: &mut Ctx<'_>) {}

    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    fn counts(&self) -> Counts {
        Counts { delivered: self.delivered, ..Counts::default() }
    }
}
