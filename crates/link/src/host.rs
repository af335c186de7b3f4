//! The receiving host: why datagrams die that the network delivered.
//!
//! They die as in life: the interface joins what comes close together, the socket's buffer takes
//! what its bytes of true size allow, and while the process that reads it does not have the
//! processor nobody takes anything out. A [`Host`] is one socket with its process.

mod processor;
mod socket;

use std::collections::VecDeque;

use packtrain_units::{ByteCount, Duration, Rng, Time};

use crate::check::ensure;
use crate::config::ConfigError;
use crate::element::{Observer, Pace, Segments};
use crate::queue::Arriving;
use processor::Processor;
use socket::{Joining, Socket};

/// A host that receives datagrams: interface, socket buffer, a process that gets the processor
/// now and then.
#[derive(Clone, Debug, PartialEq)]
pub struct HostConfig {
    /// Socket buffer in bytes of true size: what reading `SO_RCVBUF` gives, which is the double of
    /// what was asked for (425,984 at Linux' default limit; 212,992 if nobody asks).
    pub buffer: ByteCount,
    /// Datagrams that arrive within this span are joined to one buffer, as receive offload does.
    pub coalesce: Duration,
    /// The most of them; a span of zero or at most one joins nothing.
    pub coalesce_most: u32,
    /// What the process needs for a datagram, and for a batch besides.
    pub per_packet: Duration,
    /// See `per_packet`.
    pub per_batch: Duration,
    /// Who else wants the processor.
    pub scheduler: Scheduler,
    /// Seed of everything random in it.
    pub seed: u64,
}

/// How the processor is shared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scheduler {
    /// The process has it to itself.
    Alone,
    /// Competitors that never sleep: after at most a `slice` each of them runs one, in turn.
    Slices {
        /// How long a turn is.
        slice: Duration,
        /// How many others.
        competitors: u32,
    },
    /// Others come and go: exponential spans without and with the processor.
    OnOff {
        /// Mean span with it.
        on: Duration,
        /// Mean span without it.
        off: Duration,
    },
    /// The process generator of FOBS (Dickens, section 3.1.4): none to `most` processes, evenly,
    /// for 1 to 7 seconds, then none for 0 to 20 seconds, and again. While there are some, the
    /// process keeps the processor for an exponential span, then one to all of them run a slice.
    Generator {
        /// The most processes.
        most: u32,
        /// How long the turn of one of them is.
        slice: Duration,
        /// Turns differ by up to so much of a slice, evenly; below one.
        spread: f64,
        /// How long the process keeps the processor, on average; a process that mostly sleeps
        /// keeps it longer than a slice.
        keep: Duration,
    },
}

impl Default for HostConfig {
    /// A host with Linux' default limits that has its processor to itself: 44 datagrams joined
    /// within 50 us, a microsecond each and three a batch.
    fn default() -> Self {
        Self {
            buffer: ByteCount(425_984),
            coalesce: Duration::from_micros(50),
            coalesce_most: 44,
            per_packet: Duration::from_micros(1),
            per_batch: Duration::from_micros(3),
            scheduler: Scheduler::Alone,
            seed: 1,
        }
    }
}

impl HostConfig {
    /// Refuses what cannot be.
    pub fn check(&self) -> Result<(), ConfigError> {
        ensure(self.buffer >= true_size(ByteCount(1)), "buffer", || {
            format!("{} is below one datagram: at least {}", self.buffer, true_size(ByteCount(1)))
        })?;
        ensure(self.coalesce_most > 0, "coalesce_most", || {
            "at least 1, which joins nothing".to_owned()
        })?;
        let minute = Duration::from_secs(60);
        ensure(self.coalesce < minute, "coalesce", || "at most a minute".to_owned())?;
        ensure(self.per_packet < minute, "per_packet", || "at most a minute".to_owned())?;
        ensure(self.per_batch < minute, "per_batch", || "at most a minute".to_owned())?;
        match self.scheduler {
            Scheduler::Alone => Ok(()),
            Scheduler::Slices { slice, competitors } => {
                ensure(!slice.is_zero() && slice < minute, "slice", || {
                    "more than nothing and at most a minute, such as 3ms".to_owned()
                })?;
                ensure(competitors <= 10_000, "competitors", || "at most 10000".to_owned())
            }
            Scheduler::OnOff { on, off } => {
                let on_right = on >= Duration::from_micros(1) && on < minute * 60;
                ensure(on_right, "on", || "from 1us to an hour".to_owned())?;
                ensure(off < minute * 60, "off", || "less than an hour".to_owned())
            }
            Scheduler::Generator { most, slice, spread, keep } => {
                ensure(most <= 10_000, "most", || "at most 10000".to_owned())?;
                ensure(!slice.is_zero() && slice < minute, "slice", || {
                    "more than nothing and at most a minute, such as 3ms".to_owned()
                })?;
                ensure((0.0..1.0).contains(&spread), "spread", || {
                    "at least 0 and below 1".to_owned()
                })?;
                let keep_right = keep >= Duration::from_micros(1) && keep < minute * 60;
                ensure(keep_right, "keep", || "from 1us to an hour".to_owned())
            }
        }
    }
}

