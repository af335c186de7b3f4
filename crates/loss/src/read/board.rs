//! The state of a log's packets by number, set in any order.

use std::collections::BTreeMap;

use super::ReadError;
use crate::Signature;

/// Packets in a block.
const BLOCK: u64 = 4096;
/// Maximum blocks: 131 million packets if they are dense, 100 MB.
const MAX_BLOCKS: usize = 1 << 15;

/// State bits of 4096 packets.
#[derive(Clone)]
struct Block {
    sent: [u64; 64],
    lost: [u64; 64],
    received: [u64; 64],
}

/// The state of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PacketState {
    Sent,
    Lost,
    Received,
}

/// Packets by number; memory grows with the number of packets, not with their numbers.
#[derive(Default)]
pub(super) struct Board {
    blocks: BTreeMap<u64, Box<Block>>,
    /// One past the highest number that was lost or received.
    end: u64,
}

impl Board {
    /// Sets the state of packets `first` to `last`.
    pub(super) fn note(
        &mut self,
        first: u64,
        last: u64,
        state: PacketState,
    ) -> Result<(), ReadError> {
        if last < first || last - first > BLOCK * MAX_BLOCKS as u64 {
            return Err(ReadError::Qlog(format!("packets {first} to {last} are no range")));
        }
        if state != PacketState::Sent {
            self.end = self.end.max(last.saturating_add(1));
        }
        for number in first..=last {
            // Acknowledgements of packets never sent do not allocate a block.
            let known = self.blocks.contains_key(&(number / BLOCK));
            if !known && state == PacketState::Received && !self.blocks.is_empty() && first != last
            {
                continue;
            }
            self.mark(number, state)?;
        }
        Ok(())
    }

    fn mark(&mut self, number: u64, state: PacketState) -> Result<(), ReadError> {
        let full = self.blocks.len() >= MAX_BLOCKS;
        let block = match self.blocks.entry(number / BLOCK) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(_) if full => {
                return Err(ReadError::Qlog("too many packets to keep".to_owned()));
            }
            std::collections::btree_map::Entry::Vacant(entry) => {
                let clear = [0; 64];
                entry.insert(Box::new(Block { sent: clear, lost: clear, received: clear }))
            }
        };
        let bits = match state {
            PacketState::Sent => &mut block.sent,
            PacketState::Lost => &mut block.lost,
            PacketState::Received => &mut block.received,
        };
        bits[(number % BLOCK / 64) as usize] |= 1 << (number % 64);
        Ok(())
    }

    /// The packets sent, in order, up to the last with a known outcome: true unless it was declared
    /// lost and never received. Numbers that were never sent are skipped.
    pub(super) fn sent(&self) -> impl Iterator<Item = bool> + '_ {
        self.each().filter_map(|(block, word, bit)| {
            let at = |bits: &[u64; 64]| bits[word] >> bit & 1 == 1;
            at(&block.sent).then(|| !at(&block.lost) || at(&block.received))
        })
    }

    /// All numbers from the first received to the last: missing ones count as lost.
    pub(super) fn received(&self) -> Vec<bool> {
        let mut bits: Vec<bool> = self
            .each()
            .map(|(block, word, bit)| block.received[word] >> bit & 1 == 1)
            .skip_while(|received| !received)
            .collect();
        let end = bits.iter().rposition(|received| *received).map_or(0, |last| last + 1);
        bits.truncate(end);
        bits
    }

    fn each(&self) -> impl Iterator<Item = (&Block, usize, u64)> + '_ {
        self.blocks.iter().flat_map(move |(index, block)| {
            let start = index * BLOCK;
            (0..BLOCK)
                .filter(move |offset| start + offset < self.end)
                .map(move |offset| (&**block, (offset / 64) as usize, offset % 64))
        })
    }
}

/// Bits cut into windows.
pub(super) fn windows(
    bits: impl Iterator<Item = bool>,
    window: usize,
) -> impl Iterator<Item = Signature> {
    let mut bits = bits.fuse();
    std::iter::from_fn(move || {
        let signature: Signature = bits.by_ref().take(window).collect();
        (!signature.is_empty()).then_some(signature)
    })
}
