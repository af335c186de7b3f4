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
//! comes out is the same, packet for packet, as if each segment had been offered by itself.

mod config;
mod cross;
mod element;
mod host;
mod link;

pub use config::{
    CoDelConfig, ConfigError, DelayVariation, Limit, LinkConfig, LossConfig, QueueConfig,
    RateSchedule, RedConfig, RedMode, ReorderConfig,
};
pub use cross::{CrossConfig, CrossKind};
pub use element::{Count, DropCause, Element, Observer, Pace, Segments};
pub use host::{HostConfig, Scheduler};
pub use link::Link;
