//! A hop by datagrams: the messages of its two ends on the TCP connection that carried the header.
//!
//! Each end sends a hello: the caller right behind the header, the called end when it accepts the
//! session (it refuses with a plain answer instead). From then on that connection carries *frames*
//! in each direction. The stream travels as [`Frame::Data`] until its sending end has offered
//! datagrams, the other end has accepted the offer, packets have passed in both directions, and
//! [`Frame::Switch`] announces the first byte that datagrams carry. If no packet gets through, the
//! stream stays on TCP, without any delay.
//!
//! ```text
//! hello   0..4    "PKTH"
//!         4..6    version, 1
//!         6       1: this end has instructions for AES, else 0
//!         7       0
//!         8..40   X25519 public key (RFC 7748) of this hop of this session alone
//!
//! frame   0       type
//!         1..4    length of what follows, at most 65,536
//!         4..     0 data: bytes of the stream, not none
//!                 1 offer: the UDP port that will send (2)
//!                 2 take: the UDP port that will receive (2); of the other direction
//!                 3 no: no datagrams; of the other direction
//!                 4 switch: bytes of the stream before the first by datagram (8)
//!                 5 end: bytes of the whole stream (8)
//!                 6 stay: the offer is withdrawn
//! ```

use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use aws_lc_rs::hkdf;
use packtrain_proto::{FlowKeys, Suite};

/// Bytes of a hello.
pub const HELLO: usize = 40;
/// Bytes of a frame's head.
pub const FRAME_HEAD: usize = 4;
/// Maximum bytes of a frame's body.
pub(crate) const FRAME_MAX: usize = 65_536;

const MAGIC: [u8; 4] = *b"PKTH";
const VERSION: u16 = 1;
const SALT: &[u8] = b"packtrain hop 2";

/// The first message of an end of a hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Whether the machine has AES instructions.
    pub aes: bool,
    /// Its public key.
    pub key: [u8; 32],
}

/// Invalid bytes on a hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HopError {
    /// The other side does not send a hello.
    #[error("the other end of the hop speaks something else")]
    NoHello,
    /// A later version.
    #[error("the other end of the hop is of version {0}, this one of version 1")]
    Version(u16),
    /// An unknown type, or an invalid length for a type.
    #[error("the other end of the hop sent a broken frame")]
    Broken,
    /// An invalid public key.
    #[error("no key can be agreed on with the other end of the hop")]
    Key,
}

impl Hello {
    /// The encoded hello.
    pub fn write(&self) -> [u8; HELLO] {
        let mut out = [0; HELLO];
        out[..4].copy_from_slice(&MAGIC);
        out[4..6].copy_from_slice(&VERSION.to_be_bytes());
        out[6] = u8::from(self.aes);
        out[8..].copy_from_slice(&self.key);
        out
    }

    /// Parses a hello.
    ///
    /// # Errors
    /// It is not a hello, or one of a later version.
    pub fn read(bytes: &[u8; HELLO]) -> Result<Self, HopError> {
        if bytes[..4] != MAGIC {
            return Err(HopError::NoHello);
        }
        let version = u16::from_be_bytes([bytes[4], bytes[5]]);
        if version != VERSION {
            return Err(HopError::Version(version));
        }
        let mut key = [0; 32];
        key.copy_from_slice(&bytes[8..]);
        Ok(Self { aes: bytes[6] & 1 == 1, key })
    }

    /// Whether bytes with this beginning may be a hello: an answer begins differently.
    pub fn begins(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC)
    }
}

/// The secret of an end, for one hop of one session.
pub struct Secret {
    key: PrivateKey,
    hello: Hello,
}

/// Keys and number of the flow in one direction.
#[derive(Clone, Debug)]
pub struct HopFlow {
    /// The flow's keys.
    pub keys: FlowKeys,
    /// Its number on the wire.
    pub id: u32,
}

