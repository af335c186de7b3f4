//! The receiving host: why datagrams die that the network delivered.

use packtrain_units::{ByteCount, Duration};

/// A host that receives datagrams: interface, socket buffer, a process that gets the processor
/// now and then.
#[derive(Clone, Debug, PartialEq)]
pub struct HostConfig {
    /// Socket buffer in bytes of true size: what `SO_RCVBUF` gives (default 212,992).
    pub buffer: ByteCount,
    /// Datagrams that arrive within this span are joined to one buffer, as receive offload does.
    pub coalesce: Duration,
    /// The most of them.
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
}
