//! Sends sessions over a depot as any program can: a header, then bytes. Measures the rate of the
//! relay.
//!
//! ```text
//! session take ADDR:PORT                                 reads and throws away what comes
//! session give KEYFILE DEPOT DEST:PORT SECONDS [N]       sends to DEST over DEPOT, N at a time
//! session give - DEPOT DEST:PORT SECONDS [N]             the same without a header, for other relays
//! ```
//!
//! KEYFILE is a private key in the format of `packtrain key`; the depot must know its public key.
//! The rate counts until the last byte has been received. `each` are the bytes that the relay had
//! accepted of each session at the end of SECONDS: minimum, median and maximum.
#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "an example that measures")]

use std::error::Error;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use packtrain_net::tcp::{Identity, tcp_info};
use packtrain_os::{clock, entropy};
use packtrain_session::{ANSWER_HEAD, Answer, Hop, Kind, Place, Session, SessionId};

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
    let identity = (key != "-").then(|| Identity::load_file(key.as_ref())).transpose()?;
    let (depot, to): (Place, Place) = (depot.parse()?, to.parse()?);
    let limit = Duration::from_secs_f64(seconds.parse()?);
    // All sessions are admitted before any sends, so that none has the path alone.
    let sockets = (0..n.parse::<u32>()?.max(1))
        .map(|_| connect(identity.as_ref(), &depot, &to))
        .collect::<Done<Vec<_>>>()?;
    let begun = Instant::now();
    let sent: Vec<(u64, u64)> = std::thread::scope(|scope| {
        let one = |socket| scope.spawn(move || send(socket, begun, limit));
        let running: Vec<_> = sockets.into_iter().map(one).collect();
        running.into_iter().map(|one| one.join().expect("it does not panic")).collect::<Done<_>>()
    })?;
    let spent = begun.elapsed().as_secs_f64();
    let all: u64 = sent.iter().map(|(all, _)| all).sum();
    let mut taken: Vec<u64> = sent.iter().map(|(_, taken)| *taken).collect();
    taken.sort_unstable();
    let each = [taken[0], taken[taken.len() / 2], taken[taken.len() - 1]];
    println!(
        "{{\"sessions\":{},\"bytes\":{all},\"seconds\":{spent:.3},\"goodput_bps\":{:.0},\"each\":{each:?}}}",
        sent.len(),
        all as f64 * 8.0 / spent
    );
    Ok(())
}

fn connect(identity: Option<&Identity>, depot: &Place, to: &Place) -> Done<TcpStream> {
    let mut socket = TcpStream::connect(depot.to_string())?;
    if let Some(identity) = identity {
        ask(&mut socket, identity, depot, to)?;
    }
    Ok(socket)
}

/// The bytes sent, and the bytes that were acknowledged at the time limit.
fn send(mut socket: TcpStream, begun: Instant, limit: Duration) -> Done<(u64, u64)> {
    let (piece, mut sent) = (vec![7; 1 << 18], 0);
    while begun.elapsed() < limit {
        sent += socket.write(&piece)? as u64;
    }
    let taken =
        tcp_info(&socket)?.acked.ok_or("the kernel does not report what is acknowledged")?;
    socket.shutdown(Shutdown::Write)?;
    // The other end closes after it has read everything.
    socket.read_to_end(&mut Vec::new())?;
    Ok((sent, taken.get()))
}

fn ask(socket: &mut TcpStream, identity: &Identity, depot: &Place, to: &Place) -> Done<()> {
    let session = Session {
        kind: Kind::Synchronous,
        id: SessionId(entropy::bytes()),
        sent: clock::wall(),
        hop_limit: 4,
        source: None,
        destination: Hop::tcp(to.clone()),
        route: vec![Hop::tcp(depot.clone())],
        by_destination: false,
        tree: Vec::new(),
        spool: None,
    };
    let header = session.seal(identity.public().0, |text| identity.sign(text))?;
    socket.write_all(&header.write())?;
    let mut answer = vec![0; ANSWER_HEAD];
    socket.read_exact(&mut answer)?;
    let text = Answer::text_len(answer.first_chunk().ok_or("too short")?)?;
    answer.resize(ANSWER_HEAD + text, 0);
    socket.read_exact(&mut answer[ANSWER_HEAD..])?;
    if let Answer::Refused(refusal) = Answer::read(&answer)? {
        return Err(refusal.into());
    }
    Ok(())
}
