//! The timers of a connection's life. All of them:
//! - handshake: every 250 ms while calling, until the connect timeout;
//! - keepalive: when nothing was sent for 500 ms;
//! - silence: 10 s without a word from the peer, after at least 16 datagrams to it, is the end;
//! - linger: how long a closed connection goes on delivering;
//! - farewell: its shutdown is said four times within 70 ms, or until the peer says one: nobody
//!   acknowledges a shutdown, and a stock receiver that missed it waits for three quarters of a
//!   minute.
//!
//! Those of the feedback (ACK, NAK, EXP) are its own.

use packtrain_units::{Duration, Time};

use super::arrive::Said;
use super::leave::Written;
use super::link::Link;
use super::{Connection, Stage};
use crate::error::EndReason;
use crate::options::limits;
use crate::wire::{Control, Packet};

/// The pauses behind each farewell but the last. One in a hundred of single ones is lost where
/// one packet in a hundred is; the pauses are to outlast a burst of losses.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(10), Duration::from_millis(20), Duration::from_millis(40)];

impl Connection {
    /// Closes it: nothing more is taken, and what was is delivered within the linger time.
    pub(crate) fn close(&mut self, now: Time) {
        match self.stage {
            Stage::Calling(_) => self.end(EndReason::Closed),
            Stage::Open => {
                let heard = self.link.as_ref().map_or(0, |link| link.receiver.next());
                self.stage = Stage::Closing { until: now + self.options.linger, heard };
                self.tick_life(now);
            }
            Stage::Closing { .. } | Stage::Parting { .. } | Stage::Ended => {}
        }
        self.discarded = true;
    }

    /// Closes it without waiting.
    pub(crate) fn abort(&mut self, now: Time) {
        let drained = self.link.as_ref().is_none_or(|link| link.is_drained());
        self.part(now, if drained { EndReason::Closed } else { EndReason::Unfinished });
        self.discarded = true;
    }

    /// A datagram of the peer, not a handshake.
    #[inline]
    pub(crate) fn on_packet(&mut self, now: Time, packet: &Packet<&[u8]>) {
        let Some(link) = &mut self.link else { return };
        match &self.stage {
            Stage::Parting { reason, .. } => {
                if Control::parse(packet) == Ok(Control::Shutdown) {
                    let reason = reason.clone();
                    self.end(reason);
                }
                return;
            }
            Stage::Ended => {
                // It does not know yet.
                let ours = matches!(self.reason, Some(EndReason::Closed | EndReason::Unfinished));
                self.farewell |= ours && now >= link.last_sent + limits::HANDSHAKE_RETRY;
                return;
            }
            _ => {}
        }
        link.last_heard = now;
        link.calls = 0;
        self.answers.0 = 0;
        if !packet.is_control() {
            link.on_data(now, packet);
            return;
        }
        match link.on_control(now, packet) {
            Said::Nothing => {}
            Said::Shutdown => {
                link.finish_batch(now, now);
                let drained = link.is_drained();
                let reason = match self.stage {
                    Stage::Closing { .. } if drained => EndReason::Closed,
                    Stage::Closing { .. } => EndReason::Unfinished,
                    _ => EndReason::ByPeer,
                };
                self.end(reason);
                // It need not say so again. This is never answered: neither who says farewell
                // nor who has ended does that.
                self.farewell = true;
            }
            Said::Error(code) => self.end(EndReason::PeerError(code)),
        }
    }

    /// All datagrams of a batch that came at `at` were given to it.
    pub(crate) fn finish_batch(&mut self, now: Time, at: Time) {
        if let Some(link) = &mut self.link
            && matches!(self.stage, Stage::Open | Stage::Closing { .. })
        {
            link.finish_batch(now, at);
        }
        self.tick_life(now);
        self.tell_readiness();
    }

    /// Raises what became readable or writable.
    fn tell_readiness(&mut self) {
        let Some(link) = &self.link else { return };
        if !self.told_readable && link.readable() {
            self.told_readable = true;
            self.news.readable = true;
        }
        // A little room is not worth waking anybody for.
        let enough = self.options.send_buffer.get() / 4;
        if self.wants_room && link.outgoing.room().get() >= enough {
            self.wants_room = false;
            self.news.writable = true;
        }
    }

