//! Direct-execution simulation (the FOBS paper, section 4.1.1): windows that were actually sent
//! drive a virtual sender.
//!
//! The end of each physical window is the end of a window of a virtual sender on a virtual link,
//! with its own window, rate and clock. If the physical window had losses, the virtual sender
//! responds: it ignores them if they are attributed to the receiver's processor with more than 95
//! %. Otherwise it computes its window from the long-term loss rate by the response function of
//! HighSpeed TCP (RFC 3649), or by that of standard TCP up to `Low_Window`.

use packtrain_units::{ByteCount, DataRate, Duration};

/// RFC 3649 section 5: up to this window standard TCP's response function applies, in packets.
pub const LOW_WINDOW: f64 = 38.0;
/// Section 2.2: above this probability of the processor the sender does not respond.
pub const SURE: f64 = 0.95;
/// Below this loss rate of a window the paper's classifier is undefined.
pub(crate) const IN_RANGE: f64 = 0.000_08;

/// The virtual link and its packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Virtual {
    /// 10 Gbit/s in RFC 3649 and in the paper.
    pub link: DataRate,
    /// 100 ms in RFC 3649.
    pub rtt: Duration,
    /// 1500 bytes in RFC 3649; the paper does not state its size.
    pub packet: ByteCount,
}

/// A window that was actually sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Physical {
    /// Packets in it.
    pub packets: u64,
    /// Lost packets.
    pub lost: u64,
    /// The classifier's probability of the receiver's processor as the cause; none: without a
    /// classifier, counted as 0.5.
    pub p_cpu: Option<f64>,
}

/// The outcome of a virtual transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Long-term loss rate of the physical transfer.
    pub loss_rate: f64,
    /// Number of windows, of those with losses (`events`), and of those within the classifier's
    /// range (`in_range`).
    pub windows: u64,
    /// See `windows`.
    pub events: u64,
    /// See `windows`.
    pub in_range: u64,
    /// Of those in range: processor with more than 95 %.
    pub acted: u64,
    /// Of those in range: processor more probable, up to 95 %.
    pub leaned: u64,
    /// Of those in range: equally probable.
    pub undecided: u64,
    /// Of those in range: network more probable.
    pub network: u64,
    /// Mean rate of the virtual sender.
    pub throughput: DataRate,
}

/// The window in packets for a long-term loss rate `p`; `last` is the previous window.
pub fn response(p: f64, last: f64) -> f64 {
    if p <= 0.0 {
        return f64::INFINITY;
    }
    match last > LOW_WINDOW {
        true => 0.12 / libm::pow(p, 0.835),
        false => 1.2 / p.sqrt(),
    }
}

/// Runs the virtual sender on physical windows.
pub fn run(config: &Virtual, windows: impl IntoIterator<Item = Physical>) -> Outcome {
    let bits = config.packet.get() as f64 * 8.0;
    let (link, rtt) = (config.link.as_bps() as f64, config.rtt.as_secs_f64());
    // The bandwidth-delay product; more would only queue.
    let max_window = link * rtt / bits;
    let (mut window, mut time, mut sent_bits) = (LOW_WINDOW.min(max_window), 0.0, 0.0);
    let (mut sent, mut lost, mut blamed) = (0_u64, 0_u64, 0_u64);
    let mut outcome = Outcome::default();
    for physical in windows {
        let rate = (window * bits / rtt).min(link);
        time += window * bits / rate;
        sent_bits += window * bits;
        sent += physical.packets;
        lost += physical.lost;
        outcome.windows += 1;
        if physical.lost == 0 {
            continue;
        }
        let p_cpu = physical.p_cpu.unwrap_or(0.5);
        outcome.count(physical.lost as f64 / physical.packets as f64, p_cpu);
        if p_cpu <= SURE {
            blamed += physical.lost;
        }
        // Losses attributed to the processor count as not lost.
        let p = blamed as f64 / sent as f64;
        window = response(p, window).clamp(1.0, max_window);
    }
    outcome.loss_rate = if sent > 0 { lost as f64 / sent as f64 } else { 0.0 };
    outcome.throughput = DataRate::from_bps(if time > 0.0 { (sent_bits / time) as u64 } else { 0 });
    outcome
}

impl Outcome {
    fn count(&mut self, p: f64, p_cpu: f64) {
        self.events += 1;
        if p < IN_RANGE {
            return;
        }
        self.in_range += 1;
        match p_cpu {
            p if p > SURE => self.acted += 1,
            p if p > 0.5 => self.leaned += 1,
            p if p < 0.5 => self.network += 1,
            _ => self.undecided += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RFC: Virtual = Virtual {
        link: DataRate::from_mbps(10_000),
        rtt: Duration::from_millis(100),
        packet: ByteCount(1_500),
    };

    fn windows(p_cpu: Option<f64>) -> impl Iterator<Item = Physical> {
        // One of 35 windows of 100,000 packets loses 1,225: 3.5e-4.
        (0..7_000).map(move |i| Physical {
            packets: 100_000,
            lost: if i % 35 == 34 { 1_225 } else { 0 },
            p_cpu,
        })
    }

    #[test]
    fn the_two_response_functions_meet_at_low_window() {
        assert!((response(1e-3, 39.0) - 38.0).abs() < 0.5);
        assert!((response(1e-3, 38.0) - 38.0).abs() < 0.5);
        // RFC 3649 section 5: High_Window 83,000 at High_P 1e-7.
        assert!((response(1e-7, 39.0) / 83_000.0 - 1.0).abs() < 0.02);
        assert_eq!(response(0.0, 1.0), f64::INFINITY);
    }

    #[test]
    fn who_puts_loss_down_to_the_processor_fills_the_link() {
        let with = run(&RFC, windows(Some(0.99)));
        assert_eq!((with.events, with.in_range, with.acted), (200, 200, 200));
        assert!(with.throughput > DataRate::from_mbps(9_900), "{with:?}");
        assert!((with.loss_rate - 3.5e-4).abs() < 1e-9);
        let without = run(&RFC, windows(None));
        // 0.12 / (3.5e-4)^0.835 = 93 packets of 1,500 bytes in 100 ms.
        let mbps = without.throughput.as_bps() as f64 / 1e6;
        assert!((10.0..12.5).contains(&mbps), "{mbps}");
        assert_eq!(without.undecided, 200);
        // The limit itself is not sure.
        assert_eq!(run(&RFC, windows(Some(0.95))).throughput, without.throughput);
    }
}
