//! The receiving host: models drops of datagrams that the network delivered.
//!
//! The interface coalesces datagrams that arrive close together; the socket's buffer is limited in
//! bytes of true size; and while the reading process does not have the processor, nothing is taken
//! from the buffer. A [`Host`] is one socket with its process.

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

/// A host that receives datagrams: interface, socket buffer, and a process that shares the
/// processor.
#[derive(Clone, Debug, PartialEq)]
pub struct HostConfig {
    /// Socket buffer in bytes of true size: the value that reading `SO_RCVBUF` returns, which is
    /// twice the requested one (425,984 at the default limit of Linux; 212,992 without a request).
    pub buffer: ByteCount,
    /// Datagrams that arrive within this span are coalesced into one buffer, as receive offload
    /// does.
    pub coalesce: Duration,
    /// Maximum number of them; a span of zero or a maximum of one disables coalescing.
    pub coalesce_most: u32,
    /// Time of the process per datagram, and in addition per batch.
    pub per_packet: Duration,
    /// See `per_packet`.
    pub per_batch: Duration,
    /// Competition for the processor.
    pub scheduler: Scheduler,
    /// Seed of all randomness.
    pub seed: u64,
}

/// Sharing of the processor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scheduler {
    /// The process has the processor to itself.
    Alone,
    /// Competitors that never sleep: after at most a `slice` each of them runs one slice, in turn.
    Slices {
        /// Length of a slice.
        slice: Duration,
        /// Number of competitors.
        competitors: u32,
    },
    /// Exponentially distributed spans with and without the processor.
    OnOff {
        /// Mean span with it.
        on: Duration,
        /// Mean span without it.
        off: Duration,
    },
    /// The process generator of FOBS (Dickens, section 3.1.4): zero to `most` processes, uniformly
    /// distributed, for 1 to 7 seconds, then none for 0 to 20 seconds, and so on. While there are
    /// some, the reading process keeps the processor for an exponential span, then one to all of
    /// them run a slice.
    Generator {
        /// Maximum number of processes.
        most: u32,
        /// Length of a slice.
        slice: Duration,
        /// Slices vary by up to this fraction, uniformly; below one.
        spread: f64,
        /// Mean span for which the process keeps the processor; a process that mostly sleeps keeps
        /// it longer than a slice.
        keep: Duration,
    },
}

impl Default for HostConfig {
    /// A host with the default limits of Linux and an unshared processor: 44 datagrams coalesced
    /// within 50 us, a microsecond for each and three per batch.
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
    /// Refuses an invalid configuration.
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

/// True size of a single datagram, from its bytes of the network header on, as Linux counts a
/// separate buffer: a `sk_buff` of 256 bytes, and its data with headroom and `skb_shared_info` (384
/// bytes) rounded up to a power of two. 2,304 for 1,500 bytes, 768 for up to 128.
pub fn true_size(size: ByteCount) -> ByteCount {
    ByteCount(256 + (size.get().min(1 << 32) + 384).next_power_of_two())
}

/// True size of a coalesced buffer, by the number of datagrams and all their bytes: a head of 768
/// bytes, and 128 bytes beside the data of each, so that 425,984 bytes take six buffers of 44
/// datagrams of 1,484 bytes, 264 in total, as measured on Linux 6.18.
pub fn true_size_joined(count: u32, bytes: ByteCount) -> ByteCount {
    ByteCount(768) + ByteCount(128 * u64::from(count)) + bytes
}

/// The packets that the process reads at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch<P> {
    /// When it reads; this makes room at once.
    pub read: Time,
    /// When it has processed all of them: the earliest time of an answer.
    pub done: Time,
    /// The packets with their arrival times, in order.
    pub packets: Vec<(Pace, P)>,
}

/// A socket and the process that reads it.
///
/// Actions due at an instant (the interface passes a buffer on, the process reads) happen before
/// arrivals at the same instant. It therefore makes no difference whether time or an arrival
/// triggers them, nor whether packets arrive as trains.
#[derive(Debug)]
pub struct Host<P> {
    span: Duration,
    most: u32,
    per_packet: Duration,
    per_batch: Duration,
    joining: Option<Joining<P>>,
    socket: Socket<P>,
    processor: Processor,
    /// Until when the process works on the packets it has read.
    busy_until: Time,
    /// When it reads next, if packets wait.
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

    /// Packets arrive from the network. Times never decrease, nor fall below a time passed to
    /// `poll_read`.
    pub fn arrive(&mut self, pace: Pace, mut packet: P, observer: &mut impl Observer<P>) {
        let last = packet.count() - 1;
        if last > 0 && packet.size(last) != packet.size(0) {
            let short = packet.split_off(last);
            self.arrive_even(pace, packet, observer);
            return self.arrive_even(pace.from(last), short, observer);
        }
        self.arrive_even(pace, packet, observer);
    }

    /// The next batch whose reading is decided. `until` means that the clock has reached this time
    /// and no earlier arrival will come; `Time::MAX` does not refer to the clock and requests
    /// decided batches.
    pub fn poll_read(&mut self, until: Time, observer: &mut impl Observer<P>) -> Option<Batch<P>> {
        if until != Time::MAX {
            self.drive(until, observer);
        }
        self.ready.pop_front()
    }

    /// When an action is due without another arrival.
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

    /// How many of the first of `coming` find the host in the same state.
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

    /// Takes packets that find the host in the same state.
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
        // As in offloads, a shorter datagram ends a buffer.
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

    /// Schedules a read: the process reads as soon as it has the processor and has finished its
    /// last batch.
    fn wake(&mut self, now: Time) {
        if self.next_read.is_none() && !self.socket.is_empty() {
            self.next_read = Some(self.processor.next_turn(now.max(self.busy_until)));
        }
    }

    /// Does everything that is due until `until`.
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
        // Packets are accepted while the buffer does not exceed the limit.
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
