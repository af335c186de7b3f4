//! Families with losses at the receiving host, and with losses of both kinds.

use packtrain_link::{HostConfig, Scheduler, true_size, true_size_joined};
use packtrain_units::{ByteCount, Duration, Rng};

use super::draft::{Brief, Draft, Flow, Kind, Meta, Room, note, some};
use super::network::{Traffic, others};
use super::play::Setup;
use super::random::{even, pick, scale, seconds};
use super::source::Sending;

/// The competitors for the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rivals {
    /// The paper's generator of processes.
    Generator,
    /// A constant number, in turn.
    Fair,
    /// Exponential periods with and without the processor.
    OnOff,
}

/// The parameters of a host except for its buffer.
#[derive(Clone, Copy, Debug)]
struct Shape {
    joins: bool,
    span: Duration,
    scheduler: Scheduler,
    /// Mean number of packets that arrive while the process is off the processor.
    off: f64,
    /// The target share of them that is lost.
    share: f64,
}

impl Shape {
    /// Slices of 1 to 8 and 20 to 100 ms to train, of 8 to 20 ms to test, of 10 to 100 ms under the
    /// paper's conditions.
    fn draw(rng: &mut Rng, brief: &Brief, flow: &Flow, rivals: Rivals, joins: bool) -> Self {
        let time = flow.span(brief.window as f64);
        let longest = time / 8.0;
        let slice = match brief.region {
            super::Region::PaperTrain | super::Region::PaperTest => scale(rng, 10e-3, 100e-3),
            super::Region::Test => scale(rng, 8e-3, 20e-3),
            super::Region::Train if rng.chance(0.6) => scale(rng, 1e-3, 8e-3),
            super::Region::Train => scale(rng, 20e-3, 100e-3),
        };
        let slice = slice.min(longest);
        let rivals_most = match brief.region {
            super::Region::Test if rivals == Rivals::Fair => some(rng, 1, 3),
            _ => 7,
        };
        let off_time = match rivals {
            Rivals::Fair => slice * rivals_most.min(7) as f64,
            Rivals::Generator => slice * 2.5,
            Rivals::OnOff => slice,
        };
        let off = off_time / flow.span(1.0);
        let lost = brief.target * brief.window as f64;
        // As many periods off the processor as can each lose packets.
        let most = lost.min(0.5 * time / off_time).max(1.0);
        let times = match rivals {
            Rivals::Fair => time / (off_time + slice),
            _ => scale(rng, 1.0, most.min(200.0)),
        };
        let keep = seconds((time / times - off_time).max(slice * 0.5));
        let slice = seconds(slice);
        let scheduler = match rivals {
            Rivals::Generator => {
                let spread = pick(rng, &[0.0, 0.1, 0.3]);
                Scheduler::Generator { most: 7, slice, spread, keep }
            }
            Rivals::Fair => Scheduler::Slices { slice, competitors: rivals_most as u32 },
            Rivals::OnOff => Scheduler::OnOff { on: keep, off: slice },
        };
        let share = (lost / times / off).clamp(0.001, 0.98);
        let span = Duration::from_micros(pick(rng, &[10, 20, 50]));
        Self { joins, span, scheduler, off, share }
    }

    /// A host that loses `share` of the arrivals while the process is off the processor.
    fn host(&self, size: u32, share: f64) -> HostConfig {
        let each = cost(size, self.joins);
        let min = if self.joins { 2.0 * 44.0 } else { 8.0 };
        let room = (self.off * (1.0 - share)).max(min);
        HostConfig {
            buffer: ByteCount((room * each) as u64),
            coalesce: if self.joins { self.span } else { Duration::ZERO },
            coalesce_most: if self.joins { 44 } else { 1 },
            per_packet: Duration::from_nanos(200),
            per_batch: Duration::from_micros(2),
            scheduler: self.scheduler,
            seed: 0,
        }
    }

    fn write(&self, meta: &mut Meta) {
        let ms = |d: Duration| d.as_secs_f64() * 1e3;
        note(meta, "joins", self.joins);
        match self.scheduler {
            Scheduler::Generator { slice, keep, spread, .. } => {
                note(meta, "slice_ms", ms(slice));
                note(meta, "keep_ms", ms(keep));
                note(meta, "spread", spread);
            }
            Scheduler::Slices { slice, competitors } => {
                note(meta, "slice_ms", ms(slice));
                note(meta, "competitors", competitors);
            }
            Scheduler::OnOff { on, off } => {
                note(meta, "on_ms", ms(on));
                note(meta, "off_ms", ms(off));
            }
            Scheduler::Alone => {}
        }
    }
}

/// Bytes of true size of a datagram.
fn cost(size: u32, joins: bool) -> f64 {
    let bytes = ByteCount(u64::from(size));
    match joins {
        true => true_size_joined(44, ByteCount(44 * bytes.get())).get() as f64 / 44.0,
        false => true_size(bytes).get() as f64,
    }
}

/// A path without losses, sometimes with competitors, so that packets arrive unevenly.
fn clean(rng: &mut Rng, brief: &Brief, flow: &Flow, meta: &mut Meta) -> (Room, f64, Others) {
    let busy = rng.chance(0.3);
    let capacity = flow.rate * if busy { scale(rng, 1.5, 4.0) } else { scale(rng, 1.02, 20.0) };
    let room = Room::of(rng, Kind::DropTail, 1e9, brief.region);
    note(meta, "capacity_bps", capacity.round());
    note(meta, "others_load", if busy { 0.8 } else { 0.0 });
    let mut sources = Vec::new();
    if busy {
        let traffic = pick(rng, &[Traffic::Poisson, Traffic::Bursts, Traffic::Paced]);
        let make = others(rng, traffic, brief, capacity, 1.0, meta);
        sources = make((0.8 * capacity - flow.rate).max(0.01 * capacity));
    }
    (room, capacity, sources)
}

