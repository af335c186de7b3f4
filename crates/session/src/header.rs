//! What a sender says before its stream.
//!
//! ```text
//! 0..4      "PKTS"
//! 4..6      version, 1
//! 6..8      type: 1 synchronous, 2 asynchronous, 3 staging over a tree, 4 measure, 5 echo, 6 claim
//! 8..10     length of the header, trail included, at most 4096
//! 10..12    length of what is signed: from byte 0 to the end of the options
//! 12        most depots that the sender allows
//! 13        0
//! 14..30    number of the session
//! 30..38    time of sending, milliseconds since 1970
//! 38..70    the sender's public key (Ed25519)
//! 70..      options, each a type (1 byte), a length (2) and so many bytes
//! then 64   signature over "packtrain session 1\0" and what is signed, bytes 8..10 taken as 0
//! then      the trail: 16 bytes of each depot that has passed it on, in order
//! ```

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use packtrain_units::Duration;

use super::address::Place;
use super::deposit::{Claim, Deposit, Spool};
use super::id::{DepotId, SessionId};
use super::measure::Measure;

/// Enough of a header to learn its length.
pub const HEADER_HEAD: usize = 10;
/// The most depots a route may have, whatever its sender allows.
pub const MAX_HOPS: usize = 8;

const MAGIC: [u8; 4] = *b"PKTS";
const VERSION: u16 = 1;
const DOMAIN: &[u8] = b"packtrain session 1\0";
const OPTIONS: usize = 70;
const SIGNATURE: usize = 64;
const HEADER_MAX: usize = 4096;
const TRAIL: usize = 16;
/// The most receivers and depots of a tree.
const MAX_BRANCHES: usize = 32;

/// Option: where the sender is, as it knows itself: a place.
const SOURCE: u8 = 1;
/// Option: where the stream goes: transport, place.
const DESTINATION: u8 = 2;
/// Option: a depot of the route, in order: transport, place.
const HOP: u8 = 3;
/// Option: a node of a staging tree: parent, policy, transport, place.
const BRANCH: u8 = 4;
/// Option: what is deposited.
const DEPOSIT: u8 = 16;
/// Option: what is claimed.
const CLAIM: u8 = 17;
/// Option: what a session of type 4 is for.
const MEASURE: u8 = 24;
/// Options from here on may be skipped by those who do not know them.
const MAY_SKIP: u8 = 128;

/// What kind of session it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Both ends are there.
    Synchronous,
    /// The last depot keeps the stream until it is asked for.
    Asynchronous,
    /// To many receivers over a tree of depots.
    Staging,
    /// About the speed of a depot's hops: see [`super::measure`].
    Measure(Measure),
    /// The last depot of the route sends back what it gets: see [`super::echo`].
    Echo,
    /// What a depot keeps is asked for.
    Claim,
    /// A type of a later version.
    Other(u16),
}

/// By what a hop is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HopTransport {
    /// TCP in clear; the stream is sealed from end to end.
    Tcp,
    /// Datagrams with feedback and controller of UDT beside TCP: see [`super::hop`].
    Udt,
    /// Datagrams with native feedback and controller beside TCP.
    Native,
    /// A transport of a later version.
    Other(u8),
}

/// A place on the way, and how it is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// By what.
    pub transport: HopTransport,
    /// Where it is.
    pub place: Place,
}

/// A node of a staging tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// The node it hangs from, an earlier one; none for the sender.
    pub parent: Option<u8>,
    /// What becomes of a branch that is slow: 0 all wait, 1 it is spooled, 2 it is dropped.
    pub policy: u8,
    /// Where and how.
    pub hop: Hop,
}

/// What is asked for: all that a sender signs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// What kind.
    pub kind: Kind,
    /// Its number, never used twice.
    pub id: SessionId,
    /// When it was asked for, since 1970, in whole milliseconds.
    pub sent: Duration,
    /// The most depots allowed.
    pub hop_limit: u8,
    /// Where the sender is, if it says so.
    pub source: Option<Place>,
    /// Where the stream goes.
    pub destination: Hop,
    /// The depots, first to last.
    pub route: Vec<Hop>,
    /// The staging tree, empty for one receiver.
    pub tree: Vec<Branch>,
    /// What is deposited or claimed; none for a session that is not kept.
    pub spool: Option<Spool>,
}

