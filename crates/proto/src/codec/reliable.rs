//! Messages of SABUL on the reliable channel, each behind its length.

use packtrain_units::{DataRate, Duration};

use crate::codec::message::{Host, parse_host, write_host};
use crate::codec::varint::{Reader, put};
use crate::sabul::{MAX_STATE_RANGES, Message, State};

const STATE: u8 = 1;
const BUFFER: u8 = 2;
const DROP: u8 = 3;

const WHOLE: u8 = 1;
const TOP: u8 = 2;
const REQUESTED: u8 = 4;
const END: u8 = 8;

/// The longest message, in bytes: its ranges at their longest, and the other fields.
const MAX_MESSAGE_BYTES: usize = MAX_STATE_RANGES * 16 + 256;
/// Bytes of the length in front of each message.
const HEAD: usize = 4;

/// Splits a stream of bytes into messages.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    bytes: Vec<u8>,
}

/// The stream is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MalformedStream;

impl Stream {
    /// Takes received bytes and passes the messages that they complete to `each`, a state with the
    /// host's counters. At most one incomplete message is buffered.
    pub(crate) fn take(
        &mut self,
        mut bytes: &[u8],
        mut each: impl FnMut(Message, Host),
    ) -> Result<(), MalformedStream> {
        loop {
            let wanted = match self.bytes.first_chunk::<HEAD>() {
                None => HEAD,
                Some(length) => HEAD + length_of(*length)?,
            };
            let (head, rest) = bytes.split_at(bytes.len().min(wanted - self.bytes.len()));
            self.bytes.extend_from_slice(head);
            bytes = rest;
            if self.bytes.len() < wanted {
                return Ok(());
            }
            if wanted > HEAD {
                let (message, host) = parse(&self.bytes[HEAD..]).ok_or(MalformedStream)?;
                self.bytes.clear();
                each(message, host);
            }
        }
    }
}

/// A message has at least one byte.
fn length_of(length: [u8; HEAD]) -> Result<usize, MalformedStream> {
    let length = u32::from_be_bytes(length) as usize;
    if (1..=MAX_MESSAGE_BYTES).contains(&length) { Ok(length) } else { Err(MalformedStream) }
}

/// The encoded message behind its length.
pub(crate) fn write(message: &Message, host: &Host) -> Vec<u8> {
    let mut out = vec![0; HEAD];
    match message {
        Message::State(state) => write_state(state, host, &mut out),
        Message::Buffer { end } => {
            out.push(BUFFER);
            put(&mut out, *end);
        }
        Message::Drop { first, end } => {
            out.push(DROP);
            put(&mut out, *first);
            put(&mut out, end - first);
        }
    }
    let length = (out.len() - HEAD) as u32;
    out[..HEAD].copy_from_slice(&length.to_be_bytes());
    out
}

fn write_state(state: &State, host: &Host, out: &mut Vec<u8>) {
    let flag = |set, bit| if set { bit } else { 0 };
    let flags = flag(state.whole.is_some(), WHOLE)
        | flag(state.top.is_some(), TOP)
        | flag(state.requested.is_some(), REQUESTED)
        | flag(state.end, END);
    out.extend_from_slice(&[STATE, flags]);
    put(out, state.missing);
    put(out, state.received);
    put(out, state.next);
    put(out, state.room);
    if let Some(whole) = state.whole {
        put(out, whole);
    }
    if let Some((top, ago)) = state.top {
        put(out, top);
        put(out, ago.as_nanos());
    }
    if let Some(requested) = state.requested {
        put(out, requested.as_bps());
    }
    write_host(host, out);
    put(out, state.lost.len() as u64);
    let mut at = 0;
    for &(first, end) in &state.lost {
        put(out, first - at);
        put(out, end - first);
        at = end;
    }
}

fn parse(text: &[u8]) -> Option<(Message, Host)> {
    let mut reader = Reader(text);
    let mut host = Host::default();
    let message = match reader.byte()? {
        STATE => {
            let state;
            (state, host) = parse_state(&mut reader)?;
            Message::State(state)
        }
        BUFFER => Message::Buffer { end: reader.varint()? },
        DROP => {
            let first = reader.varint()?;
            let end = first.checked_add(reader.varint()?).filter(|end| *end > first)?;
            Message::Drop { first, end }
        }
        _ => return None,
    };
    reader.0.is_empty().then_some((message, host))
}

