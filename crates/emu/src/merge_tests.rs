use packtrain_units::Time;
use proptest::prelude::*;

use super::*;
use crate::header::Layout;
use crate::packet::Piece;
use crate::store::Store;

const HEADERS: usize = 10 + 20 + 32;

/// The parameters of a test packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sent {
    port: u8,
    sequence: u32,
    payload: usize,
    flags: u8,
    stamp: u8,
    service: u8,
}

const DATA: Sent =
    Sent { port: 1, sequence: 100, payload: 1_000, flags: ACK, stamp: 9, service: 0 };
const ACK: u8 = 0x10;

fn bytes(sent: Sent) -> Vec<u8> {
    let mut bytes = vec![0; HEADERS + sent.payload];
    bytes[0] = 1;
    (bytes[6], bytes[8]) = (30, 16);
    (bytes[10], bytes[11]) = (0x45, sent.service);
    bytes[12..14].copy_from_slice(&((52 + sent.payload) as u16).to_be_bytes());
    (bytes[18], bytes[19]) = (64, 6);
    bytes[22..30].copy_from_slice(&[10, 77, 0, 1, 10, 77, 0, 2]);
    bytes[31] = sent.port;
    bytes[34..38].copy_from_slice(&sent.sequence.to_be_bytes());
    (bytes[42], bytes[43]) = (0x80, sent.flags);
    bytes[61] = sent.stamp;
    for (i, byte) in bytes[HEADERS..].iter_mut().enumerate() {
        *byte = (sent.sequence as usize + i) as u8;
    }
    bytes
}

fn run(sent: Sent) -> Run {
    let mut store = Store::new();
    let bytes = bytes(sent);
    let mut at = 0;
    for part in &mut store.room() {
        let len = part.len().min(bytes.len() - at);
        part[..len].copy_from_slice(&bytes[at..at + len]);
        at += len;
    }
    let layout = Layout::of(store.head(), bytes.len(), 0).expect("a good packet");
    let piece = Piece::whole(store.packet(bytes.len(), layout));
    Run { piece, first: Time::ZERO, last: Time::ZERO }
}

/// How many of these packets one batch accepts.
fn taken(sent: &[Sent]) -> usize {
    let mut batch = Batch::default();
    sent.iter().take_while(|sent| batch.add(run(**sent)).is_ok()).count()
}

fn after(before: Sent) -> Sent {
    Sent { sequence: before.sequence + before.payload as u32, ..before }
}

#[test]
fn what_follows_goes_together() {
    let second = after(DATA);
    let short = Sent { payload: 300, flags: ACK | 8, ..after(second) };
    assert_eq!(taken(&[DATA, second, short, after(short)]), 3);
}

#[test]
fn what_differs_goes_alone() {
    let next = after(DATA);
    for other in [
        Sent { sequence: next.sequence + 1, ..next },
        Sent { sequence: DATA.sequence, ..next },
        Sent { port: 2, ..next },
        Sent { payload: 1_001, ..next },
        Sent { flags: ACK | 1, ..next },
        Sent { flags: ACK | 0x80, ..next },
        Sent { stamp: 10, ..next },
        Sent { service: 3, ..next },
        Sent { payload: 0, ..next },
    ] {
        assert_eq!(taken(&[DATA, other]), 1, "{other:?}");
    }
    assert_eq!(taken(&[Sent { flags: ACK | 8, ..DATA }, next]), 1, "pushed");
    let syn = Sent { flags: 2, payload: 0, ..DATA };
    assert_eq!(taken(&[syn, syn]), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Segmenting the joined packet gives the original packets.
    #[test]
    fn together_they_are_what_they_were(
        count in 2_u32..30,
        payload in 1_usize..1_448,
        short in 1_usize..1_448,
        push: bool,
    ) {
        let mut sent = vec![Sent { payload, sequence: u32::MAX - 5_000 , ..DATA }];
        for i in 1..count {
            let before = sent[sent.len() - 1];
            let sequence = before.sequence.wrapping_add(payload as u32);
            let last = i + 1 == count;
            let payload = if last { short.min(payload) } else { payload };
            let flags = if last && push { ACK | 8 } else { ACK };
            sent.push(Sent { sequence, payload, flags, ..before });
        }
        let mut batch = Batch::default();
        for one in &sent {
            prop_assert!(batch.add(run(*one)).is_ok());
        }
        let mut head = [0; MAX_HEADER_BYTES];
        let len = batch.compose(&mut head);
        prop_assert_eq!(len, HEADERS);
        let mut whole = head[..len].to_vec();
        for one in &sent {
            whole.extend_from_slice(&bytes(*one)[HEADERS..]);
        }
        let layout = Layout::of(&whole, whole.len(), 0).expect("a good packet");
        prop_assert_eq!(layout.count, count);
        for (i, one) in sent.iter().enumerate() {
            let i = i as u32;
            let len = layout.compose(&whole, i, i + 1, &mut head);
            let (from, to) = layout.offsets(i, i + 1);
            let mut packet = head[..len].to_vec();
            packet.extend_from_slice(&whole[from..to]);
            let alone = bytes(*one);
            // All but IP's identification and checksum, and TCP's incomplete checksum.
            prop_assert_eq!(&packet[10..14], &alone[10..14]);
            prop_assert_eq!(&packet[22..46], &alone[22..46]);
            prop_assert_eq!(&packet[48..], &alone[48..]);
        }
    }
}
