//! The links of `packtrain-link` in real time, between network namespaces: a network for any
//! program, under the real kernel, without changing anything of the system.
//!
//! A [`Plan`] says which hosts and links there are ([`Topology`]) and what runs on them. It is
//! carried out by a process of its own: [`supervise`] starts it, usually as the caller's own
//! program once more, which finds itself to be a [`child`] before it does anything else and calls
//! [`Child::run`]. There it sets up namespaces and devices while it has one thread, moves packets
//! in a second, starts the programs, and ends them and itself when the caller is gone, whatever
//! the reason. `examples/emulate.rs` is all that it takes.
//!
//! The way of a packet: a host's kernel -> its [device](DeviceKind) -> the first link
//! (`packtrain_link::Link`) -> further links -> the target's device -> its kernel. Super-packets of
//! segmentation offload are offered as trains of their segments, without being copied; what links
//! make of them is decided segment by segment. Arrival is the time of reading, departure the
//! link's arithmetic; how late deliveries were is counted and [reported](Report), and so is what
//! the devices lost.
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
mod lateness;
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
