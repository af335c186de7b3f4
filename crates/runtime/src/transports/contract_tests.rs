//! Checks every transport between two Packtrain ends against the rules of [`Transport`], with
//! random assignments and revocations over loopback, and failures of the receiving end at every
//! point.

use std::sync::Arc;
use std::time::Duration as StdDuration;

use packtrain_disk::SourceFile;
use packtrain_object::{ChunkIndex, Entry, EntryId, EntryKind, Mtime, Piece, RelPath};
use packtrain_os::clock;
use packtrain_transfer::message::Message;
use packtrain_transfer::transport::exercise::Exercise;
use packtrain_transfer::{ChunkPlan, Failure};
use packtrain_units::{ByteCount, Duration, Offset};

use super::TransportConfig;
use super::flow::{FlowSink, FlowSource};
use super::intake::Intake;
use super::local::{self, LocalLink, LocalSink};
use super::offer::Offer;
use super::pipe;
use super::tcp::sink::TcpSink;
use super::tcp::source::TcpSource;
use super::transport::{SinkTransport, SourceContext, SourceTransport, Wake};
use crate::assembly::{Assembly, PieceTarget};
use crate::control::{self, Control, Incoming};
use crate::reader::{PieceSource, Reader};
use packtrain_service::TransportChoice;

const SIZE: u64 = 16 << 20;
const LONG: Duration = Duration::from_secs(60);

/// The byte of the object at an offset.
fn byte(at: u64) -> u8 {
    (at ^ (at >> 8) ^ (at >> 17)) as u8
}

/// An object with a known pattern: read at one end, checked at the other.
struct Pattern;

impl PieceSource for Pattern {
    fn read(&self, piece: &Piece, out: &mut [u8]) -> Result<Option<Arc<SourceFile>>, Failure> {
        let start = piece.range.start.get();
        (start..).zip(out).for_each(|(at, one)| *one = byte(at));
        Ok(None)
    }
}

impl PieceTarget for Pattern {
    fn write(&self, _: EntryId, _: &Entry, at: u64, bytes: &[u8]) -> Result<(), Failure> {
        assert!((at..).zip(bytes).all(|(at, one)| byte(at) == *one), "other bytes came");
        Ok(())
    }

    fn zero(&self, _: EntryId, _: &Entry, _: u64, _: u64) -> Result<(), Failure> {
        panic!("there are no holes")
    }

    fn read(&self, _: EntryId, _: &Entry, at: u64, out: &mut [u8]) -> bool {
        (at..).zip(out).for_each(|(at, one)| *one = byte(at));
        true
    }

    fn write_small(&self, _: EntryId, _: &Entry, _: &[u8]) -> Result<(), Failure> {
        panic!("there are no small files")
    }
}

fn config(choice: TransportChoice) -> TransportConfig {
    TransportConfig { streams: Some(3), ..TransportConfig::on_loopback(choice) }
}

/// A transport and its receiving end.
struct Pair {
    source: Box<dyn SourceTransport>,
    sink: Option<Box<dyn SinkTransport>>,
    near: Control,
    far: Option<Control>,
    reader: Reader,
    assembly: Assembly,
}

impl Pair {
    /// By the transport of this choice, or within this process.
    fn connect(choice: Option<TransportChoice>) -> Self {
        let (near, far) = control::pair().unwrap();
        let reader = Reader::new(Pattern, Arc::default(), |_| {});
        let assembly = Assembly::new(Pattern, Arc::default(), |_| {});
        for chunk in ChunkIndex::covering(&(Offset(0)..Offset(SIZE))) {
            let range = chunk.range().start..chunk.range().end.min(Offset(SIZE));
            let file_offset = range.start.get();
            let piece = Piece { entry: EntryId(0), file_offset, range, whole: false };
            let entry = Entry {
                path: RelPath::new(b"pattern".to_vec()).unwrap(),
                kind: EntryKind::File { size: SIZE },
                mode: 0o644,
                mtime: Mtime { secs: 0, nanos: 0 },
                uid: 0,
                gid: 0,
                extras: Default::default(),
            };
            assembly.expect(ChunkPlan { chunk, pieces: vec![(piece.clone(), entry)] });
            reader.announce(chunk, vec![piece]);
        }
        let config = config(choice.unwrap_or(TransportChoice::Pipe));
        let intake = Intake::new(&config);
        let _ = far.payload.set(intake.pipe(assembly.clone()));
        let (source, sink): (Box<dyn SourceTransport>, Option<Box<dyn SinkTransport>>) =
            match choice {
                None => {
                    let link = LocalLink::default();
                    let source = local::source(link.clone(), None);
                    (Box::new(source), Some(Box::new(LocalSink(link))))
                }
                Some(TransportChoice::Pipe) => (Box::new(pipe::source(None)), None),
                Some(TransportChoice::Tcp) => (
                    Box::new(TcpSource::new(config.clone(), None)),
                    Some(Box::new(TcpSink::new(config.clone(), intake))),
                ),
                Some(_) => (
                    Box::new(FlowSource::new(config.clone(), None)),
                    Some(Box::new(FlowSink::new(config.clone(), intake))),
                ),
            };
        let mut pair = Self { source, sink, near, far: None, reader, assembly };
        pair.negotiate(&config, &far);
        pair.far = Some(far);
        pair
    }