/// True size of a datagram by itself, from its bytes of the network header on: what Linux charges
/// for a buffer of its own, a `sk_buff` of 256 bytes and its data with headroom and
/// `skb_shared_info` (384 bytes) in a power of two. 2,304 for 1,500 bytes, 768 for up to 128.
pub fn true_size(size: ByteCount) -> ByteCount {
    ByteCount(256 + (size.get().min(1 << 32) + 384).next_power_of_two())
}

/// True size of a joined buffer, by the number of datagrams and all their bytes: a head of 768 and
/// 128 bytes besides the data of each, so that 425,984 bytes take six buffers of 44 datagrams of
/// 1,484 bytes, 264 in all, as measured on Linux 6.18.
pub fn true_size_joined(count: u32, bytes: ByteCount) -> ByteCount {
    ByteCount(768) + ByteCount(128 * u64::from(count)) + bytes
}

/// What the process takes out of the socket at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch<P> {
    /// When it reads; what it takes out makes room at once.
    pub read: Time,
    /// When it has worked on all of it: the earliest time at which it can answer.
    pub done: Time,
    /// The packets with the times at which they arrived, in their order.
    pub packets: Vec<(Pace, P)>,
}

/// A socket and the process that reads it.
///
/// What is due at an instant (the interface hands over, the process reads) happens before
/// anything that arrives at this instant is looked at; so it makes no difference whether time or
/// an arrival brings it about, nor whether packets arrive as trains.
#[derive(Debug)]
pub struct Host<P> {
    span: Duration,
    most: u32,
    per_packet: Duration,
    per_batch: Duration,
    joining: Option<Joining<P>>,
    socket: Socket<P>,
    processor: Processor,
    /// The process works on what it read until then.
    busy_until: Time,
    /// When it reads next, if something waits for it.
    next_read: Option<Time>,
    ready: VecDeque<Batch<P>>,
}

impl<P: Segments> Host<P> {
    /// A host whose process waits for a first datagram.
    pub fn new(config: &HostConfig) -> Self {
        Self {
            span: config.coalesce,
            most: config.coalesce_most.max(1),
            per_packet: config.per_packet,
            per_batch: config.per_batch,
            joining: None,
            socket: Socket::new(config.buffer),
            processor: Processor::new(config.scheduler, Rng::new(config.seed)),
            busy_until: Time::ZERO,
            next_read: None,
            ready: VecDeque::new(),
        }
    }

    /// Packets arrive from the network. Times never decrease, nor below a time that `poll_read`
    /// was asked for.
    pub fn arrive(&mut self, pace: Pace, mut packet: P, observer: &mut impl Observer<P>) {
        let last = packet.count() - 1;
        if last > 0 && packet.size(last) != packet.size(0) {
            let short = packet.split_off(last);
            self.arrive_even(pace, packet, observer);
            return self.arrive_even(pace.from(last), short, observer);
        }
        self.arrive_even(pace, packet, observer);
    }

    /// The next batch whose reading is decided. `until` says that the clock stands there and no
    /// earlier arrival will come; `Time::MAX` says nothing, and asks for what is decided.
    pub fn poll_read(&mut self, until: Time, observer: &mut impl Observer<P>) -> Option<Batch<P>> {
        if until != Time::MAX {
            self.drive(until, observer);
        }
        self.ready.pop_front()
    }

    /// When something is due without another arrival.
    pub fn poll_timeout(&self) -> Option<Time> {
        let ready = self.ready.front().map(|batch| batch.read);
        ready.into_iter().chain(self.next_due()).min()
    }

    /// Bytes of true size in the socket's buffer.
    pub fn waiting(&self) -> ByteCount {
        self.socket.used()
    }

    fn next_due(&self) -> Option<Time> {
        let flush = self.joining.as_ref().map(Joining::until);
        flush.into_iter().chain(self.next_read).min()
    }

    fn arrive_even(&mut self, mut pace: Pace, packet: P, observer: &mut impl Observer<P>) {
        let mut rest = Some(packet);
        while let Some(mut packet) = rest.take() {
            self.drive(pace.first, observer);
            let coming = Arriving { pace, count: packet.count(), size: packet.size(0) };
            let n = self.alike(coming);
            let here = pace;
            if n < packet.count() {
                rest = Some(packet.split_off(n));
                pace = pace.from(n);
            }
            self.take(here, packet, observer);
        }
    }

