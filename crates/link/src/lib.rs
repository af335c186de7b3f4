//! Links, queues, impairments, cross traffic and receiving hosts.
//!
//! An [`Element`] takes packets and gives them back later, or not. It reads no clock: arrivals
//! carry their times, departures carry the times that the element's arithmetic gives them, so
//! the simulator and the emulator run the same code, and an emulator that wakes late does not
//! shift what it delivers.
//!
//! What is offered may be one packet or a *train*: segments equal in size that arrive at equal
//! gaps ([`Pace`]). A train passes whole where nothing can tell its packets apart, and is taken
//! to pieces where something can: a queue that may drop, a loss model that hits, a jitter. What
//! comes out is the same, packet for packet and bit for bit, as if each segment had been offered
//! by itself.
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
//! A [`Link`] is a queue ([`queue`] tells how to add one), a transmitter whose rate may change,
//! and a wire that loses, doubles, delays and reorders. [`Cross`] makes traffic that nobody
//! acknowledges, [`Host`] is a socket and a process that reads it when it gets the processor.
//! Whatever is random comes from a seed, and means the same on every machine.

mod check;
mod config;
mod cross;
mod delay;
mod departures;
mod element;
mod host;
mod link;
mod loss;
pub mod queue;
mod random;
mod rate;
mod wire;

pub use config::{
    CoDelConfig, ConfigError, DelayVariation, Limit, LinkConfig, LossConfig, QueueConfig,
    RateSchedule, RedConfig, RedMode, ReorderConfig,
};
pub use cross::{Cross, CrossConfig, CrossKind};
pub use element::{Count, DropCause, Element, Observer, Pace, Segments};
pub use host::{Batch, Host, HostConfig, Scheduler, true_size, true_size_joined};
pub use link::Link;
pub use queue::{Arriving, Backlog, Discipline, Release, Verdict};
