//! The owner's end of a network thread.

use parking_lot::Mutex;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::Sender;
use packtrain_os::thread::Waker;
use packtrain_proto::CloseReason;
use packtrain_units::Offset;

use super::beside::Beside;
use super::stats::FlowSnapshot;

/// What the owner asks of the thread.
#[derive(Debug)]
pub(super) enum Command {
    Assign(Range<Offset>),
    Revoke(Range<Offset>),
    AddPeer(u8, SocketAddr),
    Log,
    Close(CloseReason),
}

/// Steers one end of a flow. When it is dropped, the flow is closed as abandoned, and its
/// thread ends shortly after.
#[derive(Debug)]
pub struct FlowHandle {
    commands: Sender<Command>,
    waker: Waker,
    shared: Arc<Mutex<FlowSnapshot>>,
    thread: Option<JoinHandle<()>>,
    beside: Option<Beside>,
}

impl FlowHandle {
    pub(super) fn new(
        commands: Sender<Command>,
        waker: Waker,
        shared: Arc<Mutex<FlowSnapshot>>,
        thread: JoinHandle<()>,
        beside: Option<Beside>,
    ) -> Self {
        Self { commands, waker, shared, thread: Some(thread), beside }
    }

    /// The channel that is to go by a stream beside the datagrams, if the flow's feedback has one;
    /// once. Until bytes move there the peer hears nothing of what arrives: assign nothing before.
    pub fn beside(&mut self) -> Option<Beside> {
        self.beside.take()
    }

    /// Sender: moves these bytes, after those assigned before.
    pub fn assign(&self, range: Range<Offset>) {
        self.tell(Command::Assign(range));
    }

    /// Sender: gives back what of these bytes is not acknowledged, as an event.
    pub fn revoke(&self, range: Range<Offset>) {
        self.tell(Command::Revoke(range));
    }

    /// One more address of the peer to try for a lane.
    pub fn add_peer(&self, lane: u8, address: SocketAddr) {
        self.tell(Command::AddPeer(lane, address));
    }

    /// Asks for the engine's event log, line by line as events.
    pub fn enable_log(&self) {
        self.tell(Command::Log);
    }

    /// Ends the flow: the peer is told, then the thread ends, at the latest a second later.
    pub fn close(&self, reason: CloseReason) {
        self.tell(Command::Close(reason));
    }

    /// Wakes the thread, for those who bring bytes or free room.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Makes the thread ask its payload and placement again.
    pub fn wake(&self) {
        self.waker.wake();
    }

    /// The counters, at most some 20 ms old.
    pub fn stats(&self) -> FlowSnapshot {
        self.shared.lock().clone()
    }

    /// Whether the thread has ended.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits until the flow is over, for whatever reason, and gives its last counters. Close it
    /// first if nobody else will.
    pub fn join(mut self) -> FlowSnapshot {
        if let Some(thread) = self.thread.take() {
            // A panic was told as an event and is not passed on.
            let _ = thread.join();
        }
        self.stats()
    }

    fn tell(&self, command: Command) {
        // A thread that has ended hears nothing more; its owner was told of the end.
        let _ = self.commands.send(command);
        self.waker.wake();
    }
}

impl Drop for FlowHandle {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.tell(Command::Close(CloseReason::Abandoned));
        }
    }
}
