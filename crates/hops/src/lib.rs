//! Hops by datagrams: an ordered byte stream each way between two depots, or a sender and its first
//! depot, over flows of the native wire.
//!
//! The TCP connection that brought the header stays. It carries the stream too, until datagrams get
//! through ([`packtrain_session::hop`]): short sessions and quiet directions never leave it,
//! nothing waits for the first datagram, and where UDP is blocked everything stays on TCP. `ring`
//! is a direction's memory, `link` one end of a hop, `flows` its datagrams, `plain` the TCP
//! connection on a depot's other side, `caller` the sender's own end, `line` what its route knows of it.

mod answer;
mod caller;
mod flows;
mod line;
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
pub use line::{Line, Pulse};
pub use link::{Link, LinkError, hear_hello};
pub use plain::{drain, feed};
pub use pool::Pool;
pub use ring::Ring;

/// What became of a hop's datagrams.
#[derive(Debug, Default)]
pub struct DatagramStatus {
    carried: AtomicBool,
    fell_back: AtomicBool,
}

impl DatagramStatus {
    /// They do not get through.
    fn falls_back(&self, hops: &Hops) {
        self.fell_back.store(true, Ordering::Relaxed);
        hops.fell_back.store(true, Ordering::Relaxed);
    }

    /// Whether they carried a direction.
    pub fn carried(&self) -> bool {
        self.carried.load(Ordering::Relaxed)
    }

    /// Whether none got through in the time that they have.
    pub fn fell_back(&self) -> bool {
        self.fell_back.load(Ordering::Relaxed)
    }
}

/// What the hops of a process share.
#[derive(Debug)]
pub struct Hops {
    /// Whence rings have their memory.
    pub(crate) pool: Arc<Pool>,
    /// Local ports of datagrams.
    pub(crate) ports: PortRange,
    /// Each flow has a thread: so many at a time.
    flows: Arc<Semaphore>,
    fell_back: AtomicBool,
}

impl Hops {
    /// Hops with rings in `pool`, datagrams at `ports`, and at most `flows` threads for flows.
    pub fn new(pool: Arc<Pool>, ports: PortRange, flows: usize) -> Self {
        let flows = Arc::new(Semaphore::new(flows));
        Self { pool, ports, flows, fell_back: AtomicBool::new(false) }
    }

    /// Whether no datagram got through somewhere, since the last time it was asked.
    pub fn take_fell_back(&self) -> bool {
        self.fell_back.swap(false, Ordering::Relaxed)
    }
}