    /// How many of the first of `coming` meet the host in the same state.
    fn alike(&self, coming: Arriving) -> u32 {
        let n = self.next_due().map_or(coming.count, |due| coming.before(due));
        if !self.joins() {
            // The first wakes the process.
            return if self.next_read.is_none() { 1 } else { n };
        }
        match &self.joining {
            Some(open) if open.size() == coming.size => n.min(self.most - open.count()),
            Some(_) => 1,
            None => n.min(self.most).min(coming.before(coming.pace.first + self.span)),
        }
    }

    fn joins(&self) -> bool {
        self.most > 1 && !self.span.is_zero()
    }

    /// Takes packets that meet the host in the same state.
    fn take(&mut self, pace: Pace, packet: P, observer: &mut impl Observer<P>) {
        let now = pace.time(packet.count() - 1);
        if !self.joins() {
            self.socket.take_singles(pace, packet, observer);
            return self.wake(pace.first);
        }
        let size = packet.size(0);
        if self.joining.as_ref().is_some_and(|open| open.size() < size) {
            self.hand_over(now, observer);
        }
        match &mut self.joining {
            Some(open) => open.add(pace, packet),
            None => self.joining = Some(Joining::new(pace, packet, pace.first + self.span)),
        }
        // As offloads do, a shorter one ends a buffer.
        let ends = |open: &Joining<P>| open.count() >= self.most || size < open.size();
        if self.joining.as_ref().is_some_and(ends) {
            self.hand_over(now, observer);
        }
    }

    fn hand_over(&mut self, now: Time, observer: &mut impl Observer<P>) {
        if let Some(joined) = self.joining.take() {
            self.socket.take_joined(joined, observer);
            self.wake(now);
        }
    }

    /// The process reads as soon as it has the processor and is done with what it read.
    fn wake(&mut self, now: Time) {
        if self.next_read.is_none() && !self.socket.is_empty() {
            self.next_read = Some(self.processor.next_turn(now.max(self.busy_until)));
        }
    }

    /// Does all that is due until `until`.
    fn drive(&mut self, until: Time, observer: &mut impl Observer<P>) {
        while let Some(due) = self.next_due().filter(|due| *due <= until) {
            if self.joining.as_ref().is_some_and(|open| open.until() == due) {
                self.hand_over(due, observer);
            } else {
                self.read(due);
            }
        }
    }

    fn read(&mut self, now: Time) {
        self.next_read = None;
        let packets = self.socket.read();
        let count: u32 = packets.iter().map(|(_, packet)| packet.count()).sum();
        let work = self.per_batch + self.per_packet * u64::from(count);
        let done = self.processor.run(now, work);
        self.busy_until = done;
        self.ready.push_back(Batch { read: now, done, packets });
        self.wake(done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn true_sizes_are_those_of_linux() {
        let of = |n| true_size(ByteCount(n)).get();
        assert_eq!(
            (of(40), of(128), of(129), of(1_484), of(1_500)),
            (768, 768, 1_280, 2_304, 2_304)
        );
        let joined = true_size_joined(44, ByteCount(44 * 1_484)).get();
        assert_eq!(joined, 71_696);
        // Taken while what is there does not exceed the limit.
        assert_eq!(425_984 / joined + 1, 6);
    }

    #[test]
    fn impossible_hosts_are_refused_by_field() {
        let field = |change: fn(&mut HostConfig)| {
            let mut config = HostConfig::default();
            assert_eq!(config.check(), Ok(()));
            change(&mut config);
            config.check().unwrap_err().field
        };
        assert_eq!(field(|c| c.buffer = ByteCount(767)), "buffer");
        assert_eq!(field(|c| c.coalesce_most = 0), "coalesce_most");
        assert_eq!(field(|c| c.coalesce = Duration::MAX), "coalesce");
        assert_eq!(field(|c| c.per_packet = Duration::MAX), "per_packet");
        assert_eq!(field(|c| c.per_batch = Duration::MAX), "per_batch");
        let (slice, off) = (Duration::ZERO, Duration::ZERO);
        let slices = Scheduler::Slices { slice, competitors: 1 };
        let config = HostConfig { scheduler: slices, ..HostConfig::default() };
        assert_eq!(config.check().unwrap_err().field, "slice");
        let onoff = Scheduler::OnOff { on: Duration::ZERO, off };
        let config = HostConfig { scheduler: onoff, ..HostConfig::default() };
        assert_eq!(config.check().unwrap_err().field, "on");
        let (slice, keep) = (Duration::from_millis(3), Duration::from_millis(9));
        let generator = Scheduler::Generator { most: 7, slice, spread: 1.0, keep };
        let config = HostConfig { scheduler: generator, ..HostConfig::default() };
        assert_eq!(config.check().unwrap_err().field, "spread");
    }
}
