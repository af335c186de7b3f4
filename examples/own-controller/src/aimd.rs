//! Additive increase, multiplicative decrease.

use packtrain_cc::{
    BuildError, CongestionController, ControllerConfig, Feedback, Sent, Signal, Signals, Start,
};
use packtrain_units::{ByteCount, DataRate};

/// Packets that the window grows by in a round trip, unless the name says otherwise.
const INCREASE: u64 = 1;

/// Makes the controller. `aimd:4` grows by four packets each round trip.
pub fn build(
    argument: Option<&str>,
    config: &ControllerConfig,
    start: &Start,
) -> Result<Box<dyn CongestionController>, BuildError> {
    let increase = match argument {
        None => INCREASE,
        Some(text) => match text.parse() {
            Ok(increase @ 1..=1_000) => increase,
            _ => return Err(BuildError::Argument { name: "aimd", argument: text.to_owned() }),
        },
    };
    Ok(Box::new(Aimd::new(config, start, increase)))
}

/// Some packets more each round trip, half at a loss.
#[derive(Debug)]
pub struct Aimd {
    mtu: u64,
    window: u64,
    increase: u64,
    /// One past the highest send index used.
    next: u64,
    /// Losses below this index were answered by the last cut.
    recover: u64,
}

impl Aimd {
    /// A controller in its first round; the window grows by `increase` packets a round trip.
    pub fn new(config: &ControllerConfig, start: &Start, increase: u64) -> Self {
        let mtu = config.mtu.get();
        Self { mtu, window: u64::from(start.initial_window) * mtu, increase, next: 0, recover: 0 }
    }
}

impl CongestionController for Aimd {
    fn name(&self) -> &'static str {
        "aimd"
    }

    fn needs(&self) -> Signals {
        Signals::of(&[Signal::Losses])
    }

    fn set_mtu(&mut self, mtu: ByteCount) {
        self.mtu = mtu.get();
    }

    fn on_sent(&mut self, sent: &Sent) {
        self.next = sent.first + u64::from(sent.count);
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        let new_loss = feedback.lost.iter().any(|loss| loss.first >= self.recover);
        if new_loss {
            self.window = (self.window / 2).max(4 * self.mtu);
            self.recover = self.next;
        } else if feedback.round_ended && !feedback.app_limited {
            self.window += self.increase * self.mtu;
        }
    }

    fn cwnd(&self) -> ByteCount {
        ByteCount(self.window)
    }

    fn pacing_rate(&self) -> Option<DataRate> {
        None
    }

    fn send_quantum(&self) -> ByteCount {
        ByteCount(16 * self.mtu)
    }
}