/// The flows of a hop.
#[derive(Clone, Debug)]
pub struct HopFlows {
    /// From the caller.
    pub forward: HopFlow,
    /// To the caller.
    pub backward: HopFlow,
}

impl Secret {
    /// Creates a secret from 32 bytes of entropy; `aes` says whether this machine has AES
    /// instructions.
    ///
    /// # Errors
    /// `Key`, if the library rejects them.
    pub fn new(entropy: [u8; 32], aes: bool) -> Result<Self, HopError> {
        let key = PrivateKey::from_private_key(&X25519, &entropy).map_err(|_| HopError::Key)?;
        let public = key.compute_public_key().map_err(|_| HopError::Key)?;
        let public = public.as_ref().try_into().map_err(|_| HopError::Key)?;
        Ok(Self { key, hello: Hello { aes, key: public } })
    }

    /// The hello of this end.
    pub fn hello(&self) -> Hello {
        self.hello
    }

    /// The flows, after the hello of the other end; `called` says which end this is.
    ///
    /// # Errors
    /// `Key`, for an invalid public key.
    pub fn flows(&self, other: &Hello, called: bool) -> Result<HopFlows, HopError> {
        let peer = UnparsedPublicKey::new(&X25519, other.key);
        let (first, second) = if called { (other, &self.hello) } else { (&self.hello, other) };
        let aes = first.aes && second.aes;
        let suite = if aes { Suite::Aes128Gcm } else { Suite::ChaCha20Poly1305 };
        agree(&self.key, peer, HopError::Key, |shared| {
            let prk = hkdf::Salt::new(hkdf::HKDF_SHA256, SALT).extract(shared);
            let flow = |direction: u8| {
                let said = [first.write(), second.write()].concat();
                let mut out = [0; 36];
                let info = [&[direction][..], &said];
                let made = prk.expand(&info, Length(36)).and_then(|okm| okm.fill(&mut out));
                made.map_err(|_| HopError::Key)?;
                let (mut secret, mut id) = ([0; 32], [0; 4]);
                secret.copy_from_slice(&out[..32]);
                id.copy_from_slice(&out[32..]);
                Ok(HopFlow { keys: FlowKeys { suite, secret }, id: u32::from_be_bytes(id) })
            };
            Ok(HopFlows { forward: flow(0)?, backward: flow(1)? })
        })
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secret").field("hello", &self.hello).finish_non_exhaustive()
    }
}

struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// Messages on a hop's connection after the hellos.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// Bytes of the stream.
    Data(&'a [u8]),
    /// This end offers datagrams from this UDP port.
    Offer(u16),
    /// Accepts the offer, with the UDP port that receives.
    Take(u16),
    /// Declines the offer.
    No,
    /// Datagrams carry the stream from this byte on.
    Switch(u64),
    /// Total bytes of the stream in this direction.
    End(u64),
    /// Withdraws the offer.
    Stay,
}

impl<'a> Frame<'a> {
    /// Length of the body of the frame with this head.
    ///
    /// # Errors
    /// `Broken`, if it exceeds the maximum.
    pub fn len(head: &[u8; FRAME_HEAD]) -> Result<usize, HopError> {
        let len = u32::from_be_bytes([0, head[1], head[2], head[3]]) as usize;
        if len > FRAME_MAX { Err(HopError::Broken) } else { Ok(len) }
    }

    /// Parses the frame of this type.
    ///
    /// # Errors
    /// `Broken`.
    pub fn read(kind: u8, body: &'a [u8]) -> Result<Self, HopError> {
        let port = || {
            let port = u16::from_be_bytes(body.try_into().map_err(|_| HopError::Broken)?);
            if port == 0 { Err(HopError::Broken) } else { Ok(port) }
        };
        let total = || Ok(u64::from_be_bytes(body.try_into().map_err(|_| HopError::Broken)?));
        match (kind, body.len()) {
            (0, 1..=FRAME_MAX) => Ok(Self::Data(body)),
            (1, _) => Ok(Self::Offer(port()?)),
            (2, _) => Ok(Self::Take(port()?)),
            (3, 0) => Ok(Self::No),
            (4, _) => Ok(Self::Switch(total()?)),
            (5, _) => Ok(Self::End(total()?)),
            (6, 0) => Ok(Self::Stay),
            _ => Err(HopError::Broken),
        }
    }

