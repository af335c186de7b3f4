//! Sessions that depots keep: what is deposited, what is claimed, over which depots it goes.
//!
//! A *deposit* is a sealed stream of records ([`Sealer`]) that a depot keeps on its disk and passes
//! on to the depots behind it, at its own pace, for as long as the sender allows. A *claim* asks
//! for records of it, signed with a key that was made for this session alone: who has it has the
//! right, whoever it is. A depot verifies with the sender's public key what it keeps and can
//! neither read nor forge it.

mod frame;
mod mark;
mod record;

use packtrain_units::{ByteCount, Duration};

pub use frame::{FRAME_HEAD, Frame, FrameError};
pub use mark::{HEAD_MAX, Head, MARK_LEN, MARK_SLOT, Mark, newest};
pub use record::{
    OpenError, Opener, RECORD, RECORD_LEAST, RECORD_TEXT, Sealer, is_genuine, last_record,
    records_for, sealed_len,
};

use super::header::{Hop, Kind, Session, SessionId};

/// What a sender deposits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deposit {
    /// What it is called in claims: random, of its own.
    pub session: SessionId,
    /// The public half of the key that claims it.
    pub capability: [u8; 32],
    /// How long it is, sealed; none for a pipe.
    pub size: Option<ByteCount>,
    /// How long after the header's time it is kept, in whole seconds.
    pub keep: Duration,
}

/// What is asked of a session that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Which.
    pub session: SessionId,
    /// What for.
    pub wish: Wish,
}

/// What a claim is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// To read it.
    Read,
    /// It is needed no more.
    Release,
}

/// What a header says of a session that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spool {
    /// It comes.
    Deposit(Deposit),
    /// It is asked for.
    Claim(Claim),
}

/// A depot of a chain or tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node<'a> {
    /// The depot it has its records from; none for those that have them from the sender.
    pub parent: Option<u8>,
    /// What becomes of it when it is slow.
    pub policy: Policy,
    /// Where it is.
    pub hop: &'a Hop,
}

/// What becomes of a branch that is slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Policy {
    /// All wait for it.
    Wait,
    /// It gets later what is kept.
    Spool,
    /// It is left.
    Drop,
}

impl Policy {
    /// The policy that a branch's number means; three and above are none.
    pub fn of(code: u8) -> Option<Self> {
        [Self::Wait, Self::Spool, Self::Drop].get(usize::from(code)).copied()
    }

    /// Its number.
    pub fn code(self) -> u8 {
        self as u8
    }
}

impl Session {
    /// The depots of a deposit: those of the route, one behind the other, or of the tree. Empty if
    /// it is no deposit, or none that can be.
    pub fn nodes(&self) -> Vec<Node<'_>> {
        match self.kind {
            Kind::Asynchronous if self.tree.is_empty() => {
                let node = |(n, hop): (usize, _)| Node {
                    parent: n.checked_sub(1).and_then(|n| u8::try_from(n).ok()),
                    policy: Policy::Spool,
                    hop,
                };
                self.route.iter().enumerate().map(node).collect()
            }
            Kind::Staging if self.route.is_empty() => {
                let node =
                    |branch: &'_ super::Branch| Some((branch.parent, Policy::of(branch.policy)?));
                let all: Option<Vec<_>> = self.tree.iter().map(node).collect();
                let hops = self.tree.iter().map(|branch| &branch.hop);
                let all = all.unwrap_or_default().into_iter().zip(hops);
                all.map(|((parent, policy), hop)| Node { parent, policy, hop }).collect()
            }
            _ => Vec::new(),
        }
    }
}

impl Spool {
    /// The option's type and value.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Deposit(deposit) => {
                out.extend(deposit.session.0);
                out.extend(deposit.capability);
                out.extend(deposit.size.map_or(u64::MAX, ByteCount::get).to_be_bytes());
                let keep = u32::try_from(deposit.keep.as_millis() / 1000).unwrap_or(u32::MAX);
                out.extend(keep.to_be_bytes());
            }
            Self::Claim(claim) => {
                out.extend(claim.session.0);
                out.push(match claim.wish {
                    Wish::Read => 0,
                    Wish::Release => 1,
                });
            }
        }
    }
}

impl Deposit {
    pub(super) fn read(value: &[u8]) -> Option<Self> {
        let (session, rest) = value.split_first_chunk::<16>()?;
        let (capability, rest) = rest.split_first_chunk::<32>()?;
        let (size, rest) = rest.split_first_chunk::<8>()?;
        let size = u64::from_be_bytes(*size);
        let keep = u32::from_be_bytes(rest.try_into().ok()?);
        Some(Self {
            session: SessionId(*session),
            capability: *capability,
            size: (size != u64::MAX).then_some(ByteCount(size)),
            keep: Duration::from_secs(keep.into()),
        })
    }
}

impl Claim {
    pub(super) fn read(value: &[u8]) -> Option<Self> {
        let (session, rest) = value.split_first_chunk::<16>()?;
        let wish = match rest {
            [0] => Wish::Read,
            [1] => Wish::Release,
            _ => return None,
        };
        Some(Self { session: SessionId(*session), wish })
    }
}
