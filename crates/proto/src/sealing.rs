//! The codec's side of sending: fills and seals packets and lays them into one batch.

use packtrain_units::Offset;

use crate::codec::frame;
use crate::codec::header::{CONTROL_HEAD, DATA_HEAD, Header, TAG, UNIT};
use crate::codec::keys::Sealer;
use crate::codec::unit;
use crate::core::edge::Edge;
use crate::core::{Control, Load};
use crate::seam::{Fill, Payload};

/// A batch that is being written.
pub(crate) struct Sealing<'a, P> {
    pub(crate) sealer: &'a mut Sealer,
    pub(crate) flow_id: u32,
    /// Buffer for frames, reused.
    pub(crate) text: &'a mut Vec<u8>,
    pub(crate) payload: &'a mut P,
    pub(crate) out: &'a mut [u8],
    /// Bytes written so far.
    pub(crate) len: usize,
}

impl<P: Payload> Edge for Sealing<'_, P> {
    fn control(&mut self, control: &Control, pn: u64) -> bool {
        self.seal_control(control, pn).is_some()
    }

    fn data(&mut self, lane: u8, load: &Load) -> (u32, Fill) {
        let train = &load.train;
        let mut offset = train.offset;
        let inner = if load.unit.is_some() { UNIT } else { 0 };
        for i in 0..train.count {
            let size = usize::from(if i + 1 == train.count { train.last } else { train.size });
            let len = DATA_HEAD + inner + size + TAG;
            let packet = &mut self.out[self.len..self.len + len];
            let bytes = &mut packet[DATA_HEAD + inner..DATA_HEAD + inner + size];
            let fill = self.payload.fill(Offset(offset), bytes);
            if fill != Fill::Ready {
                return (i, fill);
            }
            let pn = train.first + u64::from(i);
            let (flow_id, low) = (self.flow_id, pn as u32);
            let header = Header { lane, flow_id, low, offset: Some(offset), unit: inner > 0 };
            header.write(packet);
            if let Some(unit) = load.unit.map(|unit| unit.from(i)) {
                packet[DATA_HEAD..DATA_HEAD + UNIT].copy_from_slice(&unit::write(unit));
            }
            if self.sealer.seal(lane, pn, packet, DATA_HEAD).is_none() {
                return (i, Fill::Pending);
            }
            self.len += len;
            offset += size as u64;
        }
        (train.count, Fill::Ready)
    }
}

impl<P> Sealing<'_, P> {
    fn seal_control(&mut self, control: &Control, pn: u64) -> Option<()> {
        let Control { lane, .. } = *control;
        self.text.clear();
        frame::write(&control.frame, self.text);
        let min = control.pad.map_or(0, usize::from).saturating_sub(CONTROL_HEAD + TAG);
        if self.text.len() < min {
            self.text.resize(min, 0);
        }
        let len = CONTROL_HEAD + self.text.len() + TAG;
        let packet = self.out.get_mut(..len)?;
        let (flow_id, low) = (self.flow_id, pn as u32);
        Header { lane, flow_id, low, offset: None, unit: false }.write(packet);
        packet[CONTROL_HEAD..len - TAG].copy_from_slice(self.text);
        self.sealer.seal(lane, pn, packet, CONTROL_HEAD)?;
        self.len = len;
        Some(())
    }
}