type Others = Vec<(u32, Sending)>;

/// The process does not get the processor in time. The free parameter is the share of the arrivals
/// that is lost meanwhile; it sets the buffer.
pub(super) fn starved(rng: &mut Rng, brief: &Brief, rivals: Rivals, joins: bool) -> Draft {
    let flow = Flow::draw(rng, brief.region);
    starved_flow(rng, brief, flow, rivals, joins)
}

/// The paper's own conditions: 1 Gbit/s of 1024-byte packets. The paper does not give the slices.
pub(super) fn paper(rng: &mut Rng, brief: &Brief) -> Draft {
    let flow = Flow { rate: 1e9, size: 1_052, quantum: 1, line: 1e9, jitter: even(rng, 0.0, 0.9) };
    let mut draft = starved_flow(rng, brief, flow, Rivals::Generator, false);
    note(&mut draft.meta, "paper", true);
    draft
}

fn starved_flow(rng: &mut Rng, brief: &Brief, flow: Flow, rivals: Rivals, joins: bool) -> Draft {
    let mut meta = Meta::new();
    let shape = Shape::draw(rng, brief, &flow, rivals, joins);
    let (room, capacity, others) = clean(rng, brief, &flow, &mut meta);
    flow.write(&mut meta);
    shape.write(&mut meta);
    let setup = move |share: f64| {
        let host = shape.host(flow.size, share);
        let link = room.link(capacity);
        Setup { ours: flow.sending(), others: others.clone(), link, host }
    };
    let parameter = (-1.0, 1.0, shape.share);
    let setup = Box::new(setup);
    Draft { setup, parameter, steady: false, warm: 0.1, policed: false, flow, meta }
}

/// The process has the processor and is too slow for the rate. The free parameter is the excess.
pub(super) fn slow(rng: &mut Rng, brief: &Brief) -> Draft {
    let mut meta = Meta::new();
    let flow = Flow::draw(rng, brief.region);
    let joins = rng.chance(0.5);
    let (room, capacity, others) = clean(rng, brief, &flow, &mut meta);
    let buffer = 212_992 << some(rng, 0, 5);
    let per_batch = Duration::from_micros(pick(rng, &[0, 1, 3]));
    flow.write(&mut meta);
    note(&mut meta, "joins", joins);
    note(&mut meta, "buffer", buffer);
    let setup = move |excess: f64| {
        let each = flow.span(1.0) - per_batch.as_secs_f64() / 64.0;
        let host = HostConfig {
            buffer: ByteCount(buffer),
            coalesce: if joins { Duration::from_micros(20) } else { Duration::ZERO },
            coalesce_most: if joins { 44 } else { 1 },
            per_packet: seconds(each.max(1e-8) * (1.0 + excess)),
            per_batch,
            scheduler: Scheduler::Alone,
            seed: 0,
        };
        let link = room.link(capacity);
        Setup { ours: flow.sending(), others: others.clone(), link, host }
    };
    let parameter = (-0.5, 0.3, brief.target);
    let setup = Box::new(setup);
    Draft { setup, parameter, steady: false, warm: 0.3, policed: false, flow, meta }
}

/// Both at once: the network causes `share` of the losses.
pub(super) fn both(rng: &mut Rng, brief: &Brief, traffic: Option<Traffic>) -> Draft {
    let mut meta = Meta::new();
    let flow = Flow::draw(rng, brief.region);
    let share = even(rng, 0.1, 0.9);
    let network = brief.target * share;
    let rest = Brief { target: brief.target * (1.0 - share), ..*brief };
    let joins = rng.chance(0.4);
    let rivals = pick(rng, &[Rivals::Generator, Rivals::Generator, Rivals::OnOff]);
    let shape = Shape::draw(rng, &rest, &flow, rivals, joins);
    let capacity = match traffic {
        None => flow.rate * (1.0 - network),
        Some(_) => flow.rate / scale(rng, 0.15, 0.9),
    };
    let room = Room::draw(rng, Kind::DropTail, capacity, brief.region);
    let make = traffic.map(|traffic| {
        let time = flow.span(brief.window as f64);
        others(rng, traffic, brief, capacity, time, &mut meta)
    });
    flow.write(&mut meta);
    room.write(&mut meta);
    shape.write(&mut meta);
    note(&mut meta, "capacity_bps", capacity.round());
    let low = match traffic {
        Some(Traffic::Bursts) => even(rng, 0.6, 0.95),
        _ => 1.0 + network,
    };
    let setup = move |_: f64| {
        let mut others = vec![room.fill()];
        if let Some(make) = &make {
            others.extend(make((capacity * low - flow.rate).max(0.01 * capacity)));
        }
        let (link, host) = (room.link(capacity), shape.host(flow.size, shape.share));
        Setup { ours: flow.sending(), others, link, host }
    };
    let parameter = (0.0, 1.0, 0.5);
    let setup = Box::new(setup);
    Draft { setup, parameter, steady: true, warm: 0.125, policed: false, flow, meta }
}
