//! Sessions that depots keep: deposits, claims, and their chains or trees of depots.
//!
//! A *deposit* is a sealed stream of records ([`Sealer`]) that a depot stores on its disk and
//! forwards to the next depots, at its own pace, for as long as the sender allows. A *claim*
//! requests records of it, signed with a key that was made for this session alone; whoever has the
//! key may claim. A depot verifies the stored records with the sender's public key, and can neither
//! read nor forge them.

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
    /// The depot that sends it the records; none if the sender does.
    pub parent: Option<u8>,
    /// Policy if it is slow.
    pub policy: Policy,
    /// Its hop.
    pub hop: &'a Hop,
}

/// Policy for a slow branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Policy {
    /// All others wait for it.
    Wait,
    /// It gets the records later, from the spool.
    Spool,
    /// It is dropped.
    Drop,
}

impl Policy {
    /// The policy with this number; `None` for three and above.
    pub fn of(code: u8) -> Option<Self> {
        [Self::Wait, Self::Spool, Self::Drop].get(usize::from(code)).copied()
    }

    /// Its number.
    pub fn code(self) -> u8 {
        self as u8
    }
}

impl Session {
    /// The depots of a deposit: those of the route, in a chain, or of the tree. Empty if it is not
    /// a valid deposit.
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
