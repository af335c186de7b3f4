//! A relay of TCP connections in front of a server, which ends the first one.

use std::io::{self, Read as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Sender, channel};
use std::thread;

/// Passes connections on to a port of this machine.
pub(crate) struct Proxy {
    /// Where callers reach it.
    pub(crate) port: u16,
    cut: Sender<()>,
}

impl Proxy {
    /// A proxy whose first connection ends after so many bytes of the caller, or by [`Self::cut`].
    pub(crate) fn start(to: u16, limit: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("it is bound").port();
        let (cut, cuts) = channel();
        thread::spawn(move || {
            let mut first = Some((limit, cuts));
            for near in listener.incoming() {
                let near = near.expect("a caller");
                let far = TcpStream::connect(("127.0.0.1", to)).expect("the server listens");
                let twin = |stream: &TcpStream| stream.try_clone().expect("a socket");
                let (mut answers, mut back) = (twin(&far), twin(&near));
                thread::spawn(move || io::copy(&mut answers, &mut back));
                let limit = first.as_ref().map_or(u64::MAX, |(limit, _)| *limit);
                if let Some((_, cuts)) = first.take() {
                    let (near, far) = (twin(&near), twin(&far));
                    thread::spawn(move || cuts.recv().is_ok().then(|| end(&near, &far)));
                }
                let _ = io::copy(&mut (&near).take(limit), &mut &far);
                end(&near, &far);
            }
        });
        Self { port, cut }
    }

    /// Ends the first connection.
    pub(crate) fn cut(&self) {
        let _ = self.cut.send(());
    }
}

fn end(near: &TcpStream, far: &TcpStream) {
    let _ = (near.shutdown(Shutdown::Both), far.shutdown(Shutdown::Both));
}
