//! Whole groups over loopback: real connections and TLS, a receiver that does what it is told.

use std::sync::mpsc;

use packtrain_disk::SourceFile;
use packtrain_object::{CHUNK, ChunkIndex, EntryId, Piece};
use packtrain_transfer::Failure;
use packtrain_units::RangeSet;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::reader::PieceSource;
use crate::transports::offer::Offer;
use crate::transports::tcp::TcpEnd;
use crate::transports::transport::{Inbox, Wake};
use crate::transports::{Hints, TransportConfig};
use packtrain_service::{TransportChoice, executor};

const SIZE: u64 = 24 << 20;
const LONG: std::time::Duration = std::time::Duration::from_secs(30);

/// What a byte of the object is.
fn byte(at: u64) -> u8 {
    (at ^ (at >> 8) ^ (at >> 17)) as u8
}

struct Pattern;

impl PieceSource for Pattern {
    fn read(&self, piece: &Piece, out: &mut [u8]) -> Result<Option<Arc<SourceFile>>, Failure> {
        for (n, one) in out.iter_mut().enumerate() {
            *one = byte(piece.range.start.get() + n as u64);
        }
        Ok(None)
    }
}

/// What the receiver does with a stream.
#[derive(Clone, Copy, Debug)]
enum Manner {
    Good,
    /// It reads no more after so many pieces.
    Freeze(u32),
    /// It hangs up after so many pieces.
    HangUp(u32),
    /// It waits so long before each piece.
    Slow(u64),
}

async fn receive(mut stream: TcpStream, manner: Manner, got: mpsc::Sender<Range<Offset>>) {
    let (mut total, mut pieces) = (0u64, 0);
    loop {
        match manner {
            Manner::Freeze(after) if pieces >= after => std::future::pending().await,
            Manner::HangUp(after) if pieces >= after => return,
            Manner::Slow(millis) => {
                tokio::time::sleep(std::time::Duration::from_millis(millis)).await;
            }
            _ => {}
        }
        let Ok(at) = stream.read_u64_le().await else { return };
        let Ok(size) = stream.read_u32_le().await else { return };
        let mut bytes = vec![0; size as usize];
        if stream.read_exact(&mut bytes).await.is_err() {
            return;
        }
        assert!((at..).zip(&bytes).all(|(at, one)| byte(at) == *one), "other bytes came");
        let _ = got.send(Offset(at)..Offset(at + u64::from(size)));
        (total, pieces) = (total + u64::from(size), pieces + 1);
        if stream.write_u64_le(total).await.is_err() || stream.flush().await.is_err() {
            return;
        }
    }
}

fn plan() -> TransportConfig {
    let hints = Hints { peer: vec![std::net::Ipv4Addr::LOCALHOST.into()], ..Hints::default() };
    TransportConfig {
        most_streams: 64,
        hints,
        ..TransportConfig::on_loopback(TransportChoice::Tcp)
    }
}

/// Moves an object over streams whose receiver has these manners. Gives what the group told of
/// streams that ended, and how much was sent twice.
fn play(manners: &[Manner]) -> (usize, ByteCount) {
    let news = Inbox::default();
    let reader = Reader::new(Pattern, Arc::default(), |_| {});
    let whole = Offset(0)..Offset(SIZE);
    for chunk in ChunkIndex::covering(&whole) {
        let range = chunk.range().start..chunk.range().end.min(whole.end);
        let file_offset = range.start.get();
        reader.announce(chunk, vec![Piece { entry: EntryId(0), file_offset, range, whole: false }]);
    }
    assert_eq!(SIZE % CHUNK.get(), 0);
    let (got, came) = mpsc::channel();
    let tasks = Tasks::default();
    let waiting = Mutex::new(manners.to_vec());
    let sink = TcpEnd::listen(&plan(), &tasks, move |stream| {
        let manner = waiting.lock().pop().unwrap_or(Manner::Good);
        executor::handle().spawn(receive(stream, manner, got.clone()));
    })
    .unwrap();
    let group = Group::start(reader.clone(), news.outbox(&Wake::new(|| {})), None);
    let (adder, own) = (group.clone(), Tasks::default());
    let running = own.clone();
    let source = TcpEnd::listen(&plan(), &own, move |stream| {
        drop(adder.add(&running, stream, PathId::DIRECT))
    })
    .unwrap();
    let offer = |end: &TcpEnd| Offer { tcp: end.port(), tcp_key: end.key(), ..Offer::new(&plan()) };
    sink.expect(&offer(&source)).unwrap();
    group.assign(whole);
    source.connect(&plan(), &offer(&sink), manners.len() as u32, Duration::ZERO);
    let (mut placed, mut over) = (RangeSet::new(), 0);
    while placed.len_bytes().get() < SIZE {
        group.reassign(clock::now());
        match news.next() {
            Some(StreamNews::Event(TransportEvent::Placed(range))) => {
                let size = range.end.since(range.start);
                assert_eq!(placed.insert(range), size, "placed once");
            }
            Some(StreamNews::Over { .. }) => over += 1,
            Some(StreamNews::Event(event)) => panic!("{event:?}"),
            Some(_) => {}
            None => std::thread::sleep(std::time::Duration::from_millis(1)),
        }
    }
    let mut arrived = RangeSet::new();
    while arrived.len_bytes().get() < SIZE {
        arrived.insert(came.recv_timeout(LONG).unwrap());
    }
    let twice = group.sent_again();
    group.close();
    reader.close();
    (over, twice)
}

#[test]
fn good_streams_move_it_all_once() {
    let (over, _) = play(&[Manner::Good; 5]);
    assert_eq!(over, 0);
}

#[test]
fn a_frozen_stream_does_not_hold_the_end() {
    let begin = clock::now();
    let (over, twice) = play(&[Manner::Good, Manner::Freeze(2), Manner::Good]);
    assert_eq!(over, 0);
    assert!(twice > ByteCount::ZERO && twice < ByteCount(SIZE / 2), "{twice}");
    // No measurement: a transport that waited for it would take its patience of a minute.
    assert!(clock::now().since(begin) < Duration::from_secs(25));
}

#[test]
fn a_throttled_stream_does_not_hold_the_end() {
    let begin = clock::now();
    // A piece in two seconds; what its socket holds would take it minutes.
    let (over, _) = play(&[Manner::Good, Manner::Slow(2000)]);
    assert_eq!(over, 0);
    assert!(clock::now().since(begin) < Duration::from_secs(25));
}

#[test]
fn a_stream_that_breaks_in_the_middle_loses_nothing() {
    let (over, twice) = play(&[Manner::Good, Manner::HangUp(3), Manner::HangUp(0)]);
    assert_eq!(over, 2);
    assert!(twice < ByteCount(SIZE / 2), "{twice}");
}
