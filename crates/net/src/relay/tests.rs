use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// Lends memory within limits, and records the maximum lent at a time.
struct Lender {
    each: usize,
    out: AtomicUsize,
    most: AtomicUsize,
    moved: AtomicUsize,
    /// Maximum number of blocks, currently lent blocks, and the maximum so far.
    blocks: usize,
    kept: AtomicUsize,
    most_kept: AtomicUsize,
    kernel_limit: Option<ByteCount>,
    scheduler: Arc<FairScheduler>,
}

impl Lender {
    fn new(each: usize) -> Self {
        Self::keeping(each, 0)
    }

    fn keeping(each: usize, blocks: usize) -> Self {
        let zero = AtomicUsize::default;
        let (out, most, moved) = (zero(), zero(), zero());
        Self {
            each,
            out,
            most,
            moved,
            blocks,
            kept: zero(),
            most_kept: zero(),
            kernel_limit: None,
            scheduler: FairScheduler::new(1),
        }
    }
}

impl RelayMemory for Lender {
    fn take(&self) -> usize {
        let out = self.out.fetch_add(self.each, Ordering::SeqCst) + self.each;
        self.most.fetch_max(out, Ordering::SeqCst);
        self.each
    }

    fn give_back(&self, lent: usize, moved: usize) {
        self.out.fetch_sub(lent, Ordering::SeqCst);
        self.moved.fetch_add(moved, Ordering::SeqCst);
        assert!(moved <= lent);
    }

    fn lend_block(&self, kept: usize) -> bool {
        assert_eq!(kept, self.kept.load(Ordering::SeqCst), "blocks are counted by both");
        let lent = kept < self.blocks;
        let kept = self.kept.fetch_add(usize::from(lent), Ordering::SeqCst) + usize::from(lent);
        self.most_kept.fetch_max(kept, Ordering::SeqCst);
        lent
    }

    fn return_block(&self, moved: usize) {
        assert!(self.kept.fetch_sub(1, Ordering::SeqCst) > 0 && moved <= BLOCK);
        self.moved.fetch_add(moved, Ordering::SeqCst);
    }

    fn progress(&self) {}

    fn kernel_limit(&self) -> Option<ByteCount> {
        self.kernel_limit
    }

    fn scheduler(&self) -> &Arc<FairScheduler> {
        &self.scheduler
    }
}

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
    (near.unwrap(), far.unwrap().0)
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 31 + (n >> 8) * 7) as u8).collect()
}

/// All bytes arrive in both directions, and each direction ends separately.
async fn both_ways(way: RelayMode, each: usize) {
    let (mut left, inner_left) = pair().await;
    let (inner_right, mut right) = pair().await;
    let (up, down) = (Lender::new(each), Lender::new(each));
    let relay = async {
        tokio::try_join!(
            pump(&inner_left, &inner_right, way, &up),
            pump(&inner_right, &inner_left, way, &down),
        )
    };
    let (there, back) = (bytes(3_000_017), bytes(70_001));
    let ends = async {
        let (there, back) = (&there, &back);
        let (read, write) = left.split();
        let (mut read, mut write) = (read, write);
        let send = async {
            write.write_all(there).await.unwrap();
            write.shutdown().await.unwrap();
        };
        let hear = async {
            let mut heard = Vec::new();
            read.read_to_end(&mut heard).await.unwrap();
            heard
        };
        let answer = async {
            let mut heard = Vec::new();
            right.read_to_end(&mut heard).await.unwrap();
            assert!(&heard == there, "other bytes");
            // The other direction still works after this one has ended.
            right.write_all(back).await.unwrap();
            right.shutdown().await.unwrap();
        };
        let ((), heard, ()) = tokio::join!(send, hear, answer);
        assert!(&heard == back, "other bytes");
    };
    let (relayed, ()) = tokio::join!(relay, ends);
    relayed.unwrap();
    for (lender, all) in [(&up, there.len()), (&down, back.len())] {
        assert_eq!(lender.moved.load(Ordering::SeqCst), all);
        assert_eq!(lender.out.load(Ordering::SeqCst), 0, "all room is given back");
        assert!(lender.most.load(Ordering::SeqCst) <= each, "one loan at a time");
    }
}

