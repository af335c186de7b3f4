//! Connects the core with the endpoints that count in units: received packets and due timers.

use packtrain_units::{Duration, Time};
use serde_json::json;

use crate::codec::frame::{Frame, Host, nak_pieces};
use crate::codec::reliable;
use crate::codec::unit::Unit;
use crate::config::limits::MAX_RELIABLE_MESSAGES;
use crate::core::endpoint::Endpoint;
use crate::core::lane::Lane;
use crate::core::ledger::Train;
use crate::core::{Core, Envelope, MAX_CONTROLS};
use crate::fobs::Bitmap;
use crate::sabul;
use crate::seam::{CloseReason, Event, Placed};
use crate::udt::{Message, UnitStatus};

/// The peer uses another feedback than this end.
const OTHER_FEEDBACK: CloseReason = CloseReason::Protocol("feedback of another kind");

impl Core {
    /// The unit number near which the next ones are expected; none if this end does not receive
    /// units.
    pub(crate) fn expected_unit(&mut self) -> Option<u64> {
        self.endpoint.unit_receiver().map(|receiver| receiver.expected())
    }

    /// Handles a data packet with a unit of `len` bytes, which `place` writes. Returns false if it
    /// is invalid at this end.
    #[inline]
    pub(crate) fn on_unit(
        &mut self,
        now: Time,
        envelope: &Envelope,
        unit: Unit,
        (offset, len): (u64, usize),
        place: impl FnOnce() -> Placed,
    ) -> bool {
        let Some(receiver) = self.endpoint.unit_receiver() else { return false };
        if len == 0 || offset.checked_add(len as u64).is_none() {
            return false;
        }
        self.lanes[usize::from(envelope.lane)].window.set(envelope.pn);
        let bytes = len as u64;
        let seen = receiver.check(now, unit.first);
        receiver.on_arrival(unit, 1, bytes);
        let stats = &mut self.stats;
        if seen != UnitStatus::Outside {
            stats.received_packets += 1;
            stats.received_bytes += packtrain_units::ByteCount(bytes);
        }
        let placed = match seen {
            UnitStatus::New if !self.life.is_over() => place(),
            UnitStatus::Duplicate => {
                stats.duplicate_packets += 1;
                return true;
            }
            UnitStatus::New | UnitStatus::Outside => Placed::NoRoom,
        };
        if placed == Placed::NoRoom {
            stats.refused_packets += 1;
            return true;
        }
        let repeats = u32::from(placed == Placed::Duplicate);
        receiver.on_placed(now, unit.first, (1, repeats), bytes, stats);
        true
    }

    /// Handles a whole train of units: the effect of `on_unit` for each packet, at the cost of one.
    /// Returns false without effect if it cannot be taken as a whole.
    pub(crate) fn on_units(
        &mut self,
        now: Time,
        lane: u8,
        train: &Train,
        unit: Unit,
        place: impl FnOnce() -> Option<u32>,
    ) -> bool {
        let Some(receiver) = self.endpoint.unit_receiver() else { return false };
        let Some(Lane { window, .. }) = self.lanes.get_mut(usize::from(lane)) else { return false };
        let new = receiver.all_new(unit.first, train.count);
        if train.first < window.next() || self.life.is_over() || !new {
            return false;
        }
        let Some(repeats) = place() else { return false };
        window.set_run(train.first, train.end());
        receiver.on_arrival(unit, train.count, u64::from(train.largest(0)));
        let stats = &mut self.stats;
        stats.received_packets += u64::from(train.count);
        stats.received_bytes += packtrain_units::ByteCount(train.bytes());
        receiver.on_placed(now, unit.first, (train.count, repeats), train.bytes(), stats);
        true
    }