/// A signed request, and which depots have passed it on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// What is asked for.
    pub session: Session,
    /// The key of who asks.
    pub sender: [u8; 32],
    /// The depots behind it.
    pub trail: Vec<DepotId>,
    signed: Vec<u8>,
    signature: [u8; SIGNATURE],
}

/// Where a depot passes a session on to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<'a> {
    /// To a depot, header first.
    Depot(&'a Hop),
    /// To the destination, without a header.
    Destination(&'a Hop),
}

/// Bytes that are no header, or a request that none can be made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Something else speaks there.
    #[error("this is no session over depots")]
    NoSession,
    /// A later version.
    #[error("the session's header is of version {0}, this end reads version 1")]
    Version(u16),
    /// An option that must not be skipped.
    #[error("option {0} of the session is not known here")]
    Option(u8),
    /// Lengths, places or the trail that do not fit together.
    #[error("the session's header is broken")]
    Broken,
    /// More than a header holds.
    #[error("a route has at most {MAX_HOPS} depots and a header {HEADER_MAX} bytes")]
    TooLong,
}

impl Session {
    /// The header of this request, signed.
    ///
    /// # Errors
    /// `TooLong`, or `Broken` for a tree whose nodes are not in order.
    pub fn seal(
        &self,
        sender: [u8; 32],
        sign: impl FnOnce(&[u8]) -> [u8; 64],
    ) -> Result<Header, HeaderError> {
        let fits = self.route.len() <= MAX_HOPS && self.tree.len() <= MAX_BRANCHES;
        if !fits {
            return Err(HeaderError::TooLong);
        }
        let mut signed = Vec::with_capacity(256);
        signed.extend(MAGIC);
        signed.extend(VERSION.to_be_bytes());
        signed.extend(self.kind.code().to_be_bytes());
        signed.extend([0; 4]);
        signed.extend([self.hop_limit, 0]);
        signed.extend(self.id.0);
        signed.extend(self.sent.as_millis().to_be_bytes());
        signed.extend(sender);
        self.write_options(&mut signed);
        // Room for every depot's number.
        if signed.len() + SIGNATURE + MAX_HOPS * TRAIL > HEADER_MAX {
            return Err(HeaderError::TooLong);
        }
        let len = (signed.len() as u16).to_be_bytes();
        signed[10..12].copy_from_slice(&len);
        let signature = sign(&[DOMAIN, &signed].concat());
        let header = Header { session: self.clone(), sender, trail: Vec::new(), signed, signature };
        // What cannot be read back is not sent.
        let read = Header::read(&header.write())?;
        let same = read.session.tree == self.tree
            && read.session.spool == self.spool
            && read.session.kind == self.kind;
        if same { Ok(header) } else { Err(HeaderError::Broken) }
    }

    fn write_options(&self, out: &mut Vec<u8>) {
        if let Some(source) = &self.source {
            option(out, SOURCE, |out| source.write(out));
        }
        option(out, DESTINATION, |out| self.destination.write(out));
        for hop in &self.route {
            option(out, HOP, |out| hop.write(out));
        }
        for branch in &self.tree {
            option(out, BRANCH, |out| {
                out.extend([branch.parent.unwrap_or(u8::MAX), branch.policy]);
                branch.hop.write(out);
            });
        }
        if let Some(spool) = &self.spool {
            let kind = if matches!(spool, Spool::Deposit(_)) { DEPOSIT } else { CLAIM };
            option(out, kind, |out| spool.write(out));
        }
        if let Kind::Measure(measure) = &self.kind {
            option(out, MEASURE, |out| measure.write(out));
        }
    }
}

/// Appends an option; what `value` appends has at most 300 bytes.
fn option(out: &mut Vec<u8>, kind: u8, value: impl FnOnce(&mut Vec<u8>)) {
    out.extend([kind, 0, 0]);
    let begin = out.len();
    value(out);
    let len = ((out.len() - begin) as u16).to_be_bytes();
    out[begin - 2..begin].copy_from_slice(&len);
}

