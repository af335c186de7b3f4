//! Hops by datagrams: an ordered byte stream each way between two depots, or a sender and its first
//! depot, over flows of the native wire.
//!
//! The TCP connection that brought the header stays. It carries the stream too, until datagrams get
//! through ([`packtrain_session::hop`]): short sessions and quiet directions never leave it,
//! nothing waits for the first datagram, and where UDP is blocked everything stays on TCP. `ring`
//! is a direction's memory, `link` one end of a hop, `flows` its datagrams, `plain` the TCP
//! connection on a depot's other side, `caller` the sender's own end, `line` what its route knows of it.

mod caller;
mod flows;
mod line;
mod link;
mod plain;
mod ring;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use packtrain_net::udp::PortRange;
use tokio::sync::Semaphore;

use crate::depot::Pool;

pub(crate) use caller::{Carrier, Socket, call};
pub(crate) use line::{Line, Pulse};
pub(crate) use link::{Link, LinkError, hear_hello};
pub(crate) use plain::{drain, feed};
pub(crate) use ring::Ring;

/// What became of a hop's datagrams.
#[derive(Debug, Default)]
pub(crate) struct Fate {
    carried: AtomicBool,
    fell_back: AtomicBool,
}

impl Fate {
    /// They do not get through.
    fn falls_back(&self, hops: &Hops) {
        self.fell_back.store(true, Ordering::Relaxed);
        hops.fell_back.store(true, Ordering::Relaxed);
    }

    /// Whether they carried a direction.
    pub(crate) fn carried(&self) -> bool {
        self.carried.load(Ordering::Relaxed)
    }

    /// Whether none got through in the time that they have.
    pub(crate) fn fell_back(&self) -> bool {
        self.fell_back.load(Ordering::Relaxed)
    }
}

/// What the hops of a process share.
#[derive(Debug)]
pub(crate) struct Hops {
    /// Whence rings have their memory.
    pub(crate) pool: Arc<Pool>,
    /// Local ports of datagrams.
    pub(crate) ports: PortRange,
    /// Each flow has a thread: so many at a time.
    flows: Arc<Semaphore>,
    fell_back: AtomicBool,
}

impl Hops {
    pub(crate) fn new(pool: Arc<Pool>, ports: PortRange, flows: usize) -> Self {
        let flows = Arc::new(Semaphore::new(flows));
        Self { pool, ports, flows, fell_back: AtomicBool::new(false) }
    }

    /// Whether no datagram got through somewhere, since the last time it was asked.
    pub(crate) fn take_fell_back(&self) -> bool {
        self.fell_back.swap(false, Ordering::Relaxed)
    }
}
