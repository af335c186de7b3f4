//! Signatures from the qlog of a QUIC connection (draft-ietf-quic-qlog-quic-events).
//!
//! For packets of application data: `packet_sent` gives the packets sent, `packet_lost` those lost;
//! `packets_acked` and the acknowledgements in `packet_received` determine up to which packet the
//! outcome is known, and which losses were spurious. A log with more such packets received than
//! sent is the receiver's: there, missing numbers count as lost.

use std::cell::Cell;
use std::io::BufRead;
use std::rc::Rc;

use serde::Deserialize;
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use super::board::{Board, PacketState, windows};
use super::{Fed, Found, ReadError, read_line};
use crate::Signature;

/// Maximum length of a record in a log of records.
const MAX_RECORD_BYTES: usize = 4 << 20;
/// Record separator of JSON-SEQ.
const SEPARATOR: u8 = 0x1e;

/// The state of a log.
#[derive(Default)]
struct Log {
    sent: Board,
    received: Board,
    counts: [u64; 2],
    done: Vec<Signature>,
    window: usize,
    fault: Option<ReadError>,
}

/// All windows of a log.
pub(super) fn read(
    mut file: impl BufRead,
    window: usize,
) -> Result<impl Iterator<Item = Result<Found, ReadError>>, ReadError> {
    let mut log = Log { window, ..Log::default() };
    let start = file.fill_buf()?;
    let lines = start.starts_with(&[SEPARATOR]) || is_line_by_line(start);
    let separator = if start.starts_with(&[SEPARATOR]) { SEPARATOR } else { b'\n' };
    let events = if lines { records(file, separator, &mut log)? } else { whole(file, &mut log)? };
    log.flush();
    if events == 0 {
        return Err(ReadError::Qlog("no events that tell of packets".to_owned()));
    }
    let found =
        |(index, signature)| Ok(Found::bare(format!("qlog, window {}", index + 1), signature));
    Ok(log.done.into_iter().enumerate().map(found))
}

/// Whether the log has one JSON object per line: the first line is a complete object.
fn is_line_by_line(start: &[u8]) -> bool {
    let line = start.split(|byte| *byte == b'\n').next().unwrap_or_default();
    line.len() < start.len() && serde_json::from_slice::<IgnoredAny>(line).is_ok()
}

fn records(mut file: impl BufRead, separator: u8, log: &mut Log) -> Result<u64, ReadError> {
    let (mut text, mut number, mut events) = (Vec::new(), 0, 0);
    while read_line(&mut file, separator, MAX_RECORD_BYTES, &mut text)
        .map_err(|error| ReadError::Qlog(format!("record {}: {error}", number + 1)))?
    {
        if text.trim_ascii().is_empty() {
            continue;
        }
        number += 1;
        let event: Event = serde_json::from_slice(&text)
            .map_err(|error| ReadError::Qlog(format!("record {number}: {error}")))?;
        events += u64::from(log.take(&event)?);
    }
    Ok(events)
}

fn whole(file: impl BufRead, log: &mut Log) -> Result<u64, ReadError> {
    let since = Rc::new(Cell::new(0));
    let fed = Fed { inner: file, since: Rc::clone(&since) };
    let mut input = serde_json::Deserializer::from_reader(std::io::BufReader::new(fed));
    let mut events = 0;
    let walk = Walk { log, since: &since, events: &mut events, trace: false };
    let walked = walk.deserialize(&mut input);
    if let Some(fault) = log.fault.take() {
        return Err(fault);
    }
    walked.map_err(|error| ReadError::Qlog(error.to_string()))?;
    Ok(events)
}

