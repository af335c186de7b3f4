//! A window of fixed slots, one per unit, in blocks of one train each. Memory is allocated when the
//! first unit of a block arrives and reused when its last one is gone, so it follows the stored
//! data and not announced sizes.

use std::collections::VecDeque;

use packtrain_proto::TRAIN_PACKETS;

use crate::wire::Message;

/// Units of a block: one offload batch.
pub(crate) const BLOCK: u64 = TRAIN_PACKETS as u64;

/// Minimum number of free blocks kept for reuse.
const SPARE: usize = 8;
/// Free blocks are kept up to this share of those in use. New ones cost 6 % of the time at 10
/// Gbit/s, because they are zeroed.
const SPARE_SHARE: usize = 4;

#[derive(Debug)]
struct Block {
    bytes: Box<[u8]>,
    lens: [u16; BLOCK as usize],
    messages: [Message; BLOCK as usize],
    present: u64,
}

/// The slots.
#[derive(Debug)]
pub(super) struct Units {
    payload: usize,
    first_block: u64,
    blocks: VecDeque<Option<Box<Block>>>,
    /// Boxed, because they move between here and `blocks`.
    #[allow(clippy::vec_box)]
    spare: Vec<Box<Block>>,
}

impl Units {
    /// Slots for units from `first` on, of `payload` bytes each.
    pub(super) fn new(first: u64, payload: usize) -> Self {
        Self { payload, first_block: first / BLOCK, blocks: VecDeque::new(), spare: Vec::new() }
    }

    fn block(&self, unit: u64) -> Option<&Block> {
        let index = (unit / BLOCK).checked_sub(self.first_block)?;
        self.blocks.get(usize::try_from(index).ok()?)?.as_deref()
    }

    fn block_mut(&mut self, unit: u64) -> Option<&mut Block> {
        let index = (unit / BLOCK).checked_sub(self.first_block)?;
        self.blocks.get_mut(usize::try_from(index).ok()?)?.as_deref_mut()
    }

    /// Stores a unit's bytes in its slot, at most the slot's size. The caller has checked that
    /// `unit` is in its window, which bounds the blocks.
    #[inline]
    pub(super) fn put(&mut self, unit: u64, message: Message, bytes: &[u8]) {
        let Some(slot) = self.open(unit, message) else { return };
        let len = bytes.len().min(slot.len());
        slot[..len].copy_from_slice(&bytes[..len]);
        self.set_len(unit, len);
    }

    /// The slot of a unit, marked present and empty.
    #[inline]
    pub(super) fn open(&mut self, unit: u64, message: Message) -> Option<&mut [u8]> {
        let index = usize::try_from((unit / BLOCK).checked_sub(self.first_block)?).ok()?;
        while self.blocks.len() <= index {
            self.blocks.push_back(None);
        }
        if self.blocks[index].is_none() {
            let block = self.spare.pop().unwrap_or_else(|| Block::new(self.payload));
            self.blocks[index] = Some(block);
        }
        let (payload, slot) = (self.payload, (unit % BLOCK) as usize);
        let block = self.blocks[index].as_deref_mut()?;
        block.present |= 1 << slot;
        block.lens[slot] = 0;
        block.messages[slot] = message;
        block.bytes.get_mut(slot * payload..(slot + 1) * payload)
    }

    /// Appends bytes to a stored unit; returns how many fitted.
    pub(super) fn append(&mut self, unit: u64, bytes: &[u8]) -> usize {
        let payload = self.payload;
        let Some(block) = self.block_mut(unit) else { return 0 };
        let slot = (unit % BLOCK) as usize;
        let len = usize::from(block.lens[slot]);
        let room = &mut block.bytes[slot * payload + len..(slot + 1) * payload];
        let fit = bytes.len().min(room.len());
        room[..fit].copy_from_slice(&bytes[..fit]);
        block.lens[slot] = (len + fit) as u16;
        fit
    }

    #[inline]
    fn set_len(&mut self, unit: u64, len: usize) {
        if let Some(block) = self.block_mut(unit) {
            block.lens[(unit % BLOCK) as usize] = len as u16;
        }
    }

    /// A stored unit.
    #[inline]
    pub(super) fn get(&self, unit: u64) -> Option<(Message, &[u8])> {
        let block = self.block(unit)?;
        let slot = (unit % BLOCK) as usize;
        if block.present & 1 << slot == 0 {
            return None;
        }
        let at = slot * self.payload;
        Some((block.messages[slot], &block.bytes[at..at + usize::from(block.lens[slot])]))
    }

    /// Whether a unit is stored.
    #[cfg(test)]
    pub(super) fn has(&self, unit: u64) -> bool {
        self.block(unit).is_some_and(|block| block.present & 1 << (unit % BLOCK) != 0)
    }

    /// Removes one unit.
    pub(super) fn remove(&mut self, unit: u64) {
        if let Some(block) = self.block_mut(unit) {
            block.present &= !(1 << (unit % BLOCK));
        }
    }

    /// Removes all units below `unit`, which becomes the oldest.
    pub(super) fn release(&mut self, unit: u64) {
        while self.first_block < unit / BLOCK {
            self.first_block += 1;
            match self.blocks.pop_front() {
                Some(Some(mut block)) if self.spare.len() < self.max_spare() => {
                    block.present = 0;
                    self.spare.push(block);
                }
                Some(_) => {}
                None => {
                    self.first_block = unit / BLOCK;
                    break;
                }
            }
        }
        self.spare.truncate(self.max_spare());
    }

    fn max_spare(&self) -> usize {
        SPARE.max(self.blocks.len() / SPARE_SHARE)
    }

    /// Allocated bytes.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        let blocks = self.blocks.iter().flatten().count() + self.spare.len();
        blocks * BLOCK as usize * self.payload
    }
}

impl Block {
    fn new(payload: usize) -> Box<Self> {
        Box::new(Self {
            bytes: vec![0; payload * BLOCK as usize].into_boxed_slice(),
            lens: [0; BLOCK as usize],
            messages: [Message::default(); BLOCK as usize],
            present: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_follows_what_is_there() {
        let mut units = Units::new(1000, 100);
        assert_eq!(units.memory(), 0);
        units.put(1000 + 50 * BLOCK, Message::new(1), &[1; 100]);
        let one = 100 * BLOCK as usize;
        assert_eq!(units.memory(), one, "one block, however far");
        for unit in 1000..1000 + 100 * BLOCK {
            units.put(unit, Message::new(1), &[2; 100]);
        }
        assert!(units.memory() <= 101 * one);
        units.release(1000 + 100 * BLOCK);
        assert!(units.memory() <= (SPARE + 1) * one);
        assert!(!units.has(1000) && units.get(1000).is_none());
        units.put(1000 + 100 * BLOCK, Message::new(1), &[3; 7]);
        let (_, bytes) = units.get(1000 + 100 * BLOCK).unwrap();
        assert_eq!(bytes, &[3; 7]);
    }

    #[test]
    fn a_unit_below_the_window_is_not_put() {
        let mut units = Units::new(10 * BLOCK, 10);
        units.put(9 * BLOCK, Message::new(1), &[1]);
        assert!(!units.has(9 * BLOCK));
        units.put(10 * BLOCK, Message::new(1), &[1; 40]);
        assert_eq!(units.get(10 * BLOCK).unwrap().1.len(), 10, "never beyond its slot");
        assert_eq!(units.append(10 * BLOCK, &[1]), 0);
        units.remove(10 * BLOCK);
        assert!(!units.has(10 * BLOCK));
    }
}
