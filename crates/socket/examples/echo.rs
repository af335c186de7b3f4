//! A client and a server: `echo serve ADDR:PORT` returns what it receives, `echo call ADDR:PORT
//! TEXT`.
#![allow(clippy::print_stdout, reason = "it is a program")]

use std::error::Error;
use std::net::SocketAddr;

use packtrain_socket::{Listener, Options, Socket};

fn serve(at: SocketAddr) -> Result<(), Box<dyn Error>> {
    let listener = Listener::bind(at, &Options::default())?;
    loop {
        let (socket, peer) = listener.accept()?;
        std::thread::spawn(move || {
            let copied = std::io::copy(&mut &socket, &mut &socket);
            println!("{peer}: {copied:?} bytes, round trip {}", socket.stats().rtt);
        });
    }
}

fn call(at: SocketAddr, text: &str) -> Result<(), Box<dyn Error>> {
    let socket = Socket::connect(at, &Options::default())?;
    socket.send_all(text.as_bytes())?;
    let mut answer = vec![0; text.len()];
    std::io::Read::read_exact(&mut &socket, &mut answer)?;
    println!("{}", String::from_utf8(answer)?);
    Ok(socket.close()?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", at] => serve(at.parse()?),
        ["call", at, text] => call(at.parse()?, text),
        _ => Err("usage: echo serve ADDR:PORT | echo call ADDR:PORT TEXT".into()),
    }
}