    /// Handles a message about units; an acknowledgement comes with the host's counters.
    pub(crate) fn on_message(&mut self, now: Time, message: &Message, host: Option<&Host>) {
        match &mut self.endpoint {
            Endpoint::UnitSender(sender) => {
                self.stats.reports += 1;
                let drops = host.map_or(0, |host| sender.on_host(host));
                let outcome = sender.on_message(now, message, &mut self.stats);
                let Ok(mut outcome) = outcome else {
                    self.end(now, CloseReason::OptimisticAck, true);
                    return;
                };
                if let Message::Ack(ack) = message
                    && !ack.light
                    && !ack.rtt.is_zero()
                {
                    self.rtt.sample(now, ack.rtt);
                }
                if let Some(host) = host {
                    outcome.host_drops = drops;
                    outcome.drain = host.drain;
                }
                self.log.note(now, "recovery:message", || {
                    json!({
                        "says": format!("{message:?}"),
                        "in_flight": sender.in_flight(),
                    })
                });
                self.on_outcome(now, outcome, host.map_or(0, |host| host.drops));
            }
            Endpoint::UnitReceiver(receiver) => {
                if receiver.on_message(now, message).is_err() {
                    self.end(now, CloseReason::Protocol("units that cannot be"), true);
                }
            }
            Endpoint::NativeSender(_) | Endpoint::NativeReceiver(_) => {
                self.end(now, OTHER_FEEDBACK, true);
            }
        }
    }

    /// FOBS: handles a bitmap.
    pub(crate) fn on_bitmap(&mut self, now: Time, bitmap: &Bitmap, host: &Host) {
        let Endpoint::UnitSender(sender) = &mut self.endpoint else {
            self.end(now, OTHER_FEEDBACK, true);
            return;
        };
        self.stats.reports += 1;
        let drops = sender.on_host(host);
        let outcome = sender.on_bitmap(now, bitmap, &mut self.stats);
        let Ok(mut outcome) = outcome else {
            self.end(now, CloseReason::OptimisticAck, true);
            return;
        };
        (outcome.host_drops, outcome.drain) = (drops, host.drain);
        if let Some(rtt) = sender.rtt_known() {
            self.rtt.sample(now, rtt);
        }
        self.log.note(now, "recovery:bitmap", || {
            json!({
                "number": bitmap.number,
                "next": bitmap.next,
                "top": bitmap.top,
                "missing": bitmap.missing().map(|(a, b)| b - a).sum::<u64>(),
                "in_flight": sender.in_flight(),
            })
        });
        self.on_outcome(now, outcome, host.drops);
    }

    /// Handles bytes of the reliable channel.
    pub(crate) fn handle_reliable(&mut self, now: Time, bytes: &[u8]) {
        if self.life.is_over() {
            return;
        }
        let mut words = Vec::new();
        let told = self.stream.take(bytes, |word, host| words.push((word, host)));
        // The channel is authenticated, so its bytes prove liveness as datagrams do.
        if !words.is_empty() && self.life.on_received(now) {
            self.log.note(now, "life:recovered", || json!({}));
            self.events.push_back(Event::Recovered);
        }
        for (word, host) in words {
            self.on_reliable_message(now, &word, &host);
        }
        if told.is_err() {
            self.end(now, CloseReason::Protocol("senseless bytes on the control channel"), true);
        }
    }

    fn on_reliable_message(&mut self, now: Time, word: &sabul::Message, host: &Host) {
        let sender = match &mut self.endpoint {
            Endpoint::UnitSender(sender) => sender,
            Endpoint::UnitReceiver(receiver) => {
                if receiver.on_reliable_message(now, word).is_err() {
                    self.end(now, CloseReason::Protocol("units that cannot be"), true);
                }
                return;
            }
            _ => {
                self.end(now, OTHER_FEEDBACK, true);
                return;
            }
        };
        self.stats.reports += 1;
        let drops = sender.on_host(host);
        let Ok(mut outcome) = sender.on_reliable_message(now, word, &mut self.stats) else {
            self.end(now, CloseReason::OptimisticAck, true);
            return;
        };
        (outcome.host_drops, outcome.drain) = (drops, host.drain);
        if let Some(rtt) = sender.rtt_known() {
            self.rtt.sample(now, rtt);
        }
        self.log.note(now, "recovery:state", || json!({ "in_flight": sender.in_flight() }));
        self.on_outcome(now, outcome, host.drops);
    }

    /// The next message for the reliable channel.
    pub(crate) fn poll_reliable(&mut self) -> Option<Vec<u8>> {
        self.reliable_out.pop_front()
    }

