use packtrain_object::{ChunkIndex, Digest, EntryId, SourceName};
use proptest::prelude::*;

use super::*;
use crate::failure::{Failure, FailureKind};
use crate::message::{
    Hello, MAX_DATA, Open, Opened, Options, PieceDigest, Progress, Role, Summary,
};

fn every_kind() -> Vec<Message> {
    let failure = Failure::new(FailureKind::Changed, "it changed");
    let range = Offset(3)..Offset(1 << 40);
    vec![
        Message::Hello(Hello { magic: *b"PKTR", lowest: 1, highest: 1, agent: "test".into() }),
        Message::Open(Open {
            role: Role::Sink,
            paths: vec![b"/tmp/\xff".to_vec()],
            sources: Some(vec![SourceName::Contents, SourceName::Named(b"a".to_vec())]),
            options: Options { files_from: Some(vec![b"a".to_vec()]), ..Options::default() },
            channel: vec![1, 2, 3],
        }),
        Message::Opened(Opened { channel: vec![] }),
        Message::Refused(failure.clone()),
        Message::Manifest(vec![9; 100]),
        Message::ManifestEnd {
            entries: 7,
            failed: 1,
            vanished: 1,
            failures: vec![(b"gone".to_vec(), failure.clone())],
            empty: vec![b"mount".to_vec(), vec![]],
        },
        Message::Need {
            segment: Some(EntryId(4)),
            ranges: vec![range.clone(), range.clone()],
            present: 77,
            again: true,
        },
        Message::Digests {
            chunk: ChunkIndex(5),
            pieces: vec![PieceDigest { entry: EntryId(1), digest: Digest([7; 32]) }],
        },
        Message::Hole(range.clone()),
        Message::SourceFailed { entry: EntryId(9), failure: failure.clone() },
        Message::StreamEnd { entry: EntryId(9), size: 1 << 33 },
        Message::AskRoot(vec![EntryId(1), EntryId(2)]),
        Message::Root { entry: EntryId(1), digest: Some(Digest([1; 32])) },
        Message::Verified(vec![range]),
        Message::Progress(Progress { verified: 1, durable: 2, files: 3, again: 4 }),
        Message::SinkFailed { entry: EntryId(9), failure: failure.clone() },
        Message::Finished(Summary { bytes: 5, ..Summary::default() }),
        Message::Channel(vec![1]),
        Message::Data { offset: Offset(1 << 50), bytes: vec![5; MAX_DATA] },
        Message::DataTaken(8),
        Message::Ping(1),
        Message::Pong(1),
        Message::Cancel(failure),
        Message::Bye,
        Message::NeedChanged { start: Offset(1 << 41), digest: Digest([3; 32]) },
        Message::Same(Offset(1 << 41)),
        Message::Stored { entries: vec![EntryId(4)], left: vec![EntryId(5)] },
        Message::Removed {
            files: 7,
            failed: 1,
            failures: vec![(b"a".to_vec(), Failure::new(FailureKind::Changed, "it changed"))],
        },
        Message::Rules { number: 3, dir: b"d/e".to_vec(), text: b"- *.o\n".to_vec() },
    ]
}

#[test]
fn messages_survive_the_wire_in_any_split() {
    let messages = every_kind();
    let mut bytes = Vec::new();
    for message in &messages {
        encode(message, &mut bytes);
    }
    for step in [1, 7, 1000, 1 << 20] {
        let mut decoder = Decoder::new();
        let mut seen = Vec::new();
        for part in bytes.chunks(step) {
            decoder.feed(part);
            while let Some(message) = decoder.next().unwrap() {
                seen.push(message);
            }
        }
        assert_eq!(seen, messages);
        assert_eq!(decoder.pending(), 0);
    }
}

#[test]
fn the_type_byte_is_the_place_among_the_variants() {
    for (place, message) in every_kind().iter().enumerate() {
        let mut bytes = Vec::new();
        encode(message, &mut bytes);
        assert_eq!(bytes[4] as usize, place, "{message:?}");
    }
}

#[test]
fn golden_frames() {
    let mut bytes = Vec::new();
    encode(&Message::Ping(300), &mut bytes);
    encode(&Message::Data { offset: Offset(0x0102), bytes: b"hi".to_vec() }, &mut bytes);
    encode(&Message::Hole(Offset(1)..Offset(128)), &mut bytes);
    let golden = [
        &[3, 0, 0, 0, 20, 0xac, 0x02][..],
        &[11, 0, 0, 0, 18, 2, 1, 0, 0, 0, 0, 0, 0, b'h', b'i'],
        &[4, 0, 0, 0, 8, 1, 0x80, 0x01],
    ];
    assert_eq!(bytes, golden.concat());
}

#[test]
fn a_header_and_the_payload_make_the_frame() {
    let mut whole = Vec::new();
    encode(&Message::Data { offset: Offset(99), bytes: vec![3; 1000] }, &mut whole);
    assert_eq!(whole[..DATA_HEADER], data_header(Offset(99), 1000));
}

#[test]
fn lengths_are_bounded() {
    for length in [0, MAX_FRAME as u32 + 1, u32::MAX] {
        let mut decoder = Decoder::new();
        decoder.feed(&length.to_le_bytes());
        assert_eq!(decoder.next(), Err(MessageError::Length(length)));
        assert_eq!(decoder.next(), Err(MessageError::Length(length)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_bytes_are_a_message_or_an_error(
        kind in 0u8..30,
        body in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut decoder = Decoder::new();
        decoder.feed(&(body.len() as u32 + 1).to_le_bytes());
        decoder.feed(&[kind]);
        decoder.feed(&body);
        if let Ok(Some(message)) = decoder.next() {
            let mut again = Vec::new();
            encode(&message, &mut again);
            let mut decoder = Decoder::new();
            decoder.feed(&again);
            prop_assert_eq!(decoder.next(), Ok(Some(message)));
        }
    }

    #[test]
    fn a_flipped_bit_never_panics(at in 0usize..2000, bit in 0u8..8) {
        let mut bytes = Vec::new();
        for message in every_kind().iter().filter(|m| !matches!(m, Message::Data { .. })) {
            encode(message, &mut bytes);
        }
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        let mut decoder = Decoder::new();
        decoder.feed(&bytes);
        while let Ok(Some(_)) = decoder.next() {}
    }
}
