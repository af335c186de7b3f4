//! One end of a hop by datagrams.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use packtrain_net::tcp::{describe, tune};
use packtrain_proto::CloseReason;
use packtrain_session::hop::{
    FRAME_HEAD, Frame, HELLO, Hello, HopError, HopFlow, HopFlows, Secret,
};
use packtrain_session::{ANSWER_HEAD, Answer, HopTransport, Refusal};
use packtrain_units::{ByteCount, Duration};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::flows::{self, ActiveFlow, FlowSlot, FlowState, Sink, Source};
use super::ring::Progress;
use super::{DatagramStatus, Hops, Ring};

/// A direction with more bytes than this gets a flow.
const MIN_FLOW_BYTES: u64 = 64 << 10;
/// Timeout for the first datagrams.
const DATAGRAM_TIMEOUT: Duration = Duration::from_secs(4);
/// Maximum bytes per data frame.
const PIECE_BYTES: usize = 16 << 10;
/// How long the other end may take to close after both directions have ended.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum unsent bytes in the TCP connection's buffer, because a switch message waits behind them.
const MAX_UNSENT: ByteCount = ByteCount(128 << 10);

/// Why a hop failed.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The TCP connection failed.
    #[error("{}", describe(.0))]
    Io(#[from] std::io::Error),
    /// The other end sent a malformed message.
    #[error("{0}")]
    Malformed(#[from] HopError),
    /// The flow of datagrams failed.
    #[error("the datagrams of the hop: {0}")]
    Flow(CloseReason),
    /// The other end sent a refusal instead of a hello.
    #[error("{0}")]
    Refused(Refusal),
    /// The other end sent an acceptance instead of a hello.
    #[error("the depot does not know of datagrams")]
    Older,
}

/// What the reading task asks the writing task to send or do.
#[derive(Debug)]
enum HopMessage {
    /// The hellos are exchanged.
    Greeted,
    /// Send whether the other end may send datagrams, and to which port.
    Take(Option<u16>),
    /// The other end's answer whether this end may send datagrams, and to which port.
    Taken(Option<u16>),
}

/// One end of a hop.
pub struct Link<'a> {
    hops: &'a Hops,
    kind: HopTransport,
    socket: &'a mut TcpStream,
    secret: Secret,
    /// Whether the other end is the caller.
    called: bool,
    /// The other end's hello, if it was read before.
    heard: Option<Hello>,
    flows: OnceLock<HopFlows>,
    status: Arc<DatagramStatus>,
}

impl<'a> Link<'a> {
    /// The calling end, whose header and hello were already written.
    pub fn calling(
        hops: &'a Hops,
        kind: HopTransport,
        socket: &'a mut TcpStream,
        secret: Secret,
        status: Arc<DatagramStatus>,
    ) -> Self {
        // The option is not required.
        let _ = tune::set_notsent_lowat(socket, MAX_UNSENT);
        let flows = OnceLock::new();
        Self { hops, kind, socket, secret, called: false, heard: None, flows, status }
    }

    /// The called end. The caller's hello was read, and its own was written.
    pub fn called(
        hops: &'a Hops,
        kind: HopTransport,
        socket: &'a mut TcpStream,
        (secret, heard): (Secret, Hello),
        status: Arc<DatagramStatus>,
    ) -> Self {
        let heard = Some(heard);
        Self { called: true, heard, ..Self::calling(hops, kind, socket, secret, status) }
    }

