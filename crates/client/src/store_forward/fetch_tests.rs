//! Depots that report a wrong end of a session.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use packtrain_net::tcp::Identity;
use packtrain_session::spool::{FRAME_HEAD, Sealer};
use packtrain_session::{Answer, HEADER_HEAD, Header};

use super::super::ticket::Body;
use super::*;

const SESSION: [u8; 16] = [1; 16];

fn ticket(places: &[Place]) -> ClaimTicket {
    let body = Body {
        session: SESSION,
        capability: [2; 32],
        content: [3; 32],
        sender: Identity::generate([4; 32]).public().0,
        made: 5,
        keep: 6,
        size: None,
        manifest: [7; 32],
    };
    let plan: Vec<String> = places.iter().map(ToString::to_string).collect();
    ClaimTicket::new(body, plan.join(",").parse().expect("a plan"))
}

/// Three records, of which the last one is short.
fn records() -> Vec<Vec<u8>> {
    let identity = Identity::generate([4; 32]);
    let session = packtrain_session::SessionId(SESSION);
    let sealer = Sealer::new(session, &[3; 32], [9; 16], move |text| identity.sign(text));
    let text = |n: u64| vec![n as u8; if n < 2 { RECORD_TEXT } else { 5 }];
    (0..3).map(|n| sealer.seal(n, n == 2, &text(n))).collect()
}

/// Serves records to a client.
fn serve(socket: &mut TcpStream, have: Frame, records: &[Vec<u8>]) -> std::io::Result<()> {
    let mut head = [0; HEADER_HEAD];
    socket.read_exact(&mut head)?;
    let len = Header::len(&head).expect("a header");
    socket.read_exact(&mut vec![0; len - HEADER_HEAD])?;
    socket.write_all(&[&Answer::Accepted.write()[..], &have.write()].concat())?;
    loop {
        let mut request_ahead = [0; FRAME_HEAD];
        socket.read_exact(&mut request_ahead)?;
        let Ok(Frame::Get { from, count }) = Frame::read(&request_ahead) else { return Ok(()) };
        for number in from..from.saturating_add(count.into()) {
            let Some(record) = usize::try_from(number).ok().and_then(|n| records.get(n)) else {
                socket.write_all(&Frame::Lack { records: 0, all: true }.write())?;
                break;
            };
            let last = number == 2;
            let frame = Frame::Record { number, last, len: record.len() as u32 };
            socket.write_all(&[&frame.write()[..], record].concat())?;
            if last {
                break;
            }
        }
    }
}

/// A depot that reports `have`, and has `count` of the records.
fn depot(have: Frame, count: usize) -> Place {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let place = listener.local_addr().expect("bound").to_string().parse().expect("a place");
    let records: Vec<_> = records().into_iter().take(count).collect();
    std::thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            let _ = serve(&mut socket, have, &records);
        }
    });
    place
}

fn fetch(places: &[Place], wait: Duration) -> Fetch {
    Fetch::new(&ticket(places), None, wait, None, StopHandle::new())
}

/// Wrong ends: no record, far too many, and two whose last record is not signed as the last.
fn liars() -> Vec<Place> {
    let all = |records| Frame::Have { records, all: true };
    vec![depot(all(0), 3), depot(all(u64::MAX), 3), depot(all(u64::MAX - 9), 3), depot(all(2), 3)]
}

#[test]
fn an_end_that_nobody_signed_is_none() {
    let good = depot(Frame::Have { records: 3, all: true }, 3);
    let places = [vec![good], liars()].concat();
    let fetch = fetch(&places, Duration::from_secs(60));
    let len = 2 * RECORD_TEXT as u64 + 5;
    assert_eq!(fetch.size().ok(), Some(len));
    let said = fetch.said();
    assert!(said.len() >= 4, "{said:?}");
    for liar in &places[1..] {
        assert!(said.iter().any(|text| text.contains(&liar.to_string())), "{liar}: {said:?}");
    }
    let mut text = vec![0; len as usize];
    fetch.read(0, &mut text).expect("it is there");
    assert_eq!(text[RECORD_TEXT..][..2], [1, 1]);
    assert_eq!(text[2 * RECORD_TEXT..], [2; 5]);
    let beyond = fetch.read(len, &mut [0]).expect_err("there is no more");
    assert_eq!(beyond.kind, FailureKind::Integrity);
}

#[test]
fn where_all_name_a_wrong_end_it_is_waited_for_and_not_for_ever() {
    let fetch = fetch(&liars(), Duration::ZERO);
    let failure = fetch.size().expect_err("no end");
    assert_eq!(failure.kind, FailureKind::Temporary);
    assert!(fetch.has_waited(), "another try must not wait as long again");
}

#[test]
fn who_waits_asks_less_and_less_often() {
    let mut patience = RetrySchedule::new(Duration::from_secs(3600));
    let steps: Vec<u64> = (0..6)
        .map(|_| {
            let now = clock::now();
            patience.next().since(now).as_millis() / 250
        })
        .collect();
    // In quarters of a second, independent of the speed of the machine.
    let least = [2, 4, 8, 16, 32, 32];
    assert!(steps.iter().zip(least).all(|(step, least)| *step >= least), "{steps:?}");
    let mut late = RetrySchedule::new(Duration::ZERO);
    assert!(late.is_over() && late.next() > clock::now());
}

#[test]
fn what_is_damaged_once_is_asked_for_again_and_twice_is_the_end() {
    let length = 2 * RECORD_TEXT as u64 + 5;
    for (times, is_right) in [(1, true), (2, false)] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let place = listener.local_addr().expect("bound").to_string().parse().expect("a place");
        std::thread::spawn(move || {
            let mut damaged = records();
            damaged[0][99] ^= 1;
            for (at, mut socket) in listener.incoming().flatten().enumerate() {
                // The first connection asks for the end of the session.
                let given = if (1..=times).contains(&at) { damaged.clone() } else { records() };
                let _ = serve(&mut socket, Frame::Have { records: 3, all: true }, &given);
            }
        });
        let fetch = fetch(&[place], Duration::from_secs(60));
        assert_eq!(fetch.size().ok(), Some(length));
        // Only the records beside the last one are asked for on further connections.
        fetch.state.lock().line = None;
        let mut text = vec![0; RECORD_TEXT];
        let read = fetch.read(0, &mut text);
        assert_eq!(read.as_ref().is_ok(), is_right, "{times}: {read:?}");
        if let Err(failure) = read {
            assert_eq!(failure.kind, FailureKind::Integrity);
        }
    }
}

#[test]
fn a_request_to_stop_ends_what_waits_for_a_silent_depot() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let place: Place = listener.local_addr().expect("bound").to_string().parse().expect("a place");
    let stop = StopHandle::new();
    let fetch = Fetch::new(&ticket(&[place]), None, Duration::from_secs(3600), None, stop.clone());
    let waiting = std::thread::spawn(move || fetch.size().expect_err("nothing answers").kind);
    let (mut socket, _) = listener.accept().expect("a client");
    socket.read_exact(&mut [0; HEADER_HEAD]).expect("a header");
    stop.request(15);
    assert_eq!(waiting.join().expect("no panic"), FailureKind::Cancelled);
}
