//! The links of `packtrain-link` in real time, between network namespaces.

mod bed;
mod channel;
mod child;
mod device;
mod door;
mod egress;
mod engine;
mod error;
mod header;
mod hosts;
mod late;
mod namespace;
mod netlink;
mod packet;
mod parent;
mod programs;
mod record;
mod report;
mod store;
mod summary;
mod sys;
mod tally;
mod topology;

pub use child::{Child, Plan, child};
pub use door::{enter, running};
pub use error::EmuError;
pub use hosts::DeviceKind;
pub use parent::{Ended, supervise};
pub use report::{DelayError, HostReport, LinkReport, Report};
pub use topology::{MOST_HOSTS, Node, Topology, Wire};
