//! What the ends tell each other to set transports up: `Message::Channel`, in postcard.

use std::net::{IpAddr, SocketAddr};

use packtrain_proto::FeedbackKind;
use packtrain_transfer::{Failure, FailureKind, FileReport};
use serde::{Deserialize, Serialize};

use super::TransportConfig;
use packtrain_service::address_policy::DialPolicy;
use packtrain_service::evidence::{self, Part};

/// Addresses tried per lane, as the transport's own limit has it.
const MAX_ADDRESSES: usize = 8;
/// Ports an offer may name.
const MAX_PORTS: usize = 16;

/// One word of one end to the other.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ControlMessage {
    /// How transports may be set up.
    Offer(Offer),
    /// Source, before its last word: what each transport did.
    Moved(super::Moved),
    /// Sink: files are done.
    Reports(Vec<(Vec<u8>, FileReport)>),
    /// An offer whose datagrams go by another feedback than the native one, which is named. An end
    /// that does not know this word makes an offer of the other kind, which is how the two find
    /// out.
    OfferBy(String, Offer),
    /// What an end measured of itself, for who called it: JSON, so that it may grow.
    Part(Vec<u8>),
    /// Source, which cannot reach the sink: so many TCP streams are wanted from there.
    Streams(u32),
    /// Source, before its last word: what the TCP streams did, in JSON, so that it may grow.
    Tcp(Vec<u8>),
    /// Sink, which called and knows depots: the ways there are and what is known of them, in JSON,
    /// so that it may grow. A source that does not know this word sends directly.
    CandidatePaths(Vec<u8>),
    /// Source, to who told it of ways: so many streams are wanted from there over this one.
    Dial(u8, u32),
    /// Sink: a stream over a way does not come about, and why.
    NoWay(u8, String),
    /// Sink, before its last word: how many files of interrupted transfers are beside what it
    /// wrote, and how many bytes they have.
    Leftovers(u64, u64),
}

impl ControlMessage {
    /// Reads a peer's word; none if it is unintelligible.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut word = postcard::from_bytes(bytes).ok()?;
        if let Self::Offer(offer) | Self::OfferBy(_, offer) = &mut word {
            offer.addresses.truncate(MAX_ADDRESSES);
            offer.udp.truncate(MAX_PORTS);
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

    /// What an end measured, ready to be sent.
    pub(crate) fn part(part: &Part) -> Vec<u8> {
        Self::Part(evidence::encode(part)).encode()
    }
}

/// What one end offers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// Where this end may be reached, as far as it knows.
    pub addresses: Vec<IpAddr>,
    /// UDP ports, one a lane; empty for no UDP.
    pub udp: Vec<u16>,
    /// The TCP port it listens on; zero for none.
    pub tcp: u16,
    /// The public key of its TLS connections of this transfer.
    pub tcp_key: Vec<u8>,
    /// Source: the flow's number and secret.
    pub flow: Option<FlowOffer>,
    /// How a receiver of its datagrams tells what arrived.
    #[serde(skip)]
    pub feedback: FeedbackKind,
}

/// What names and protects a datagram flow.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowOffer {
    /// Names the flow in its packets.
    pub id: u32,
    /// AES where both ends have instructions for it is the source's choice alone: every build
    /// has both suites.
    pub(crate) aes: bool,
    pub(crate) secret: [u8; 32],
}

impl std::fmt::Debug for FlowOffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FlowOffer({})", self.id)
    }
}

/// What is known of addresses before the peer says anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// Where the peer is, as the control connection or the user says.
    pub peer: Vec<IpAddr>,
    /// Where this end is, as the control connection or the user says.
    pub own: Vec<IpAddr>,
    /// Where the peer is, as a caller says whose word does not count here: nobody is dialled there
    /// unless `dial` allows it.
    pub named: Vec<IpAddr>,
    /// Which addresses that others name are dialled.
    pub dial: DialPolicy,
}

impl Offer {
    /// An offer of nothing yet, from an end with this plan.
    pub fn new(plan: &TransportConfig) -> Self {
        let (udp, tcp_key, feedback) = (Vec::new(), Vec::new(), plan.feedback());
        Self { addresses: plan.hints.own.clone(), udp, tcp: 0, tcp_key, flow: None, feedback }
    }

    /// Whether an end with this plan can do with this offer of its peer.
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

    /// Reads a peer's offer; none if it is no offer.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        match ControlMessage::decode(bytes)? {
            ControlMessage::Offer(offer) => Some(offer),
            _ => None,
        }
    }

    /// As it goes to the other end.
    pub fn encode(&self) -> Vec<u8> {
        match self.feedback {
            FeedbackKind::Native => ControlMessage::Offer(self.clone()),
            feedback => ControlMessage::OfferBy(feedback.label(), self.clone()),
        }
        .encode()
    }

    /// Addresses to try for `port` of the peer that made this offer, best guesses first. Those that
    /// only the peer or a caller names are tried where this end's own rules allow it, and nowhere
    /// else: an offer must not make this machine connect to others that it reaches.
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