    fn queue_reliable(&mut self, now: Time, word: &sabul::Message, host: &Host) {
        self.reliable_out.push_back(reliable::write(word, host));
        if self.reliable_out.len() > MAX_RELIABLE_MESSAGES {
            self.reliable_out.clear();
            self.end(now, CloseReason::Protocol("the control channel is stuck"), true);
        }
    }

    /// FOBS: handles a request for a complete acknowledgement.
    pub(crate) fn on_bitmap_request(&mut self, now: Time, rtt: Duration) {
        match self.endpoint.unit_receiver().map(|receiver| receiver.on_bitmap_request(now, rtt)) {
            Some(Ok(())) => {}
            _ => self.end(now, OTHER_FEEDBACK, true),
        }
    }

    /// A native report arrived at an end that counts in units.
    pub(crate) fn on_unexpected_report(&mut self, now: Time) {
        self.end(now, OTHER_FEEDBACK, true);
    }

    /// When a sender pings again that the breaker has silenced, or that waits for room with nothing
    /// in flight.
    pub(crate) fn request_at(&self) -> Option<Time> {
        let (_, breaker, _) = self.endpoint.breaker()?;
        let silent = breaker.is_silent().then(|| self.life.last_sent_at() + self.persist_gap());
        silent.or_else(|| self.persist_at())
    }

    pub(crate) fn poll_unit_sender(&mut self, now: Time) {
        let due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        if due(self.silent_at()) {
            self.silence(now);
        }
        let asks = due(self.request_at());
        let Some(sender) = self.endpoint.unit_sender() else { return };
        if due(sender.poll_timeout()) && sender.handle_timeout(now) {
            self.mtu_changed(now);
        }
        self.poll_mtu(now);
        while let Some(word) = self.endpoint.unit_sender().and_then(|s| s.poll_reliable_message()) {
            self.queue_reliable(now, &word, &Host::default());
        }
        if asks {
            // The lane of the data may be dead.
            self.ping_all(now);
        }
        // Messages take the lane of the data, because a dead one is left.
        let data_lane = (self.next_lane + self.lanes.len() - 1) % self.lanes.len();
        let Some(lane) = self.open_lane(data_lane) else { return };
        if let Some(rtt) =
            self.endpoint.unit_sender().and_then(|sender| sender.poll_bitmap_request())
        {
            self.send_frame(lane, Frame::BitmapRequest { rtt });
        }
        while self.may_queue()
            && let Some(message) = self.endpoint.unit_sender().and_then(|s| s.poll_message(now))
        {
            self.send_frame(lane, Frame::Unit(message));
        }
    }

    pub(crate) fn poll_unit_receiver(&mut self, now: Time) {
        let Some(receiver) = self.endpoint.unit_receiver() else { return };
        receiver.handle_timeout(now);
        let heard = usize::from(receiver.lane());
        while let Some(word) =
            self.endpoint.unit_receiver().and_then(|r| r.poll_reliable_message(now))
        {
            self.stats.reports += 1;
            let Some(receiver) = self.endpoint.unit_receiver() else { return };
            let host = receiver.host(&self.stats);
            self.queue_reliable(now, &word, &host);
        }
        let Some(lane) = self.open_lane(heard) else { return };
        while self.may_queue()
            && let Some(bitmap) = self.endpoint.unit_receiver().and_then(|r| r.poll_bitmap(now))
        {
            self.stats.reports += 1;
            let Some(receiver) = self.endpoint.unit_receiver() else { return };
            let host = receiver.host(&self.stats);
            self.send_frame(lane, Frame::Bitmap { bitmap, host });
        }
        while self.may_queue()
            && let Some(message) = self.endpoint.unit_receiver().and_then(|r| r.poll_message(now))
        {
            self.stats.reports += 1;
            match message {
                Message::Ack(ack) => {
                    let Some(receiver) = self.endpoint.unit_receiver() else { return };
                    let host = receiver.host(&self.stats);
                    self.send_frame(lane, Frame::Ack { ack, host });
                }
                Message::Nak { ranges } => {
                    // The rest is missing, and is told again, later.
                    let room = MAX_CONTROLS - self.controls.len();
                    for ranges in nak_pieces(&ranges).into_iter().take(room) {
                        self.send_frame(lane, Frame::Unit(Message::Nak { ranges }));
                    }
                }
                message => self.send_frame(lane, Frame::Unit(message)),
            }
        }
    }
}
