//! The traits of tokio, over loopback.
#![cfg(feature = "tokio")]

use std::net::SocketAddr;

use packtrain_socket::{Listener, Options, Socket};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn tasks_wait_for_sockets() {
    let options = Options::default();
    let local: SocketAddr = ([127, 0, 0, 1], 0).into();
    let listener = Listener::bind(local, &options).expect("a listener");
    let at = listener.local_addr();
    let bytes: Vec<u8> = (0..2_000_000_u32).map(|i| (i / 3) as u8).collect();
    let want = bytes.clone();
    let called = tokio::spawn(async move {
        let (mut socket, _) = listener.accept_async().await.expect("a caller");
        let mut got = Vec::new();
        socket.read_to_end(&mut got).await.expect("bytes");
        got
    });
    let mut socket = Socket::connect_async(at, &options).await.expect("a connection");
    socket.write_all(&bytes).await.expect("room");
    socket.shutdown().await.expect("everything acknowledged");
    assert!(called.await.expect("no panic") == want);
}
