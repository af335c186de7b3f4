//! Links, queues, impairments, cross traffic and receiving hosts.
//!
//! An [`Element`] takes packets and returns or drops them later. It reads no clock: arrivals carry
//! their times, and departures carry the times of the element's arithmetic. The simulator and the
//! emulator therefore run the same code, and an emulator that wakes late does not shift its
//! deliveries.
//!
//! An offer is one packet or a *train*: segments equal in size that arrive at equal gaps
//! ([`Pace`]). A train passes as a whole where nothing distinguishes its packets, and is split
//! where something does: a queue that may drop, a loss, a jitter. The output is the same, packet
//! for packet and bit for bit, as if each segment had been offered separately.
//!
//! ```
//! use packtrain_link::{Count, Element, Link, LinkConfig, Pace};
//! use packtrain_units::{DataRate, Duration, Time};
//!
//! // 1 Gbit/s, 50 ms, room for 100 packets: 64 of 1,500 bytes arrive at once.
//! let config = LinkConfig::new(DataRate::from_mbps(1_000), Duration::from_millis(50), 100);
//! config.check().unwrap();
//! let mut link = Link::new(config);
//! link.offer(Pace::at(Time::ZERO), Count { count: 64, size: 1_500, first: 0 }, &mut ());
//!
//! // They leave as one train, 12 us apart.
//! let (pace, train) = link.poll_departure(Time::MAX, &mut ()).unwrap();
//! assert_eq!(train.count, 64);
//! assert_eq!(pace.first, Time::ZERO + Duration::from_micros(50_012));
//! assert_eq!(pace.gap, Duration::from_micros(12));
//! ```
//!
//! A [`Link`] is a queue (see [`queue`] for how to add one), a transmitter whose rate may change,
//! and a wire that loses, duplicates, delays and reorders. [`Cross`] generates traffic without
//! acknowledgements. [`Host`] is a socket and a process that reads it when it gets the processor.
//! All randomness comes from a seed and gives the same values on every machine.

mod check;
mod config;
mod cross;
mod delay;
mod departures;
mod element;
mod histogram;
mod host;
mod link;
mod loss;
pub mod queue;
mod random;
mod rate;
mod rate_trace;
mod wire;

pub use config::{
    CoDelConfig, ConfigError, DelayVariation, Limit, LinkConfig, LossConfig, QueueConfig,
    RateSchedule, RedConfig, RedMode, ReorderConfig,
};
pub use cross::{Cross, CrossConfig, CrossKind};
pub use element::{Count, DropCause, Element, Observer, Pace, Segments};
pub use histogram::Histogram;
pub use host::{Batch, Host, HostConfig, Scheduler, true_size, true_size_joined};
pub use link::Link;
pub use queue::{Arriving, Backlog, Discipline, Release, Verdict};
pub use rate_trace::TraceError;