    fn negotiate(&mut self, config: &TransportConfig, far: &Control) {
        let (mut offer, mut answer) = (Offer::new(config), Offer::new(config));
        let (control, reader) = (self.near.tx.clone(), Some(self.reader.clone()));
        let context = SourceContext { control, reader, wake: Wake::new(|| {}) };
        self.source.start(&context, &mut offer);
        if let Some(sink) = &mut self.sink {
            sink.bind(&far.tx, &mut answer);
            sink.start(&self.assembly);
            sink.on_offer(&offer);
        }
        self.source.on_offer(&answer);
        self.source.on_alone(clock::now());
    }

    /// The receiving end fails.
    fn fail(&mut self) {
        if let Some(mut sink) = self.sink.take() {
            return sink.close();
        }
        self.near.tx.close();
        if let Some(far) = self.far.take() {
            far.tx.close();
        }
    }

    /// Exercises the transport until all is placed, or until it closes after a failure that occurs
    /// after this number of events.
    fn play(&mut self, seed: u64, fail_after: Option<usize>) -> Exercise {
        let mut exercise = Exercise::new(seed, ByteCount(SIZE));
        let begun = clock::now();
        let mut failed = false;
        while !(exercise.is_complete() || failed && exercise.closed() > 0) {
            assert!(clock::now().since(begun) < LONG, "seed {seed}, {fail_after:?}: {exercise:?}");
            if !failed && fail_after.is_some_and(|after| exercise.events() >= after) {
                failed = true;
                self.fail();
            }
            while let Ok(incoming) = self.near.rx.try_recv() {
                if let Incoming::Message(Message::DataTaken(total)) = incoming {
                    self.source.on_data_taken(ByteCount(total));
                }
            }
            exercise.step(clock::now(), &mut *self.source);
            std::thread::sleep(StdDuration::from_millis(1));
        }
        self.source.close();
        if let Some(sink) = &mut self.sink {
            sink.close();
        }
        self.reader.close();
        self.assembly.close();
        exercise
    }
}

const ALL: [Option<TransportChoice>; 7] = [
    Some(TransportChoice::Native),
    Some(TransportChoice::Udt),
    Some(TransportChoice::Fobs),
    Some(TransportChoice::Sabul),
    Some(TransportChoice::Tcp),
    Some(TransportChoice::Pipe),
    None,
];

#[test]
fn each_transport_answers_for_every_range_once() {
    for choice in ALL {
        for seed in 0..3 {
            let exercise = Pair::connect(choice).play(seed, None);
            assert!(exercise.is_complete(), "{choice:?}, seed {seed}");
            assert_eq!(exercise.closed(), 0, "{choice:?}, seed {seed}");
        }
    }
}

#[test]
fn a_failure_at_any_point_leaves_no_range_without_owner() {
    for choice in ALL {
        for (seed, after) in (100..).zip([1, 2, 3, 4, 6, 9, 14, 20, 30, 45, 70]) {
            let exercise = Pair::connect(choice).play(seed, Some(after));
            // The exercise has checked each event. A fast transport may have completed before the
            // failure.
            let over = exercise.closed() > 0 || exercise.is_complete();
            assert!(over, "{choice:?}, seed {seed}: {exercise:?}");
        }
    }
}
