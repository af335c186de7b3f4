//! Handling of received packets and frames.

use std::net::SocketAddr;

use packtrain_units::{ByteCount, DataRate, Duration, Offset, Time};
use serde_json::json;

use crate::breaker::Verdict;
use crate::codec::frame::{Frame, Report};
use crate::core::endpoint::Endpoint;
use crate::core::lane::Lane;
use crate::core::ledger::Train;
use crate::core::probe_train::Shown;
use crate::core::rtt::Rtt;
use crate::core::sender::{Outcome, Sender};
use crate::core::{Control, Core, Envelope};
use crate::life::reason_of;
use crate::mtu::Mtu;
use crate::path::Answer;
use crate::seam::{CloseReason, Event, Placed};
use crate::stats::FlowStats;
use crate::udt::Message;

impl Core {
    /// Handles a data packet of `len` bytes, which `place` writes. Returns false if it is invalid
    /// at this end.
    #[inline]
    pub(crate) fn on_data(
        &mut self,
        envelope: &Envelope,
        offset: u64,
        len: usize,
        place: impl FnOnce() -> Placed,
    ) -> bool {
        let Some(receiver) = self.endpoint.native_receiver() else { return false };
        if len == 0 || offset.checked_add(len as u64).is_none() {
            return false;
        }
        let window = &mut self.lanes[usize::from(envelope.lane)].window;
        let gap = envelope.pn > window.next();
        let placed = if self.life.is_over() { Placed::NoRoom } else { place() };
        if placed == Placed::NoRoom {
            self.stats.refused_packets += 1;
            return true;
        }
        let duplicates = u32::from(placed == Placed::Duplicate);
        let (lane, pn) = (envelope.lane, envelope.pn);
        receiver.on_data(lane, pn, gap, (1, duplicates), len as u64, &mut self.stats);
        window.set(pn);
        true
    }

    /// Handles a whole train of data: the effect of `on_data` for each packet, at the cost of one.
    /// Returns false without effect if it cannot be taken as a whole: its numbers may be old, or
    /// `place` may not take all of it. `place` returns how many packets were duplicates.
    pub(crate) fn on_train(
        &mut self,
        lane: u8,
        train: &Train,
        place: impl FnOnce() -> Option<u32>,
    ) -> bool {
        let Some(receiver) = self.endpoint.native_receiver() else { return false };
        let Some(Lane { window, .. }) = self.lanes.get_mut(usize::from(lane)) else { return false };
        if train.first < window.next() || self.life.is_over() {
            return false;
        }
        let Some(duplicates) = place() else { return false };
        let gap = train.first > window.next();
        let packets = (train.count, duplicates);
        receiver.on_data(lane, train.first, gap, packets, train.bytes(), &mut self.stats);
        window.set_run(train.first, train.end());
        true
    }

    /// Handles a control packet.
    pub(crate) fn on_control(&mut self, now: Time, envelope: &Envelope, frames: Vec<Frame>) {
        let window = &mut self.lanes[usize::from(envelope.lane)].window;
        let gap = envelope.pn > window.next();
        window.set(envelope.pn);
        if let Some(receiver) = self.endpoint.native_receiver() {
            receiver.on_arrival(envelope.lane, envelope.pn, gap);
        }
        let mut pinged = false;
        for frame in frames {
            if self.life.is_over() {
                return;
            }
            match frame {
                // One answer a packet, so a forged address gets no more bytes than were sent.
                Frame::Ping { .. } if std::mem::replace(&mut pinged, true) => {}
                Frame::Ping { token, rtt } => self.on_ping(now, envelope, token, rtt),
                Frame::Pong { token, size } => self.on_pong(now, envelope, token, size),
                Frame::Report(report) => self.on_report(now, &report),
                Frame::Ack { ack, host } => {
                    self.on_message(now, &Message::Ack(ack), Some(&host));
                }
                Frame::Unit(message) => self.on_message(now, &message, None),
                Frame::Bitmap { bitmap, host } => self.on_bitmap(now, &bitmap, &host),
                Frame::BitmapRequest { rtt } => self.on_bitmap_request(now, rtt),
                Frame::Close { code } => self.end(now, reason_of(code), false),
            }
        }
    }

