//! Services of the operating system other than disk and network: the clock, entropy, starting
//! programs and threads, sleeping and waking, files that share blocks, addresses of names. Only this crate reads a
//! clock or entropy; other crates receive `now` and seeds.

pub mod clock;
pub mod entropy;
pub mod names;
pub mod process;
pub mod reflink;
pub mod thread;
