//! Fuzz bodies for offers, frames and names of TCP streams. See [`crate::fuzzing`].

use packtrain_net::tcp::tls::{way_name, way_of};
use packtrain_object::SPACE_END;
use packtrain_transfer::message::MAX_DATA;
use packtrain_transfer::{Failure, FailureKind};

use super::offer::{ControlMessage, FlowOffer, Hints, Offer};
use super::tcp::wire::{FRAME_HEAD, FrameHead};
use packtrain_service::address_policy::DialPolicy;

/// A control message. A decoded message must encode and decode to the same value. An offer must
/// contain no more addresses than the limit, and candidates must be valid unicast addresses.
pub fn offer(data: &[u8]) {
    let Some(word) = ControlMessage::decode(data) else { return };
    // An offer with other feedback decodes to another variant than the one it was encoded from.
    let write = |word: &ControlMessage| match word {
        ControlMessage::Offer(offer) => offer.encode(),
        other => other.encode(),
    };
    let written = write(&word);
    let again = ControlMessage::decode(&written).expect("what was written is read");
    assert_eq!(write(&again), written);
    if let ControlMessage::Offer(offer) = &word {
        assert_eq!(Offer::decode(data).as_ref(), Some(offer));
        let closed = offer.candidates(&Hints::default(), offer.tcp);
        assert_eq!(closed, [], "an offer alone makes nobody connect");
        let rules =
            ["0.0.0.0/0:1-65535", "[::]/0:1-65535"].map(|rule| rule.parse().expect("a rule"));
        let open = Hints { dial: DialPolicy::Rules(rules.into()), ..Hints::default() };
        let found = offer.candidates(&open, offer.tcp);
        assert!(found.len() <= offer.addresses.len() && offer.addresses.len() <= 8);
        assert!(offer.udp.len() <= 16);
        assert!(found.iter().all(|to| !to.ip().is_unspecified() && !to.ip().is_multicast()));
        assert!(found.iter().all(|to| to.port() == offer.tcp && to.port() != 0));
    }
}

/// Seed inputs: offers with and without a flow, with each feedback, and other messages.
pub fn offer_seeds() -> Vec<Vec<u8>> {
    let offer = Offer {
        addresses: ["192.0.2.1", "2001:db8::1"].map(|ip| ip.parse().expect("an address")).to_vec(),
        udp: vec![7880, 7881],
        tcp: 7882,
        tcp_key: vec![4; 32],
        flow: Some(FlowOffer { id: 5, aes: true, secret: [6; 32] }),
        ..Offer::default()
    };
    let mut seeds = vec![offer.encode(), Offer::default().encode()];
    for label in ["udt:napa", "udt:ns2", "fobs", "sabul"] {
        seeds.push(ControlMessage::OfferBy(label.to_owned(), offer.clone()).encode());
    }
    seeds.push(ControlMessage::Moved(super::Moved::default()).encode());
    seeds.push(ControlMessage::Part(b"{}".to_vec()).encode());
    seeds.push(ControlMessage::Streams(4).encode());
    seeds.push(ControlMessage::Dial(1, 2).encode());
    seeds.push(ControlMessage::NoWay(1, "refused".to_owned()).encode());
    let failure = Failure::new(FailureKind::TargetRefused, "not deleted");
    seeds.push(ControlMessage::TargetFailures(vec![(b"a".to_vec(), failure)]).encode());
    seeds
}

/// The frames of a TCP stream. An accepted frame must lie in the object space and fit the buffer,
/// and its header must encode to the same bytes.
pub fn stream_frames(data: &[u8]) {
    let mut rest = data;
    while let Some((bytes, behind)) = rest.split_first_chunk::<FRAME_HEAD>() {
        let Some(head) = FrameHead::read(bytes) else { return };
        assert_eq!(head.write(), *bytes);
        assert!(head.len <= MAX_DATA);
        assert!(head.at.get() + head.len as u64 <= SPACE_END.get());
        let Some(behind) = behind.get(head.len..) else { return };
        rest = behind;
    }
}

/// Seed inputs: valid frames, an empty one, and one at the end of the space.
pub fn stream_frames_seeds() -> Vec<Vec<u8>> {
    let frame = |at: u64, bytes: &[u8]| {
        let head = FrameHead { at: packtrain_units::Offset(at), len: bytes.len() };
        [&head.write()[..], bytes].concat()
    };
    let end = SPACE_END.get();
    vec![
        [frame(0, b"bytes"), frame(5, b"more")].concat(),
        frame(1 << 40, b""),
        frame(end - 4, b"last"),
        frame(end - 3, b"past"),
        frame(u64::MAX, b"x"),
    ]
}

/// The TLS server name with which a stream names its path. Only names that are assigned to paths
/// may be accepted.
pub fn stream_name(data: &[u8]) {
    let Ok(name) = std::str::from_utf8(data) else { return };
    if let Some(number) = way_of(name) {
        assert_eq!(way_name(number).to_str(), name);
    }
}

/// Seed inputs: names of paths, and other names.
pub fn stream_name_seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> =
        [0, 1, 16, 255].map(|n| way_name(n).to_str().as_bytes().to_vec()).to_vec();
    for odd in ["packtrain.invalid", "way-+7.packtrain.invalid", "way-007.packtrain.invalid"] {
        seeds.push(odd.as_bytes().to_vec());
    }
    seeds
}
