//! The ticket of a kept session, which is a secret.

use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use packtrain_net::tcp::Identity;
use packtrain_session::spool::Opener;
use packtrain_session::{
    Branch, Claim, ClaimPurpose, Deposit, Header, Hop, Kind, Place, Session, SessionId, Spool,
};
use packtrain_units::{ByteCount, Duration};
use serde::{Deserialize, Serialize};

use super::code::{ClaimCode, Keys};
use super::plan::{DepotPlan, PlannedDepot};
use packtrain_identity::statefile;

/// The prefix of a ticket's text.
const PREFIX: &str = "pc1-";
/// Length of the checksum that detects a mistyped or truncated ticket, in bytes.
const CHECKSUM_LEN: usize = 4;
/// Maximum number of depots in a row that a sender requests; each depot has its own limit.
const HOP_LIMIT: u8 = 8;

/// The right to claim a session, and the key of its data. `Debug` shows neither.
#[derive(Clone, PartialEq, Eq)]
pub struct ClaimTicket {
    pub(super) body: Body,
    pub(super) plan: DepotPlan,
    /// It comes from a code, which does not name the sender, the size and the expiry.
    by_code: bool,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Body {
    pub(super) session: [u8; 16],
    /// The seed of the claim key.
    pub(super) capability: [u8; 32],
    /// The key that encrypts the data.
    pub(super) content: [u8; 32],
    /// The public key that signs the records.
    pub(super) sender: [u8; 32],
    /// Its creation, in milliseconds since 1970.
    pub(super) made: u64,
    /// How long the session is kept, in seconds.
    pub(super) keep: u32,
    /// The encrypted length; `None` for a pipe.
    pub(super) size: Option<u64>,
    /// The digest of the content, so that another try sends the same data.
    pub(super) manifest: [u8; 32],
}

#[derive(Serialize, Deserialize)]
struct Written {
    body: Body,
    tree: bool,
    /// Parent, policy, address.
    depots: Vec<(Option<u8>, u8, String)>,
}

/// Why a text is not a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimTicketError {
    /// It does not have the form of a ticket.
    #[error("not a ticket to claim with: it begins with `pc1-`; @FILE names a file, - is stdin")]
    Shape,
    /// A character is wrong or missing.
    #[error("a damaged ticket: copy it again, whole")]
    Check,
}

impl ClaimTicket {
    pub(super) fn new(body: Body, plan: DepotPlan) -> Self {
        Self { body, plan, by_code: false }
    }

    /// What a receiver knows who has a code, for a session at one depot.
    ///
    /// Whoever knows the code can seal other data with it: only a depot that changes the session
    /// together with somebody who has the code can make use of that.
    pub fn of_code(code: &ClaimCode, depot: Place) -> Self {
        let Keys { session, capability, content } = code.keys();
        let (sender, manifest) = ([0; 32], [0; 32]);
        let (made, keep, size) = (0, u32::MAX, None);
        let body = Body { session, capability, content, sender, made, keep, size, manifest };
        Self { body, plan: DepotPlan::one(depot), by_code: true }
    }

    /// Opens the records of the session.
    pub(super) fn opener(&self) -> Opener {
        if self.by_code {
            Opener::of_any_sender(self.id(), self.body.content)
        } else {
            Opener::new(self.id(), self.body.content, self.body.sender)
        }
    }

    /// The id of the session.
    pub fn session(&self) -> String {
        self.id().to_string()
    }

    /// The depots of the session.
    pub fn plan(&self) -> &DepotPlan {
        &self.plan
    }

    pub(super) fn id(&self) -> SessionId {
        SessionId(self.body.session)
    }

    /// Its expiry, since 1970.
    pub fn expires(&self) -> Duration {
        let keep = Duration::from_secs(self.body.keep.into());
        Duration::from_millis(self.body.made) + keep
    }

