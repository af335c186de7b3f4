//! Limits the kernel's buffers of relayed connections.

use packtrain_units::ByteCount;
use tokio::net::TcpStream;

use super::RelayMemory;
use crate::tcp::tune;

/// Bytes moved between two checks of the kernel's buffers.
const CHECK_BYTES: usize = 1 << 20;

/// Keeps the kernel's buffers of one direction within their share.
///
/// The kernel tunes the buffers of each connection separately. Together they may exceed its memory
/// for TCP. Then it drops data that has arrived, and the senders wait for timeouts: with two
/// hundred concurrent sessions, nine tenths of the rate can be lost.
#[derive(Default)]
pub(super) struct KernelBuffers {
    moved: usize,
    most: Option<ByteCount>,
    /// The kernel lacks the required option.
    idle: bool,
}

impl KernelBuffers {
    pub(super) fn begin(from: &TcpStream, to: &TcpStream, room: &impl RelayMemory) -> Self {
        let mut this = Self::default();
        this.apply(from, to, room);
        this
    }

    /// Adds moved bytes, and checks the buffers at intervals.
    pub(super) fn moved(
        &mut self,
        bytes: usize,
        from: &TcpStream,
        to: &TcpStream,
        room: &impl RelayMemory,
    ) {
        self.moved += bytes;
        if self.moved >= CHECK_BYTES {
            self.moved = 0;
            self.apply(from, to, room);
        }
    }

    fn apply(&mut self, from: &TcpStream, to: &TcpStream, room: &impl RelayMemory) {
        let most = room.kernel_limit();
        if self.idle || most.is_none() && self.most.is_none() {
            return;
        }
        // The data in flight is limited by the path and by the receiver's window.
        if most != self.most {
            let _ = tune::set_notsent_lowat(to, most.unwrap_or(ByteCount(u32::MAX.into())));
            self.most = most;
        }
        let free = ByteCount(i32::MAX as u64);
        self.idle = tune::limit_received(from, most.unwrap_or(free)).is_err();
    }
}