    /// Sends `out` to the other end and receives into `into`, until both directions have ended.
    ///
    /// # Errors
    /// The hop failed, or was refused.
    pub async fn run(&mut self, out: &Arc<Ring>, into: &Arc<Ring>) -> Result<(), LinkError> {
        let (local, peer) = (self.socket.local_addr()?, self.socket.peer_addr()?);
        let Self { hops, kind, socket, secret, called, heard, flows, status } = self;
        let (kind, called, secret) = (*kind, *called, &*secret);
        let end = End { hops, kind, secret, called, flows, status, local, peer };
        let (read, mut write) = socket.split();
        let (tell, told) = mpsc::unbounded_channel();
        let (sent, mut all_sent) = watch::channel(false);
        let known = ReceiveState::default();
        let mut incoming = Incoming { end: &end, ring: into, tell, known: &known, flow: None };
        let frames = incoming.frames(read, *heard);
        tokio::pin!(frames);
        let done = async {
            tokio::try_join!(known.wait_complete(into), async {
                // The sender lives as long as this task.
                let _ = all_sent.wait_for(|sent| *sent).await;
                Ok(())
            })
        };
        tokio::select! {
            done = done => done.map(drop)?,
            broke = end.send(&mut write, out, told, sent) => return Err(broke),
            broke = &mut frames => return Err(broke),
        }
        // Remaining messages of the other end are read: closing with unread data would reset the
        // connection and lose the last messages.
        let over = async {
            write.shutdown().await?;
            let mut closed = known.closed.subscribe();
            tokio::select! {
                broke = &mut frames => Err(broke),
                _ = closed.wait_for(|closed| *closed) => Ok(()),
            }
        };
        let _ = tokio::time::timeout(CLOSE_TIMEOUT.to_std(), over).await;
        Ok(())
    }
}

/// What both directions of an end share.
struct End<'a> {
    hops: &'a Hops,
    kind: HopTransport,
    secret: &'a Secret,
    called: bool,
    flows: &'a OnceLock<HopFlows>,
    status: &'a DatagramStatus,
    local: SocketAddr,
    peer: SocketAddr,
}

/// The state of the datagrams of the sending direction.
enum Datagrams {
    /// Not offered yet.
    Unasked,
    /// Offered.
    Offered(Box<FlowSlot>),
    /// Started; they must get through by this time.
    Trying(ActiveFlow, Instant),
    /// They carry the stream.
    Carrying(ActiveFlow),
    /// They are not used.
    Never,
}

/// The state of the sending direction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// The end was sent, and not all data has arrived.
    Ended(u64),
    Done,
}

impl End<'_> {
    fn flow(&self, sending: bool) -> Option<&HopFlow> {
        let flows = self.flows.get()?;
        Some(if sending == self.called { &flows.backward } else { &flows.forward })
    }

    fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.peer.ip(), port)
    }

    /// Sends the ring until its end, the end message, and the messages that the reader requests,
    /// until the hop fails.
    async fn send(
        &self,
        write: &mut WriteHalf<'_>,
        ring: &Arc<Ring>,
        mut told: mpsc::UnboundedReceiver<HopMessage>,
        all_sent: watch::Sender<bool>,
    ) -> LinkError {
        let mut sending = Sending {
            end: self,
            ring,
            sent: 0,
            datagrams: Datagrams::Unasked,
            phase: Phase::Open,
            met: false,
        };
        loop {
            let Sending { datagrams, phase, sent, .. } = &mut sending;
            let total = if let Phase::Ended(total) = phase { *total } else { 0 };
            let step = tokio::select! {
                biased;
                word = told.recv() => sending.handle_message(write, word).await,
                what = progress(datagrams) => sending.turn(write, what).await,
                seen = ring.wait(*sent), if *phase == Phase::Open => sending.go_on(write, seen).await,
                () = ring.wait_released(total), if matches!(phase, Phase::Ended(_)) => {
                    sending.done();
                    let _ = all_sent.send(true);
                    Ok(())
                }
            };
            if let Err(error) = step {
                return error;
            }
        }
    }
}

/// The sending direction.
struct Sending<'a> {
    end: &'a End<'a>,
    ring: &'a Arc<Ring>,
    sent: u64,
    datagrams: Datagrams,
    phase: Phase,
    /// The hellos are exchanged.
    met: bool,
}