impl Header {
    /// The length of the header that begins like this.
    ///
    /// # Errors
    /// It is none of ours, or too long or too short to be one.
    pub fn len(head: &[u8; HEADER_HEAD]) -> Result<usize, HeaderError> {
        if head[..4] != MAGIC {
            return Err(HeaderError::NoSession);
        }
        let version = u16::from_be_bytes([head[4], head[5]]);
        if version != VERSION {
            return Err(HeaderError::Version(version));
        }
        let len = usize::from(u16::from_be_bytes([head[8], head[9]]));
        let possible = OPTIONS + SIGNATURE..=HEADER_MAX;
        if possible.contains(&len) { Ok(len) } else { Err(HeaderError::Broken) }
    }

    /// Reads a whole header. Its signature is not looked at: see [`Header::is_signed`].
    ///
    /// # Errors
    /// It is none, or one of a later version.
    pub fn read(bytes: &[u8]) -> Result<Self, HeaderError> {
        let head = bytes.first_chunk().ok_or(HeaderError::Broken)?;
        if Self::len(head)? != bytes.len() {
            return Err(HeaderError::Broken);
        }
        let signed_len = usize::from(u16::from_be_bytes([bytes[10], bytes[11]]));
        if signed_len < OPTIONS || signed_len + SIGNATURE > bytes.len() {
            return Err(HeaderError::Broken);
        }
        let (signed, rest) = bytes.split_at(signed_len);
        let (signature, trail) = rest.split_first_chunk().ok_or(HeaderError::Broken)?;
        let (trail, odd) = trail.as_chunks::<TRAIL>();
        let session = read_session(signed)?;
        if !odd.is_empty() || trail.len() > session.route.len() {
            return Err(HeaderError::Broken);
        }
        let mut signed = signed.to_vec();
        signed[8..10].fill(0);
        let mut sender = [0; 32];
        sender.copy_from_slice(&signed[38..70]);
        let trail = trail.iter().copied().map(DepotId).collect();
        Ok(Self { session, sender, trail, signed, signature: *signature })
    }

    /// The bytes of it.
    pub fn write(&self) -> Vec<u8> {
        let len = self.signed.len() + SIGNATURE + self.trail.len() * TRAIL;
        let mut out = Vec::with_capacity(len);
        out.extend(&self.signed);
        out.extend(self.signature);
        out.extend(self.trail.iter().flat_map(|depot| depot.0));
        out[8..10].copy_from_slice(&(len as u16).to_be_bytes());
        out
    }

    /// Whether its sender signed it.
    pub fn is_signed(&self) -> bool {
        let text = [DOMAIN, &self.signed].concat();
        UnparsedPublicKey::new(&ED25519, self.sender).verify(&text, &self.signature).is_ok()
    }

    /// Which depot of the route is to read it now, the first being 0.
    pub fn position(&self) -> usize {
        self.trail.len()
    }

    /// Where the depot that reads it passes it on to; none if the route is over.
    pub fn next(&self) -> Option<Next<'_>> {
        let route = &self.session.route;
        let behind = self.position() + 1;
        match route.get(behind) {
            Some(hop) => Some(Next::Depot(hop)),
            None if behind == route.len() => Some(Next::Destination(&self.session.destination)),
            None => None,
        }
    }

    /// What the depot `by` passes on.
    pub fn passed(mut self, by: DepotId) -> Self {
        self.trail.push(by);
        self
    }
}

