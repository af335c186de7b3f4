//! The messages with which the ends negotiate transports: `Message::Channel`, in postcard.

use std::net::{IpAddr, SocketAddr};

use packtrain_proto::FeedbackKind;
use packtrain_transfer::{Failure, FailureKind, FileReport};
use packtrain_units::Duration;
use serde::{Deserialize, Serialize};

use super::TransportConfig;
use crate::not_kept::NotKept;
use packtrain_service::address_policy::DialPolicy;
use packtrain_service::evidence::{self, Part};

/// Maximum addresses to try per lane, the limit of the transport.
const MAX_ADDRESSES: usize = 8;
/// Maximum ports in an offer.
const MAX_PORTS: usize = 16;
/// Maximum transports of which a source reports what they moved, and length of their names.
const MAX_SHARES: usize = 8;
const MAX_NAME: usize = 16;

/// One message in `Message::Channel`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ControlMessage {
    /// Addresses, ports and keys for transports.
    Offer(Offer),
    /// Source, before its last message: bytes moved by each transport.
    Moved(super::Moved),
    /// Sink: results of files.
    Reports(Vec<(Vec<u8>, FileReport)>),
    /// An offer with other feedback than the native one, which is named. An end that does not know
    /// this message sends an offer with native feedback, which shows the mismatch.
    OfferBy(String, Offer),
    /// Evidence of an end for the initiator: JSON, for later extensions.
    Part(Vec<u8>),
    /// Source that cannot reach the sink: requests this number of TCP streams from it.
    Streams(u32),
    /// Source, before its last message: report of the TCP streams, in JSON for later extensions.
    Tcp(Vec<u8>),
    /// Sink that is the initiator and knows depots: the candidate paths and their measurements, in
    /// JSON for later extensions. A source that does not know this message sends on the direct
    /// path.
    CandidatePaths(Vec<u8>),
    /// Source, to the end that sent candidate paths: requests this number of streams over a path.
    Dial(u8, u32),
    /// Sink: a stream over a path failed, with the reason.
    NoWay(u8, String),
    /// Sink, before its last message: number and bytes of files that interrupted transfers left in
    /// the destination.
    Leftovers(u64, u64),
    /// Source: number and first path of the pipes, sockets and devices that it skipped.
    Skipped(u64, Vec<u8>),
    /// Either end, before its last message: what the options ask to keep and it could not keep.
    NotKept(NotKept),
    /// Sink: failures of names at the target that are no entries of the source.
    TargetFailures(Vec<(Vec<u8>, Failure)>),
    /// Sink, before its last message: number of entries that it changed in any way.
    Changed(u64),
}

impl ControlMessage {
    /// Decodes a message; none if it is invalid or unknown.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut word = postcard::from_bytes(bytes).ok()?;
        if let Self::Offer(offer) | Self::OfferBy(_, offer) = &mut word {
            offer.addresses.truncate(MAX_ADDRESSES);
            offer.udp.truncate(MAX_PORTS);
        }
        if let Self::Moved(moved) = &mut word {
            let is_name = |name: &str| {
                name.len() <= MAX_NAME && name.bytes().all(|b| b.is_ascii_alphanumeric())
            };
            moved.shares.retain(|(name, _)| is_name(name));
            moved.shares.truncate(MAX_SHARES);
        }
        match word {
            Self::OfferBy(label, offer) => {
                let feedback = FeedbackKind::labelled(&label)?;
                Some(Self::Offer(Offer { feedback, ..offer }))
            }
            word => Some(word),
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        // Serialising plain values into memory cannot fail.
        postcard::to_stdvec(self).unwrap_or_default()
    }

    /// The encoded message with the evidence of an end.
    pub(crate) fn part(part: &Part) -> Vec<u8> {
        Self::Part(evidence::encode(part)).encode()
    }
}

/// The offer of one end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// Addresses of this end, as far as it knows them.
    pub addresses: Vec<IpAddr>,
    /// UDP ports, one per lane; empty without UDP.
    pub udp: Vec<u16>,
    /// The TCP port on which it listens; zero if it does not.
    pub tcp: u16,
    /// The public key of its TLS connections in this transfer.
    pub tcp_key: Vec<u8>,
    /// Source: the id and secret of the flow.
    pub flow: Option<FlowOffer>,
    /// The feedback of a receiver of its datagrams.
    #[serde(skip)]
    pub feedback: FeedbackKind,
}

/// Identity and key of a datagram flow.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowOffer {
    /// The id in the packets of the flow.
    pub id: u32,
    /// Whether to use AES. The source decides alone, by its own CPU instructions, because every
    /// build has both suites.
    pub(crate) aes: bool,
    pub(crate) secret: [u8; 32],
}

impl std::fmt::Debug for FlowOffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FlowOffer({})", self.id)
    }
}

/// Addresses known before the peer's offer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// Addresses of the peer, from the control connection or the user.
    pub peer: Vec<IpAddr>,
    /// Addresses of this end, from the control connection or the user.
    pub own: Vec<IpAddr>,
    /// Called end whose caller is the other end of the data: the host that the control connection
    /// comes from.
    pub caller: Option<Caller>,
    /// Addresses of the peer, from a caller that is not trusted with them: they are dialled only if
    /// `dial` allows it.
    pub named: Vec<IpAddr>,
    /// The addresses named by others that may be dialled.
    pub dial: DialPolicy,
}

/// The host that a control connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Its address.
    pub host: IpAddr,
    /// The round trip to it, if it is known.
    pub rtt: Option<Duration>,
}

