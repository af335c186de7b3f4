//! Effects of a window and its verdict.

use packtrain_loss::{Cause, Verdict};

use super::launch::{LANDING, Launch};
use super::options::{Count, Judge, Mode};
use super::response::window;
use super::{Fobs, LANDINGS};
use crate::interface::LossWindow;

/// P(CPU) above which losses are not congestion (section 4.1).
const MIN_CPU_PROBABILITY: f64 = 0.95;
/// Windows that wait for a verdict. The oldest is dropped first and counts as lost in the network.
const MAX_WAITING_WINDOWS: usize = 4;
/// Losses that the host's counter may leave unexplained, as a number and as one part of all losses:
/// the counter may be off by a few.
pub(super) const UNEXPLAINED_SLACK: (u64, u64) = (2, 50);
/// Losses this many round trips apart are two events: after a loss is reported the window ends a
/// round trip later, and after another one it is classified.
const EVENT_GAP_ROUND_TRIPS: f64 = 3.0;
/// Below this fraction of the measured capacity the launch is repeated.
const RELAUNCH_BELOW: f64 = 0.5;
/// Minimum packets per round trip.
const MIN_PACKETS: f64 = 2.0;

/// A window with losses.
#[derive(Debug)]
pub(super) struct Lossy {
    number: u64,
    packets: u64,
    lost: u64,
    /// Drops counted by the host.
    dropped: u64,
    /// The first packets of its loss events.
    events: Vec<u64>,
}

impl Fobs {
    /// Ends a window.
    pub(super) fn on_window(&mut self, window: LossWindow) {
        let lossy = self.losses(&window);
        self.event = None;
        self.landing = 0;
        if lossy.lost == 0 {
            self.loss.clean(lossy.packets);
            self.grow();
            self.set_rate(self.options.mode == Mode::Window);
            self.launch_again();
        } else if self.options.judge == Judge::Blind {
            self.out.push_back(window);
            self.on_congestion(&lossy);
        } else {
            self.waiting.push_back(lossy);
            self.out.push_back(window);
        }
        while self.waiting.len() > MAX_WAITING_WINDOWS {
            // No verdict arrived, or too slowly.
            if let Some(lossy) = self.waiting.pop_front() {
                self.on_congestion(&lossy);
            }
        }
        while self.out.len() > MAX_WAITING_WINDOWS {
            self.out.pop_front();
        }
        (self.app_limited, self.queued) = (false, false);
        self.fit_window();
    }

    fn losses(&self, window: &LossWindow) -> Lossy {
        let apart =
            (EVENT_GAP_ROUND_TRIPS * self.rate * self.rtt_secs() / self.mtu).max(1.0) as u64;
        let (mut events, mut behind) = (Vec::new(), 0);
        for loss in window.signature.losses() {
            if loss.start as u64 >= behind {
                events.push(loss.start as u64);
                behind = loss.start as u64 + apart;
            }
        }
        Lossy {
            number: window.number,
            packets: window.signature.len() as u64,
            lost: window.signature.lost() as u64,
            dropped: window.host_drops.unwrap_or(0),
            events,
        }
    }

    /// The network lost packets.
    fn on_congestion(&mut self, lossy: &Lossy) {
        self.verdicts[0] += 1;
        let in_flight = self.rate * self.rtt_secs() / self.mtu;
        self.loss.congestion(lossy.packets, lossy.lost, &lossy.events, in_flight);
        let grown = self.capacity.revert_growth();
        if self.options.count == Count::Events && !grown {
            let kept = 1.0 - lossy.lost as f64 / lossy.packets.max(1) as f64;
            self.capacity.lower(self.rate * kept * LANDING);
        }
        self.set_rate(true);
    }

    /// The host lost packets, which is not congestion.
    fn on_host(&mut self, packets: u64) {
        self.verdicts[1] += 1;
        self.loss.clean(packets);
        self.grow();
        self.set_rate(true);
        self.launch_again();
    }

    /// Sets the rate for the loss so far; `both` allows a decrease too.
    pub(super) fn set_rate(&mut self, both: bool) {
        let allowed = match window(self.loss.rate()) {
            Some(packets) => packets.max(MIN_PACKETS) * self.mtu / self.rtt_secs(),
            None => self.max_rate(),
        };
        let rate = allowed.min(self.max_rate());
        if both || rate > self.rate {
            self.rate = rate;
        }
    }

    /// Grows the estimate: the capacity may have risen since it was measured.
    fn grow(&mut self) {
        let used = self.rate >= self.max_rate() && !self.app_limited;
        // A host that drops delivers less than was sent to it.
        let follows = if self.verdicts[1] > 0 { 0.75 } else { 0.9 };
        if self.requested.is_none() && used && self.delivered >= follows * self.rate {
            self.capacity.grow();
        } else {
            self.capacity.settle();
        }
    }

    /// After a clean window: if the rate is that of a host that dropped packets, or the one that
    /// old losses allow, the path may carry more. A launch measures it in a few round trips.
    fn launch_again(&mut self) {
        let low =
            self.rate < RELAUNCH_BELOW * self.max_rate() && self.options.count == Count::Events;
        let used = !self.app_limited && self.requested.is_none() && !self.queued;
        if self.launch.is_some() || !used || !(low || self.host_limited) {
            return;
        }
        self.relaunch_wait.0 = self.relaunch_wait.0.saturating_sub(1);
        if self.relaunch_wait.0 == 0 {
            (self.launch, self.landing) = (Some(Launch::resume(self.rate)), LANDINGS);
        }
    }

    /// Takes the verdict on a window.
    pub(super) fn judged(&mut self, number: u64, verdict: &Verdict) {
        let Some(at) = self.waiting.iter().position(|w| w.number == number) else { return };
        let Some(mut lossy) = self.waiting.remove(at) else { return };
        let cpu = match self.options.judge {
            Judge::Ours => verdict.cause == Cause::Cpu && verdict.p_cpu > MIN_CPU_PROBABILITY,
            Judge::Paper => verdict.paper.p_cpu > MIN_CPU_PROBABILITY,
            Judge::Blind => false,
        };
        if self.options.judge == Judge::Ours && self.options.count == Count::Events {
            // Drops counted by the host are not losses of the network, whatever caused the others.
            let all = lossy.lost;
            lossy.lost = all.saturating_sub(lossy.dropped);
            lossy.events.truncate(lossy.lost as usize);
            if lossy.lost <= all / UNEXPLAINED_SLACK.1 {
                return self.on_host(lossy.packets);
            }
        }
        if cpu { self.on_host(lossy.packets) } else { self.on_congestion(&lossy) }
    }
}
