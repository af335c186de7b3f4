//! Watching a route while it is used: a depot that no longer moves is noticed and gone around, one
//! that changes bytes is found and named.
//!
//! While anything comes over any connection of the route, nothing is asked. When nothing has for
//! [`QUIET`], each depot is asked for an echo over a new session, all at once; the other end's
//! silence is none of theirs. When the ends found bytes changed (TLS broke with a wrong
//! authentication), echoes with many random bytes show the first depot up to which they change.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use packtrain_net::tcp::{ConnectOptions, connect, tune};
use packtrain_os::{clock, entropy};
use packtrain_session::echo::{ECHO_HEAD, EchoHead};
use packtrain_session::{Answer, Kind};
use packtrain_units::{Duration, Rng};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

use super::Route;
use crate as hops;
use crate::{Carrier, read_answer, write_all};

/// How often it is looked at.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// Silence on all connections after which depots are asked.
const QUIET: Duration = Duration::from_millis(1500);
/// How long an echo may take, and in round trips to the first depot, whichever is more.
const ECHO: Duration = Duration::from_millis(2500);
const ECHO_RTTS: u64 = 8;
/// The longest wait between two questions while nothing comes.
const MAX_WAIT: Duration = Duration::from_secs(8);
/// What an audit sends over each part of the route, in pieces of this size.
const AUDIT: usize = 8 << 20;
const PIECE: usize = 64 << 10;
/// How long one part of an audit may take.
const AUDIT_TIME: Duration = Duration::from_secs(20);

/// What an echo showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Echoed {
    /// It came back as it was, or was refused by somebody who is awake.
    Same,
    /// It came back changed.
    Changed,
    /// Nothing came in time.
    Silent,
    /// The connection broke.
    Broke,
}

impl Route {
    /// Looks after the route as long as somebody uses it.
    pub(super) fn watch(self: &Arc<Self>) {
        if self.watched.swap(true, Ordering::Relaxed) {
            return;
        }
        let weak = Arc::downgrade(self);
        tokio::spawn(async move {
            let (mut before, mut heard, mut wait) = (0, clock::now(), QUIET);
            loop {
                tokio::time::sleep(CHECK_INTERVAL.to_std()).await;
                let Some(route) = weak.upgrade() else { return };
                if route.pulse.is_corrupted() && !route.is_direct() {
                    route.auditing.store(true, Ordering::Relaxed);
                    route.pulse.take_corrupted();
                    route.audit().await;
                    route.auditing.store(false, Ordering::Relaxed);
                }
                let (now, received) = (clock::now(), route.pulse.received());
                if received != before || route.count() == 0 || route.is_direct() {
                    (before, heard, wait) = (received, now, QUIET);
                    continue;
                }
                if now.since(heard) < wait {
                    continue;
                }
                let frozen = route.sound().await;
                // It may have moved on meanwhile.
                match frozen.filter(|_| route.pulse.received() == before) {
                    Some(depot) => route.frozen(depot, clock::now().since(heard)),
                    None => (heard, wait) = (clock::now(), (wait * 2).min(MAX_WAIT)),
                }
            }
        });
    }

    fn frozen(&self, depot: usize, silence: Duration) {
        let name = &self.depots[depot];
        self.give_up(&format!(
            "the depot {name} does not move: nothing came for {silence}, and no echo from it"
        ));
    }

    /// Goes on without depots: connections over them end now.
    fn give_up(&self, why: &str) {
        if !self.direct.swap(true, Ordering::Relaxed) {
            self.say(format!("{why}; going on without depots"));
        }
        self.lines(|line| line.cut());
    }

    /// The first depot up to which no echo comes.
    async fn sound(self: &Arc<Self>) -> Option<usize> {
        let mut asked = JoinSet::new();
        for depot in 0..self.depots.len() {
            let route = Arc::clone(self);
            asked.spawn(async move { (depot, route.echo(depot, 0).await) });
        }
        let mut silent = None;
        while let Some(Ok((depot, echoed))) = asked.join_next().await {
            if echoed == Echoed::Silent {
                silent = Some(silent.map_or(depot, |first: usize| first.min(depot)));
            }
        }
        silent
    }

