//! What this machine gives besides disk and network: the clock, entropy, and how programs and
//! threads are started, woken and put to sleep. The one place that reads a clock or asks for
//! entropy; everything else is given `now` and seeds.

pub mod clock;
pub mod entropy;
pub mod process;
pub mod thread;
