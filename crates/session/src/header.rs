//! The header that a sender sends before its stream.
//!
//! ```text
//! 0..4      "PKTS"
//! 4..6      version, 1
//! 6..8      type: 1 synchronous, 2 asynchronous, 3 staging over a tree, 4 measure, 5 echo, 6 claim
//! 8..10     length of the header, trail included, at most 4096
//! 10..12    length of the signed part: from byte 0 to the end of the options
//! 12        maximum number of depots that the sender allows
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

/// Bytes of a header that contain its length.
pub const HEADER_HEAD: usize = 10;
/// Maximum depots of a route, independent of the sender's limit.
pub const MAX_HOPS: usize = 8;

const MAGIC: [u8; 4] = *b"PKTS";
const VERSION: u16 = 1;
const DOMAIN: &[u8] = b"packtrain session 1\0";
const OPTIONS: usize = 70;
const SIGNATURE: usize = 64;
const HEADER_MAX: usize = 4096;
const TRAIL: usize = 16;
/// Maximum receivers and depots of a tree.
const MAX_BRANCHES: usize = 32;

/// Option: the sender's own address: a place.
const SOURCE: u8 = 1;
/// Option: destination of the stream: transport, place.
const DESTINATION: u8 = 2;
/// Option: a depot of the route, in order: transport, place.
const HOP: u8 = 3;
/// Option: a node of a staging tree: parent, policy, transport, place.
const BRANCH: u8 = 4;
/// Option: a deposit.
const DEPOSIT: u8 = 16;
/// Option: a claim.
const CLAIM: u8 = 17;
/// Option: purpose of a session of type 4.
const MEASURE: u8 = 24;
/// Options from this number on may be ignored if unknown.
const MAY_SKIP: u8 = 128;
/// Option without a value: see [`Session::by_destination`]. A depot that does not know it connects
/// to the destination itself.
const BY_DESTINATION: u8 = 128;

/// The type of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Both ends are connected.
    Synchronous,
    /// The last depot keeps the stream until it is claimed.
    Asynchronous,
    /// To many receivers over a tree of depots.
    Staging,
    /// Measurements of a depot's hops: see [`super::measure`].
    Measure(Measure),
    /// The last depot of the route sends the received data back: see [`super::echo`].
    Echo,
    /// Claims a kept session.
    Claim,
    /// A type of a later version.
    Other(u16),
}

/// The transport of a hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HopTransport {
    /// TCP in clear; the stream is encrypted end to end.
    Tcp,
    /// Datagrams with feedback and controller of UDT, beside TCP: see [`super::hop`].
    Udt,
    /// Datagrams with native feedback and controller, beside TCP.
    Native,
    /// A transport of a later version.
    Other(u8),
}

/// A hop: an address and its transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Its transport.
    pub transport: HopTransport,
    /// Its address.
    pub place: Place,
}

/// A node of a staging tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// The index of its parent, an earlier node; none for the sender.
    pub parent: Option<u8>,
    /// Policy for a slow branch: 0 all wait, 1 it is spooled, 2 it is dropped.
    pub policy: u8,
    /// Its hop.
    pub hop: Hop,
}

/// A session request: all fields that the sender signs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Its type.
    pub kind: Kind,
    /// Its number, never used twice.
    pub id: SessionId,
    /// Time of the request, since 1970, in whole milliseconds.
    pub sent: Duration,
    /// Maximum number of depots.
    pub hop_limit: u8,
    /// The sender's address, if given.
    pub source: Option<Place>,
    /// Destination of the stream.
    pub destination: Hop,
    /// The depots, first to last.
    pub route: Vec<Hop>,
    /// After the last depot of the route, depots may forward by the tables of their administrators
    /// to further depots, up to `hop_limit` in all.
    pub by_destination: bool,
    /// The staging tree, empty for one receiver.
    pub tree: Vec<Branch>,
    /// Its deposit or claim; none for a session that is not kept.
    pub spool: Option<Spool>,
}

/// A signed request, and the depots that have forwarded it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The request.
    pub session: Session,
    /// The sender's public key.
    pub sender: [u8; 32],
    /// The depots that have forwarded it.
    pub trail: Vec<DepotId>,
    signed: Vec<u8>,
    signature: [u8; SIGNATURE],
}

/// The next hop of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<'a> {
    /// A depot, which gets the header first.
    Depot(&'a Hop),
    /// The destination, which gets no header.
    Destination(&'a Hop),
}

/// The bytes are not a header, or the request cannot be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The other side does not send a session header.
    #[error("this is no session over depots")]
    NoSession,
    /// A later version.
    #[error("the session's header is of version {0}, this end reads version 1")]
    Version(u16),
    /// An unknown option that must not be ignored.
    #[error("option {0} of the session is not known here")]
    Option(u8),
    /// Inconsistent lengths, places or trail.
    #[error("the session's header is broken")]
    Broken,
    /// More than a header can hold.
    #[error("a route has at most {MAX_HOPS} depots and a header {HEADER_MAX} bytes")]
    TooLong,
}

