//! The timers of the core: paths, liveness, reports, losses, tail probes, size probes, silence, the
//! controller's own timer.

use std::net::SocketAddr;

use packtrain_units::{Duration, Time};
use serde_json::json;

use crate::breaker::Breaker;
use crate::codec::frame::Frame;
use crate::config::limits::{LANES, SILENCE};
use crate::core::endpoint::Endpoint;
use crate::core::lane::Lane;
use crate::core::receiver::report_interval;
use crate::core::sender::Sender;
use crate::core::{Control, Core, MAX_CONTROLS};
use crate::life::Due;
use crate::seam::{CloseReason, Event};
use crate::stats::Limit;

/// Minimum interval at which a changed round trip is sent to the receiver.
const RTT_UPDATE_GAP: Duration = Duration::from_millis(100);
/// Minimum interval of requests to a receiver without room.
const PERSIST_INTERVAL: Duration = Duration::from_millis(50);

impl Core {
    /// When `tick` has work.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let life = self.life.poll_timeout();
        if self.life.is_over() {
            return life;
        }
        let paths = self.lanes.iter().filter_map(|lane| lane.path.poll_timeout());
        let due = life.into_iter().chain(paths).min();
        if !self.life.is_established() {
            return due;
        }
        let endpoint = self.endpoint_timeout().into_iter().chain(self.held_until());
        due.into_iter().chain(endpoint).chain(self.mtu_timeout()).min()
    }

    fn endpoint_timeout(&self) -> Option<Time> {
        match &self.endpoint {
            Endpoint::NativeSender(sender) => self.sender_timeout(sender),
            // What is due waits for those that are to be sent.
            Endpoint::NativeReceiver(_) | Endpoint::UnitReceiver(_) if !self.may_queue() => None,
            Endpoint::NativeReceiver(receiver) => receiver.poll_timeout(self.report_rtt()),
            Endpoint::UnitSender(sender) => {
                let due = [sender.poll_timeout(), self.silent_at(), self.request_at()];
                due.into_iter().flatten().min()
            }
            Endpoint::UnitReceiver(receiver) => receiver.poll_timeout(),
        }
    }

    fn mtu_timeout(&self) -> Option<Time> {
        self.endpoint.mtu()?.poll_timeout()
    }

    fn sender_timeout(&self, sender: &Sender) -> Option<Time> {
        let overdue = self.overdue();
        let tails = self.lanes.iter().filter_map(|lane| lane.tail_at(overdue));
        [
            sender.loss_deadline(&self.lanes, &self.rtt),
            sender.paced_until(),
            sender.poll_timeout(),
            self.silent_at(),
            self.persist_at(),
            self.rtt_update_at(),
        ]
        .into_iter()
        .flatten()
        .chain(tails)
        .min()
    }

    /// Does all work that is due.
    pub(crate) fn tick(&mut self, now: Time) {
        while let Some(due) = self.life.poll(now) {
            self.on_life(now, due);
        }
        if self.life.is_over() {
            return;
        }
        self.poll_paths(now);
        if !self.life.is_established() {
            return;
        }
        match &self.endpoint {
            Endpoint::NativeSender(_) => self.poll_sender(now),
            Endpoint::NativeReceiver(_) => self.poll_receiver(now),
            Endpoint::UnitSender(_) => self.poll_unit_sender(now),
            Endpoint::UnitReceiver(_) => self.poll_unit_receiver(now),
        }
    }

    fn on_life(&mut self, now: Time, due: Due) {
        match due {
            Due::Keepalive => self.ping_all(now),
            Due::Stalled => {
                self.log.note(now, "life:stalled", || json!({}));
                self.events.push_back(Event::Stalled);
            }
            Due::Silent => self.end(now, CloseReason::Silent(SILENCE), true),
            Due::Unreachable => self.end(now, CloseReason::Unreachable, false),
            Due::Close(code) => {
                for lane in 0..self.lanes.len() {
                    if let Some(to) = self.lanes[lane].path.last_known() {
                        let frame = Frame::Close { code };
                        let lane = lane as u8;
                        let control = Control { lane, to, frame, pad: None, tracked: false };
                        self.controls.push_back(control);
                    }
                }
            }
        }
    }

    fn poll_paths(&mut self, now: Time) {
        self.probe_first_size(now);
        let rtt = self.rtt_for_ping();
        for (i, lane) in self.lanes.iter_mut().enumerate() {
            if lane.path.poll_timeout().is_none_or(|at| now < at) {
                continue;
            }
            for (to, token) in lane.path.poll(now, &mut self.secrets) {
                let frame = Frame::Ping { token, rtt };
                let lane = i as u8;
                self.controls.push_back(Control { lane, to, frame, pad: None, tracked: false });
            }
        }
    }

    /// Sends padded pings before the small ones that validate the first lane. Where the path carries
    /// them, their answers come first, and all data has the full size. To one address they are a
    /// train, if the owner allows it.
    fn probe_first_size(&mut self, now: Time) {
        let Self { lanes, endpoint, controls, trains, secrets, life, .. } = self;
        let (Some(lane), Some(mtu)) = (lanes.first_mut(), endpoint.mtu_mut()) else { return };
        if life.is_established() || !lane.path.probes_at(now) {
            return;
        }
        let targets = lane.path.targets();
        let first = lane.path.first_probes();
        let train = first.and_then(|heard| trains.target(heard, &targets));
        let v6 = |to: &SocketAddr| !to.ip().to_canonical().is_ipv4();
        let larger = |to: &SocketAddr| Some((*to, mtu.first_probe(v6(to))?));
        let mut sized: Vec<(SocketAddr, u16)> = targets.iter().filter_map(larger).collect();
        let largest = sized.iter().map(|(_, size)| *size).max();
        let train = train.map(|to| (to, mtu.first_probe(v6(&to)).unwrap_or(mtu.current())));
        if sized.is_empty() && train.is_none() {
            return;
        }
        // The train goes to the last address.
        sized.retain(|(to, _)| train.is_none_or(|(last, _)| last != *to));
        sized.extend(train);
        let further = if train.is_some() { trains.pings().saturating_sub(1) } else { 0 };
        let to: Vec<SocketAddr> = sized.iter().map(|(to, _)| *to).collect();
        let tokens = lane.path.on_pings(now, &to, further, secrets);
        if let (Some(largest), Some(token)) = (largest, tokens.first()) {
            mtu.on_first_probe(now, *token, largest);
        }
        let mut ping = |(to, size), token| {
            let frame = Frame::Ping { token, rtt: Duration::ZERO };
            controls.push_back(Control { lane: 0, to, frame, pad: Some(size), tracked: false });
        };
        for (place, token) in sized.iter().zip(&tokens) {
            ping(*place, *token);
        }
        let Some((last, token)) = train.zip(tokens.last()) else { return };
        trains.on_sent(last.0, *token, last.1);
        for i in 1..=further {
            ping(last, token.wrapping_add(i));
        }
    }

    fn poll_receiver(&mut self, now: Time) {
        if !self.may_queue() {
            return;
        }
        let pace = self.report_rtt();
        let Some(receiver) = self.endpoint.native_receiver() else { return };
        let heard = usize::from(receiver.lane());
        let Some(lane) = self.open_lane(heard) else { return };
        let Some(receiver) = self.endpoint.native_receiver() else { return };
        let frames = receiver.poll(now, pace, &self.lanes, &self.stats);
        // No honest sender leaves so many numbers out that a report is longer.
        for frame in frames.into_iter().take(MAX_CONTROLS) {
            self.stats.reports += 1;
            self.send_frame(lane, frame);
        }
    }

    /// This lane, or any open lane while that one is not open: feedback that is due and cannot leave
    /// would keep its timer in the past.
    pub(super) fn open_lane(&self, preferred: usize) -> Option<usize> {
        let mut choices = std::iter::once(preferred).chain(0..self.lanes.len());
        choices.find(|lane| self.lanes[*lane].is_open())
    }

    /// An open lane, if possible one that is not dead.
    fn live_lane(&self) -> Option<usize> {
        let alive = self.lanes.iter().position(|lane| lane.is_open() && !lane.is_dead());
        alive.or_else(|| self.lanes.iter().position(Lane::is_open))
    }

    /// Queues a frame on an open lane.
    pub(super) fn send_frame(&mut self, lane: usize, frame: Frame) {
        let Some(to) = self.lanes[lane].path.remote() else { return };
        let lane = lane as u8;
        self.controls.push_back(Control { lane, to, frame, pad: None, tracked: false });
    }

    fn poll_sender(&mut self, now: Time) {
        let (silent_at, persist_at, rtt_update_at) =
            (self.silent_at(), self.persist_at(), self.rtt_update_at());
        let due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        let Some(sender) = self.endpoint.native_sender() else { return };
        sender.on_timeout(now);
        if due(silent_at) {
            self.silence(now);
        }
        let Some(sender) = self.endpoint.native_sender() else { return };
        if due(sender.loss_deadline(&self.lanes, &self.rtt))
            && sender.on_loss_timer(now, &mut self.lanes, &self.rtt, &mut self.stats)
        {
            self.mtu_changed(now);
        }
        self.poll_tails(now);
        self.poll_mtu(now);
        if due(persist_at) || due(rtt_update_at) {
            self.reported_rtt = self.rtt.min().unwrap_or_default();
            self.rtt_reported_at = now;
            if let Some(lane) = self.live_lane() {
                self.ping(now, lane, false);
            }
        }
    }

    /// Stops data because no feedback arrived.
    pub(super) fn silence(&mut self, now: Time) {
        self.endpoint.silence();
        self.stats.silences += 1;
        self.log.note(now, "breaker:silence", || json!({}));
    }

    /// Sends a small probe and the oldest data on lanes whose last packets were not answered.
    fn poll_tails(&mut self, now: Time) {
        let overdue = self.overdue();
        for i in 0..self.lanes.len() {
            if self.lanes[i].tail_at(overdue).is_none_or(|at| now < at) {
                continue;
            }
            self.lanes[i].on_tail_probe(now);
            self.ping(now, i, true);
            let others = self.lanes.iter().any(|lane| lane.is_open() && !lane.is_dead());
            let Some(sender) = self.endpoint.native_sender() else { return };
            if !sender.breaker.is_silent() {
                sender.repeat_oldest();
            }
            // Not only when it dies: the others may come back later.
            if self.lanes[i].is_dead() && others {
                sender.abandon(&mut self.lanes[i], &mut self.stats);
                self.log.note(now, "path:dead", || json!({ "lane": i }));
            }
        }
    }

    pub(super) fn poll_mtu(&mut self, now: Time) {
        let silence_timeout = self.rtt.overdue(Duration::ZERO).max(Duration::from_millis(50)) * 2;
        if self.mtu_timeout().is_none_or(|at| now < at) {
            return;
        }
        let Some(lane) = self.live_lane() else { return };
        let Some(to) = self.lanes[lane].path.remote() else { return };
        let Some(mtu) = self.endpoint.mtu_mut() else { return };
        let before = mtu.current();
        let token = self.secrets.token();
        let size = mtu.poll(now, token, silence_timeout);
        if mtu.current() != before {
            self.mtu_changed(now);
        }
        if let Some(size) = size {
            let frame = Frame::Ping { token, rtt: self.rtt_for_ping() };
            let lane = lane as u8;
            self.controls.push_back(Control { lane, to, frame, pad: Some(size), tracked: false });
        }
    }

    /// Pings on all open lanes.
    pub(super) fn ping_all(&mut self, now: Time) {
        for lane in 0..self.lanes.len() {
            self.ping(now, lane, false);
        }
    }

    fn ping(&mut self, now: Time, lane: usize, tracked: bool) {
        let Some(to) = self.lanes[lane].path.remote() else { return };
        let tokens = self.lanes[lane].path.on_pings(now, &[to], 0, &mut self.secrets);
        let Some(&token) = tokens.first() else { return };
        let frame = Frame::Ping { token, rtt: self.rtt_for_ping() };
        self.controls.push_back(Control { lane: lane as u8, to, frame, pad: None, tracked });
    }

    /// The minimum round trip as encoded in a ping: in whole microseconds, zero if unknown.
    fn rtt_for_ping(&self) -> Duration {
        Duration::from_micros(self.rtt.min().unwrap_or_default().as_micros())
    }

    /// The round trip that sets the interval of reports: the sender's, if it was received.
    fn report_rtt(&self) -> Duration {
        let own = self.rtt.min().unwrap_or(self.rtt.smoothed_or_guess());
        if self.reported_rtt.is_zero() { own } else { self.reported_rtt }
    }

    fn overdue(&self) -> Duration {
        self.rtt.overdue(report_interval(self.rtt.smoothed_or_guess()))
    }

    /// When the path counts as silent and data stops.
    pub(super) fn silent_at(&self) -> Option<Time> {
        let (in_flight, breaker, reported_at) = self.endpoint.breaker()?;
        let silence_timeout = Breaker::silence_timeout(self.rtt.smoothed_or_guess());
        let waits = in_flight > 0 && !breaker.is_silent();
        waits.then(|| reported_at + silence_timeout)
    }

    pub(super) fn persist_gap(&self) -> Duration {
        self.rtt.smoothed_or_guess().max(PERSIST_INTERVAL)
    }

    /// When to send a request to a receiver without room while nothing is in flight.
    pub(super) fn persist_at(&self) -> Option<Time> {
        let (in_flight, ..) = self.endpoint.breaker()?;
        let limit = self.endpoint.limit()?;
        let stuck = in_flight == 0 && (limit == Limit::Credit || limit == Limit::Silence);
        stuck.then(|| self.life.last_sent_at() + self.persist_gap())
    }

    /// When to report to the receiver that the round trip changed by a quarter.
    fn rtt_update_at(&self) -> Option<Time> {
        let Endpoint::NativeSender(_) = &self.endpoint else { return None };
        let base = self.rtt.min()?;
        let off = base.max(self.reported_rtt) - base.min(self.reported_rtt);
        (off > self.reported_rtt / 4).then(|| self.rtt_reported_at + RTT_UPDATE_GAP)
    }
}

const _: () = assert!(LANES <= 16, "a lane is four bits on the wire");
