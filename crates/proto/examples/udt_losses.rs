//! Cost per packet of UDT's sender and receiver together, at small and at large loss:
//!
//!     cargo run --release -p packtrain-proto --example udt_losses
//!
//! The time per packet must not grow with the losses in flight, which the pipe's length and the
//! lost share determine. Measured on two busy cores of a virtual machine in 2026, in nanoseconds
//! per packet for both ends and the pipe, with the messages of each loss:
//!
//! | pipe, packets | 0 % | 1 % | 30 % |
//! |---|---|---|---|
//! | 1,000 | 336 | 315 | 610 |
//! | 10,000 | 278 | 393 | 779 |
//! | 100,000 | 268 | 370 | 1,012 |
//!
//! The growth in the last column is the share of memory accesses that miss the caches: 30,000
//! losses are in flight there. A test counts the words that the loss lists touch.

use std::time::Instant;

#[expect(clippy::disallowed_methods, clippy::print_stdout, reason = "it measures and tells")]
fn main() {
    println!("{:>10} {:>8} {:>14} {:>12}", "pipe", "loss", "packets sent", "ns a packet");
    for length in [1_000, 10_000, 100_000] {
        for loss in [0, 10_000, 300_000] {
            let start = Instant::now();
            let sent = packtrain_proto::fuzzing::udt_losses(2_000_000, length, loss);
            let ns = start.elapsed().as_nanos() as f64 / sent as f64;
            println!("{length:>10} {:>7}% {sent:>14} {ns:>12.0}", loss / 10_000);
        }
    }
}