    /// Finishes a batch: `last` is the newest of its packets.
    pub(crate) fn on_batch(
        &mut self,
        now: Time,
        received_at: Time,
        last: &Envelope,
        room: ByteCount,
    ) {
        let lane = &mut self.lanes[usize::from(last.lane)];
        let newest = last.pn + 1 == lane.window.next();
        let dropped = lane.drops.on_batch(&lane.window);
        if lane.path.on_packet(now, last.from, newest, &mut self.secrets) {
            let guess = self.rtt.smoothed_or_guess();
            self.lane_opened(now, last.lane, last.from, guess);
        }
        if self.life.on_received(now) {
            self.log.note(now, "life:recovered", || json!({}));
            self.events.push_back(Event::Recovered);
        }
        if let Some(shown) = self.trains.on_batch(received_at) {
            self.on_probe_train(now, shown);
        }
        if let Some(total) = dropped {
            self.host_drops(last.lane, total);
        }
        match &mut self.endpoint {
            Endpoint::NativeReceiver(receiver) => {
                receiver.on_batch(now, received_at, last.lane);
                receiver.set_room(now, room);
            }
            Endpoint::UnitReceiver(receiver) => {
                receiver.on_batch(now, received_at, last.lane);
                receiver.set_room(now, room);
            }
            _ => {}
        }
    }

    fn on_ping(&mut self, now: Time, envelope: &Envelope, token: u64, rtt: Duration) {
        if !self.may_queue() {
            return;
        }
        let size = u16::try_from(envelope.size).unwrap_or(u16::MAX);
        let frame = Frame::Pong { token, size };
        let Envelope { lane, from: to, .. } = *envelope;
        self.controls.push_back(Control { lane, to, frame, pad: None, tracked: false });
        if let Some(receiver) = self.endpoint.native_receiver() {
            if !rtt.is_zero() {
                self.reported_rtt = rtt;
            }
            receiver.request_report(now);
        }
        if let Some(receiver) = self.endpoint.unit_receiver() {
            receiver.request_feedback(now);
        }
    }

    /// The answers to a train of pings have come.
    fn on_probe_train(&mut self, now: Time, shown: Shown) {
        self.log.note(now, "path:train", || match shown {
            Shown::Capacity(rate) => json!({ "capacity": rate.as_bps() }),
            Shown::TooShort(pings, span) => {
                json!({ "pings": pings, "span_us": span.as_micros() })
            }
        });
        if let Some(sender) = self.endpoint.native_sender() {
            sender.on_train(shown);
        }
    }

    fn on_pong(&mut self, now: Time, envelope: &Envelope, token: u64, size: u16) {
        self.trains.on_pong(token);
        let path = &self.lanes[usize::from(envelope.lane)].path;
        let probe = path.first_token(token).unwrap_or(token);
        if self.endpoint.mtu_mut().is_some_and(|mtu| mtu.on_pong(now, probe, size)) {
            self.mtu_changed(now);
        }
        match self.lanes[usize::from(envelope.lane)].path.on_pong(now, token) {
            Answer::Validated(rtt, to) => {
                if self.rtt.smoothed.is_none() {
                    self.rtt.sample(now, rtt);
                }
                self.lane_opened(now, envelope.lane, to, rtt);
            }
            Answer::Alive(rtt) => {
                // The sender measures with data; the receiver has only this sample.
                if !self.endpoint.is_sender() {
                    self.rtt.sample(now, rtt);
                } else if self.stats.acked_bytes == ByteCount::ZERO
                    && self.rtt.min().is_none_or(|min| rtt < min)
                {
                    // The first probe may have waited for the peer.
                    self.rtt.restart(now, rtt);
                    if let Some(controller) = self.endpoint.controller_mut() {
                        controller.on_path(rtt);
                    }
                }
                if let Some(sender) = self.endpoint.unit_sender()
                    && sender.on_alive(now)
                {
                    // Data goes on where the path has answered.
                    self.next_lane = usize::from(envelope.lane) + 1;
                }
            }
            Answer::Moved(to) => {
                self.log.note(now, "path:moved", || json!({ "to": to.to_string() }));
                self.events.push_back(Event::PathChanged { lane: envelope.lane, to });
            }
            // Of a size probe, or too old.
            Answer::Unknown => {}
        }
    }

    /// A lane may carry data. The first one establishes the flow, with a round trip of `rtt`.
    fn lane_opened(&mut self, now: Time, lane: u8, to: SocketAddr, rtt: Duration) {
        let data = || json!({ "lane": lane, "to": to.to_string() });
        self.log.note(now, "path:validated", data);
        if self.life.is_established() {
            return;
        }
        self.life.establish();
        if let Some(mtu) = self.endpoint.mtu_mut() {
            mtu.on_validated(now);
        }
        if self.trains.is_answered()
            && let Some(sender) = self.endpoint.native_sender()
        {
            sender.await_train(now + rtt / 4);
        }
        if let Some(controller) = self.endpoint.controller_mut() {
            controller.on_path(rtt);
        }
        self.events.push_back(Event::Established { rtt });
    }