impl Log {
    /// Handles an event; returns whether it concerned packets.
    fn take(&mut self, event: &Event) -> Result<bool, ReadError> {
        let data = &event.data;
        if !data.is_application_data() {
            return Ok(false);
        }
        // Event names are `packet_sent`, `transport:packet_sent` or `quic:packet_sent`, depending
        // on the draft.
        let name = event.name.rsplit(':').next().unwrap_or_default();
        let number = data.header.packet_number.or(data.packet_number).map(|number| number.0);
        match (name, number) {
            ("packet_sent", Some(number)) => {
                self.counts[0] += 1;
                self.sent.note(number, number, PacketState::Sent)?;
            }
            ("packet_lost", Some(number)) => self.sent.note(number, number, PacketState::Lost)?,
            ("packet_received", Some(number)) => {
                self.counts[1] += 1;
                self.received.note(number, number, PacketState::Received)?;
                self.acknowledged(data)?;
            }
            ("packets_acked", _) => {
                for number in &data.packet_numbers {
                    self.sent.note(number.0, number.0, PacketState::Received)?;
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn acknowledged(&mut self, data: &Data) -> Result<(), ReadError> {
        let ranges = data.frames.iter().flat_map(|frame| &frame.acked_ranges);
        for range in ranges {
            if let (Some(first), Some(last)) = (range.first(), range.last()) {
                self.sent.note(first.0, last.0, PacketState::Received)?;
            }
        }
        Ok(())
    }

    /// Ends a trace and its windows.
    fn flush(&mut self) {
        let (sent, received) = (std::mem::take(&mut self.sent), std::mem::take(&mut self.received));
        let [of_sent, of_received] = std::mem::take(&mut self.counts);
        if of_sent >= of_received {
            self.done.extend(windows(sent.sent(), self.window));
        } else {
            self.done.extend(windows(received.received().into_iter(), self.window));
        }
    }
}

/// The relevant fields of an event.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Event {
    name: String,
    data: Data,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Data {
    header: Header,
    packet_number: Option<Number>,
    packet_type: Option<String>,
    packet_numbers: Vec<Number>,
    packet_number_space: Option<String>,
    frames: Vec<Frame>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Header {
    packet_number: Option<Number>,
    packet_type: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Frame {
    acked_ranges: Vec<Vec<Number>>,
}

/// A packet number: a number, or in older logs a string.
#[derive(Clone, Copy)]
struct Number(u64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Number(u64),
            Text(String),
        }
        match Either::deserialize(input)? {
            Either::Number(number) => Ok(Self(number)),
            Either::Text(text) => text.parse().map(Self).map_err(D::Error::custom),
        }
    }
}

impl Data {
    /// Whether the packet is of application data; handshakes have a number space of their own.
    fn is_application_data(&self) -> bool {
        let kind = self.header.packet_type.as_ref().or(self.packet_type.as_ref());
        let space = self.packet_number_space.as_deref();
        kind.is_none_or(|kind| kind.eq_ignore_ascii_case("1RTT"))
            && space.is_none_or(|space| space == "application_data")
    }
}

/// Finds the events in a log that is one JSON value, without storing the value.
struct Walk<'a> {
    log: &'a mut Log,
    since: &'a Cell<u64>,
    events: &'a mut u64,
    /// Whether this is inside a trace, whose end is the end of a connection.
    trace: bool,
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<(), D::Error> {
        input.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a qlog: an object with traces, or a trace with events")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "events" => map.next_value_seed(Events {
                    log: self.log,
                    since: self.since,
                    events: self.events,
                })?,
                "traces" | "trace" => map.next_value_seed(Walk {
                    log: self.log,
                    since: self.since,
                    events: self.events,
                    trace: true,
                })?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        if self.trace {
            self.log.flush();
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        loop {
            let one = Walk { log: self.log, since: self.since, events: self.events, trace: true };
            if seq.next_element_seed(one)?.is_none() {
                return Ok(());
            }
        }
    }
}

/// The events of a trace, one at a time.
struct Events<'a> {
    log: &'a mut Log,
    since: &'a Cell<u64>,
    events: &'a mut u64,
}

impl<'de> DeserializeSeed<'de> for Events<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<(), D::Error> {
        input.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Events<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a list of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(event) = seq.next_element::<Event>()? {
            self.since.set(0);
            match self.log.take(&event) {
                Ok(told) => *self.events += u64::from(told),
                Err(fault) => {
                    self.log.fault = Some(fault);
                    return Err(A::Error::custom("given up"));
                }
            }
        }
        Ok(())
    }
}
