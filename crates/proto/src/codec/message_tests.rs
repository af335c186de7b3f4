use proptest::prelude::*;

use super::*;
use crate::codec::frame::{self, Frame};

fn ack() -> Ack {
    Ack {
        number: 7,
        next: 70_000,
        light: false,
        early: false,
        rtt: Duration::from_millis(20),
        rtt_var: Duration::from_micros(50),
        room: 8_192,
        arrival: PacketRate::per_second(80_000.0),
        capacity: PacketRate::per_second(85_000.5),
    }
}

fn host() -> Host {
    Host { drops: 1, refused: 2, ecn_ce: 3, drain: DataRate::from_mbps(100) }
}

fn bytes_of(frame: &Frame) -> Vec<u8> {
    let mut out = Vec::new();
    frame::write(frame, &mut out);
    out
}

#[test]
fn golden_messages() {
    let light = Ack {
        number: 0,
        next: 64,
        light: true,
        early: false,
        rtt: Duration::ZERO,
        rtt_var: Duration::ZERO,
        room: 0,
        arrival: None,
        capacity: None,
    };
    let golden = [
        (
            Frame::Ack { ack: ack(), host: host() },
            "0506078001117081312d008000c3506000\
             40f388000000000040f4c0880000000001020385f5e100",
        ),
        (Frame::Ack { ack: light, host: Host::default() }, "0501004040000000000000 00"),
        (Frame::Unit(Message::Ack2 { number: 7 }), "0607"),
        (Frame::Unit(Message::Nak { ranges: vec![(100, 101), (120, 500)] }), "070240640113417c"),
        (Frame::Unit(Message::Warning), "08"),
        (Frame::Unit(Message::Drop { first: 9, end: 12 }), "090903"),
    ];
    for (frame, hex) in golden {
        let bytes: String = bytes_of(&frame).iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(bytes, hex.replace(' ', ""), "{frame:?}");
        assert_eq!(frame::parse(&bytes_of(&frame)), Some(vec![frame]));
    }
}

#[test]
fn what_cannot_be_is_malformed() {
    let bad: [&[u8]; 7] = [
        &[NAK, 0],             // no range
        &[NAK, 1, 5, 0],       // an empty range
        &[NAK, 9, 5, 1, 1, 1], // fewer ranges than announced
        &[DROP, 4, 0],         // nothing dropped
        &[ACK2],               // no number
        &[ACK, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        &[NAK, 1, 0xff, 255, 255, 255, 255, 255, 255, 255, 0xff, 255, 255, 255, 255],
    ];
    for text in bad {
        assert_eq!(frame::parse(text), None, "{text:?}");
    }
    for rate in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
        let mut text = bytes_of(&Frame::Ack { ack: ack(), host: host() });
        text[17..25].copy_from_slice(&rate.to_bits().to_be_bytes());
        assert_eq!(frame::parse(&text), None, "{rate}");
    }
}

prop_compose! {
    fn any_ranges()(
        start in 0u64..1 << 40,
        lens in proptest::collection::vec((1u64..1 << 20, 1u64..1 << 16), 1..600),
    ) -> Vec<(u64, u64)> {
        let mut at = start;
        lens.into_iter().map(|(gap, len)| {
            at += gap + len;
            (at - len, at)
        }).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn naks_are_cut_to_fit_and_survive_the_wire(ranges in any_ranges()) {
        let pieces = nak_pieces(&ranges);
        prop_assert_eq!(&pieces.concat(), &ranges);
        for ranges in pieces {
            let frame = Frame::Unit(Message::Nak { ranges });
            let bytes = bytes_of(&frame);
            prop_assert!(bytes.len() <= NAK_BYTES + 5, "{}", bytes.len());
            prop_assert_eq!(frame::parse(&bytes), Some(vec![frame]));
        }
    }

    #[test]
    fn an_ack_survives_the_wire(
        number in any::<u32>(),
        [next, rtt, rtt_var, room, drops] in any::<[u64; 5]>(),
        [arrival, capacity] in any::<[Option<f64>; 2]>(),
        light in any::<bool>(),
    ) {
        let cut = |n: u64| n >> 2;
        let rate = |r: Option<f64>| r.and_then(PacketRate::per_second);
        let ack = Ack {
            number,
            next: cut(next),
            light,
            early: false,
            rtt: Duration::from_nanos(cut(rtt)),
            rtt_var: Duration::from_nanos(cut(rtt_var)),
            room: cut(room),
            arrival: rate(arrival),
            capacity: rate(capacity),
        };
        let frame = Frame::Ack { ack, host: Host { drops: cut(drops), ..host() } };
        prop_assert_eq!(frame::parse(&bytes_of(&frame)), Some(vec![frame]));
    }

    #[test]
    fn a_bent_message_never_panics(at in 0usize..60, bits in 1u8..) {
        let nak = Frame::Unit(Message::Nak { ranges: vec![(5, 9), (20, 21)] });
        for frame in [Frame::Ack { ack: ack(), host: host() }, nak] {
            let mut bytes = bytes_of(&frame);
            let at = at % bytes.len();
            bytes[at] ^= bits;
            let _ = frame::parse(&bytes);
        }
    }
}
