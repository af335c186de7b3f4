//! Sends a file with SABUL's four calls: `sabul recv ADDR:PORT FILE`, `sabul send ADDR:PORT FILE`.
//! Both ends trust every key, which real programs should not do.
#![allow(clippy::print_stdout, reason = "it is a program")]

use std::error::Error;
use std::fs::File;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use packtrain_net::tcp::Identity;
use packtrain_os::entropy;
use packtrain_socket::sabul::{Listener, Options, Receiver, Sender};

fn receive(at: SocketAddr, file: &str, options: &Options) -> Result<(), Box<dyn Error>> {
    let (listener, mut file) = (Listener::bind(at, options)?, File::create(file)?);
    let mut receiver = Receiver::open(&listener)?;
    println!("{:?}", receiver.agreed());
    let mut bytes = vec![0; 1 << 20];
    while let count @ 1.. = receiver.recv(&mut bytes)? {
        file.write_all(&bytes[..count])?;
    }
    receiver.close();
    Ok(())
}

fn send(to: SocketAddr, file: &str, options: &Options) -> Result<(), Box<dyn Error>> {
    let mut file = File::open(file)?;
    let mut sender = Sender::open(to, options)?;
    println!("{:?}", sender.agreed());
    let mut bytes = vec![0; 1 << 20];
    while let count @ 1.. = file.read(&mut bytes)? {
        sender.send(&bytes[..count])?;
    }
    Ok(sender.close()?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::new(Identity::generate(entropy::bytes()), Arc::new(|_| true));
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["recv", at, file] => receive(at.parse()?, file, &options),
        ["send", to, file] => send(to.parse()?, file, &options),
        _ => Err("usage: sabul recv ADDR:PORT FILE | sabul send ADDR:PORT FILE".into()),
    }
}
