//! The wire format of one stream. From source to sink: frames of offset (u64), length (u32) and
//! bytes, little-endian. From sink to source: the total of bytes received (u64), whenever it grows.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use packtrain_net::tcp::describe;
use packtrain_object::SPACE_END;
use packtrain_transfer::message::MAX_DATA;
use packtrain_units::{ByteCount, Offset};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::group::Group;
use super::stripe_scheduler::StreamId;
use super::{Tasks, TcpStream};
use crate::assembly::Assembly;
use crate::transports::intake::Intake;

/// Bytes of the header of a frame.
pub(in crate::transports) const FRAME_HEAD: usize = 12;

/// Position and length of the bytes of a frame.
pub(in crate::transports) struct FrameHead {
    pub(in crate::transports) at: Offset,
    pub(in crate::transports) len: usize,
}

impl FrameHead {
    pub(in crate::transports) fn write(&self) -> [u8; FRAME_HEAD] {
        let mut bytes = [0; FRAME_HEAD];
        bytes[..8].copy_from_slice(&self.at.get().to_le_bytes());
        bytes[8..].copy_from_slice(&(self.len as u32).to_le_bytes());
        bytes
    }

    /// None if the frame is longer, or ends beyond the object space, which no sender does.
    pub(in crate::transports) fn read(bytes: &[u8; FRAME_HEAD]) -> Option<Self> {
        let (at, len) = bytes.split_at(8);
        let at = u64::from_le_bytes(at.try_into().unwrap_or_default());
        let len = u32::from_le_bytes(len.try_into().unwrap_or_default()) as usize;
        let beyond = at.saturating_add(len as u64) > SPACE_END.get();
        (len <= MAX_DATA && !beyond).then_some(Self { at: Offset(at), len })
    }
}

/// Starts the two tasks of a stream at its sending end.
pub(super) fn send(group: &Group, id: StreamId, tasks: &Tasks, stream: TcpStream) {
    let watched = stream.get_ref().0.line();
    let heard_by = watched.clone();
    let (mut input, mut output) = tokio::io::split(stream);
    let sender = group.clone();
    tasks.spawn(async move {
        let result: std::io::Result<()> = async {
            while let Some((at, slice)) = sender.piece(id).await {
                let head = FrameHead { at, len: slice.len() };
                output.write_all(&head.write()).await?;
                output.write_all(slice.bytes()).await?;
                drop(slice);
                // Without the flush, TLS would hold data back until the next piece.
                output.flush().await?;
            }
            output.shutdown().await
        }
        .await;
        if let Err(e) = result {
            if let Some(watched) = watched {
                watched.failed(&e);
            }
            sender.over(id, &describe(&e));
        }
    });
    let hearer = group.clone();
    tasks.spawn(async move {
        let why = loop {
            match input.read_u64_le().await {
                Ok(total) => hearer.taken(id, total),
                Err(e) => break e,
            }
        };
        if let Some(watched) = heard_by {
            watched.failed(&why);
        }
        hearer.over(id, &describe(&why));
    });
}

/// Starts to receive data on a connection.
///
/// `broke` is called if the other end did not close the stream. A stream with data before the
/// assembly is there is closed: nothing was asked for.
pub(in crate::transports) fn receive(
    tasks: &Tasks,
    stream: TcpStream,
    intake: &Intake,
    assembly: Arc<OnceLock<Assembly>>,
    received: Arc<AtomicU64>,
    broke: impl FnOnce() + Send + 'static,
) {
    let intake = intake.clone();
    tasks.spawn(async move {
        let watched = stream.get_ref().0.line();
        let broke = move |error: std::io::Error| {
            if let Some(watched) = watched {
                watched.failed(&error);
            }
            broke();
        };
        let (mut input, mut output) = tokio::io::split(stream);
        // A stream counts from its first byte on. If both ends connect, the source leaves the
        // surplus connections unused.
        let mut header = [0; FRAME_HEAD];
        match input.read(&mut header[..1]).await {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) => return broke(error),
        }
        let Some(assembly) = assembly.get().cloned() else { return };
        let place = intake.stream();
        let take = async {
            let mut buffer = vec![0; MAX_DATA];
            let mut total = 0u64;
            loop {
                input.read_exact(&mut header[1..]).await?;
                // The peer violated the format: nothing more is read.
                let Some(FrameHead { at, len: size }) = FrameHead::read(&header) else {
                    return Ok(());
                };
                let wait = intake.wait(ByteCount((header.len() + size) as u64));
                if !wait.is_zero() {
                    tokio::time::sleep(wait.to_std()).await;
                }
                input.read_exact(&mut buffer[..size]).await?;
                let bytes = &buffer[..size];
                // Copying takes a processor for a while, so the runtime moves other tasks to another
                // thread. While there is no room this waits without a thread, and ends when the
                // stream is evicted.
                let (at, rest) = tokio::task::block_in_place(|| assembly.place_now(at, bytes));
                assembly.place_async(at, rest).await;
                total += size as u64;
                received.fetch_add(size as u64, Ordering::Relaxed);
                output.write_all(&total.to_le_bytes()).await?;
                output.flush().await?;
                if input.read(&mut header[..1]).await? == 0 {
                    return Ok::<(), std::io::Error>(());
                }
            }
        };
        let ended = tokio::select! {
            ended = take => ended,
            () = place.evicted() => Ok(()),
        };
        if let Err(error) = ended {
            broke(error);
        }
    });
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
