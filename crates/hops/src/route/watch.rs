//! Watches a route in use: detects a depot that stalls, so that the route avoids it, and identifies
//! a depot that corrupts bytes.
//!
//! While any connection of the route receives data, nothing is sent. After a silence of
//! [`QUIET_TIME`] each depot gets an echo request in a new session, all at the same time. If all
//! depots answer, the other end is the silent one. If an end detected corrupted bytes (an
//! authentication error of TLS), echoes with many random bytes identify the first depot up to which
//! bytes are corrupted.

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

/// How often the route is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// Silence on all connections after which echoes are sent.
const QUIET_TIME: Duration = Duration::from_millis(1500);
/// Timeout of an echo: the larger of this time and a multiple of the round-trip time to the first
/// depot.
const ECHO_TIMEOUT: Duration = Duration::from_millis(2500);
const ECHO_RTTS: u64 = 8;
/// Maximum pause between two rounds of echoes during a silence.
const MAX_WAIT: Duration = Duration::from_secs(8);
/// Bytes that an audit sends over each part of the route, in pieces.
const AUDIT_BYTES: usize = 8 << 20;
const PIECE_BYTES: usize = 64 << 10;
/// Timeout for one part of an audit.
const AUDIT_TIME: Duration = Duration::from_secs(20);

/// The result of an echo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Echoed {
    /// The bytes came back unchanged, or the depot refused the session and so is alive.
    Same,
    /// They came back changed.
    Changed,
    /// Nothing came within the timeout.
    Silent,
    /// The connection failed.
    Broke,
}

impl Route {
    /// Watches the route as long as it is in use.
    pub(super) fn watch(self: &Arc<Self>) {
        if self.watched.swap(true, Ordering::Relaxed) {
            return;
        }
        let weak = Arc::downgrade(self);
        tokio::spawn(async move {
            let (mut before, mut heard, mut wait) = (0, clock::now(), QUIET_TIME);
            loop {
                tokio::time::sleep(CHECK_INTERVAL.to_std()).await;
                let Some(route) = weak.upgrade() else { return };
                if route.activity.is_corrupted() && !route.is_direct() {
                    route.auditing.store(true, Ordering::Relaxed);
                    route.activity.take_corrupted();
                    route.find_corrupting_depot().await;
                    route.auditing.store(false, Ordering::Relaxed);
                }
                let (now, received) = (clock::now(), route.activity.received());
                if received != before || route.count() == 0 || route.is_direct() {
                    (before, heard, wait) = (received, now, QUIET_TIME);
                    continue;
                }
                if now.since(heard) < wait {
                    continue;
                }
                let stalled = route.find_stalled_depot().await;
                // Data may have arrived meanwhile.
                match stalled.filter(|_| route.activity.received() == before) {
                    Some(depot) => route.report_stalled(depot, clock::now().since(heard)),
                    None => (heard, wait) = (clock::now(), (wait * 2).min(MAX_WAIT)),
                }
            }
        });
    }

    fn report_stalled(&self, depot: usize, silence: Duration) {
        let name = &self.depots[depot];
        self.give_up(&format!(
            "the depot {name} does not move: nothing came for {silence}, and no echo from it"
        ));
    }

    /// Abandons the depots: connections over them end now.
    fn give_up(&self, why: &str) {
        if !self.direct.swap(true, Ordering::Relaxed) {
            self.push_notice(format!("{why}; going on without depots"));
        }
        self.lines(|line| line.cut());
    }

    /// The first depot that returns no echo.
    async fn find_stalled_depot(self: &Arc<Self>) -> Option<usize> {
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

    /// Searches for the depot that corrupts bytes, and reports the result.
    async fn find_corrupting_depot(self: &Arc<Self>) {
        let mut clean = "this machine".to_owned();
        for depot in 0..self.depots.len() {
            let name = self.depots[depot].to_string();
            match self.echo(depot, AUDIT_BYTES).await {
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
                    self.push_notice(format!(
                        "bytes were changed on the way; up to {clean} they are right, and the \
                         depot {name} does not send back what would show more"
                    ));
                    return;
                }
            }
        }
        self.push_notice(format!(
            "bytes were changed on the way, and caught; {} over each part of the route came back \
             right, so that the depot that does it cannot be named: it does it rarely, or not to \
             what it can tell from a transfer",
            packtrain_units::ByteCount(AUDIT_BYTES as u64)
        ));
    }

    /// Sends an echo of `len` bytes to this depot of the route.
    async fn echo(&self, depot: usize, len: usize) -> Echoed {
        let limit = if len == 0 { ECHO_TIMEOUT } else { AUDIT_TIME };
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
            // A depot that refuses is alive.
            return Ok(if len == 0 { Echoed::Same } else { Echoed::Broke });
        }
        let seed = entropy::seed();
        let pieces = len.div_ceil(PIECE_BYTES).max(1);
        let head = EchoHead { len: len.min(PIECE_BYTES) as u32, flags: 0, tag: seed };
        let (mut read, mut write) = tokio::io::split(&mut socket);
        let send = async {
            let mut rng = Rng::new(seed);
            for _ in 0..pieces {
                write.write_all(&head.write()).await?;
                write.write_all(&noise(&mut rng, head.len as usize)).await?;
            }
            Ok::<(), std::io::Error>(())
        };
        let receive = async {
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
        tokio::pin!(send, receive);
        tokio::select! {
            heard = &mut receive => heard,
            // A corrupted frame ends the session; only the returned bytes matter.
            _ = &mut send => receive.await,
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
