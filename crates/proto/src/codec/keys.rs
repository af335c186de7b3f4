//! Keys: one per direction, lane and phase, all derived from the flow's secret.

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf;

use crate::codec::header::TAG;
use crate::config::limits::PHASE_BITS;
use crate::config::{FlowError, FlowKeys, Role, Suite};

/// The phase of a packet number.
pub(crate) const fn phase_of(pn: u64) -> u64 {
    pn >> PHASE_BITS
}

/// A key with its initialisation vector.
pub(crate) struct PacketKey {
    key: LessSafeKey,
    iv: [u8; 12],
}

impl PacketKey {
    /// The nonce of a packet: RFC 9001 section 5.3.
    fn nonce(&self, pn: u64) -> Nonce {
        let mut nonce = self.iv;
        for (byte, n) in nonce[4..].iter_mut().zip(pn.to_be_bytes()) {
            *byte ^= n;
        }
        Nonce::assume_unique_for_key(nonce)
    }

    /// Seals a packet in place: `packet` is header, text and room for the tag.
    fn seal(&self, pn: u64, packet: &mut [u8], head: usize) -> Option<()> {
        let (aad, rest) = packet.split_at_mut(head);
        let (text, tag) = rest.split_at_mut(rest.len().checked_sub(TAG)?);
        let sealed = self.key.seal_in_place_separate_tag(self.nonce(pn), Aad::from(&*aad), text);
        tag.copy_from_slice(sealed.ok()?.as_ref());
        Some(())
    }

    /// Opens a packet in place and returns its text; `None` if it is not authentic.
    fn open<'a>(&self, pn: u64, packet: &'a mut [u8], head: usize) -> Option<&'a mut [u8]> {
        let (aad, rest) = packet.split_at_mut(head);
        self.key.open_in_place(self.nonce(pn), Aad::from(&*aad), rest).ok()
    }
}

struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// Derives the keys of one direction.
struct Schedule {
    prk: hkdf::Prk,
    suite: Suite,
    direction: u8,
}

impl Schedule {
    /// The keys of packets that `from` sends.
    fn new(keys: &FlowKeys, from: Role) -> Self {
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"packtrain native 1");
        let direction = if from == Role::Sender { b's' } else { b'r' };
        Self { prk: salt.extract(&keys.secret), suite: keys.suite, direction }
    }

    fn expand<const N: usize>(&self, what: &[u8], lane: u8, phase: u64) -> Option<[u8; N]> {
        let mut out = [0; N];
        let phase = phase.to_be_bytes();
        let info = [what, &[self.direction, lane], &phase[..]];
        self.prk.expand(&info, Length(N)).ok()?.fill(&mut out).ok()?;
        Some(out)
    }

    fn key(&self, lane: u8, phase: u64) -> Option<PacketKey> {
        let unbound = match self.suite {
            Suite::Aes128Gcm => {
                UnboundKey::new(&aead::AES_128_GCM, &self.expand::<16>(b"key", lane, phase)?)
            }
            Suite::ChaCha20Poly1305 => {
                UnboundKey::new(&aead::CHACHA20_POLY1305, &self.expand::<32>(b"key", lane, phase)?)
            }
        };
        Some(PacketKey {
            key: LessSafeKey::new(unbound.ok()?),
            iv: self.expand(b"iv", lane, phase)?,
        })
    }
}

/// Seals the packets that this end sends.
pub(crate) struct Sealer {
    schedule: Schedule,
    lanes: Vec<(u64, PacketKey)>,
}

impl Sealer {
    pub(crate) fn new(keys: &FlowKeys, role: Role, lanes: u8) -> Result<Self, FlowError> {
        let schedule = Schedule::new(keys, role);
        let first = |lane| Some((0, schedule.key(lane, 0)?));
        let lanes = (0..lanes).map(first).collect::<Option<_>>().ok_or(FlowError::Keys)?;
        Ok(Self { schedule, lanes })
    }

