use proptest::prelude::*;

use super::*;

fn messages(window: u32) -> RecvBuffer {
    RecvBuffer::new(0, 10, window, Kind::Datagram)
}

/// The unit's header word: message `number` of units `first..end`.
fn word(number: u32, unit: u64, first: u64, end: u64, in_order: bool) -> Message {
    Message::new(number).with(unit == first, unit + 1 == end, in_order)
}

#[test]
fn a_stream_is_read_in_order_across_packets() {
    let mut buffer = RecvBuffer::new(7, 10, 16, Kind::Stream);
    buffer.put(8, Message::new(1), &[2; 5]);
    buffer.put(7, Message::new(1), &[1; 10]);
    let mut out = [0; 12];
    assert!(!buffer.readable(7) && buffer.readable(9));
    assert_eq!(buffer.read(7, &mut out), 0);
    assert_eq!(buffer.read(9, &mut out), 12);
    assert_eq!(out, [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2]);
    assert_eq!(buffer.room(9), 15, "the unit that is half read keeps its slot");
    assert_eq!(buffer.read(9, &mut out), 3);
    assert_eq!((buffer.room(9), buffer.bytes()), (16, ByteCount(0)));
    assert!(buffer.admits(24) && !buffer.admits(25) && !buffer.admits(8));
}

#[test]
fn skipped_bytes_are_those_that_a_read_would_return() {
    let mut buffer = RecvBuffer::new(0, 10, 16, Kind::Stream);
    (0..3).for_each(|unit| buffer.put(unit, Message::new(1), &[unit as u8; 10]));
    assert_eq!(buffer.skip(3, 12), 12);
    let mut out = [0; 10];
    assert_eq!(buffer.read(3, &mut out), 10);
    assert_eq!(out, [1, 1, 1, 1, 1, 1, 1, 1, 2, 2]);
    assert_eq!(buffer.skip(3, usize::MAX), 8);
    assert_eq!((buffer.skip(3, 1), buffer.room(3), buffer.bytes()), (0, 16, ByteCount(0)));
}

#[test]
fn a_message_without_order_overtakes_and_one_with_waits() {
    let mut buffer = messages(64);
    // Message 1 (units 0..2) has only its first unit; 2 (2..3) is in order, 3 (3..5) is not.
    buffer.put(0, word(1, 0, 0, 2, false), &[1; 10]);
    buffer.put(2, word(2, 2, 2, 3, true), &[2; 4]);
    buffer.put(4, word(3, 4, 3, 5, false), &[3; 4]);
    assert!(!buffer.readable(1));
    buffer.put(3, word(3, 3, 3, 5, false), &[3; 10]);
    let mut out = [0; 64];
    assert_eq!(buffer.read_message(1, &mut out), Some(14));
    assert_eq!(buffer.read_message(1, &mut out), None);
    buffer.put(1, word(1, 1, 0, 2, false), &[1; 1]);
    assert_eq!(buffer.read_message(5, &mut out), Some(11));
    assert_eq!(buffer.read_message(5, &mut out), Some(4));
    assert_eq!((buffer.room(5), buffer.bytes()), (64, ByteCount(0)));
}

#[test]
fn a_message_given_up_frees_its_slots() {
    let mut buffer = messages(16);
    buffer.put(0, word(1, 0, 0, 3, true), &[1; 10]);
    buffer.put(3, word(2, 3, 3, 4, true), &[2; 10]);
    let mut out = [0; 5];
    buffer.give_up(1);
    buffer.advance(4);
    assert_eq!(buffer.room(4), 15);
    assert_eq!(buffer.read_message(4, &mut out), Some(10), "its true length");
    assert_eq!((buffer.room(4), buffer.bytes()), (16, ByteCount(0)));
}

#[test]
fn a_message_with_a_hole_that_nobody_will_fill_does_not_stay() {
    let mut buffer = messages(16);
    buffer.put(0, word(1, 0, 0, 3, true), &[1; 10]);
    buffer.put(2, word(1, 2, 0, 3, true), &[1; 10]);
    buffer.advance(1);
    assert_eq!(buffer.room(1), 15, "unit 1 may come");
    buffer.advance(3);
    assert_eq!(buffer.room(3), 16, "unit 1 was dropped");
}

proptest! {
    /// Whatever flags and numbers a peer sends, the buffer stays within its limits, and once all
    /// units have arrived and been read it is empty.
    #[test]
    fn made_up_messages_do_no_harm(
        units in prop::collection::vec((0u64..48, 0u32..5, any::<[bool; 3]>(), 0usize..11), 1..80),
        drops in prop::collection::vec(0u32..5, 0..3),
    ) {
        let mut buffer = messages(48);
        let mut out = [0; 500];
        let mut seen = std::collections::BTreeSet::new();
        for (unit, number, [first, last, order], len) in units {
            if buffer.admits(unit) && seen.insert(unit) {
                buffer.put(unit, Message::new(number).with(first, last, order), &[9; 10][..len.min(10)]);
            }
            let next = (0..).find(|unit| !seen.contains(unit)).unwrap();
            buffer.advance(next);
            if len == 3 {
                while buffer.read_message(next, &mut out).is_some() {}
            }
        }
        drops.iter().for_each(|number| buffer.give_up(*number));
        // All missing units were dropped.
        while buffer.read_message(48, &mut out).is_some() {}
        buffer.advance(48);
        prop_assert!(!buffer.readable(48));
        let left = buffer.bytes().get();
        prop_assert!(left <= 480, "{}", left);
    }
}
