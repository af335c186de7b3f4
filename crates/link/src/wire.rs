//! The wire behind the transmitter: loss, then duplication, then delay, jitter and reordering.

use packtrain_units::{Duration, Rng};

use crate::config::{LinkConfig, LossConfig};
use crate::delay::Jitter;
use crate::departures::Departures;
use crate::element::{DropCause, Observer, Pace, Segments};
use crate::loss::Loss;
use crate::random::Hits;

/// Carries transmitted packets, each with its own outcome.
#[derive(Debug)]
pub(crate) struct Wire {
    /// Only a delay: the common case, with a separate fast path.
    plain: bool,
    loss: Loss,
    duplicate: Option<Hits>,
    delay: Duration,
    jitter: Option<Jitter>,
    reorder: Option<(Hits, Duration)>,
}

impl Wire {
    pub(crate) fn new(config: &LinkConfig, rng: &mut Rng) -> Self {
        // Every part has its own generator, so that enabling one impairment leaves the others
        // unchanged.
        let (loss, duplicate, jitter, reorder) = (rng.fork(), rng.fork(), rng.fork(), rng.fork());
        let faults = config.duplicate > 0.0 || config.jitter.is_some() || config.reorder.is_some();
        Self {
            plain: !faults && config.loss == LossConfig::None,
            loss: Loss::new(&config.loss, loss),
            duplicate: (config.duplicate > 0.0).then(|| Hits::new(config.duplicate, duplicate)),
            delay: config.delay,
            jitter: config.jitter.map(|variation| Jitter::new(variation, config.delay, jitter)),
            reorder: config.reorder.map(|r| (Hits::new(r.probability, reorder), r.extra)),
        }
    }

    /// Packets of one size leave the transmitter at `pace`.
    #[inline]
    pub(crate) fn carry<P: Segments>(
        &mut self,
        pace: Pace,
        packets: P,
        out: &mut Departures<P>,
        observer: &mut impl Observer<P>,
    ) {
        if self.plain {
            return out.push(Pace { first: pace.first + self.delay, gap: pace.gap }, packets);
        }
        self.lose(pace, packets, out, observer);
    }

    fn lose<P: Segments>(
        &mut self,
        mut pace: Pace,
        mut packets: P,
        out: &mut Departures<P>,
        observer: &mut impl Observer<P>,
    ) {
        let size = packets.size(0);
        while let Some(at) = self.loss.next_in(packets.count(), size) {
            let (before, lost, rest) = around(packets, at);
            if let Some(before) = before {
                self.copy(pace, before, out);
            }
            observer.dropped(Pace::at(pace.time(at)), lost, DropCause::Random);
            let Some(rest) = rest else { return };
            (pace, packets) = (pace.from(at + 1), rest);
        }
        self.copy(pace, packets, out);
    }

    fn copy<P: Segments>(&mut self, mut pace: Pace, mut packets: P, out: &mut Departures<P>) {
        if self.duplicate.is_none() {
            return self.delay(pace, packets, out);
        }
        while let Some(at) = self.duplicate.as_mut().and_then(|hits| hits.next_in(packets.count()))
        {
            let (before, twice, rest) = around(packets, at);
            if let Some(before) = before {
                self.delay(pace, before, out);
            }
            let (left, second) = (Pace::at(pace.time(at)), twice.duplicate());
            self.delay(left, twice, out);
            self.delay(left, second, out);
            let Some(rest) = rest else { return };
            (pace, packets) = (pace.from(at + 1), rest);
        }
        self.delay(pace, packets, out);
    }

    fn delay<P: Segments>(&mut self, mut pace: Pace, mut packets: P, out: &mut Departures<P>) {
        let Some(jitter) = &mut self.jitter else {
            pace.first += self.delay;
            return self.reorder(pace, packets, out);
        };
        loop {
            let rest = (packets.count() > 1).then(|| packets.split_off(1));
            let arrival = Pace::at(jitter.arrival(pace.first));
            let late = self
                .reorder
                .as_mut()
                .and_then(|(hits, extra)| hits.next_in(1).map(|_| arrival.first + *extra));
            match late {
                Some(at) => out.push_late(at, packets),
                None => out.push(arrival, packets),
            }
            let Some(rest) = rest else { return };
            (pace, packets) = (pace.from(1), rest);
        }
    }

    fn reorder<P: Segments>(&mut self, mut pace: Pace, mut packets: P, out: &mut Departures<P>) {
        let Some((hits, extra)) = &mut self.reorder else { return out.push(pace, packets) };
        while let Some(at) = hits.next_in(packets.count()) {
            let (before, late, rest) = around(packets, at);
            if let Some(before) = before {
                out.push(pace, before);
            }
            out.push_late(pace.time(at) + *extra, late);
            let Some(rest) = rest else { return };
            (pace, packets) = (pace.from(at + 1), rest);
        }
        out.push(pace, packets);
    }
}

/// The segments before `at`, the one there, and those after it.
fn around<P: Segments>(mut packets: P, at: u32) -> (Option<P>, P, Option<P>) {
    let rest = (at + 1 < packets.count()).then(|| packets.split_off(at + 1));
    if at == 0 {
        return (None, packets, rest);
    }
    let one = packets.split_off(at);
    (Some(packets), one, rest)
}
