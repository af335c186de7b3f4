//! A fetch held to the rules of [`Transport`]: random assignments and revocations, over a server
//! that fails at many points.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::AtomicBool;
use std::time::Duration as StdDuration;

use packtrain_object::CHUNK;
use packtrain_runtime::control;
use packtrain_runtime::transports::transport::Wake;
use packtrain_service::weburl::WebUrl;
use packtrain_transfer::transport::exercise::Exercise;

use super::*;
use crate::answer::Version;
use crate::remote::Place;

const SIZE: u64 = 2 * CHUNK.get() + 300_001;

fn byte(at: u64) -> u8 {
    (at ^ (at >> 8) ^ (at >> 17)) as u8
}

/// Checks what arrives.
struct Pattern;

impl PayloadSink for Pattern {
    fn payload(&self, at: Offset, bytes: &[u8]) -> Result<(), Failure> {
        assert!((at.get()..).zip(bytes).all(|(at, one)| byte(at) == *one), "other bytes came");
        Ok(())
    }
}

/// Serves ranges of the pattern until it fails: then connections break, and new ones too.
fn serve(failed: Arc<AtomicBool>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let failed = Arc::clone(&failed);
            std::thread::spawn(move || drop(answer(&stream, &failed)));
        }
    });
    port
}

fn answer(mut stream: &TcpStream, failed: &AtomicBool) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    while let Some(first) = lines.next().transpose()? {
        assert!(first.starts_with("GET "), "{first}");
        let mut range = None;
        for header in lines.by_ref() {
            let header = header?.to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some((from, to)) =
                header.strip_prefix("range: bytes=").and_then(|r| r.split_once('-'))
            {
                range = Some((from.parse::<u64>().unwrap(), to.parse::<u64>().unwrap()));
            }
        }
        let (from, to) = range.expect("a range is asked for");
        write!(
            stream,
            "HTTP/1.1 206 Partial Content\r\nETag: \"1\"\r\nContent-Length: {}\r\n\
             Content-Range: bytes {from}-{to}/{SIZE}\r\n\r\n",
            to + 1 - from
        )?;
        let bytes: Vec<u8> = (from..=to).map(byte).collect();
        for part in bytes.chunks(50_000) {
            if failed.load(Ordering::Relaxed) {
                return Ok(());
            }
            stream.write_all(part)?;
        }
    }
    Ok(())
}

/// Exercises a fetch; the server fails after so many events.
fn play(seed: u64, fail_after: Option<usize>) -> Exercise {
    let failed = Arc::<AtomicBool>::default();
    let port = serve(Arc::clone(&failed));
    let url = WebUrl::parse(&format!("http://127.0.0.1:{port}/pattern")).unwrap();
    let remote = Remote {
        name: url.to_string(),
        size: Some(ByteCount(SIZE)),
        version: Version { etag: Some("\"1\"".to_owned()), modified: None },
        ranges: true,
        place: Place::Web { at: Mutex::new(url.clone()), asked: url },
        sum: None,
    };
    let payload = Arc::<OnceLock<Arc<dyn PayloadSink>>>::default();
    let _ = payload.set(Arc::new(Pattern));
    let (reports, _inbox) = packtrain_runtime::source::content_reports();
    let mut downloader = Downloader::new(Parts {
        client: Arc::new(Client::new(&Default::default(), false).unwrap()),
        objects: Arc::new(Mutex::new([(EntryId(0), Arc::new(remote))].into())),
        payload,
        pace: Pace::unlimited(),
        count: StreamCount::Fixed(3),
        most: 3,
        reports,
        comparisons: Arc::new(Comparisons::new(std::path::PathBuf::new(), false)),
        name: "http",
    });
    let (near, _far) = control::pair().unwrap();
    let context = SourceContext { control: near.tx.clone(), reader: None, wake: Wake::unused() };
    downloader.start(&context, &mut Offer::default());
    let shared = downloader.shared();
    let mut prepared = Prepare { downloader, shared };
    let mut exercise = Exercise::new(seed, ByteCount(SIZE));
    let begun = clock::now();
    while !exercise.is_complete() && exercise.closed() == 0 {
        assert!(clock::now().since(begun) < Duration::from_secs(60), "{exercise:?}");
        if fail_after.is_some_and(|after| exercise.events() >= after) {
            failed.store(true, Ordering::Relaxed);
        }
        exercise.step(clock::now(), &mut prepared);
        std::thread::sleep(StdDuration::from_millis(1));
    }
    prepared.close();
    exercise
}

/// Hands over the pieces of an assignment before it is made, as the content of a fetch does.
struct Prepare {
    downloader: Downloader,
    shared: Arc<Shared>,
}

impl Transport for Prepare {
    fn name(&self) -> &'static str {
        self.downloader.name()
    }

    fn assign(&mut self, range: Range<Offset>) {
        let piece = |chunk: ChunkIndex| {
            let range = chunk.range().start..chunk.range().end.min(Offset(SIZE));
            Piece { entry: EntryId(0), file_offset: range.start.get(), range, whole: false }
        };
        self.shared.prepare(ChunkIndex::covering(&range).map(piece).collect());
        self.downloader.assign(range);
    }

    fn revoke(&mut self, range: Range<Offset>) {
        self.downloader.revoke(range);
    }

    fn poll_event(&mut self, now: Time) -> Option<TransportEvent> {
        self.downloader.poll_event(now)
    }

    fn close(&mut self) {
        self.downloader.close();
    }
}

#[test]
fn a_fetch_answers_for_every_range_once() {
    for seed in 0..4 {
        let exercise = play(seed, None);
        assert!(exercise.is_complete() && exercise.closed() == 0, "seed {seed}");
    }
}

#[test]
fn a_server_that_fails_at_any_point_leaves_no_range_without_owner() {
    let plays = (100..).zip([1, 2, 3, 5, 9, 15]);
    let plays = plays.map(|(seed, after)| std::thread::spawn(move || play(seed, Some(after))));
    for play in plays.collect::<Vec<_>>() {
        let exercise = play.join().unwrap();
        assert!(exercise.closed() > 0 || exercise.is_complete(), "{exercise:?}");
    }
}

#[test]
fn waits_between_requests_double_up_to_8_s() {
    let waits = (0..7).map(|n| RETRY.after(n).as_millis());
    assert!(waits.eq([250, 500, 1000, 2000, 4000, 8000, 8000]));
}
