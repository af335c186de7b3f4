//! The interface of all elements.

use packtrain_units::{Duration, Time};

/// One packet, or several that travel together.
pub trait Segments: Sized {
    /// Number of packets; at least one.
    fn count(&self) -> u32;

    /// Bytes of segment `i` from the network header on, as counted by queues and rates. All are
    /// equal except the last, which may differ.
    fn size(&self, i: u32) -> u32;

    /// Splits off and returns the segments from `at` on; `0 < at < count`.
    fn split_off(&mut self, at: u32) -> Self;

    /// A copy, for duplication by a link.
    fn duplicate(&self) -> Self;

    /// Whether their transport understands congestion marks (RFC 3168: ECT(0), ECT(1) or CE).
    fn is_ect(&self) -> bool {
        false
    }

    /// Marks all of them as having experienced congestion (CE). Called only if they are ECT.
    fn mark(&mut self) {}
}

/// When the segments of a train pass a point: the first at `first`, each following one `gap` later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// When the first passes.
    pub first: Time,
    /// Time between successive segments.
    pub gap: Duration,
}

impl Pace {
    /// All at the same time.
    pub const fn at(first: Time) -> Self {
        Self { first, gap: Duration::ZERO }
    }

    /// When segment `i` passes.
    pub fn time(&self, i: u32) -> Time {
        self.first + self.gap * u64::from(i)
    }

    /// The pace of the segments from `i` on.
    pub fn from(&self, i: u32) -> Self {
        Self { first: self.time(i), gap: self.gap }
    }
}

/// A number of packets of one size, as used by tests and cross traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// Number of packets.
    pub count: u32,
    /// Bytes of each.
    pub size: u32,
    /// Number of the first.
    pub first: u64,
}

impl Segments for Count {
    fn count(&self) -> u32 {
        self.count
    }

    fn size(&self, _: u32) -> u32 {
        self.size
    }

    fn split_off(&mut self, at: u32) -> Self {
        let rest = Self { count: self.count - at, first: self.first + u64::from(at), ..*self };
        self.count = at;
        rest
    }

    fn duplicate(&self) -> Self {
        *self
    }
}

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropCause {
    /// The queue was full.
    Overflow,
    /// Dropped by active queue management: RED or CoDel.
    Early,
    /// The loss model of the link.
    Random,
    /// Larger than the link's maximum.
    TooBig,
    /// The receiving host's socket buffer was full.
    Host,
    /// The link is down permanently: its rate is zero and stays so. While it is down temporarily,
    /// packets wait.
    Down,
}

/// Receives reports about packets in an element.
pub trait Observer<P> {
    /// Packets were dropped; `at` is when each was offered. Exceptions: for [`DropCause::Early`] of
    /// a queue that drops at its head it is when the packet would have left the queue; for
    /// [`DropCause::Random`] when it left the transmitter. Packets dropped for one cause are
    /// reported in order.
    fn dropped(&mut self, at: Pace, packet: P, cause: DropCause);

    /// Packets will leave after waiting in the queue: the first for `first`, the last for `last`,
    /// those between in equal steps. Their own transmission time is not included.
    fn queued(&mut self, packet: &P, first: Duration, last: Duration) {
        let _ = (packet, first, last);
    }

    /// Packets were marked instead of dropped early (RFC 3168 section 5). They go on.
    fn marked(&mut self, packet: &P) {
        let _ = packet;
    }
}

/// Ignores all reports.
impl<P> Observer<P> for () {
    fn dropped(&mut self, _: Pace, _: P, _: DropCause) {}
}

/// A link, a queue, or an impairment.
pub trait Element<P: Segments> {
    /// Packets arrive. Times never decrease between offers, nor below a time passed to
    /// `poll_departure`.
    fn offer(&mut self, pace: Pace, packet: P, observer: &mut impl Observer<P>);

    /// The next packets whose departure is decided and not later than `until`, in order of time,
    /// with the nominal times at which they leave the other end; a train of which only a part is
    /// due is split.
    ///
    /// `until` also means that the clock has reached this time and that no earlier offer will come,
    /// so all decisions due by then are made. Only `Time::MAX` does not refer to the clock: it
    /// requests all decided departures, as whole trains. A simulator polls with it after each
    /// offer, and gets departures as soon as they are decided, which is at the offer except for
    /// queues that decide at their head (CoDel). For those it polls at `poll_timeout` with the
    /// time, then with `Time::MAX`.
    fn poll_departure(&mut self, until: Time, observer: &mut impl Observer<P>)
    -> Option<(Pace, P)>;

    /// When something new may be decided or due without another offer.
    fn poll_timeout(&self) -> Option<Time>;
}