impl Sending<'_> {
    async fn handle_message(
        &mut self,
        write: &mut WriteHalf<'_>,
        word: Option<HopMessage>,
    ) -> Result<(), LinkError> {
        match word {
            Some(HopMessage::Greeted) => self.met = true,
            Some(HopMessage::Take(port)) => {
                write_frame(write, &port.map_or(Frame::No, Frame::Take)).await?;
            }
            Some(HopMessage::Taken(port)) => {
                let before = std::mem::replace(&mut self.datagrams, Datagrams::Never);
                if let (Datagrams::Offered(berth), Some(port), Some(flow)) =
                    (before, port, self.end.flow(true))
                {
                    self.datagrams = self.begin(*berth, port, flow);
                }
            }
            None => return Err(HopError::Broken.into()),
        }
        Ok(())
    }

    fn begin(&self, berth: FlowSlot, port: u16, flow: &HopFlow) -> Datagrams {
        let source = Source(Arc::clone(self.ring));
        match flows::send(berth, self.end.kind, flow, self.end.at(port), source) {
            Ok(flow) => Datagrams::Trying(flow, Instant::now() + DATAGRAM_TIMEOUT.to_std()),
            Err(_) => Datagrams::Never,
        }
    }

    /// Handles that datagrams got through, did not, or ended.
    async fn turn(
        &mut self,
        write: &mut WriteHalf<'_>,
        what: Result<(), CloseReason>,
    ) -> Result<(), LinkError> {
        match std::mem::replace(&mut self.datagrams, Datagrams::Never) {
            Datagrams::Trying(flow, _) if what.is_ok() && self.phase == Phase::Open => {
                write_frame(write, &Frame::Switch(self.sent)).await?;
                self.datagrams = Datagrams::Carrying(flow);
                self.end.status.carried.store(true, Ordering::Relaxed);
            }
            Datagrams::Carrying(_) if self.phase != Phase::Done => {
                let reason = what.err().unwrap_or(CloseReason::Abandoned);
                if matches!(reason, CloseReason::Silent(_)) {
                    self.end.status.falls_back(self.end.hops);
                }
                return Err(LinkError::Flow(reason));
            }
            Datagrams::Trying(..) if self.phase == Phase::Open => {
                self.end.status.falls_back(self.end.hops);
                write_frame(write, &Frame::Stay).await?;
            }
            _ => {}
        }
        Ok(())
    }

    async fn go_on(&mut self, write: &mut WriteHalf<'_>, seen: Progress) -> Result<(), LinkError> {
        let edge = match seen {
            Progress::End(total) => {
                write_frame(write, &Frame::End(total)).await?;
                self.phase = Phase::Ended(total);
                return Ok(());
            }
            Progress::Edge(edge) => edge,
        };
        if let Datagrams::Carrying(flow) = &self.datagrams {
            flow.assign(self.sent..edge);
            self.sent = edge;
            return Ok(());
        }
        self.sent = write_data(write, self.ring, self.sent).await?;
        if self.sent >= MIN_FLOW_BYTES && self.met && matches!(self.datagrams, Datagrams::Unasked) {
            self.datagrams = match FlowSlot::take(self.end.hops, self.end.local.ip()) {
                Some(berth) => {
                    write_frame(write, &Frame::Offer(berth.port())).await?;
                    Datagrams::Offered(Box::new(berth))
                }
                None => Datagrams::Never,
            };
        }
        Ok(())
    }

    fn done(&mut self) {
        self.phase = Phase::Done;
        if let Datagrams::Carrying(flow) = &self.datagrams {
            flow.done();
        }
    }
}

/// Waits until tried datagrams get through or fail, or active ones end.
async fn progress(datagrams: &mut Datagrams) -> Result<(), CloseReason> {
    match datagrams {
        Datagrams::Trying(flow, until) => {
            let up = ActiveFlow::up(&mut flow.state);
            let waited = tokio::time::timeout_at(*until, up).await;
            waited.unwrap_or(Err(CloseReason::Unreachable))
        }
        Datagrams::Carrying(flow) => Err(ActiveFlow::lost(&mut flow.state).await),
        _ => std::future::pending().await,
    }
}

async fn write_frame(write: &mut WriteHalf<'_>, frame: &Frame<'_>) -> std::io::Result<()> {
    write.write_all(&frame.write()).await
}

/// Writes at most one data frame from `sent` on; returns the new position.
async fn write_data(write: &mut WriteHalf<'_>, ring: &Ring, sent: u64) -> std::io::Result<u64> {
    let mut frame = vec![0; FRAME_HEAD + PIECE_BYTES];
    let count = ring.copy(sent, &mut frame[FRAME_HEAD..]);
    frame[..FRAME_HEAD].copy_from_slice(&Frame::data_head(count));
    write.write_all(&frame[..FRAME_HEAD + count]).await?;
    let end = sent + count as u64;
    ring.release(sent..end);
    Ok(end)
}

