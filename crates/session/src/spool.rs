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

pub use frame::{FRAME_HEAD, Frame, FrameError};
pub use mark::{HEAD_MAX, Head, MARK_LEN, MARK_SLOT, Mark, newest};
pub use record::{
    OpenError, Opener, RECORD, RECORD_MIN, RECORD_TEXT, Sealer, is_genuine, last_record,
    records_for, sealed_len,
};

use super::header::{Branch, Hop, Kind, Session};

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
                let node = |branch: &'_ Branch| Some((branch.parent, Policy::of(branch.policy)?));
                let all: Option<Vec<_>> = self.tree.iter().map(node).collect();
                let hops = self.tree.iter().map(|branch| &branch.hop);
                let all = all.unwrap_or_default().into_iter().zip(hops);
                all.map(|((parent, policy), hop)| Node { parent, policy, hop }).collect()
            }
            _ => Vec::new(),
        }
    }
}