    /// The next datagrams.
    pub(crate) fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<Written> {
        if let Some(len) = self.write_own(now, out) {
            self.on_sent(now);
            return Some(Written { len, segment: len });
        }
        if !matches!(self.stage, Stage::Open | Stage::Closing { .. }) {
            return None;
        }
        let link = self.link.as_mut()?;
        let mut written = link.poll(now, out);
        if written.is_none() && now >= link.last_sent + limits::KEEPALIVE {
            let len = Control::KeepAlive.write(link.peer_id, out)?;
            written = Some(Written { len, segment: len });
        }
        if written.is_some() {
            self.on_sent(now);
        }
        written
    }

    fn on_sent(&mut self, now: Time) {
        if let Some(link) = &mut self.link {
            link.last_sent = now;
            link.calls = link.calls.saturating_add(1);
        }
    }

    /// Runs the timers that are due.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        if let Some(link) = &mut self.link
            && matches!(self.stage, Stage::Open | Stage::Closing { .. })
            && link.poll_timeout().is_some_and(|at| at <= now)
        {
            link.handle_timeout(now);
        }
        self.tick_life(now);
        self.tell_readiness();
    }

    fn tick_life(&mut self, now: Time) {
        let (link, finished) = (self.link.as_deref(), self.is_finished());
        let end = match &self.stage {
            Stage::Calling(caller) => caller.expired(now).map(EndReason::NotMade),
            Stage::Parting { reason, told, .. } if *told > PAUSES.len() => Some(reason.clone()),
            Stage::Parting { .. } | Stage::Ended => None,
            Stage::Closing { .. } if finished => return self.part(now, EndReason::Closed),
            Stage::Closing { until, .. } if now >= *until => {
                let drained = link.is_none_or(Link::is_drained);
                let reason = if drained { EndReason::Closed } else { EndReason::Unfinished };
                return self.part(now, reason);
            }
            Stage::Open | Stage::Closing { .. } => link
                .filter(|link| now >= link.last_heard + limits::SILENCE)
                .filter(|link| link.calls >= limits::SILENT_CALLS)
                .map(|link| EndReason::Broken(now.since(link.last_heard))),
        };
        if let Some(reason) = end {
            self.end(reason);
        }
    }

    /// Whether the next of the farewells is due; it counts as said.
    pub(super) fn repeats_farewell(&mut self, now: Time) -> bool {
        let Stage::Parting { told, next, .. } = &mut self.stage else { return false };
        if now < *next || *told > PAUSES.len() {
            return false;
        }
        *next = now + PAUSES.get(*told).copied().unwrap_or(Duration::ZERO);
        *told += 1;
        true
    }

    /// Whether a closed connection has nothing left to say or to hear.
    fn is_finished(&self) -> bool {
        let Stage::Closing { heard, .. } = self.stage else { return false };
        let finished = |link: &Link| link.is_drained() && link.receiver.told() >= heard;
        self.link.as_ref().is_none_or(|link| finished(link))
    }

    /// When to call again if nothing happens.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let own = match &self.stage {
            Stage::Calling(caller) => return Some(caller.poll_timeout()),
            Stage::Ended => return None,
            Stage::Parting { next, .. } => return Some(*next),
            Stage::Closing { .. } if self.is_finished() => return Some(Time::ZERO),
            Stage::Closing { until, .. } => Some(*until),
            Stage::Open => None,
        };
        let answer = (self.answers.0 > 0).then_some(self.answers.1);
        let link = self.link.as_ref()?;
        let silence = link.last_heard + limits::SILENCE;
        let silence = (link.calls >= limits::SILENT_CALLS).then_some(silence);
        let keepalive = Some(link.last_sent + limits::KEEPALIVE);
        [own, answer, silence, keepalive, link.poll_timeout()].into_iter().flatten().min()
    }
}