    /// The head of a data frame, to be followed by `len` bytes of the stream, at most
    /// 64 KiB.
    pub fn data_head(len: usize) -> [u8; FRAME_HEAD] {
        let len = (len as u32).to_be_bytes();
        [0, len[1], len[2], len[3]]
    }

    /// The encoded frame.
    pub fn write(&self) -> Vec<u8> {
        let (kind, body) = match self {
            Self::Data(bytes) => (0, bytes.to_vec()),
            Self::Offer(port) => (1, port.to_be_bytes().to_vec()),
            Self::Take(port) => (2, port.to_be_bytes().to_vec()),
            Self::No => (3, Vec::new()),
            Self::Switch(total) => (4, total.to_be_bytes().to_vec()),
            Self::End(total) => (5, total.to_be_bytes().to_vec()),
            Self::Stay => (6, Vec::new()),
        };
        let mut out = Self::data_head(body.len()).to_vec();
        out[0] = kind;
        out.extend(body);
        out
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn both_ends_agree_and_no_two_hops_do() {
        let (one, two) = (Secret::new([1; 32], true).unwrap(), Secret::new([2; 32], true).unwrap());
        let near = one.flows(&two.hello(), false).unwrap();
        let far = two.flows(&one.hello(), true).unwrap();
        for (a, b) in [(&near.forward, &far.forward), (&near.backward, &far.backward)] {
            assert_eq!((a.id, a.keys.secret, a.keys.suite), (b.id, b.keys.secret, b.keys.suite));
        }
        assert_ne!(near.forward.keys.secret, near.backward.keys.secret);
        assert_eq!(near.forward.keys.suite, Suite::Aes128Gcm);
        let other = Secret::new([3; 32], false).unwrap();
        let third = one.flows(&other.hello(), false).unwrap();
        assert_ne!(third.forward.keys.secret, near.forward.keys.secret);
        assert_eq!(third.forward.keys.suite, Suite::ChaCha20Poly1305);
        // An attacker that reflects our hello gets flows that match neither end.
        let mirror = one.flows(&one.hello(), true).unwrap();
        assert_ne!(mirror.forward.keys.secret, near.forward.keys.secret);
        // A point of small order gives no shared secret (RFC 7748 section 6.1).
        let small = Hello { aes: true, key: [0; 32] };
        assert_eq!(one.flows(&small, false).unwrap_err(), HopError::Key);
    }

    #[test]
    fn what_is_no_hello_is_told_apart() {
        let hello = Hello { aes: true, key: [9; 32] };
        assert_eq!(Hello::read(&hello.write()), Ok(hello));
        let mut later = hello.write();
        later[5] = 2;
        assert_eq!(Hello::read(&later), Err(HopError::Version(2)));
        later[0] = b'X';
        assert_eq!(Hello::read(&later), Err(HopError::NoHello));
        assert!(Hello::begins(b"PKTH") && !Hello::begins(b"PKTA"));
    }

    proptest! {
        #[test]
        fn any_frame_is_read_or_refused(kind: u8, body in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(frame) = Frame::read(kind, &body) {
                let bytes = frame.write();
                prop_assert_eq!(bytes[0], kind);
                prop_assert_eq!(Frame::len(bytes.first_chunk().unwrap()), Ok(body.len()));
                prop_assert_eq!(&bytes[FRAME_HEAD..], &body[..]);
            }
        }

        #[test]
        fn a_length_is_bounded(head: [u8; FRAME_HEAD]) {
            if let Ok(len) = Frame::len(&head) {
                prop_assert!(len <= FRAME_MAX);
            }
        }
    }
}
