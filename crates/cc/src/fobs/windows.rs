//! What a window and its verdict lead to.

use packtrain_loss::{Cause, Verdict};

use super::launch::{LANDING, Launch};
use super::options::{Count, Judge, Mode};
use super::response::window;
use super::{Fobs, LANDINGS};
use crate::interface::LossWindow;

/// P(CPU) above which losses are no congestion (section 4.1).
const SURE: f64 = 0.95;
/// Windows that wait for a verdict. One that is pushed out is taken for the network's.
const MAX_WAITING_WINDOWS: usize = 4;
/// Losses that the counter leaves unexplained, and what share of them all, are not one too many:
/// it may be out by a few.
pub(super) const SLACK: (u64, u64) = (2, 50);
/// Losses so many round trips apart are two events: one is told, a round trip later the window
/// ends, and after another one it is judged.
const REACTION: f64 = 3.0;
/// Below this share of what the path was found to have it is worth it.
const WORTH: f64 = 0.5;
/// Never slower than so many packets a round trip.
const LEAST_PACKETS: f64 = 2.0;

/// A window that lost something.
#[derive(Debug)]
pub(super) struct Lossy {
    number: u64,
    packets: u64,
    lost: u64,
    /// As the host counted.
    dropped: u64,
    /// The first packets of its events.
    events: Vec<u64>,
}

impl Fobs {
    /// A window ended.
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
            // Nobody judges, or too slowly.
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
        let apart = (REACTION * self.rate * self.rtt_secs() / self.mtu).max(1.0) as u64;
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

    /// The network lost something.
    fn on_congestion(&mut self, lossy: &Lossy) {
        self.verdicts[0] += 1;
        let in_flight = self.rate * self.rtt_secs() / self.mtu;
        self.loss.congestion(lossy.packets, lossy.lost, &lossy.events, in_flight);
        let grown = self.found.ungrow();
        if self.options.count == Count::Events && !grown {
            let kept = 1.0 - lossy.lost as f64 / lossy.packets.max(1) as f64;
            self.found.lower(self.rate * kept * LANDING);
        }
        self.set_rate(true);
    }

    /// The host lost something: no congestion.
    fn on_host(&mut self, packets: u64) {
        self.verdicts[1] += 1;
        self.loss.clean(packets);
        self.grow();
        self.set_rate(true);
        self.launch_again();
    }

    /// The rate for the loss so far; `both` ways, or only up.
    pub(super) fn set_rate(&mut self, both: bool) {
        let allowed = match window(self.loss.rate()) {
            Some(packets) => packets.max(LEAST_PACKETS) * self.mtu / self.rtt_secs(),
            None => self.most(),
        };
        let rate = allowed.min(self.most());
        if both || rate > self.rate {
            self.rate = rate;
        }
    }

    /// A rate that was measured was measured once: somebody may have left since.
    fn grow(&mut self) {
        let used = self.rate >= self.most() && !self.app_limited;
        // A host that drops delivers less than it was sent.
        let follows = if self.verdicts[1] > 0 { 0.75 } else { 0.9 };
        if self.asked.is_none() && used && self.delivered >= follows * self.rate {
            self.found.grow();
        } else {
            self.found.settle();
        }
    }

    /// A window was good. If the rate is what a host had once, or what the losses of another time
    /// allow, the path may have more: a launch finds out in a few round trips.
    fn launch_again(&mut self) {
        let low = self.rate < WORTH * self.most() && self.options.count == Count::Events;
        let used = !self.app_limited && self.asked.is_none() && !self.queued;
        if self.launch.is_some() || !used || !(low || self.host_found) {
            return;
        }
        self.rest.0 = self.rest.0.saturating_sub(1);
        if self.rest.0 == 0 {
            (self.launch, self.landing) = (Some(Launch::again(self.rate)), LANDINGS);
        }
    }

    /// Why a window's packets were lost.
    pub(super) fn judged(&mut self, number: u64, verdict: &Verdict) {
        let Some(at) = self.waiting.iter().position(|w| w.number == number) else { return };
        let Some(mut lossy) = self.waiting.remove(at) else { return };
        let cpu = match self.options.judge {
            Judge::Ours => verdict.cause == Cause::Cpu && verdict.p_cpu > SURE,
            Judge::Paper => verdict.paper.p_cpu > SURE,
            Judge::Blind => false,
        };
        if self.options.judge == Judge::Ours && self.options.count == Count::Events {
            // What the host counted is not the network's, whatever lost the rest.
            let all = lossy.lost;
            lossy.lost = all.saturating_sub(lossy.dropped);
            lossy.events.truncate(lossy.lost as usize);
            if lossy.lost <= all / SLACK.1 {
                return self.on_host(lossy.packets);
            }
        }
        if cpu { self.on_host(lossy.packets) } else { self.on_congestion(&lossy) }
    }
}
