//! What became of the packets of a log, by number, in any order.

use std::collections::BTreeMap;

use super::ReadError;
use crate::Signature;

/// Packets in a block.
const BLOCK: u64 = 4096;
/// Most blocks: 131 million packets if they are dense, 100 MB.
const MAX_BLOCKS: usize = 1 << 15;

/// Bits of 4096 packets.
#[derive(Clone)]
struct Block {
    sent: [u64; 64],
    lost: [u64; 64],
    received: [u64; 64],
}

/// What is known of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Sent,
    Lost,
    Received,
}

/// Packets by number; memory grows with the packets there are, not with their numbers.
#[derive(Default)]
pub(super) struct Board {
    blocks: BTreeMap<u64, Box<Block>>,
    /// One past the highest number that was lost or received.
    end: u64,
}

impl Board {
    /// Notes a fate of packets `first` to `last`.
    pub(super) fn note(&mut self, first: u64, last: u64, fate: Fate) -> Result<(), ReadError> {
        if last < first || last - first > BLOCK * MAX_BLOCKS as u64 {
            return Err(ReadError::Qlog(format!("packets {first} to {last} are no range")));
        }
        if fate != Fate::Sent {
            self.end = self.end.max(last.saturating_add(1));
        }
        for number in first..=last {
            // Acknowledgements of what was never sent are not worth a block.
            let known = self.blocks.contains_key(&(number / BLOCK));
            if !known && fate == Fate::Received && !self.blocks.is_empty() && first != last {
                continue;
            }
            self.mark(number, fate)?;
        }
        Ok(())
    }

    fn mark(&mut self, number: u64, fate: Fate) -> Result<(), ReadError> {
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
        let bits = match fate {
            Fate::Sent => &mut block.sent,
            Fate::Lost => &mut block.lost,
            Fate::Received => &mut block.received,
        };
        bits[(number % BLOCK / 64) as usize] |= 1 << (number % 64);
        Ok(())
    }

    /// The packets sent, in order, up to the last whose fate is known: true unless it was called
    /// lost and never received. Numbers that were never sent are skipped.
    pub(super) fn sent(&self) -> impl Iterator<Item = bool> + '_ {
        self.each().filter_map(|(block, word, bit)| {
            let at = |bits: &[u64; 64]| bits[word] >> bit & 1 == 1;
            at(&block.sent).then(|| !at(&block.lost) || at(&block.received))
        })
    }

    /// All numbers from the first received to the last: those not received count as lost.
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

/// Bits cut in windows.
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
