//! The timers of a connection:
//! - handshake: every 250 ms while calling, until the connect timeout;
//! - keepalive: when nothing was sent for 500 ms, with two longer pauses while the peer is silent;
//! - silence: the connection ends after 10 s without a packet from the peer and at least 16
//!   datagrams to it;
//! - linger: how long a closed connection continues to deliver;
//! - shutdown: sent four times within 70 ms, or until the peer sends one. A shutdown is not
//!   acknowledged, and a stock receiver that misses it waits for three quarters of a minute.
//!
//! The feedback has timers of its own (ACK, NAK, EXP).

use packtrain_units::{Duration, Time};

use super::arrive::ControlEffect;
use super::leave::Written;
use super::link::Link;
use super::{Connection, Stage};
use crate::error::EndReason;
use crate::options::limits;
use crate::wire::{Control, Packet};

/// The pauses after each shutdown except the last. With a packet loss of one in a hundred, one in a
/// hundred single shutdowns is lost; the pauses should outlast a burst of losses.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(10), Duration::from_millis(20), Duration::from_millis(40)];

impl Connection {
    /// Closes it: no more data is taken, and buffered data is delivered within the linger time.
    pub(crate) fn close(&mut self, now: Time) {
        match self.stage {
            Stage::Calling(_) => self.end(EndReason::Closed),
            Stage::Open => {
                let received_to = self.link.as_ref().map_or(0, |link| link.receiver.next());
                self.stage = Stage::Closing { until: now + self.options.linger, received_to };
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

    /// Handles a datagram of the peer other than a handshake.
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
                // The peer does not know of the end yet.
                let ours = matches!(self.reason, Some(EndReason::Closed | EndReason::Unfinished));
                self.shutdown_due |= ours && now >= link.last_sent + limits::HANDSHAKE_RETRY;
                return;
            }
            _ => {}
        }
        link.last_received = now;
        link.calls = 0;
        self.answers.0 = 0;
        if !packet.is_control() {
            link.on_data(now, packet);
            return;
        }
        match link.on_control(now, packet) {
            ControlEffect::Nothing => {}
            ControlEffect::Shutdown => {
                link.finish_batch(now, now);
                let drained = link.is_drained();
                let reason = match self.stage {
                    Stage::Closing { .. } if drained => EndReason::Closed,
                    Stage::Closing { .. } => EndReason::Unfinished,
                    _ => EndReason::ByPeer,
                };
                self.end(reason);
                // The peer need not repeat it. This is never answered: no end answers while it
                // sends shutdowns or after it has ended.
                self.shutdown_due = true;
            }
            ControlEffect::Error(code) => self.end(EndReason::PeerError(code)),
        }
    }

    /// All datagrams of a batch that arrived at `at` were handled.
    pub(crate) fn finish_batch(&mut self, now: Time, at: Time) {
        if let Some(link) = &mut self.link
            && matches!(self.stage, Stage::Open | Stage::Closing { .. })
        {
            link.finish_batch(now, at);
        }
        self.tick_life(now);
        self.update_readiness();
    }

    /// Reports new readiness to read or write.
    fn update_readiness(&mut self) {
        let Some(link) = &self.link else { return };
        if !self.reported_readable && link.readable() {
            self.reported_readable = true;
            self.pending_events.readable = true;
        }
        // A small amount of room does not justify waking a writer.
        let enough = self.options.send_buffer.get() / 4;
        if self.wants_room && link.outgoing.room().get() >= enough {
            self.wants_room = false;
            self.pending_events.writable = true;
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
        if written.is_none() && now >= link.keepalive_at() {
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
        self.update_readiness();
    }

    fn tick_life(&mut self, now: Time) {
        let (link, finished) = (self.link.as_deref(), self.is_finished());
        let end = match &self.stage {
            Stage::Calling(caller) => caller.expired(now).map(EndReason::NotMade),
            Stage::Parting { reason, shutdowns_sent, .. } if *shutdowns_sent > PAUSES.len() => {
                Some(reason.clone())
            }
            Stage::Parting { .. } | Stage::Ended => None,
            Stage::Closing { .. } if finished => return self.part(now, EndReason::Closed),
            Stage::Closing { until, .. } if now >= *until => {
                let drained = link.is_none_or(Link::is_drained);
                let reason = if drained { EndReason::Closed } else { EndReason::Unfinished };
                return self.part(now, reason);
            }
            Stage::Open | Stage::Closing { .. } => link
                .filter(|link| now >= link.last_received + limits::SILENCE)
                .filter(|link| link.calls >= limits::SILENT_CALLS)
                .map(|link| EndReason::Broken(now.since(link.last_received))),
        };
        if let Some(reason) = end {
            self.end(reason);
        }
    }

    /// Whether the next shutdown is due; if so, it counts as sent.
    pub(super) fn repeats_shutdown(&mut self, now: Time) -> bool {
        let Stage::Parting { shutdowns_sent, next, .. } = &mut self.stage else { return false };
        if now < *next || *shutdowns_sent > PAUSES.len() {
            return false;
        }
        *next = now + PAUSES.get(*shutdowns_sent).copied().unwrap_or(Duration::ZERO);
        *shutdowns_sent += 1;
        true
    }

    /// Whether a closed connection has nothing left to send or to acknowledge.
    fn is_finished(&self) -> bool {
        let Stage::Closing { received_to, .. } = self.stage else { return false };
        let finished = |link: &Link| link.is_drained() && link.receiver.acked_to() >= received_to;
        self.link.as_ref().is_none_or(|link| finished(link))
    }

    /// When to poll the endpoint again on behalf of this connection if nothing happens.
    pub fn poll_timeout(&self) -> Option<Time> {
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
        let silence = link.last_received + limits::SILENCE;
        let silence = (link.calls >= limits::SILENT_CALLS).then_some(silence);
        let keepalive = Some(link.keepalive_at());
        [own, answer, silence, keepalive, link.poll_timeout()].into_iter().flatten().min()
    }
}
