//! Reserved space in the spool, per key. No I/O.

use std::collections::BTreeMap;

use packtrain_units::ByteCount;

use packtrain_identity::pubkey::PublicKey;

/// Minimum space of a session: its directory and small files.
pub(super) const MIN_SESSION_SPACE: ByteCount = ByteCount(64 << 10);

/// Why space is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QuotaError {
    /// The quota of the spool is exceeded.
    Spool,
    /// The quota of this key is exceeded.
    Key,
    /// The request exceeds even an empty spool.
    Never,
}

/// Reserved space. The sum never exceeds the quotas.
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

    /// The reserved bytes.
    pub(super) fn used(&self) -> ByteCount {
        self.used
    }

    /// The remaining bytes of one key.
    pub(super) fn left(&self, key: PublicKey) -> ByteCount {
        let own = self.keys.get(&key).copied().unwrap_or_default();
        let all = self.quota.saturating_sub(self.used);
        self.key_quota.saturating_sub(own).min(all)
    }

    /// Checks whether a session of this size could ever be kept.
    pub(super) fn fits(&self, need: ByteCount) -> Result<(), String> {
        let quota = self.key_quota;
        if need <= quota {
            return Ok(());
        }
        Err(format!("the depot keeps at most {quota} for one key, and this is longer"))
    }

    /// Reserves bytes for a session of `key`.
    pub(super) fn reserve(&mut self, key: PublicKey, more: ByteCount) -> Result<(), QuotaError> {
        let own = self.keys.get(&key).copied().unwrap_or_default();
        let over = |used: ByteCount, quota: ByteCount| {
            used.get().checked_add(more.get()).is_none_or(|sum| sum > quota.get())
        };
        if more > self.key_quota {
            return Err(QuotaError::Never);
        }
        if over(own, self.key_quota) {
            return Err(QuotaError::Key);
        }
        if over(self.used, self.quota) {
            return Err(QuotaError::Spool);
        }
        self.take(key, more);
        Ok(())
    }

    /// Counts existing bytes, even above the current quotas.
    pub(super) fn take(&mut self, key: PublicKey, bytes: ByteCount) {
        self.used += bytes;
        *self.keys.entry(key).or_default() += bytes;
    }

    /// Returns reserved bytes.
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
        /// For any sequence of requests no quota is exceeded and no byte is lost.
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
                        n if n > 50 => Err(QuotaError::Never),
                        n if own(&held) + n > 50 => Err(QuotaError::Key),
                        n if all(&held) + n > 100 => Err(QuotaError::Spool),
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
