//! Packets of the stock library (4.11), captured on loopback.

use packtrain_units::SeqNo;

use super::*;

/// Decodes hexadecimal digits.
pub(crate) fn bytes(hex: &str) -> Vec<u8> {
    let digit = |c: u8| char::from(c).to_digit(16).expect("a digit") as u8;
    let hex: Vec<u8> = hex.bytes().filter(|c| !c.is_ascii_whitespace()).collect();
    hex.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

/// A client's four steps: request, cookie, call, answer.
pub(crate) const CLIENT: [&str; 4] = [
    "80000000 00000000 00000000 00000000 00000004 00000001 1eac4940 000005dc 00002000 00000001
     1a45e955 00000000 0100007f 00000000 00000000 00000000",
    "80000000 00000000 00000000 1a45e955 00000004 00000001 1eac4940 000005dc 00002000 00000001
     1a45e955 56960389 0100007f 00000000 00000000 00000000",
    "80000000 00000000 00000000 00000000 00000004 00000001 1eac4940 000005dc 00002000 ffffffff
     1a45e955 56960389 0100007f 00000000 00000000 00000000",
    "80000000 00000000 00000000 1a45e955 00000004 00000001 1eac4940 000005dc 00002000 ffffffff
     12a3565d 56960389 0100007f 00000000 00000000 00000000",
];

/// A rendezvous: one end's call, both ends' answers.
pub(crate) const RENDEZVOUS: [&str; 3] = [
    "80000000 00000000 00000000 00000000 00000004 00000001 64899894 000005dc 00002000 00000000
     3da071fb 00000000 0100007f 00000000 00000000 00000000",
    "80000000 00000000 00000000 3da071fb 00000004 00000001 7a7259d7 000005dc 00002000 ffffffff
     370a2477 00000000 0100007f 00000000 00000000 00000000",
    "80000000 00000000 00000000 370a2477 00000004 00000001 64899894 000005dc 00002000 ffffffff
     3da071fb 00000000 0100007f 00000000 00000000 00000000",
];

const ACK_24: &str = "80020000 00000001 00000000 1a45e955 1eac494e 000186a0 0000c350 00001ff1
                      00051616 000003f2";
const ACK_16: &str = "80020000 00000002 00000000 1d8928bd 71a962bf 000186a0 0000c350 00001ffc";
const ACK2: &str = "80060000 00000002 00000000 1b91d157 00000000";
const KEEPALIVE: &str = "80010000 00000000 00000000 370a2477 00000000";
const SHUTDOWN: &str = "80050000 00000000 00000000 1a45e955 00000000";
const NAK_ONE: &str = "80030000 00000000 00000000 20b8833d 37aac362";
const NAK_RANGE: &str = "80030000 00000000 00000000 20b8833d b7aac364 37aac365";
const DROP: &str = "80070000 00000002 00000000 2ea945e4 37aac365 37aac367";
const DATA: &str = "3de916f7 c0000001 00000ad9 39576277 b09bd0e5 b2";

/// Parses a captured packet, and writes it again to the same bytes.
fn control<T>(hex: &str, check: impl FnOnce(u32, Control<'_>) -> T) -> T {
    let bytes = bytes(hex);
    let packet = Packet::new_checked(&bytes[..]).unwrap();
    assert!(packet.is_control());
    let control = Control::parse(&packet).unwrap();
    let mut out = [0; 128];
    let len = control.write(packet.destination(), &mut out).unwrap();
    assert_eq!(out[..len], bytes, "written as the stock library writes it");
    check(packet.destination(), control)
}

#[test]
fn handshakes() {
    let read = |hex| {
        control(hex, |to, control| match control {
            Control::Handshake(handshake) => (to, handshake),
            other => panic!("{other:?}"),
        })
    };
    let [ask, cookie, call, answer] = CLIENT.map(read);
    let expected = Handshake {
        version: 4,
        kind_code: 1,
        isn: SeqNo::new(0x1eac_4940),
        mss: 1500,
        flow_window: 8192,
        request: Request::Induction,
        socket: 0x1a45_e955,
        cookie: 0,
        peer: "127.0.0.1".parse().unwrap(),
    };
    assert_eq!(ask, (0, expected));
    let expected = Handshake { cookie: 0x5696_0389, ..expected };
    assert_eq!(cookie, (0x1a45_e955, expected), "the client's own socket, not the server's");
    let expected = Handshake { request: Request::Conclusion, ..expected };
    assert_eq!(call, (0, expected));
    let expected = Handshake { socket: 0x12a3_565d, ..expected };
    assert_eq!(answer, (0x1a45_e955, expected), "the client's first number again");
    let requests = RENDEZVOUS.map(read).map(|(_, handshake)| handshake.request);
    assert_eq!(requests, [Request::Rendezvous, Request::Conclusion, Request::Conclusion]);
}

#[test]
fn acknowledgements() {
    let detail = AckDetail { rtt_us: 100_000, rtt_var_us: 50_000, room: 8177, rates: None };
    let rates = Some(Rates { arrival: 333_334, capacity: 1010 });
    control(ACK_24, |_, control| {
        let next = SeqNo::new(0x1eac_494e);
        let detail = Some(AckDetail { rates, ..detail });
        assert_eq!(control, Control::Ack(Ack { number: 1, next, detail }));
    });
    control(ACK_16, |_, control| {
        let next = SeqNo::new(0x71a9_62bf);
        let detail = Some(AckDetail { room: 8188, ..detail });
        assert_eq!(control, Control::Ack(Ack { number: 2, next, detail }));
    });
    control(ACK2, |_, control| assert_eq!(control, Control::Ack2 { number: 2 }));
}

#[test]
fn losses() {
    for (hex, expected) in
        [(NAK_ONE, (0x37aa_c362, 0x37aa_c362)), (NAK_RANGE, (0x37aa_c364, 0x37aa_c365))]
    {
        let (first, last) = (SeqNo::new(expected.0), SeqNo::new(expected.1));
        control(hex, |_, control| match control {
            Control::Nak(ranges) => {
                assert_eq!(ranges.iter().collect::<Vec<_>>(), [(first, last)]);
            }
            other => panic!("{other:?}"),
        });
        let (mut out, bytes) = ([0; 64], bytes(hex));
        let (len, 1) = Control::write_nak(&[(first, last)], 0x20b8_833d, &mut out).unwrap() else {
            panic!("one range")
        };
        assert_eq!(out[..len], bytes);
    }
    control(DROP, |_, control| {
        let (first, last) = (SeqNo::new(0x37aa_c365), SeqNo::new(0x37aa_c367));
        assert_eq!(control, Control::Drop { message: 2, first, last });
    });
}

#[test]
fn signs_of_life_and_death() {
    control(KEEPALIVE, |to, control| {
        assert_eq!((to, control), (0x370a_2477, Control::KeepAlive));
    });
    control(SHUTDOWN, |_, control| assert_eq!(control, Control::Shutdown));
}

#[test]
fn data() {
    let bytes = bytes(DATA);
    let packet = Packet::new_checked(&bytes[..]).unwrap();
    assert!(!packet.is_control());
    assert_eq!(packet.sequence(), SeqNo::new(0x3de9_16f7));
    let message = packet.message();
    assert!(message.is_first() && message.is_last() && !message.in_order());
    assert_eq!(message.number(), 1);
    assert_eq!((packet.timestamp(), packet.destination()), (0xad9, 0x3957_6277));
    assert_eq!(packet.body(), [0xb0, 0x9b, 0xd0, 0xe5, 0xb2]);
    let mut out = bytes.clone();
    out[..16].fill(0);
    let mut again = Packet::new_checked(&mut out[..]).unwrap();
    again.set_data(packet.sequence(), message, 0xad9, 0x3957_6277);
    assert_eq!(out, bytes);
}
