//! Speaks to a depot as any program can: a header, then bytes; and measures how fast it relays.
//!
//! ```text
//! session take ADDR:PORT                                 reads and throws away what comes
//! session give KEYFILE DEPOT DEST:PORT SECONDS [N]       sends to DEST over DEPOT, N at a time
//! ```
//!
//! KEYFILE is a private key as `packtrain key` makes it; the depot must know its public half.
#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "an example that measures")]

use std::error::Error;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use packtrain_io::tcp::Identity;
use packtrain_io::{clock, entropy};
use packtrain_proto::session::{ANSWER_HEAD, Answer, Hop, Kind, Place, Session, SessionId};

type Done<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Done<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["take", at] => take(at),
        ["give", key, depot, to, seconds] => give(key, depot, to, seconds, "1"),
        ["give", key, depot, to, seconds, n] => give(key, depot, to, seconds, n),
        _ => {
            Err("session take ADDR:PORT | session give KEYFILE DEPOT DEST:PORT SECONDS [N]".into())
        }
    }
}

fn take(at: &str) -> Done<()> {
    for socket in TcpListener::bind(at)?.incoming() {
        let mut socket = socket?;
        std::thread::spawn(move || {
            let mut buffer = vec![0; 1 << 20];
            while socket.read(&mut buffer).is_ok_and(|n| n > 0) {}
        });
    }
    Ok(())
}

fn give(key: &str, depot: &str, to: &str, seconds: &str, n: &str) -> Done<()> {
    let identity = Identity::load_file(key.as_ref())?;
    let (depot, to): (Place, Place) = (depot.parse()?, to.parse()?);
    let limit = Duration::from_secs_f64(seconds.parse()?);
    let begun = Instant::now();
    let sent: Vec<u64> = std::thread::scope(|scope| {
        let one = || send(&identity, &depot, &to, limit);
        let running: Vec<_> = (0..n.parse().unwrap_or(1)).map(|_| scope.spawn(one)).collect();
        running.into_iter().map(|one| one.join().expect("it does not panic")).collect::<Done<_>>()
    })?;
    let all: u64 = sent.iter().sum();
    let rate = all as f64 * 8.0 / begun.elapsed().as_secs_f64() / 1e9;
    let (least, most) = (sent.iter().min().unwrap_or(&0), sent.iter().max().unwrap_or(&0));
    println!("{} sessions, {all} bytes, {rate:.2} Gbit/s, each {least} to {most}", sent.len());
    Ok(())
}

fn send(identity: &Identity, depot: &Place, to: &Place, limit: Duration) -> Done<u64> {
    let session = Session {
        kind: Kind::Synchronous,
        id: SessionId(entropy::bytes()),
        sent: clock::wall(),
        hop_limit: 4,
        source: None,
        destination: Hop::tcp(to.clone()),
        route: vec![Hop::tcp(depot.clone())],
        tree: Vec::new(),
        spool: None,
    };
    let header = session.seal(identity.public().0, |text| identity.sign(text))?;
    let mut socket = TcpStream::connect(depot.to_string())?;
    socket.write_all(&header.write())?;
    let mut answer = vec![0; ANSWER_HEAD];
    socket.read_exact(&mut answer)?;
    let text = Answer::text_len(answer.first_chunk().ok_or("too short")?)?;
    answer.resize(ANSWER_HEAD + text, 0);
    socket.read_exact(&mut answer[ANSWER_HEAD..])?;
    if let Answer::Refused(refusal) = Answer::read(&answer)? {
        return Err(refusal.into());
    }
    let (piece, begun, mut sent) = (vec![7; 1 << 20], Instant::now(), 0);
    while begun.elapsed() < limit {
        sent += socket.write(&piece)? as u64;
    }
    Ok(sent)
}