fn read_session(signed: &[u8]) -> Result<Session, HeaderError> {
    let mut id = [0; 16];
    id.copy_from_slice(&signed[14..30]);
    let mut sent = [0; 8];
    sent.copy_from_slice(&signed[30..38]);
    let (mut source, mut destination, mut spool, mut measure) = (None, None, None, None);
    let (mut route, mut tree) = (Vec::new(), Vec::new());
    let mut rest = &signed[OPTIONS..];
    while !rest.is_empty() {
        let (head, behind) = rest.split_first_chunk::<3>().ok_or(HeaderError::Broken)?;
        let len = usize::from(u16::from_be_bytes([head[1], head[2]]));
        let (value, behind) = behind.split_at_checked(len).ok_or(HeaderError::Broken)?;
        rest = behind;
        let once = match head[0] {
            SOURCE => source.replace(read_place(value)?).is_none(),
            DESTINATION => destination.replace(Hop::read(value)?).is_none(),
            HOP => {
                route.push(Hop::read(value)?);
                true
            }
            BRANCH => {
                tree.push(Branch::read(value, tree.len())?);
                true
            }
            DEPOSIT => {
                let deposit = Deposit::read(value).ok_or(HeaderError::Broken)?;
                spool.replace(Spool::Deposit(deposit)).is_none()
            }
            CLAIM => {
                let claim = Claim::read(value).ok_or(HeaderError::Broken)?;
                spool.replace(Spool::Claim(claim)).is_none()
            }
            MEASURE => measure.replace(Measure::read(value).ok_or(HeaderError::Broken)?).is_none(),
            kind if kind >= MAY_SKIP => true,
            kind => return Err(HeaderError::Option(kind)),
        };
        if !once {
            return Err(HeaderError::Broken);
        }
    }
    if route.len() > MAX_HOPS || tree.len() > MAX_BRANCHES {
        return Err(HeaderError::TooLong);
    }
    // A session of type 4 says what it is for, and no other does.
    let kind = match (u16::from_be_bytes([signed[6], signed[7]]), measure) {
        (4, Some(measure)) => Kind::Measure(measure),
        (4, None) | (_, Some(_)) => return Err(HeaderError::Broken),
        (code, None) => Kind::of(code),
    };
    Ok(Session {
        kind,
        id: SessionId(id),
        // What no clock shows is as far off as can be.
        sent: Duration::from_nanos(u64::from_be_bytes(sent).saturating_mul(1_000_000)),
        hop_limit: signed[12],
        source,
        destination: destination.ok_or(HeaderError::Broken)?,
        route,
        tree,
        spool,
    })
}

fn read_place(value: &[u8]) -> Result<Place, HeaderError> {
    Place::read(value).ok_or(HeaderError::Broken)
}

impl Kind {
    fn code(self) -> u16 {
        match self {
            Self::Synchronous => 1,
            Self::Asynchronous => 2,
            Self::Staging => 3,
            Self::Measure(_) => 4,
            Self::Echo => 5,
            Self::Claim => 6,
            Self::Other(code) => code,
        }
    }

    fn of(code: u16) -> Self {
        match code {
            1 => Self::Synchronous,
            2 => Self::Asynchronous,
            3 => Self::Staging,
            5 => Self::Echo,
            6 => Self::Claim,
            other => Self::Other(other),
        }
    }
}

impl HopTransport {
    fn code(self) -> u8 {
        match self {
            Self::Tcp => 1,
            Self::Udt => 2,
            Self::Native => 3,
            Self::Other(code) => code,
        }
    }

    fn of(code: u8) -> Self {
        match code {
            1 => Self::Tcp,
            2 => Self::Udt,
            3 => Self::Native,
            other => Self::Other(other),
        }
    }

    /// The hop with this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Tcp, Self::Udt, Self::Native].into_iter().find(|one| one.name() == name)
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udt => "udt",
            Self::Native => "native",
            Self::Other(_) => "other",
        }
    }

    /// Whether its bytes go by datagrams.
    pub const fn is_datagram(self) -> bool {
        matches!(self, Self::Udt | Self::Native)
    }
}

impl Hop {
    /// A hop over TCP.
    pub fn tcp(place: Place) -> Self {
        Self { transport: HopTransport::Tcp, place }
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.push(self.transport.code());
        self.place.write(out);
    }

    fn read(value: &[u8]) -> Result<Self, HeaderError> {
        let (&code, place) = value.split_first().ok_or(HeaderError::Broken)?;
        Ok(Self { transport: HopTransport::of(code), place: read_place(place)? })
    }
}

impl Branch {
    fn read(value: &[u8], before: usize) -> Result<Self, HeaderError> {
        let (&[parent, policy], hop) = value.split_first_chunk().ok_or(HeaderError::Broken)?;
        let parent = (parent != u8::MAX).then_some(parent);
        if parent.is_some_and(|parent| usize::from(parent) >= before) || policy > 2 {
            return Err(HeaderError::Broken);
        }
        Ok(Self { parent, policy, hop: Hop::read(hop)? })
    }
}

#[cfg(test)]
#[path = "header_tests.rs"]
mod tests;
