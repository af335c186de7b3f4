//! The seam of every element: what passes, at what pace, and who is told.

use packtrain_units::{Duration, Time};

/// One packet or several that travel together.
pub trait Segments: Sized {
    /// How many; at least one.
    fn count(&self) -> u32;

    /// Bytes of segment `i` from the network header on: what queues and rates charge. All are
    /// equal but for the last, which may differ.
    fn size(&self, i: u32) -> u32;

    /// Cuts off and returns the segments from `at` on; `0 < at < count`.
    fn split_off(&mut self, at: u32) -> Self;

    /// A second copy, for duplication on the way.
    fn duplicate(&self) -> Self;
}

/// When the segments of a train pass a point: the first at `first`, each next one `gap` later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// When the first passes.
    pub first: Time,
    /// From each to the next.
    pub gap: Duration,
}

impl Pace {
    /// All at once.
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

/// A bare number of packets of one size: what tests and cross traffic offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// How many.
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

/// Why a packet died.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropCause {
    /// The queue was full.
    Overflow,
    /// Active queue management: RED or CoDel decided so.
    Early,
    /// The loss model of the link.
    Random,
    /// Larger than the link carries.
    TooBig,
    /// The receiving host's socket buffer was full.
    Host,
    /// The link is down for good: its rate is zero and stays so. While it is down for a time,
    /// packets wait.
    Down,
}

/// Who wants to know what an element does.
pub trait Observer<P> {
    /// Packets died; `at` is when each was offered (or, for [`DropCause::Early`] of a queue that
    /// drops at its head and [`DropCause::Random`], when it would have left the queue or had left
    /// the transmitter). What died for one cause comes in the order of the packets.
    fn dropped(&mut self, at: Pace, packet: P, cause: DropCause);

    /// Packets will leave after waiting in the queue: the first for `first`, the last for `last`,
    /// those between in equal steps. Their own transmission time is not counted.
    fn queued(&mut self, packet: &P, first: Duration, last: Duration) {
        let _ = (packet, first, last);
    }
}

/// Nobody is told.
impl<P> Observer<P> for () {
    fn dropped(&mut self, _: Pace, _: P, _: DropCause) {}
}

/// A link, a queue, an impairment.
pub trait Element<P: Segments> {
    /// Packets arrive. Times never decrease from one offer to the next, nor below a time that
    /// `poll_departure` was asked for.
    fn offer(&mut self, pace: Pace, packet: P, observer: &mut impl Observer<P>);

    /// The next packets whose departure is decided and not later than `until`, in the order of
    /// their times, with the nominal times at which they leave the far end; a train of which a
    /// part is due is cut.
    ///
    /// `until` also says that the clock stands there and no earlier offer will come, so what is
    /// due to be decided is decided. Only `Time::MAX` says nothing of the clock: it asks for all
    /// that is decided, whole trains. A simulator asks so after each offer, and learns departures
    /// as soon as they are decided, which for all but queues that decide at their head (CoDel) is
    /// when they are offered; for those it asks at `poll_timeout` with the time, then with
    /// `Time::MAX`.
    fn poll_departure(&mut self, until: Time, observer: &mut impl Observer<P>)
    -> Option<(Pace, P)>;

    /// When something new may be decided or due without another offer.
    fn poll_timeout(&self) -> Option<Time>;
}