fn parse_state(reader: &mut Reader<'_>) -> Option<(State, Host)> {
    let flags = reader.byte()?;
    if flags & !(WHOLE | TOP | REQUESTED | END) != 0 {
        return None;
    }
    let mut state = State {
        missing: reader.varint()?,
        received: reader.varint()?,
        next: reader.varint()?,
        room: reader.varint()?,
        end: flags & END != 0,
        ..State::default()
    };
    if flags & WHOLE != 0 {
        state.whole = Some(reader.varint()?);
    }
    if flags & TOP != 0 {
        state.top = Some((reader.varint()?, Duration::from_nanos(reader.varint()?)));
    }
    if flags & REQUESTED != 0 {
        state.requested = Some(DataRate::from_bps(reader.varint()?));
    }
    let host = parse_host(reader)?;
    let mut at = 0u64;
    // The list grows with the bytes that are read, not by this number.
    for _ in 0..reader.varint()? {
        let first = at.checked_add(reader.varint()?)?;
        let end = first.checked_add(reader.varint()?).filter(|end| *end > first)?;
        state.lost.push((first, end));
        at = end;
    }
    Some((state, host))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn number() -> impl Strategy<Value = u64> {
        prop_oneof![0..100u64, 0..1u64 << 61]
    }

    fn message() -> impl Strategy<Value = (Message, Host)> {
        let lost = prop::collection::vec((0..1u64 << 20, 1..1u64 << 20), 0..40);
        let numbers = (number(), number(), number(), number());
        let whole = prop::option::of(number());
        let top = prop::option::of((number(), number()));
        let requested = prop::option::of(number());
        let host = (number(), number(), number(), number());
        let state = (numbers, lost, whole, top, requested, any::<bool>(), host);
        let state = state.prop_map(|(numbers, lost, whole, top, requested, end, host)| {
            let (missing, received, next, room) = numbers;
            let mut at = 0;
            let lost = lost.iter().map(|(gap, len)| {
                let first = at + gap;
                at = first + len;
                (first, at)
            });
            let state = State {
                lost: lost.collect(),
                whole,
                missing,
                received,
                next,
                top: top.map(|(top, ago)| (top, Duration::from_nanos(ago))),
                room,
                requested: requested.map(DataRate::from_bps),
                end,
            };
            let (drops, refused, ecn_ce, drain) = host;
            let drain = DataRate::from_bps(drain);
            (Message::State(state), Host { drops, refused, ecn_ce, drain })
        });
        prop_oneof![
            4 => state,
            1 => number().prop_map(|end| (Message::Buffer { end }, Host::default())),
            1 => (number(), 1..1000u64).prop_map(|(first, n)| {
                (Message::Drop { first, end: first + n }, Host::default())
            }),
        ]
    }

    #[test]
    fn a_golden_state() {
        let state = State {
            lost: vec![(7, 9)],
            whole: Some(11),
            missing: 2,
            received: 9,
            next: 7,
            top: Some((10, Duration::from_nanos(5))),
            room: 64,
            requested: None,
            end: false,
        };
        let bytes = write(&Message::State(state), &Host::default());
        let golden = [0, 0, 0, 17, 1, 3, 2, 9, 7, 0x40, 64, 11, 10, 5, 0, 0, 0, 0, 1, 7, 2];
        assert_eq!(bytes, golden);
    }

    #[test]
    fn lengths_beyond_any_message_are_refused() {
        for head in [[0; 4], [0xff; 4], ((MAX_MESSAGE_BYTES + 1) as u32).to_be_bytes()] {
            assert_eq!(Stream::default().take(&head, |_, _| panic!()), Err(MalformedStream));
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_however_it_is_cut(
            messages in prop::collection::vec(message(), 0..6),
            cuts in prop::collection::vec(1..50usize, 1..50),
        ) {
            let written = messages.iter().map(|(message, host)| write(message, host));
            let bytes = written.collect::<Vec<_>>().concat();
            let (mut stream, mut read, mut rest) = (Stream::default(), Vec::new(), &bytes[..]);
            let mut cuts = cuts.iter().cycle();
            while !rest.is_empty() {
                let (piece, next) = rest.split_at(rest.len().min(*cuts.next().unwrap()));
                stream.take(piece, |message, host| read.push((message, host))).unwrap();
                rest = next;
            }
            prop_assert_eq!(read, messages);
            prop_assert!(stream.bytes.is_empty());
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            crate::fuzzing::reliable(&bytes);
        }
    }
}
