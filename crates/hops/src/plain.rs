//! Copies between a byte stream of the system and a ring.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::Ring;
use super::ring::Progress;

/// Maximum bytes per read or write.
const PIECE_BYTES: usize = 16 << 10;

/// Reads a stream into a ring until its end. It does not read while the ring is full.
pub async fn feed(mut from: impl AsyncRead + Unpin, ring: &Ring) -> std::io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let most = ring.wait_room(PIECE_BYTES).await;
        let count = from.read(&mut piece[..most]).await?;
        if count == 0 {
            ring.finish(ring.edge());
            return Ok(());
        }
        ring.append_all(&piece[..count]).await;
    }
}

/// Writes a ring to a stream until its end, and then closes the stream.
pub async fn drain(ring: &Ring, mut to: impl AsyncWrite + Unpin) -> std::io::Result<()> {
    let (mut piece, mut written) = (vec![0; PIECE_BYTES], 0);
    loop {
        match ring.wait(written).await {
            Progress::End(_) => return to.shutdown().await,
            Progress::Edge(_) => {
                let count = ring.copy(written, &mut piece);
                to.write_all(&piece[..count]).await?;
                ring.release(written..written + count as u64);
                written += count as u64;
            }
        }
    }
}
