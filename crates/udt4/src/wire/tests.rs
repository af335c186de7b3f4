use proptest::prelude::*;

use super::*;

fn ack() -> impl Strategy<Value = Ack> {
    let rates =
        (any::<u32>(), any::<u32>()).prop_map(|(arrival, capacity)| Rates { arrival, capacity });
    let detail = (any::<[u32; 3]>(), prop::option::of(rates)).prop_map(
        |([rtt_us, rtt_var_us, room], rates)| AckDetail { rtt_us, rtt_var_us, room, rates },
    );
    (any::<u32>(), any::<u32>(), prop::option::of(detail)).prop_map(|(number, next, detail)| Ack {
        number,
        next: SeqNo::new(next),
        detail,
    })
}

#[test]
fn bodies_of_wrong_length_are_refused() {
    for kind in [0u16, 2, 3, 7] {
        for len in (0..80).filter(|len| len % 4 != 0 || *len == 0) {
            let mut bytes = vec![0; HEADER_BYTES + len];
            Packet::new_checked(&mut bytes[..]).unwrap().set_control((kind, 0), 0, 0, 1);
            let packet = Packet::new_checked(&bytes[..]).unwrap();
            assert!(Control::parse(&packet).is_err(), "type {kind}, {len} bytes");
        }
    }
    assert!(matches!(Packet::new_checked(&[0; 15][..]), Err(WireError::Short)));
}

#[test]
fn impossible_loss_reports_are_refused() {
    let refused = |words: &[u32]| {
        let mut bytes = vec![0; HEADER_BYTES];
        words.iter().for_each(|word| bytes.extend(word.to_be_bytes()));
        Packet::new_checked(&mut bytes[..]).unwrap().set_control((3, 0), 0, 0, 1);
        Control::parse(&Packet::new_checked(&bytes[..]).unwrap()).is_err()
    };
    let range = 1 << 31;
    assert!(!refused(&[5]) && !refused(&[range | 5, 5]) && !refused(&[range | 5, 9, 11]));
    assert!(!refused(&[range | 0x7fff_ffff, 1]), "a range across the wrap");
    assert!(refused(&[range | 5]), "no end");
    assert!(refused(&[range | 5, 4]), "inverted");
    assert!(refused(&[range | 5, range | 9]), "an end that starts");
}

#[test]
fn message_numbers_wrap_without_zero() {
    assert_eq!(Message::after(0), 1);
    assert_eq!(Message::after(MAX_MESSAGE), 1);
    let word = Message::new(MAX_MESSAGE).with(false, false, true);
    assert_eq!((word.number(), word.in_order(), word.is_first()), (MAX_MESSAGE, true, false));
}

proptest! {
    #[test]
    fn acknowledgements_come_back(ack in ack(), to: u32) {
        let mut out = [0; 64];
        let len = Control::Ack(ack).write(to, &mut out).unwrap();
        let packet = Packet::new_checked(&out[..len]).unwrap();
        prop_assert_eq!(Control::parse(&packet), Ok(Control::Ack(ack)));
        prop_assert_eq!(packet.destination(), to);
    }

    #[test]
    fn handshakes_come_back(
        head: [u32; 3], isn: u32, request: i32, rest: [u32; 2], v4: bool, address: [u8; 16],
    ) {
        let peer = if v4 {
            std::net::Ipv4Addr::from(*address.first_chunk::<4>().unwrap()).into()
        } else {
            std::net::Ipv6Addr::from(address).into()
        };
        let handshake = Handshake {
            version: head[0],
            kind_code: head[1],
            isn: SeqNo::new(isn),
            mss: head[2],
            flow_window: rest[0],
            request: Request::from(request),
            socket: rest[1],
            cookie: 9,
            peer,
        };
        prop_assert_eq!(Handshake::parse(&handshake.bytes()), Ok(handshake));
    }

    #[test]
    fn loss_reports_come_back_as_far_as_they_fit(
        ranges in prop::collection::vec((any::<u32>(), 0u32..1000), 1..40),
        room in 20usize..200,
    ) {
        let ranges: Vec<_> = ranges
            .iter()
            .map(|(first, span)| (SeqNo::new(*first), SeqNo::new(*first).plus(*span)))
            .collect();
        let mut out = [0; 200];
        let Some((len, taken)) = Control::write_nak(&ranges, 3, &mut out[..room]) else {
            prop_assert!(room < 24);
            return Ok(());
        };
        prop_assert!(len <= room && taken > 0);
        let packet = Packet::new_checked(&out[..len]).unwrap();
        let Ok(Control::Nak(read)) = Control::parse(&packet) else { panic!() };
        prop_assert_eq!(read.iter().collect::<Vec<_>>(), &ranges[..taken]);
    }

    /// Any bytes give a packet or an error, and a parsed packet is written with the same meaning.
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..120), kind in 0u8..10) {
        let mut bytes = bytes;
        if let [first, second, ..] = &mut bytes[..] {
            (*first, *second) = (0x80, kind);
        }
        let Ok(packet) = Packet::new_checked(&bytes[..]) else { return Ok(()) };
        let Ok(control) = Control::parse(&packet) else { return Ok(()) };
        let mut out = [0; 160];
        let len = control.write(packet.destination(), &mut out).expect("room");
        let again = Packet::new_checked(&out[..len]).unwrap();
        prop_assert_eq!(Control::parse(&again), Ok(control));
    }
}
