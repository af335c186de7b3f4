//! Emulation of networks: the links of `packtrain-link` in real time between network namespaces.
//! Any program can run in it, with the real kernel, and the system's configuration stays unchanged.
//!
//! A [`Plan`] describes the hosts and links ([`Topology`]) and the programs that run on them. It is
//! carried out by a separate process, which [`supervise`] starts. Usually that is the caller's own
//! executable: before anything else it finds that it is a [`child`] and calls [`Child::run`]. The
//! process sets up namespaces and devices while it has one thread, moves packets in a second,
//! starts the programs, and ends them and itself when the caller ends for whatever reason.
//! `examples/emulate.rs` is a complete example.
//!
//! The path of a packet: a host's kernel -> its [device](DeviceKind) -> the first link
//! (`packtrain_link::Link`) -> further links -> the target's device -> its kernel. Super-packets of
//! segmentation offload are offered as trains of their segments, without a copy; links decide on
//! each segment. The arrival time is the time of the read, the departure time is the result of the
//! link's arithmetic. The lateness of deliveries and the drops of the devices are counted and
//! [reported](Report).
//!
//! Only Linux has network namespaces.
#![cfg(target_os = "linux")]

mod channel;
mod child;
mod control_socket;
mod counters;
mod device;
mod egress;
mod engine;
mod error;
mod header;
mod hosts;
mod merge;
mod namespace;
mod netlink;
mod packet;
mod parent;
mod parts;
mod plan;
mod programs;
mod record;
mod replay;
mod report;
mod store;
mod summary;
mod sys;
mod ticker;
mod topology;

pub use child::{Child, child};
pub use control_socket::{enter, running};
pub use error::EmuError;
pub use hosts::DeviceKind;
pub use parent::{Ended, supervise};
pub use plan::Plan;
pub use replay::{Arrival, Dropped, arrivals, drops, replay};
pub use report::{DelayError, HostReport, LinkReport, Report};
pub use topology::{MAX_HOSTS, Node, Topology, Wire};