    fn on_report(&mut self, now: Time, report: &Report) {
        if self.endpoint.counts_units() {
            self.on_unexpected_report(now);
            return;
        }
        let Some(sender) = self.endpoint.native_sender() else { return };
        self.stats.reports += 1;
        let lanes = &mut self.lanes;
        let outcome = sender.on_report(now, report, lanes, &mut self.rtt, &mut self.stats);
        let Ok(outcome) = outcome else {
            self.end(now, CloseReason::OptimisticAck, true);
            return;
        };
        let (log, rtt, stats) = (&mut self.log, &self.rtt, &self.stats);
        log.note(now, "recovery:metrics_updated", || metrics(sender, rtt, stats));
        self.on_outcome(now, outcome, report.host_drops);
    }

    /// Applies the effects of feedback other than those on the controller; `host_drops` is the
    /// total.
    pub(super) fn on_outcome(&mut self, now: Time, outcome: Outcome, host_drops: u64) {
        if outcome.host_drops > 0 {
            let drain_rate = Some(outcome.drain).filter(|d| d.as_bps() > 0);
            self.host_limited(host_drops, drain_rate);
        }
        if outcome.mtu_changed {
            self.mtu_changed(now);
        }
        match outcome.verdict {
            Verdict::Fine => {}
            Verdict::Braked(to) => {
                self.log.note(now, "breaker:braked", || json!({ "to": to.as_bps() }));
                self.events.push_back(Event::Braked { to });
            }
            Verdict::Stop => self.end(now, CloseReason::Breaker, true),
        }
    }

    /// At most one such event is queued for the owner.
    fn host_limited(&mut self, drops: u64, drain_rate: Option<DataRate>) {
        let event = Event::HostLimited { drops, drain_rate };
        match self.events.back_mut() {
            Some(last @ Event::HostLimited { .. }) => *last = event,
            _ => self.events.push_back(event),
        }
    }

    pub(super) fn mtu_changed(&mut self, now: Time) {
        let Some(mtu) = self.endpoint.mtu().map(Mtu::current) else { return };
        if let Some(sender) = self.endpoint.unit_sender() {
            sender.on_mtu();
        } else if let Some(controller) = self.endpoint.controller_mut() {
            controller.set_mtu(ByteCount(u64::from(mtu)));
        }
        self.log.note(now, "mtu:changed", || json!({ "mtu": mtu }));
        self.events.push_back(Event::MtuChanged { mtu: ByteCount(u64::from(mtu)) });
    }

    pub(super) fn end(&mut self, now: Time, reason: CloseReason, tell: bool) {
        if self.life.is_over() {
            return;
        }
        self.log.note(now, "life:closed", || json!({ "why": reason.to_string() }));
        self.life.close(now, &reason, tell);
        self.controls.clear();
        self.revoke(Offset(0)..Offset(u64::MAX));
        self.events.push_back(Event::Closed(reason));
    }
}

/// The data of qlog's `recovery:metrics_updated`: times in milliseconds, rates in bit/s, amounts in
/// bytes.
fn metrics(sender: &Sender, rtt: &Rtt, stats: &FlowStats) -> serde_json::Value {
    let mut stats = stats.clone();
    rtt.gauges(&mut stats);
    sender.gauges(rtt.smoothed_or_guess(), &mut stats);
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    json!({
        "congestion_window": stats.cwnd.get(),
        "bytes_in_flight": stats.in_flight.get(),
        "pacing_rate": stats.pacing_rate.map(DataRate::as_bps),
        "latest_rtt": ms(rtt.latest),
        "smoothed_rtt": rtt.smoothed.map(ms),
        "min_rtt": rtt.min().map(ms),
        "queueing_delay": stats.queueing_delay.map(ms),
        "delivery_rate": stats.delivery_rate.map(DataRate::as_bps),
        "capacity": stats.capacity.map(DataRate::as_bps),
        "sent_bytes": stats.sent_bytes.get(),
        "acked_bytes": stats.acked_bytes.get(),
        "lost_packets": stats.lost_packets,
        "limit": format!("{:?}", stats.limit),
        "controller": stats.controller,
    })
}
