//! A byte stream of the system on one side of a ring.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::Ring;
use super::ring::Seen;

/// Bytes read or written at once.
const PIECE: usize = 16 << 10;

/// Reads a stream to its end, which is then the ring's; not while there is no room.
pub async fn feed(mut from: impl AsyncRead + Unpin, ring: &Ring) -> std::io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        let most = ring.wait_room(PIECE).await;
        let count = from.read(&mut piece[..most]).await?;
        if count == 0 {
            ring.finish(ring.edge());
            return Ok(());
        }
        ring.append_all(&piece[..count]).await;
    }
}

/// Writes a ring to its end, which is then the stream's.
pub async fn drain(ring: &Ring, mut to: impl AsyncWrite + Unpin) -> std::io::Result<()> {
    let (mut piece, mut written) = (vec![0; PIECE], 0);
    loop {
        match ring.wait(written).await {
            Seen::End(_) => return to.shutdown().await,
            Seen::Edge(_) => {
                let count = ring.copy(written, &mut piece);
                to.write_all(&piece[..count]).await?;
                ring.let_go(written..written + count as u64);
                written += count as u64;
            }
        }
    }
}
