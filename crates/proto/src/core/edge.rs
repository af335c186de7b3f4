//! The interface between the core and its codec, or a simulator's trains.

use std::net::SocketAddr;

use packtrain_units::{ByteCount, Time};

use crate::core::{Burst, Control, Core, Envelope, Load};
use crate::ecn::{CE, ECT0};
use crate::seam::Fill;

/// Turns the core's packets into a codec's bytes or a simulator's packets.
pub(crate) trait Edge {
    /// Writes a control packet. Returns false if it cannot be sent; its number is used up.
    fn control(&mut self, control: &Control, pn: u64) -> bool;

    /// Writes as many packets of a train as the payload has. Returns their number and why it
    /// stopped.
    fn data(&mut self, lane: u8, load: &Load) -> (u32, Fill);
}

/// The lane, destination and packet size of what was written in one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left {
    pub(crate) lane: u8,
    pub(crate) to: SocketAddr,
    /// Payload bytes of a full packet; none for a control packet.
    pub(crate) size: Option<u16>,
    /// The ECN bits of the packets.
    pub(crate) ecn: u8,
}

/// The result of a received batch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Arrivals {
    /// Packets that were authentic, new and valid.
    pub(crate) good: usize,
    newest: Option<Envelope>,
}

impl Arrivals {
    /// Adds `packets` packets, of which `last` is the newest.
    #[inline]
    pub(crate) fn add(&mut self, packets: usize, last: Envelope) {
        self.good += packets;
        if self.newest.is_none_or(|newest| newest.pn <= last.pn) {
            self.newest = Some(last);
        }
    }
}

impl Core {
    /// Writes one batch that may be sent now through `edge`; runs due timers first.
    pub(crate) fn transmit(&mut self, now: Time, edge: &mut impl Edge) -> Option<Left> {
        while let Some((control, pn)) = self.poll_control(now) {
            if edge.control(&control, pn) {
                let Control { lane, to, .. } = control;
                return Some(Left { lane, to, size: None, ecn: 0 });
            }
        }
        let burst = self.begin(now)?;
        let ecn = self.endpoint.ecn_bits();
        let packets = self.fill(now, &burst, edge);
        let Burst { lane, to, size, .. } = burst;
        (packets > 0).then_some(Left { lane, to, size: Some(size), ecn })
    }

    /// Writes the packets of one burst. It may hold several trains: retransmissions are often
    /// single packets, and a batch costs one system call.
    fn fill(&mut self, now: Time, burst: &Burst, edge: &mut impl Edge) -> u32 {
        let (mut packets, mut skip_lost) = (0, false);
        while packets < burst.packets {
            let next = self.next_train(now, burst, burst.packets - packets, skip_lost);
            let Some(mut load) = next else { break };
            let (filled, fill) = edge.data(burst.lane, &load);
            let train = &mut load.train;
            if filled < train.count && filled > 0 {
                train.last = train.size;
                train.count = filled;
            }
            if filled > 0 {
                self.sent(now, burst, &load);
                packets += filled;
            }
            let train = &load.train;
            match fill {
                Fill::Ready if train.last < train.size => break,
                Fill::Ready => {}
                Fill::Failed if filled == 0 => self.unreadable(now, train),
                Fill::Failed => {}
                Fill::Pending if load.repeat && !skip_lost => skip_lost = true,
                Fill::Pending => {
                    self.endpoint.payload_pending();
                    break;
                }
            }
        }
        packets
    }

    /// Finishes a batch, after its packets or trains have been handled; the pool has `room` now.
    pub(crate) fn on_arrivals(
        &mut self,
        now: Time,
        received_at: Time,
        ecn: Option<u8>,
        arrivals: &Arrivals,
        room: ByteCount,
    ) {
        let Some(last) = &arrivals.newest else { return };
        match ecn {
            Some(CE) => self.stats.ecn_ce += arrivals.good as u64,
            Some(ECT0) => self.stats.ecn_ect0 += arrivals.good as u64,
            _ => {}
        }
        self.on_batch(now, received_at, last, room);
    }
}