#[tokio::test]
async fn spliced_both_ways() {
    both_ways(RelayMode::Splice, 64 << 10).await;
    both_ways(RelayMode::Splice, 777).await;
}

#[tokio::test]
async fn copied_both_ways() {
    both_ways(RelayMode::Copy, 64 << 10).await;
    both_ways(RelayMode::Copy, 777).await;
}

#[tokio::test]
async fn who_does_not_read_stops_who_writes() {
    for way in [RelayMode::Splice, RelayMode::Copy] {
        let (left, inner_left) = pair().await;
        let (inner_right, right) = pair().await;
        for socket in [&inner_left, &inner_right, &right] {
            SockRef::from(socket).set_recv_buffer_size(32 << 10).unwrap();
            SockRef::from(socket).set_send_buffer_size(32 << 10).unwrap();
        }
        let lender = Lender::new(16 << 10);
        let piece = vec![1; 256 << 10];
        let mut written = 0usize;
        let write = async {
            loop {
                left.writable().await.unwrap();
                if let Ok(n) = left.try_write(&piece) {
                    written += n;
                }
            }
        };
        let limit = std::time::Duration::from_millis(600);
        let both = async { tokio::join!(pump(&inner_left, &inner_right, way, &lender), write) };
        assert!(tokio::time::timeout(limit, both).await.is_err(), "it waits");
        // The socket buffers of this machine and the lent memory, not all that could be written.
        assert!(written < 64 << 20, "{written} bytes went nowhere");
        assert!(lender.most.load(Ordering::SeqCst) <= 16 << 10);
        assert_eq!(lender.out.load(Ordering::SeqCst), 0, "given back when it was broken off");
    }
}

#[tokio::test]
async fn a_connection_that_breaks_is_an_error_and_not_an_end() {
    let (left, inner_left) = pair().await;
    let (inner_right, mut right) = pair().await;
    let lender = Lender::new(4096);
    cut(&left);
    drop(left);
    let broken = pump(&inner_left, &inner_right, RelayMode::Splice, &lender).await;
    assert!(broken.is_err(), "{broken:?}");
    cut(&inner_right);
    drop(inner_right);
    let heard = right.read(&mut [0; 8]).await;
    assert!(heard.is_err(), "the other end learns that it broke: {heard:?}");
}

/// A hop that is slow for a while does not block the previous one while there is memory, and all
/// bytes arrive in order.
#[tokio::test]
async fn what_comes_while_a_hop_is_slow_waits() {
    for (way, each) in
        [(RelayMode::Splice, 64 << 10), (RelayMode::Splice, 777), (RelayMode::Copy, 4096)]
    {
        let (mut left, inner_left) = pair().await;
        let (inner_right, mut right) = pair().await;
        for socket in [&left, &inner_left, &inner_right, &right] {
            SockRef::from(socket).set_recv_buffer_size(32 << 10).unwrap();
            SockRef::from(socket).set_send_buffer_size(32 << 10).unwrap();
        }
        let lender = Lender::keeping(each, 64);
        let all = bytes(8 << 20);
        let (kept, most) = (64 * BLOCK, all.len());
        let send = async {
            // Far more than the sockets can buffer; the other end reads nothing yet.
            left.write_all(&all[..kept]).await.unwrap();
            let mut heard = vec![0; most];
            let rest = async {
                left.write_all(&all[kept..]).await.unwrap();
                left.shutdown().await.unwrap();
            };
            let hear = async {
                for part in heard.chunks_mut(100_003) {
                    right.read_exact(part).await.unwrap();
                }
                assert_eq!(right.read(&mut [0]).await.unwrap(), 0);
            };
            tokio::join!(rest, hear);
            assert!(heard == all, "other bytes");
        };
        let (relayed, ()) = tokio::join!(pump(&inner_left, &inner_right, way, &lender), send);
        relayed.unwrap();
        assert_eq!(lender.moved.load(Ordering::SeqCst), most);
        assert_eq!(lender.kept.load(Ordering::SeqCst), 0, "all blocks are given back");
        let most = lender.most_kept.load(Ordering::SeqCst);
        assert!((32..=64).contains(&most), "{most} blocks");
    }
}