impl Session {
    /// The signed header of this request.
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
        // Reserve space for every depot's number.
        if signed.len() + SIGNATURE + MAX_HOPS * TRAIL > HEADER_MAX {
            return Err(HeaderError::TooLong);
        }
        let len = (signed.len() as u16).to_be_bytes();
        signed[10..12].copy_from_slice(&len);
        let signature = sign(&[DOMAIN, &signed].concat());
        let header = Header { session: self.clone(), sender, trail: Vec::new(), signed, signature };
        // A header that cannot be parsed again is not sent.
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
        if self.by_destination {
            option(out, BY_DESTINATION, |_| {});
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

/// Appends an option; `value` appends at most 300 bytes.
fn option(out: &mut Vec<u8>, kind: u8, value: impl FnOnce(&mut Vec<u8>)) {
    out.extend([kind, 0, 0]);
    let begin = out.len();
    value(out);
    let len = ((out.len() - begin) as u16).to_be_bytes();
    out[begin - 2..begin].copy_from_slice(&len);
}

impl Header {
    /// The length of the header that begins with these bytes.
    ///
    /// # Errors
    /// It is not a header, or its length is invalid.
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

    /// Parses a whole header. It does not verify the signature: see [`Header::is_signed`].
    ///
    /// # Errors
    /// It is not a header, or one of a later version.
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
        let most = if session.by_destination { MAX_HOPS } else { session.route.len() };
        if !odd.is_empty() || trail.len() > most {
            return Err(HeaderError::Broken);
        }
        let mut signed = signed.to_vec();
        signed[8..10].fill(0);
        let mut sender = [0; 32];
        sender.copy_from_slice(&signed[38..70]);
        let trail = trail.iter().copied().map(DepotId).collect();
        Ok(Self { session, sender, trail, signed, signature: *signature })
    }

    /// The encoded header.
    pub fn write(&self) -> Vec<u8> {
        let len = self.signed.len() + SIGNATURE + self.trail.len() * TRAIL;
        let mut out = Vec::with_capacity(len);
        out.extend(&self.signed);
        out.extend(self.signature);
        out.extend(self.trail.iter().flat_map(|depot| depot.0));
        out[8..10].copy_from_slice(&(len as u16).to_be_bytes());
        out
    }

    /// Whether the signature is valid.
    pub fn is_signed(&self) -> bool {
        let text = [DOMAIN, &self.signed].concat();
        UnparsedPublicKey::new(&ED25519, self.sender).verify(&text, &self.signature).is_ok()
    }

    /// Index of the depot of the route that reads it now, from 0.
    pub fn position(&self) -> usize {
        self.trail.len()
    }

    /// The next hop of the depot that reads it; none at the end of the route.
    pub fn next(&self) -> Option<Next<'_>> {
        let route = &self.session.route;
        let behind = self.position() + 1;
        match route.get(behind) {
            Some(hop) => Some(Next::Depot(hop)),
            None if behind == route.len() => Some(Next::Destination(&self.session.destination)),
            // A depot that a table led to.
            None if self.session.by_destination && !route.is_empty() => {
                Some(Next::Destination(&self.session.destination))
            }
            None => None,
        }
    }

    /// How many depots the session passes at most, this one included, at least one: what waits for
    /// their answers is bounded by it.
    pub fn depots_left(&self) -> usize {
        let session = &self.session;
        let all = if session.by_destination {
            usize::from(session.hop_limit).clamp(1, MAX_HOPS).max(session.route.len())
        } else {
            session.route.len()
        };
        all.saturating_sub(self.position()).max(1)
    }

    /// The header as forwarded by the depot `by`.
    pub fn forwarded_by(mut self, by: DepotId) -> Self {
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
    let mut by_destination = false;
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
            BY_DESTINATION if !value.is_empty() => false,
            BY_DESTINATION => !std::mem::replace(&mut by_destination, true),
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
    // A session of type 4 states its purpose, and no other does.
    let kind = match (u16::from_be_bytes([signed[6], signed[7]]), measure) {
        (4, Some(measure)) => Kind::Measure(measure),
        (4, None) | (_, Some(_)) => return Err(HeaderError::Broken),
        (code, None) => Kind::of(code),
    };
    Ok(Session {
        kind,
        id: SessionId(id),
        // A time beyond the range counts as maximally far off.
        sent: Duration::from_nanos(u64::from_be_bytes(sent).saturating_mul(1_000_000)),
        hop_limit: signed[12],
        source,
        destination: destination.ok_or(HeaderError::Broken)?,
        route,
        by_destination,
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

    /// The transport with this name.
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

    /// Whether it uses datagrams.
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
