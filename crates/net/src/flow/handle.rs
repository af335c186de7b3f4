//! The owner's handle of a network thread.

use parking_lot::Mutex;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::Sender;
use packtrain_os::thread::Waker;
use packtrain_proto::CloseReason;
use packtrain_units::Offset;

use super::feedback_channel::FeedbackChannel;
use super::stats::FlowSnapshot;

/// A command of the owner.
#[derive(Debug)]
pub(super) enum Command {
    Assign(Range<Offset>),
    Revoke(Range<Offset>),
    AddPeer(u8, SocketAddr),
    Log,
    Close(CloseReason),
}

/// Controls one end of a flow. Dropping it closes the flow as abandoned, and the thread ends
/// shortly after.
#[derive(Debug)]
pub struct FlowHandle {
    commands: Sender<Command>,
    waker: Waker,
    shared: Arc<Mutex<FlowSnapshot>>,
    thread: Option<JoinHandle<()>>,
    feedback_channel: Option<FeedbackChannel>,
}

impl FlowHandle {
    pub(super) fn new(
        commands: Sender<Command>,
        waker: Waker,
        shared: Arc<Mutex<FlowSnapshot>>,
        thread: JoinHandle<()>,
        feedback_channel: Option<FeedbackChannel>,
    ) -> Self {
        Self { commands, waker, shared, thread: Some(thread), feedback_channel }
    }

    /// The separate reliable channel, if the flow's feedback has one; returned once. The peer gets
    /// no feedback until its bytes move, so assign no range before.
    pub fn channel(&mut self) -> Option<FeedbackChannel> {
        self.feedback_channel.take()
    }

    /// Sender: appends these bytes to the assigned ranges.
    pub fn assign(&self, range: Range<Offset>) {
        self.send_command(Command::Assign(range));
    }

    /// Sender: returns the unacknowledged part of these bytes, in an event.
    pub fn revoke(&self, range: Range<Offset>) {
        self.send_command(Command::Revoke(range));
    }

    /// Adds an address of the peer to try for a lane.
    pub fn add_peer(&self, lane: u8, address: SocketAddr) {
        self.send_command(Command::AddPeer(lane, address));
    }

    /// Enables the engine's event log, whose lines come as events.
    pub fn enable_log(&self) {
        self.send_command(Command::Log);
    }

    /// Ends the flow: the peer is informed, then the thread ends, at the latest a second later.
    pub fn close(&self, reason: CloseReason) {
        self.send_command(Command::Close(reason));
    }

    /// A waker, for threads that provide bytes or free memory.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Makes the thread query its payload and placement again.
    pub fn wake(&self) {
        self.waker.wake();
    }

    /// The counters; they are at most about 20 ms old.
    pub fn stats(&self) -> FlowSnapshot {
        self.shared.lock().clone()
    }

    /// Whether the thread has ended.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the end of the flow, and returns its final counters. Close the flow first if
    /// nothing else does.
    pub fn join(mut self) -> FlowSnapshot {
        if let Some(thread) = self.thread.take() {
            // A panic was reported as an event and is not propagated.
            let _ = thread.join();
        }
        self.stats()
    }

    fn send_command(&self, command: Command) {
        // After the end of the thread the command is dropped; the owner got the event of the end.
        let _ = self.commands.send(command);
        self.waker.wake();
    }
}

impl Drop for FlowHandle {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.send_command(Command::Close(CloseReason::Abandoned));
        }
    }
}
