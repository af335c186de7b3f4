//! Copies over depots whose hops use datagrams, and over a depot that corrupts bytes.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use crate::depots::{cp, depot};
use crate::rig::{Rig, contents, free_port, send};
use crate::server::serve;
use crate::tree::{self, MIB, assert_same};

#[test]
fn there_and_back_by_native_and_udt() {
    let rig = Rig::local();
    fs::create_dir(rig.path("src")).expect("a folder");
    tree::odd(&rig.path("src/odd"));
    tree::file(&rig.path("src/big"), 12 * MIB + 17, 1);
    let (_server, port) = serve(&rig, &[]);
    let (_first, one) = depot(&rig, &[]);
    let (second, two) = depot(&rig, &[]);
    let place = format!("pt://127.0.0.1:{port}/dst");
    let via = format!("{one},{two}");
    let hops = ["--hops", "native,udt", "--streams", "3", "--rate", "100mbit"];
    rig.ok(cp(&rig, &via, &hops).arg(contents(&rig.path("src"))).arg(&place));
    assert_same(&rig.path("src"), &rig.path("root/dst"));
    // Slow enough that datagrams start before the end of the transfer.
    let hops = ["--hops", "native", "--streams", "2", "--rate", "100mbit"];
    rig.ok(cp(&rig, &via, &hops).arg(format!("{place}/")).arg(rig.path("back")));
    assert_same(&rig.path("src"), &rig.path("back"));
    send("TERM", second.pid());
    let told = String::from_utf8_lossy(&second.wait().stdout).into_owned();
    for words in [r#""from_by":"udt""#, r#""from_by":"native""#, r#""from_datagrams":true"#] {
        assert!(told.contains(words), "{words}: {told}");
    }
    assert!(!told.contains(r#""fell_back":true"#), "{told}");
}

/// A depot that corrupts a byte now and then: a packtrain depot behind a relay that corrupts.
fn changing(depot: &str) -> String {
    let place = format!("127.0.0.1:{}", free_port());
    let listener = TcpListener::bind(&place).expect("a port");
    let depot = depot.to_owned();
    std::thread::spawn(move || {
        for near in listener.incoming() {
            let (Ok(near), Ok(far)) = (near, TcpStream::connect(&depot)) else { return };
            let pairs = [(&near, &far), (&far, &near)];
            for (from, to) in pairs {
                let from = from.try_clone().expect("a socket");
                let to = to.try_clone().expect("a socket");
                std::thread::spawn(move || pass(from, to));
            }
        }
    });
    place
}

fn pass(mut from: TcpStream, mut to: TcpStream) {
    let (mut at, mut piece) = (0, vec![0; 32_768]);
    while let Ok(count @ 1..) = from.read(&mut piece) {
        // One byte of every third MiB, never in the header or the first messages.
        let next = (at / (3 * MIB) + 1) * 3 * MIB;
        if at + count as u64 > next {
            piece[(next - at) as usize] ^= 4;
        }
        at += count as u64;
        if to.write_all(&piece[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

#[test]
fn a_depot_that_changes_bytes_is_named_and_gone_around() {
    let rig = Rig::local();
    tree::file(&rig.path("src"), 24 * MIB + 17, 1);
    let (_server, port) = serve(&rig, &[]);
    let (_first, one) = depot(&rig, &[]);
    let (_second, two) = depot(&rig, &[]);
    let bad = changing(&two);
    let place = format!("pt://127.0.0.1:{port}/dst");
    let via = format!("{one},{bad}");
    let ended = rig.ok(cp(&rig, &via, &["--streams", "2"]).arg(rig.path("src")).arg(&place));
    assert!(fs::read(rig.path("src")).unwrap() == fs::read(rig.path("root/dst")).unwrap());
    let named = format!("up to the depot {one} they are right, up to the depot {bad} they are not");
    assert!(ended.stderr.contains(&named), "{}", ended.stderr);
    assert!(ended.stderr.contains("going on without depots"), "{}", ended.stderr);
    let told = String::from_utf8_lossy(&ended.stdout).into_owned();
    let event = format!(r#"{{"event":"corrupted","depot":"{bad}"}}"#);
    assert!(told.contains(&event), "{told}");
}

#[test]
fn a_frozen_depot_on_a_datagram_hop_is_gone_around() {
    let rig = Rig::local();
    tree::file(&rig.path("src"), 40 * MIB + 17, 1);
    let (_server, port) = serve(&rig, &[]);
    let (depot, via) = depot(&rig, &[]);
    let place = format!("pt://127.0.0.1:{port}/dst");
    let mut copy = cp(&rig, &via, &["--hops", "native", "--streams", "2", "--rate", "60mbit"]);
    let mut running = rig.start(copy.arg(rig.path("src")).arg(&place));
    std::thread::sleep(Duration::from_millis(2500));
    assert!(!running.ended(), "{}", running.stderr());
    send("STOP", depot.pid());
    let ended = running.wait();
    send("CONT", depot.pid());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(fs::read(rig.path("src")).unwrap() == fs::read(rig.path("root/dst")).unwrap());
    assert!(ended.stderr.contains("going on without depots"), "{}", ended.stderr);
}