impl Offer {
    /// An offer without ports, for this configuration.
    pub fn new(plan: &TransportConfig) -> Self {
        let (udp, tcp_key, feedback) = (Vec::new(), Vec::new(), plan.feedback());
        Self { addresses: plan.hints.own.clone(), udp, tcp: 0, tcp_key, flow: None, feedback }
    }

    /// Checks that the peer's offer matches this configuration.
    pub fn check(&self, plan: &TransportConfig) -> Result<(), Failure> {
        let (own, other) = (plan.feedback(), self.feedback);
        if own == other {
            return Ok(());
        }
        let text = format!(
            "the other end does not take --transport {} with {}, it would go by {}: it may run an \
             older packtrain; leave --transport out, or update it",
            plan.datagrams().name(),
            own.label(),
            other.label(),
        );
        Err(Failure::new(FailureKind::Usage, text))
    }

    /// Decodes a peer's offer; none if it is another message.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        match ControlMessage::decode(bytes)? {
            ControlMessage::Offer(offer) => Some(offer),
            _ => None,
        }
    }

    /// The encoded offer.
    pub fn encode(&self) -> Vec<u8> {
        match self.feedback {
            FeedbackKind::Native => ControlMessage::Offer(self.clone()),
            feedback => ControlMessage::OfferBy(feedback.label(), self.clone()),
        }
        .encode()
    }

    /// Addresses to try for `port` of the peer that made this offer, most likely first. Addresses
    /// that only the peer or a caller names are used only if this end's rules allow them, because
    /// an offer must not make this machine connect to third parties.
    pub(crate) fn candidates(&self, hints: &Hints, port: u16) -> Vec<SocketAddr> {
        let named = hints.named.iter().chain(&self.addresses);
        let named = named.filter(|ip| hints.dial.allows(**ip, port));
        let mut found: Vec<SocketAddr> = Vec::new();
        for ip in hints.peer.iter().chain(named) {
            let addr = SocketAddr::new(*ip, port);
            if !ip.is_unspecified() && !ip.is_multicast() && port != 0 && !found.contains(&addr) {
                found.push(addr);
            }
        }
        found.truncate(MAX_ADDRESSES);
        found
    }
}

#[cfg(test)]
mod tests {
    use packtrain_proto::Variant;

    use super::*;

    #[test]
    fn what_is_encoded_is_read() {
        let offer = Offer {
            addresses: vec!["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()],
            udp: vec![1, 2],
            tcp: 3,
            tcp_key: vec![4; 32],
            flow: Some(FlowOffer { id: 5, aes: true, secret: [6; 32] }),
            feedback: FeedbackKind::Native,
        };
        let udt = Offer { feedback: FeedbackKind::Udt(Variant::Ns2), ..offer.clone() };
        for offer in [offer, udt] {
            assert_eq!(Offer::decode(&offer.encode()), Some(offer));
        }
        let other = ControlMessage::OfferBy("udt:later".to_owned(), Offer::default());
        assert_eq!(Offer::decode(&other.encode()), None);
        assert_eq!(Offer::decode(&[0xff; 7]), None);
    }

    #[test]
    fn shares_of_a_source_are_few_and_have_names_of_transports() {
        let share = |name: &str| (name.to_owned(), packtrain_units::ByteCount(1));
        let mut shares = vec![share("native"), share("udt4"), share("a b"), share(&"a".repeat(17))];
        shares.extend((0..20).map(|n| share(&format!("n{n}"))));
        let moved = crate::transports::Moved { shares, ..Default::default() };
        let read = ControlMessage::decode(&ControlMessage::Moved(moved).encode());
        let Some(ControlMessage::Moved(moved)) = read else { panic!("{read:?}") };
        let names: Vec<&str> = moved.shares.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["native", "udt4", "n0", "n1", "n2", "n3", "n4", "n5"]);
    }

    #[test]
    fn only_who_this_end_knows_or_its_rules_allow_is_dialled() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let offer = Offer {
            addresses: ["127.0.0.2", "10.0.0.1", "192.0.2.1", "0.0.0.0"].map(ip).to_vec(),
            ..Offer::default()
        };
        let known = Hints { peer: vec![ip("192.0.2.1")], ..Hints::default() };
        let dialled = |hints: &Hints, port| {
            let found = offer.candidates(hints, port);
            found.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(dialled(&known, 9), ["192.0.2.1:9"], "not where only the offer says");
        assert_eq!(dialled(&known, 0), [""; 0], "no port is no place");
        let named = Hints { named: vec![ip("10.0.0.7"), ip("198.51.100.7")], ..Hints::default() };
        assert_eq!(dialled(&named, 9), [""; 0], "nor where only a caller says");
        let rules = ["10.0.0.0/8:1-99".parse().unwrap(), "198.51.100.7:9".parse().unwrap()];
        let ruled = Hints { dial: DialPolicy::Rules(rules.into()), ..named };
        assert_eq!(dialled(&ruled, 9), ["10.0.0.7:9", "198.51.100.7:9", "10.0.0.1:9"]);
        assert_eq!(dialled(&ruled, 50), ["10.0.0.7:50", "10.0.0.1:50"]);
        assert_eq!(dialled(&ruled, 100), [""; 0], "no port of the rules");
        let own_user = Hints { dial: DialPolicy::CallersChoice, ..known };
        assert_eq!(dialled(&own_user, 9), ["192.0.2.1:9"], "the offer is not the caller's word");
    }
}
