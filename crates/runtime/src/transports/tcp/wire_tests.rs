//! A receiving end and streams that send where there is no room.

use std::net::Ipv4Addr;
use std::sync::mpsc;

use super::*;
use crate::assembly::room::tests::full;
use crate::transports::offer::Offer;
use crate::transports::tcp::TcpEnd;
use crate::transports::{Hints, TransportConfig};
use packtrain_service::{TransportChoice, executor};
use packtrain_units::Duration;

/// Shorter than the time after which the data of a stream is dropped for want of room.
const LIMIT: std::time::Duration = std::time::Duration::from_secs(40);

fn plan() -> TransportConfig {
    let hints = Hints { peer: vec![Ipv4Addr::LOCALHOST.into()], ..Hints::default() };
    TransportConfig { most_streams: 1, hints, ..TransportConfig::on_loopback(TransportChoice::Tcp) }
}

#[test]
fn a_stream_that_waits_for_room_is_evicted_at_once() {
    let (assembly, gate, next) = full();
    let slot: Arc<OnceLock<Assembly>> = Arc::default();
    assert!(slot.set(assembly.clone()).is_ok());
    let intake = Intake::new(&plan());
    let (tasks, received) = (Tasks::default(), Arc::<AtomicU64>::default());
    let running = tasks.clone();
    let sink = TcpEnd::listen(&plan(), &tasks, move |stream| {
        receive(&running, stream, &intake, Arc::clone(&slot), Arc::clone(&received), || {});
    })
    .unwrap();
    let (tell, up) = mpsc::channel();
    let own = Tasks::default();
    let source = TcpEnd::listen(&plan(), &own, move |stream| {
        let _ = tell.send(stream);
    })
    .unwrap();
    let offer = |end: &TcpEnd| Offer { tcp: end.port(), tcp_key: end.key(), ..Offer::new(&plan()) };
    sink.expect(&offer(&source)).unwrap();
    let connect = || {
        source.connect(&plan(), &offer(&sink), 1, Duration::ZERO);
        up.recv_timeout(LIMIT).expect("a stream")
    };
    let frame = [&next.get().to_le_bytes()[..], &1u32.to_le_bytes(), b"x"].concat();
    executor::handle().block_on(async {
        let mut first = connect();
        first.write_all(&frame).await.unwrap();
        first.flush().await.unwrap();
        // Time for the frame to arrive. Nothing is taken: the stream waits for room.
        let soon = std::time::Duration::from_millis(500);
        assert!(tokio::time::timeout(soon, first.read_u64_le()).await.is_err(), "it was placed");
        let mut second = connect();
        second.write_all(&frame).await.unwrap();
        second.flush().await.unwrap();
        let ended = tokio::time::timeout(LIMIT, first.read_u64_le()).await;
        assert!(ended.expect("the first stream is closed").is_err());
        // There is room again for the one that stayed.
        drop(gate);
        let taken = tokio::time::timeout(LIMIT, second.read_u64_le()).await;
        assert_eq!(taken.expect("in time").expect("it stays"), 1);
    });
    assembly.close();
}