/// The state of the receiving direction.
struct ReceiveState {
    /// Length of the whole stream.
    end: watch::Sender<Option<u64>>,
    /// State of its flow.
    flow: watch::Sender<Option<watch::Receiver<FlowState>>>,
    /// The flow carries the stream.
    switched: watch::Sender<bool>,
    /// The other end sends no more messages.
    closed: watch::Sender<bool>,
}

impl Default for ReceiveState {
    fn default() -> Self {
        Self {
            end: watch::Sender::new(None),
            flow: watch::Sender::new(None),
            switched: watch::Sender::new(false),
            closed: watch::Sender::new(false),
        }
    }
}

impl ReceiveState {
    /// Waits until everything has arrived and was passed on, and the other end knows that.
    async fn wait_complete(&self, ring: &Ring) -> Result<(), LinkError> {
        let all = async {
            let mut end = self.end.subscribe();
            let total = end.wait_for(Option::is_some).await.map_or(None, |end| *end);
            ring.wait_released(total.unwrap_or_default()).await;
        };
        tokio::select! {
            () = all => {}
            reason = self.broken() => return Err(LinkError::Flow(reason)),
        }
        // The sender of the flow waits for the last acknowledgement.
        let flow = self.flow.borrow().clone();
        if let Some(mut flow) = flow.filter(|_| *self.switched.borrow()) {
            ActiveFlow::over(&mut flow).await;
        }
        Ok(())
    }

    /// Waits until the flow fails.
    async fn broken(&self) -> CloseReason {
        let mut flow = self.flow.subscribe();
        loop {
            let state = flow.borrow_and_update().clone();
            let over = async {
                match state {
                    Some(mut state) => ActiveFlow::over(&mut state).await,
                    None => CloseReason::Done,
                }
            };
            tokio::select! {
                biased;
                // A flow that was abandoned ends too.
                _ = flow.changed() => continue,
                reason = over => match reason {
                    CloseReason::Done => {}
                    reason if *self.switched.borrow() => return reason,
                    // Datagrams that never carried the stream may end with any reason.
                    _ => {}
                },
            }
            let mut switched = self.switched.subscribe();
            tokio::select! {
                // The senders live as long as this task.
                _ = flow.changed() => {}
                _ = switched.wait_for(|switched| *switched), if !*self.switched.borrow() => {}
            }
        }
    }
}

/// The receiving direction.
struct Incoming<'a> {
    end: &'a End<'a>,
    ring: &'a Arc<Ring>,
    tell: mpsc::UnboundedSender<HopMessage>,
    known: &'a ReceiveState,
    /// Its flow, which outlives the messages about it.
    flow: Option<ActiveFlow>,
}

