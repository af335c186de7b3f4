//! Quantities with their units, so that no public signature carries a bare number.
//!
//! Time is counted in integer nanoseconds since an arbitrary epoch, rates in bits per second, sizes
//! in bytes. The crate reads no clock and no entropy: both are arguments.

mod backoff;
mod bucket;
mod bytes;
pub mod date;
pub mod escape;
mod parse;
mod rangeset;
mod rate;
mod rng;
mod seqno;
mod time;

pub use backoff::Backoff;
pub use bucket::TokenBucket;
pub use bytes::{ByteCount, Offset};
pub use parse::{ParseError, parse_bytes, parse_duration, parse_rate};
pub use rangeset::{Coordinate, RangeSet};
pub use rate::DataRate;
pub use rng::Rng;
pub use seqno::SeqNo;
pub use time::{Duration, Time};
