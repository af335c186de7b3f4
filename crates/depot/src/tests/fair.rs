//! Shares of sessions with unlimited demand.

use std::sync::atomic::AtomicUsize;

use super::*;

const SESSIONS: usize = 200;
/// Bytes per session. A connection that lost its first packets waits for a timer of the kernel (up
/// to a second); the first complete session must take several times that.
const EACH: usize = 20 << 20;
/// Socket buffer size: bytes in a buffer are moved but not counted yet.
const BUFFERS: ByteCount = ByteCount(32 << 10);

/// Receives and counts bytes per connection. Stores all counts when the first connection is
/// complete.
async fn sink(counts: Arc<StdMutex<Vec<Arc<AtomicUsize>>>>) -> (Place, Arc<StdMutex<Vec<usize>>>) {
    let listener = packtrain_net::tcp::listen("127.0.0.1:0".parse().expect("an address"));
    let listener = listener.expect("a port");
    tune::set_buffers(&listener, BUFFERS).expect("it can");
    let place = listener.local_addr().expect("bound").to_string().parse().expect("a place");
    let at_first: Arc<StdMutex<Vec<usize>>> = Arc::default();
    let noted = Arc::clone(&at_first);
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let own: Arc<AtomicUsize> = Arc::default();
            counts.lock().push(Arc::clone(&own));
            let (counts, noted) = (Arc::clone(&counts), Arc::clone(&noted));
            tokio::spawn(async move {
                let mut piece = vec![0; 16 << 10];
                while let Ok(count @ 1..) = socket.read(&mut piece).await {
                    if own.fetch_add(count, Ordering::Relaxed) + count < EACH {
                        // Without this, an end moves up to 2 MiB in one turn of the runtime, and
                        // the test measures the runtime's shares instead of the depot's.
                        tokio::task::yield_now().await;
                        continue;
                    }
                    let mut noted = noted.lock();
                    if noted.is_empty() {
                        let counts = counts.lock();
                        *noted = counts.iter().map(|one| one.load(Ordering::Relaxed)).collect();
                    }
                }
                let _ = socket.shutdown().await;
            });
        }
    });
    (place, at_first)
}

#[test]
fn of_two_hundred_sessions_nine_in_ten_move_alike() {
    let pool = ByteCount(8 << 20);
    let limits = DepotLimits { pool, key_sessions: 256, ..DepotLimits::default() };
    let depot = TestDepot::start(|request| {
        request.limits = limits;
        request.buffers = Some(BUFFERS);
    });
    let shares = executor::handle().block_on(async {
        let (to, shares) = sink(Arc::default()).await;
        let mut running = tokio::task::JoinSet::new();
        // All sessions are admitted before any continues.
        let gate = Arc::new(tokio::sync::Barrier::new(SESSIONS));
        for _ in 0..SESSIONS {
            let (to, at, gate) = (to.clone(), depot.place.clone(), Arc::clone(&gate));
            running.spawn(async move {
                let mut socket = reach(&at).await;
                tune::set_buffers(&socket, BUFFERS).expect("it can");
                socket.write_all(&header(&ask(&to, &[&at]), 1)).await.expect("room");
                assert_eq!(read_answer(&socket).await.expect("an answer"), Answer::Accepted);
                gate.wait().await;
                let piece = vec![7; 16 << 10];
                for _ in 0..EACH / piece.len() {
                    socket.write_all(&piece).await.expect("it takes all");
                    tokio::task::yield_now().await;
                }
                socket.shutdown().await.expect("it is open");
                assert_eq!(socket.read(&mut [0; 8]).await.expect("an end"), 0);
            });
        }
        while let Some(ended) = running.join_next().await {
            ended.expect("it does not panic");
        }
        shares.lock().clone()
    });
    let (sessions, stats) = depot.end();
    assert!(sessions.iter().all(|one| one.failure.is_none() && one.bytes.0.get() == EACH as u64));
    assert!(stats.held.1 <= pool, "{:?}", stats.held);
    let mut shares = shares;
    shares.sort_unstable();
    assert_eq!((shares.len(), shares.last()), (SESSIONS, Some(&EACH)));
    // Fairness is measured by `cargo xtask bench relay`. In this test the ends are as busy as the
    // depot, and a connection that lost its first packets waits for a timer of the kernel.
    let tenth = shares[SESSIONS / 10];
    assert!(tenth * 2 >= EACH, "when the first is whole a tenth has less than {tenth} of {EACH}");
}