impl Incoming<'_> {
    /// Reads frames until the connection fails; records when the other end has sent its last.
    async fn frames(&mut self, mut read: ReadHalf<'_>, heard: Option<Hello>) -> LinkError {
        match self.all_frames(&mut read, heard).await {
            Err(error) => error,
            Ok(()) => {
                self.known.closed.send_replace(true);
                std::future::pending().await
            }
        }
    }

    async fn all_frames(
        &mut self,
        read: &mut ReadHalf<'_>,
        heard: Option<Hello>,
    ) -> Result<(), LinkError> {
        let hello = match heard {
            Some(hello) => hello,
            None => read_hello(read).await?,
        };
        let _ = self.end.flows.set(self.end.secret.flows(&hello, self.end.called)?);
        let _ = self.tell.send(HopMessage::Greeted);
        // Bytes received in data frames, all before the switch.
        let (mut came, mut switched) = (0, false);
        let (mut offered, mut answered) = (false, false);
        loop {
            let mut head = [0; FRAME_HEAD];
            let ended = *self.known.end.borrow();
            if read.read(&mut head[..1]).await? == 0 {
                let early = ended.is_none().then_some(std::io::ErrorKind::UnexpectedEof);
                return early.map_or(Ok(()), |kind| Err(std::io::Error::from(kind).into()));
            }
            read.read_exact(&mut head[1..]).await?;
            let len = Frame::len(&head)?;
            if head[0] == 0 {
                // A datagram received in the place of data would put these bytes at a wrong offset.
                if len == 0 || ended.is_some() || switched || came != self.ring.edge() {
                    return Err(HopError::Broken.into());
                }
                self.data(read, len).await?;
                came += len as u64;
                continue;
            }
            let mut body = [0; 8];
            let body = body.get_mut(..len).ok_or(HopError::Broken)?;
            read.read_exact(body).await?;
            match Frame::read(head[0], body)? {
                Frame::Data(_) => return Err(HopError::Broken.into()),
                Frame::Offer(port) if !offered => {
                    offered = true;
                    self.flow = self.take(port);
                }
                // An offer has one answer; further ones would be queued in memory.
                answer @ (Frame::Take(_) | Frame::No) if !answered => {
                    answered = true;
                    let port = if let Frame::Take(port) = answer { Some(port) } else { None };
                    let _ = self.tell.send(HopMessage::Taken(port));
                }
                Frame::Switch(total) if self.flow.is_some() && !switched => {
                    if total != came {
                        return Err(HopError::Broken.into());
                    }
                    switched = true;
                    self.known.switched.send_replace(true);
                    self.end.status.carried.store(true, Ordering::Relaxed);
                }
                Frame::Stay if !switched => {
                    self.known.flow.send_replace(None);
                    self.ring.wake(None);
                    self.flow = None;
                }
                Frame::End(total) if ended.is_none() => {
                    if !switched && total != came {
                        return Err(HopError::Broken.into());
                    }
                    if !switched {
                        // The offer was refused.
                        self.known.flow.send_replace(None);
                        self.flow = None;
                    }
                    if !self.ring.finish(total) {
                        return Err(HopError::Broken.into());
                    }
                    self.known.end.send_replace(Some(total));
                }
                Frame::Offer(_)
                | Frame::Take(_)
                | Frame::No
                | Frame::Switch(_)
                | Frame::Stay
                | Frame::End(_) => {
                    return Err(HopError::Broken.into());
                }
            }
        }
    }

    async fn data(&self, read: &mut ReadHalf<'_>, mut len: usize) -> std::io::Result<()> {
        let mut piece = vec![0; PIECE_BYTES.min(len)];
        while len > 0 {
            // Waits for memory first, so that data which is not accepted stays at its sender.
            let most = self.ring.wait_room(piece.len().min(len)).await;
            let count = read.read(&mut piece[..most]).await?;
            if count == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            self.ring.append_all(&piece[..count]).await;
            len -= count;
        }
        Ok(())
    }

    /// Accepts an offer of datagrams from this port, if possible.
    fn take(&self, port: u16) -> Option<ActiveFlow> {
        let taken = FlowSlot::take(self.end.hops, self.end.local.ip()).and_then(|berth| {
            let (own, flow) = (berth.port(), self.end.flow(false)?);
            let sink = Sink(Arc::clone(self.ring));
            let peer = self.end.at(port);
            let flow = flows::receive(berth, self.end.kind, flow, peer, sink).ok()?;
            Some((own, flow))
        });
        let _ = self.tell.send(HopMessage::Take(taken.as_ref().map(|(own, _)| *own)));
        let (_, flow) = taken?;
        self.ring.wake(Some(flow.waker()));
        self.known.flow.send_replace(Some(flow.state.clone()));
        Some(flow)
    }
}

/// Reads a hello, or the answer in its place.
pub async fn read_hello(read: &mut (impl AsyncRead + Unpin)) -> Result<Hello, LinkError> {
    let mut bytes = [0; HELLO];
    read.read_exact(&mut bytes[..ANSWER_HEAD]).await?;
    if Hello::begins(&bytes) {
        read.read_exact(&mut bytes[ANSWER_HEAD..]).await?;
        return Ok(Hello::read(&bytes)?);
    }
    let head = bytes.first_chunk().ok_or(HopError::NoHello)?;
    let len = Answer::text_len(head).map_err(|_| HopError::NoHello)?;
    let mut answer = head.to_vec();
    answer.resize(ANSWER_HEAD + len, 0);
    read.read_exact(&mut answer[ANSWER_HEAD..]).await?;
    match Answer::read(&answer).map_err(|_| HopError::NoHello)? {
        Answer::Refused(refusal) => Err(LinkError::Refused(refusal)),
        Answer::Accepted => Err(LinkError::Older),
    }
}
