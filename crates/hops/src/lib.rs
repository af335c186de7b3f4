//! Hops by datagrams: an ordered byte stream in each direction between two depots, or between a
//! sender and its first depot, over flows of the native wire.
//!
//! The TCP connection that carried the header stays open. It also carries the stream until
//! datagrams get through ([`packtrain_session::hop`]). Short sessions and idle directions never
//! leave it, no data waits for the first datagram, and where UDP is blocked everything stays on
//! TCP. `ring` is the memory of a direction, `link` one end of a hop, `flows` its datagrams,
//! `plain` the TCP connection on a depot's other side, `caller` the sender's own end, `connection`
//! its entry in its route.

mod answer;
mod caller;
mod connection;
mod flows;
mod link;
mod plain;
pub mod pool;
mod ring;
pub mod route;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use packtrain_net::udp::PortRange;
use tokio::sync::Semaphore;

pub use answer::{read_answer, write_all};
pub use caller::{Carrier, Socket, call};
pub use connection::{RouteActivity, RouteConnection};
pub use link::{Link, LinkError, read_hello};
pub use plain::{drain, feed};
pub use pool::Pool;
pub use ring::Ring;

/// Whether the datagrams of a hop work.
#[derive(Debug, Default)]
pub struct DatagramStatus {
    carried: AtomicBool,
    fell_back: AtomicBool,
}

impl DatagramStatus {
    /// Marks that datagrams do not get through.
    fn falls_back(&self, hops: &Hops) {
        self.fell_back.store(true, Ordering::Relaxed);
        hops.fell_back.store(true, Ordering::Relaxed);
    }

    /// Whether datagrams carried a direction.
    pub fn carried(&self) -> bool {
        self.carried.load(Ordering::Relaxed)
    }

    /// Whether no datagram got through within the timeout.
    pub fn fell_back(&self) -> bool {
        self.fell_back.load(Ordering::Relaxed)
    }
}

/// What the hops of a process share.
#[derive(Debug)]
pub struct Hops {
    /// The memory for rings.
    pub(crate) pool: Arc<Pool>,
    /// Local UDP ports.
    pub(crate) ports: PortRange,
    /// Permits for flows; each flow has a thread.
    flows: Arc<Semaphore>,
    fell_back: AtomicBool,
}

impl Hops {
    /// Hops with rings in `pool`, datagrams at `ports`, and at most `flows` concurrent flows.
    pub fn new(pool: Arc<Pool>, ports: PortRange, flows: usize) -> Self {
        let flows = Arc::new(Semaphore::new(flows));
        Self { pool, ports, flows, fell_back: AtomicBool::new(false) }
    }

    /// Whether datagrams failed on any hop since the last call.
    pub fn take_fell_back(&self) -> bool {
        self.fell_back.swap(false, Ordering::Relaxed)
    }
}