    /// Finds who changes bytes, if that shows, and says so.
    async fn audit(self: &Arc<Self>) {
        let mut clean = "this machine".to_owned();
        for depot in 0..self.depots.len() {
            let name = self.depots[depot].to_string();
            match self.echo(depot, AUDIT).await {
                Echoed::Changed => {
                    *self.corrupter.lock() = Some(name.clone());
                    self.give_up(&format!(
                        "bytes were changed on the way: up to {clean} they are right, up to the \
                         depot {name} they are not: it, or what lies between, changes them"
                    ));
                    return;
                }
                Echoed::Same => clean = format!("the depot {name}"),
                Echoed::Silent | Echoed::Broke => {
                    self.say(format!(
                        "bytes were changed on the way; up to {clean} they are right, and the \
                         depot {name} does not send back what would show more"
                    ));
                    return;
                }
            }
        }
        self.say(format!(
            "bytes were changed on the way, and caught; {} over each part of the route came back \
             right, so that the depot that does it cannot be named: it does it rarely, or not to \
             what it can tell from a transfer",
            packtrain_units::ByteCount(AUDIT as u64)
        ));
    }

    /// An echo of so many bytes from this depot of the route.
    async fn echo(&self, depot: usize, len: usize) -> Echoed {
        let limit = if len == 0 { ECHO } else { AUDIT_TIME };
        let options = ConnectOptions { timeout: limit, ..ConnectOptions::default() };
        let first = &self.depots[0];
        let begun = clock::now();
        let Ok(socket) = connect(&first.host.to_string(), first.port, &options).await else {
            return if clock::now().since(begun) >= limit { Echoed::Silent } else { Echoed::Broke };
        };
        let limit = limit.max(clock::now().since(begun) * ECHO_RTTS);
        let echoed = self.echo_over(socket, depot, len);
        match tokio::time::timeout(limit.to_std(), echoed).await {
            Ok(Ok(echoed)) => echoed,
            Ok(Err(_)) => Echoed::Broke,
            Err(_) => Echoed::Silent,
        }
    }

    async fn echo_over(
        &self,
        socket: tokio::net::TcpStream,
        depot: usize,
        len: usize,
    ) -> std::io::Result<Echoed> {
        let _ = tune::set_nodelay(&socket);
        let (place, by) = (self.depots[depot].clone(), self.by[0]);
        let header = self.header(Kind::Echo, place, depot + 1).map_err(std::io::Error::other)?;
        let mut socket = if by.is_datagram() {
            hops::call(socket, by, &header, &self.hops).await?.0
        } else {
            let socket = Carrier::Tcp(socket);
            write_all(&socket, &header).await?;
            socket
        };
        if let Answer::Refused(_) = read_answer(&socket).await.map_err(std::io::Error::other)? {
            // Who refuses is awake.
            return Ok(if len == 0 { Echoed::Same } else { Echoed::Broke });
        }
        let seed = entropy::seed();
        let pieces = len.div_ceil(PIECE).max(1);
        let head = EchoHead { len: len.min(PIECE) as u32, flags: 0, tag: seed };
        let (mut read, mut write) = tokio::io::split(&mut socket);
        let send = async {
            let mut rng = Rng::new(seed);
            for _ in 0..pieces {
                write.write_all(&head.write()).await?;
                write.write_all(&noise(&mut rng, head.len as usize)).await?;
            }
            Ok::<(), std::io::Error>(())
        };
        let hear = async {
            let mut rng = Rng::new(seed);
            let mut heard = vec![0; ECHO_HEAD + head.len as usize];
            for _ in 0..pieces {
                read.read_exact(&mut heard).await?;
                let (own, bytes) = heard.split_first_chunk().unwrap_or((&[0; ECHO_HEAD], &[]));
                let back = EchoHead::read(own).map(|back| EchoHead { flags: 0, ..back });
                if back != Some(head) || bytes != noise(&mut rng, head.len as usize) {
                    return Ok(Echoed::Changed);
                }
            }
            Ok(Echoed::Same)
        };
        tokio::pin!(send, hear);
        tokio::select! {
            heard = &mut hear => heard,
            // Framing that was changed ends the session: what matters is what came back.
            _ = &mut send => hear.await,
        }
    }
}

/// Random-looking bytes.
fn noise(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut out: Vec<u8> =
        (0..len.div_ceil(8)).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
    out.truncate(len);
    out
}