    /// The text for users. It is not `Display`, because it is a secret.
    pub fn to_text(&self) -> String {
        let depots = self.plan.depots.iter();
        let depots = depots.map(|one| (one.parent, one.policy.code(), one.place.to_string()));
        let written =
            Written { body: self.body.clone(), tree: self.plan.tree, depots: depots.collect() };
        // Serialising plain values to memory cannot fail.
        let mut bytes = postcard::to_stdvec(&written).unwrap_or_default();
        bytes.extend(check_sum(&bytes));
        format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))
    }

    /// Writes the ticket and a newline to `path`, which only its owner can read.
    ///
    /// # Errors
    /// I/O errors.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        statefile::replace(path, format!("{}\n", self.to_text()).as_bytes())
    }

    /// The header of the deposit, the same at each try.
    pub(super) fn deposit(&self, sender: &Identity) -> Option<Header> {
        let capability = Identity::generate(self.body.capability).public().0;
        let deposit = Deposit {
            session: self.id(),
            capability,
            size: self.body.size.map(ByteCount),
            keep: Duration::from_secs(self.body.keep.into()),
        };
        let hop = |one: &PlannedDepot| Hop::tcp(one.place.clone());
        let depots = &self.plan.depots;
        let branch = |one: &PlannedDepot| Branch {
            parent: one.parent,
            policy: one.policy.code(),
            hop: hop(one),
        };
        let (kind, route, tree) = if self.plan.tree {
            (Kind::Staging, Vec::new(), depots.iter().map(branch).collect())
        } else {
            (Kind::Asynchronous, depots.iter().map(hop).collect(), Vec::new())
        };
        let session = Session {
            kind,
            id: self.id(),
            sent: Duration::from_millis(self.body.made),
            hop_limit: HOP_LIMIT,
            source: None,
            destination: hop(depots.last()?),
            route,
            by_destination: false,
            tree,
            spool: Some(Spool::Deposit(deposit)),
        };
        session.seal(sender.public().0, |text| sender.sign(text)).ok()
    }

    /// The header of a claim at `depot`, which is valid once.
    pub(super) fn claim(
        &self,
        depot: &Place,
        purpose: ClaimPurpose,
        id: [u8; 16],
        now: Duration,
    ) -> Option<Header> {
        let key = Identity::generate(self.body.capability);
        let session = Session {
            kind: Kind::Claim,
            id: SessionId(id),
            sent: now,
            hop_limit: 1,
            source: None,
            destination: Hop::tcp(depot.clone()),
            route: Vec::new(),
            by_destination: false,
            tree: Vec::new(),
            spool: Some(Spool::Claim(Claim { session: self.id(), purpose })),
        };
        session.seal(key.public().0, |text| key.sign(text)).ok()
    }
}

impl FromStr for ClaimTicket {
    type Err = ClaimTicketError;

    fn from_str(text: &str) -> Result<Self, ClaimTicketError> {
        use ClaimTicketError::{Check, Shape};
        let base64 = text.trim().strip_prefix(PREFIX).ok_or(Shape)?;
        let bytes = URL_SAFE_NO_PAD.decode(base64).map_err(|_| Check)?;
        let (body, sum) = bytes.split_last_chunk::<CHECKSUM_LEN>().ok_or(Check)?;
        if *sum != check_sum(body) {
            return Err(Check);
        }
        let written: Written = postcard::from_bytes(body).map_err(|_| Check)?;
        let plan = DepotPlan::from_parts(written.tree, written.depots).ok_or(Check)?;
        Ok(Self { body: written.body, plan, by_code: false })
    }
}

impl fmt::Debug for ClaimTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClaimTicket({} at {})", self.session(), self.plan)
    }
}

fn check_sum(bytes: &[u8]) -> [u8; CHECKSUM_LEN] {
    let digest = blake3::derive_key("packtrain claim ticket check sum v1", bytes);
    [digest[0], digest[1], digest[2], digest[3]]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PLANS: &[&str] = &["depot.example:7879", "a:1,[2001:db8::1]:2", "a:1(b:2,drop:c:3(d:4))"];

    fn any_ticket() -> impl Strategy<Value = ClaimTicket> {
        let secrets = (any::<[u8; 16]>(), any::<[u8; 32]>(), any::<[u8; 32]>(), any::<[u8; 32]>());
        let rest = (0..u64::MAX / 2_000_000, any::<u32>(), prop::option::of(0..u64::MAX));
        (secrets, rest, prop::sample::select(PLANS)).prop_map(|(secrets, rest, plan)| {
            let (session, capability, content, sender) = secrets;
            let (made, keep, size) = rest;
            let manifest = content;
            let body = Body { session, capability, content, sender, made, keep, size, manifest };
            ClaimTicket::new(body, plan.parse().expect("a plan"))
        })
    }

    #[test]
    fn a_ticket_file_is_its_owners_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("ticket");
        std::fs::write(&path, "an older, open file").expect("fine");
        let body = Body {
            session: [1; 16],
            capability: [2; 32],
            content: [3; 32],
            sender: [4; 32],
            made: 5,
            keep: 6,
            size: None,
            manifest: [7; 32],
        };
        let ticket = ClaimTicket::new(body, "depot:7879".parse().expect("a plan"));
        ticket.write(&path).expect("writable");
        let mode = std::fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let text = std::fs::read_to_string(&path).expect("readable");
        assert_eq!(text.parse(), Ok(ticket.clone()));
        let shown = format!("{ticket:?}");
        assert!(shown.contains("depot:7879") && !shown.contains("2, 2"), "{shown}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn tickets_read_back_and_damage_is_seen(
            ticket in any_ticket(),
            at: prop::sample::Index,
            to in "[A-Za-z0-9_-]",
        ) {
            let text = ticket.to_text();
            prop_assert_eq!(text.parse(), Ok(ticket));
            let at = 4 + at.index(text.len() - 4);
            prop_assert!(text[..at].parse::<ClaimTicket>().is_err());
            let mut damaged = text.clone();
            damaged.replace_range(at..=at, &to);
            prop_assume!(damaged != text);
            prop_assert_eq!(damaged.parse::<ClaimTicket>(), Err(ClaimTicketError::Check));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "(pc1-)?[ -~\n]{0,200}") {
            let _ = text.parse::<ClaimTicket>();
        }
    }
}
