//! Who has how much room in the spool. No I/O.

use std::collections::BTreeMap;

use packtrain_units::ByteCount;

use packtrain_identity::pubkey::PublicKey;

/// What a session takes at least: its directory and small files.
pub(super) const LEAST: ByteCount = ByteCount(64 << 10);

/// Why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Short {
    /// The spool is as full as it may be, or would be.
    Spool,
    /// This key has what it may have.
    Key,
    /// It would not even fit into an empty spool.
    Never,
}

/// Room that is given away; what is reserved never exceeds the quotas.
#[derive(Debug)]
pub(super) struct Ledger {
    quota: ByteCount,
    key_quota: ByteCount,
    used: ByteCount,
    keys: BTreeMap<PublicKey, ByteCount>,
}

impl Ledger {
    pub(super) fn new(quota: ByteCount, key_quota: Option<ByteCount>) -> Self {
        let key_quota = key_quota.unwrap_or(quota).min(quota);
        Self { quota, key_quota, used: ByteCount::ZERO, keys: BTreeMap::new() }
    }

    /// What is reserved.
    pub(super) fn used(&self) -> ByteCount {
        self.used
    }

    /// What is left for one key.
    pub(super) fn left(&self, key: PublicKey) -> ByteCount {
        let own = self.keys.get(&key).copied().unwrap_or_default();
        let all = self.quota.saturating_sub(self.used);
        self.key_quota.saturating_sub(own).min(all)
    }

    /// Whether one session may have so much, if it were alone.
    pub(super) fn fits(&self, need: ByteCount) -> Result<(), String> {
        let quota = self.key_quota;
        if need <= quota {
            return Ok(());
        }
        Err(format!("the depot keeps at most {quota} for one key, and this is longer"))
    }

    /// Reserves so much more for a session of `key`.
    pub(super) fn reserve(&mut self, key: PublicKey, more: ByteCount) -> Result<(), Short> {
        let own = self.keys.get(&key).copied().unwrap_or_default();
        let over = |used: ByteCount, quota: ByteCount| {
            used.get().checked_add(more.get()).is_none_or(|sum| sum > quota.get())
        };
        if more > self.key_quota {
            return Err(Short::Never);
        }
        if over(own, self.key_quota) {
            return Err(Short::Key);
        }
        if over(self.used, self.quota) {
            return Err(Short::Spool);
        }
        self.take(key, more);
        Ok(())
    }

    /// Counts what is there already, whatever the quotas are now.
    pub(super) fn take(&mut self, key: PublicKey, bytes: ByteCount) {
        self.used += bytes;
        *self.keys.entry(key).or_default() += bytes;
    }

    /// Gives back what was reserved.
    pub(super) fn give_back(&mut self, key: PublicKey, bytes: ByteCount) {
        self.used = self.used.saturating_sub(bytes);
        if let Some(own) = self.keys.get_mut(&key) {
            *own = own.saturating_sub(bytes);
            if *own == ByteCount::ZERO {
                self.keys.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever is asked for and given back, no quota is exceeded and nothing is lost.
        #[test]
        fn quotas_hold(asks in prop::collection::vec((0u8..4, 0u64..60, any::<bool>()), 1..120)) {
            let mut ledger = Ledger::new(ByteCount(100), Some(ByteCount(50)));
            let mut held: Vec<(PublicKey, ByteCount)> = Vec::new();
            for (key, bytes, back) in asks {
                let (key, bytes) = (PublicKey([key; 32]), ByteCount(bytes));
                let own = |held: &[(PublicKey, ByteCount)]| -> u64 {
                    held.iter().filter(|(one, _)| *one == key).map(|(_, n)| n.get()).sum()
                };
                let all = |held: &[(PublicKey, ByteCount)]| -> u64 {
                    held.iter().map(|(_, n)| n.get()).sum()
                };
                if back && !held.is_empty() {
                    let (key, bytes) = held.swap_remove(bytes.get() as usize % held.len());
                    ledger.give_back(key, bytes);
                } else {
                    let want = match bytes.get() {
                        n if n > 50 => Err(Short::Never),
                        n if own(&held) + n > 50 => Err(Short::Key),
                        n if all(&held) + n > 100 => Err(Short::Spool),
                        _ => Ok(()),
                    };
                    prop_assert_eq!(ledger.left(key) >= bytes, want.is_ok());
                    prop_assert_eq!(ledger.reserve(key, bytes), want);
                    if want.is_ok() {
                        held.push((key, bytes));
                    }
                }
                prop_assert_eq!(ledger.used().get(), all(&held));
            }
        }
    }
}