    /// Seals header, text and room for the tag in place; `None` only if the library fails.
    /// The caller never repeats a packet number within a lane.
    pub(crate) fn seal(&mut self, lane: u8, pn: u64, packet: &mut [u8], head: usize) -> Option<()> {
        let (phase, key) = self.lanes.get_mut(usize::from(lane))?;
        if *phase != phase_of(pn) {
            (*phase, *key) = (phase_of(pn), self.schedule.key(lane, phase_of(pn))?);
        }
        key.seal(pn, packet, head)
    }
}

/// Opens the packets of the peer. Keeps four phases per lane, so that a packet of a neighbouring
/// phase does not cost a key derivation.
pub(crate) struct Opener {
    schedule: Schedule,
    lanes: Vec<[Option<(u64, PacketKey)>; 4]>,
}

impl Opener {
    pub(crate) fn new(keys: &FlowKeys, role: Role, lanes: u8) -> Self {
        let from = if role == Role::Sender { Role::Receiver } else { Role::Sender };
        let lanes = (0..lanes).map(|_| [None, None, None, None]).collect();
        Self { schedule: Schedule::new(keys, from), lanes }
    }

    /// Opens a packet in place. `largest` is the largest authentic number of its lane; only its
    /// phase and the two neighbouring phases are tried.
    pub(crate) fn open<'a>(
        &mut self,
        lane: u8,
        pn: u64,
        largest: u64,
        packet: &'a mut [u8],
        head: usize,
    ) -> Option<&'a mut [u8]> {
        let phase = phase_of(pn);
        if phase.abs_diff(phase_of(largest)) > 1 {
            return None;
        }
        let slot = &mut self.lanes.get_mut(usize::from(lane))?[phase as usize & 3];
        if slot.as_ref().is_none_or(|(have, _)| *have != phase) {
            *slot = Some((phase, self.schedule.key(lane, phase)?));
        }
        slot.as_ref()?.1.open(pn, packet, head)
    }
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sealer").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Opener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opener").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(suite: Suite) -> FlowKeys {
        FlowKeys { suite, secret: [7; 32] }
    }

    fn packet(text: &[u8]) -> Vec<u8> {
        [&[2u8; 9][..], text, &[0; TAG]].concat()
    }

    #[test]
    fn both_suites_seal_and_open_in_every_near_phase() {
        for suite in [Suite::Aes128Gcm, Suite::ChaCha20Poly1305] {
            let mut sealer = Sealer::new(&keys(suite), Role::Sender, 2).unwrap();
            let mut opener = Opener::new(&keys(suite), Role::Receiver, 2);
            let edge = 1 << PHASE_BITS;
            for (pn, largest) in [(0, 0), (edge, edge - 1), (edge - 1, edge), (5 * edge, 5 * edge)]
            {
                let mut bytes = packet(b"hello");
                sealer.seal(1, pn, &mut bytes, 9).unwrap();
                assert!(opener.open(0, pn, largest, &mut bytes.clone(), 9).is_none(), "lane");
                let far = largest + 3 * edge;
                assert!(opener.open(1, pn, far, &mut bytes.clone(), 9).is_none(), "phase");
                assert_eq!(opener.open(1, pn, largest, &mut bytes, 9).unwrap(), b"hello");
            }
        }
    }

    #[test]
    fn a_packet_does_not_open_under_its_own_direction() {
        let mut sealer = Sealer::new(&keys(Suite::Aes128Gcm), Role::Sender, 1).unwrap();
        let mut opener = Opener::new(&keys(Suite::Aes128Gcm), Role::Sender, 1);
        let mut bytes = packet(b"hello");
        sealer.seal(0, 4, &mut bytes, 9).unwrap();
        assert!(opener.open(0, 4, 4, &mut bytes, 9).is_none());
    }

    #[test]
    fn golden_sealed_packet() {
        let mut sealer = Sealer::new(&keys(Suite::Aes128Gcm), Role::Sender, 1).unwrap();
        let mut bytes = packet(b"packtrain");
        sealer.seal(0, 1, &mut bytes, 9).unwrap();
        let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        let golden = "02020202020202020218fc47a76f2993efcf9f037070584f50c3e06d7b0b482f82e3";
        assert_eq!(hex, golden);
    }
}
