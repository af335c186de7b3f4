//! Determines lost data packets of a UDT flow from a capture.
//!
//! Assumptions: every UDP packet of the capture is UDT's; the path keeps packets in order, so a
//! number that is first missing and seen later was retransmitted; and there is one UDT connection
//! per pair of addresses and ports. A packet counts as lost if its number was missing when a later
//! one passed, or if the receiver reported it (NAK): packets are also lost behind the point of
//! capture, mainly at the receiving host, and only its reports show this.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use crate::Signature;

/// Bytes of the header.
const HEADER: usize = 16;
/// Type of a loss report among control packets.
const NAK: u16 = 3;
/// Maximum flows that are followed; others are counted and ignored.
const MAX_FLOWS: usize = 64;
/// Number of packets kept, so that a report may arrive late.
const MAX_HELD: usize = 1 << 18;
/// A larger step between numbers is not a loss.
const MAX_STEP: u64 = 1 << 20;
/// A flow with fewer data packets is no transfer, or not UDT.
const MIN_PACKETS: u64 = 64;

/// A sender's and a receiver's address.
pub(super) type Ends = (SocketAddr, SocketAddr);

/// All flows of a capture.
#[derive(Default)]
pub(super) struct Flows {
    flows: HashMap<Ends, Flow>,
    order: Vec<Ends>,
    /// Packets of flows beyond [`MAX_FLOWS`].
    pub(super) left_out: u64,
    window: usize,
}

/// The data packets of one direction.
#[derive(Default)]
struct Flow {
    /// Sequence number of the first stored bit, and one past the last.
    first: u32,
    next: u32,
    bits: VecDeque<bool>,
    packets: u64,
    windows: u64,
}

impl Flows {
    pub(super) fn new(window: usize) -> Self {
        Self { window, ..Self::default() }
    }

    /// Handles a UDP payload; appends a completed window to `out`.
    pub(super) fn take(
        &mut self,
        ends: Ends,
        payload: &[u8],
        out: &mut VecDeque<(String, Signature)>,
    ) {
        let Some(header) = payload.first_chunk::<HEADER>() else { return };
        let word = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
        if word >> 31 == 0 {
            self.data(ends, word, out);
        } else if (word >> 16) as u16 & 0x7fff == NAK {
            // Reports travel in the other direction.
            if let Some(flow) = self.flows.get_mut(&(ends.1, ends.0)) {
                flow.report(&payload[HEADER..]);
            }
        }
    }

    fn data(&mut self, ends: Ends, number: u32, out: &mut VecDeque<(String, Signature)>) {
        if !self.flows.contains_key(&ends) {
            if self.flows.len() >= MAX_FLOWS {
                self.left_out += 1;
                return;
            }
            self.order.push(ends);
        }
        let flow = self.flows.entry(ends).or_default();
        flow.data(number);
        while flow.bits.len() >= MAX_HELD + self.window {
            out.extend(flow.cut(self.window).map(|(n, signature)| (place(ends, n), signature)));
        }
    }

    /// Ends the capture.
    pub(super) fn finish(&mut self, out: &mut VecDeque<(String, Signature)>) {
        for ends in std::mem::take(&mut self.order) {
            let Some(mut flow) = self.flows.remove(&ends) else { continue };
            if flow.packets < MIN_PACKETS {
                continue;
            }
            while let Some((number, signature)) = flow.cut(self.window) {
                out.push_back((place(ends, number), signature));
            }
        }
    }
}

fn place((from, to): Ends, window: u64) -> String {
    format!("{from} -> {to}, window {window}")
}

impl Flow {
    fn data(&mut self, number: u32) {
        self.packets += 1;
        let step = step(self.next, number);
        if self.packets == 1 || step.unsigned_abs() > MAX_STEP {
            // The first packet, or a jump in the numbers: restart after the stored ones.
            self.next = number;
            self.first = number.wrapping_sub(self.bits.len() as u32) & 0x7fff_ffff;
        } else if step < 0 {
            // A retransmission: the outcome of the first copy is known.
            return;
        }
        let missing = step_from(self.next, number);
        self.bits.extend(std::iter::repeat_n(false, missing));
        self.bits.push_back(true);
        self.next = (number + 1) & 0x7fff_ffff;
    }

    /// A list of lost numbers: one with the highest bit set begins a range that the next one ends.
    fn report(&mut self, list: &[u8]) {
        let mut begin = None;
        for word in list.chunks_exact(4) {
            let word = u32::from_be_bytes([word[0], word[1], word[2], word[3]]);
            let number = word & 0x7fff_ffff;
            if word >> 31 == 1 {
                begin = Some(number);
                continue;
            }
            let first = begin.take().unwrap_or(number);
            let count = step(first, number);
            if (0..self.bits.len() as i64).contains(&count) {
                for offset in 0..=count {
                    self.lose((i64::from(first) + offset) as u32 & 0x7fff_ffff);
                }
            }
        }
    }

    fn lose(&mut self, number: u32) {
        let at = step(self.first, number);
        if let Some(bit) = usize::try_from(at).ok().and_then(|at| self.bits.get_mut(at)) {
            *bit = false;
        }
    }

    fn cut(&mut self, window: usize) -> Option<(u64, Signature)> {
        let count = window.min(self.bits.len());
        if count == 0 {
            return None;
        }
        self.windows += 1;
        self.first = (self.first + count as u32) & 0x7fff_ffff;
        Some((self.windows, self.bits.drain(..count).collect()))
    }
}

/// How far `to` is ahead of `from` among numbers of 31 bits.
fn step(from: u32, to: u32) -> i64 {
    let ahead = i64::from(to.wrapping_sub(from) & 0x7fff_ffff);
    if ahead >= 1 << 30 { ahead - (1 << 31) } else { ahead }
}

fn step_from(from: u32, to: u32) -> usize {
    usize::try_from(step(from, to)).unwrap_or(0)
}
