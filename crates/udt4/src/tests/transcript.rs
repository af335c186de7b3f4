//! Handshakes of the stock library, answered by ours.

use packtrain_proto::{BATCH_BYTES, Datagrams};
use packtrain_units::{Duration, SeqNo, Time};

use crate::handshake::{Caller, Outcome};
use crate::wire::golden::{CLIENT, RENDEZVOUS, bytes};
use crate::wire::{Control, Handshake, Packet, Request};
use crate::*;

fn handshake(bytes: &[u8]) -> Handshake {
    let packet = Packet::new_checked(bytes).unwrap();
    match Control::parse(&packet) {
        Ok(Control::Handshake(handshake)) => handshake,
        other => panic!("{other:?}"),
    }
}

fn poll(caller: &mut Caller, now: Time) -> Vec<u8> {
    let (to, handshake) = caller.poll(now).expect("something to say");
    let mut out = [0; 64];
    let len = Control::Handshake(handshake).write(to, &mut out).unwrap();
    out[..len].to_vec()
}

/// Gives an endpoint a datagram and returns its answer.
fn exchange(endpoint: &mut Endpoint, now: Time, mut question: Vec<u8>) -> Option<Vec<u8>> {
    let (from, stride) = ("127.0.0.1:7000".parse().unwrap(), question.len());
    let bytes = &mut question;
    endpoint.handle(now, Datagrams { lane: 0, from, bytes, stride, ecn: None, received_at: now });
    let mut out = vec![0; BATCH_BYTES];
    let sent = endpoint.poll_transmit(now, &mut out)?;
    assert_eq!(sent.to, from);
    assert!(sent.len <= question.len(), "no amplification");
    Some(out[..sent.len].to_vec())
}

#[test]
fn our_client_says_what_a_stock_client_says() {
    let [ask, cookie, call, answer] = CLIENT.map(bytes);
    let (options, now) = (Options::default(), Time::ZERO);
    let (to, isn) = ("127.0.0.1:9000".parse().unwrap(), SeqNo::new(0x1eac_4940));
    let mut caller = Caller::new(now, to, &options, isn, 0x1a45_e955);
    assert_eq!(poll(&mut caller, now), ask);
    assert_eq!(caller.handle(now, &options, &handshake(&cookie)), Outcome::Wait);
    assert_eq!(poll(&mut caller, now), call);
    let Outcome::Done { terms, reply: None } = caller.handle(now, &options, &handshake(&answer))
    else {
        panic!("not connected")
    };
    assert_eq!((terms.peer_id, terms.peer_isn, terms.payload), (0x12a3_565d, isn, 1456));
    assert_eq!((terms.send_window, terms.recv_window), (8192, 8192));
}

#[test]
fn our_server_answers_as_a_stock_server_does() {
    let [ask, cookie, call, answer] = CLIENT.map(bytes);
    let mut server = Endpoint::new(&Secret([3; 32]));
    server.listen(Options::default(), 4).unwrap();
    let now = Time::ZERO + Duration::from_secs(100);
    let got = exchange(&mut server, now, ask.clone()).expect("a cookie");
    let ours = handshake(&got).cookie;
    let mut expected = cookie;
    expected[44..48].copy_from_slice(&ours.to_be_bytes());
    assert_eq!(got, expected);
    assert_eq!(server.ids().count(), 0, "nothing is kept of a question");

    let mut forged = call.clone();
    forged[44..48].copy_from_slice(&ours.wrapping_add(1).to_be_bytes());
    assert_eq!(exchange(&mut server, now, forged), None);
    let mut call = call;
    call[44..48].copy_from_slice(&ours.to_be_bytes());
    let got = exchange(&mut server, now, call.clone()).expect("an answer");
    let id = server.accept().expect("a connection");
    let mut expected = answer;
    expected[40..44].copy_from_slice(&id.get().to_be_bytes());
    expected[44..48].copy_from_slice(&ours.to_be_bytes());
    assert_eq!(got, expected);
    assert!(server.accept().is_none());

    // The answer was lost, so it calls again; a stock client may then leave fields empty.
    assert_eq!(exchange(&mut server, now, call.clone()), Some(expected.clone()));
    call[16..24].fill(0);
    call[44..48].fill(0);
    assert_eq!(exchange(&mut server, now, call), Some(expected));
    assert_eq!(server.ids().count(), 1);
}

#[test]
fn a_stock_client_is_answered_more_than_once_before_it_is_sent_data() {
    for speaks in [false, true] {
        let [ask, _, mut call, answer] = CLIENT.map(bytes);
        let mut server = Endpoint::new(&Secret([3; 32]));
        server.listen(Options::default(), 4).unwrap();
        let mut now = Time::ZERO + Duration::from_secs(100);
        let cookie = handshake(&exchange(&mut server, now, ask).unwrap()).cookie;
        call[44..48].copy_from_slice(&cookie.to_be_bytes());
        let first = exchange(&mut server, now, call).expect("an answer");
        let id = server.accept().expect("a connection");
        server.get_mut(id).unwrap().send(&[1; 20_000]).unwrap();
        if speaks {
            let mut word = [0; 64];
            let len = Control::KeepAlive.write(id.get(), &mut word).unwrap();
            exchange(&mut server, now, word[..len].to_vec());
        }
        let (mut out, mut again) = (vec![0; BATCH_BYTES], 0);
        loop {
            match server.poll_transmit(now, &mut out) {
                Some(sent) if out[..sent.len] == first => again += 1,
                // A keepalive, then data.
                Some(_) => break,
                None => now = now.max(server.poll_timeout().expect("something to wait for")),
            }
            server.handle_timeout(now);
        }
        assert_eq!(again, if speaks { 0 } else { 2 });
        assert_eq!(first.len(), answer.len());
    }
}

#[test]
fn a_call_of_another_kind_or_version_is_rejected() {
    let [ask, _, call, _] = CLIENT.map(bytes);
    let mut server = Endpoint::new(&Secret([3; 32]));
    server.listen(Options { kind: Kind::Datagram, ..Options::default() }, 4).unwrap();
    let cookie = handshake(&exchange(&mut server, Time::ZERO, ask).unwrap()).cookie;
    for (field, value) in [(20, 1u32), (16, 5), (20, 0)] {
        let mut call = call.clone();
        call[field..field + 4].copy_from_slice(&value.to_be_bytes());
        call[44..48].copy_from_slice(&cookie.to_be_bytes());
        let answer = handshake(&exchange(&mut server, Time::ZERO, call).unwrap());
        assert_eq!(answer.request, Request::Reject(1002));
    }
    assert!(server.accept().is_none());
}

#[test]
fn a_stock_rendezvous_is_met() {
    let [zero, first, second] = RENDEZVOUS.map(bytes);
    let options = Options { rendezvous: true, ..Options::default() };
    let (to, now) = ("127.0.0.1:7201".parse().unwrap(), Time::ZERO);
    // In place of the end that arrived last: it called, was answered, and answered.
    let mut late = Caller::new(now, to, &options, SeqNo::new(0x6489_9894), 0x3da0_71fb);
    assert_eq!(poll(&mut late, now), zero);
    let Outcome::Done { terms, reply: tell } = late.handle(now, &options, &handshake(&first))
    else {
        panic!("not connected")
    };
    assert_eq!((terms.peer_id, terms.peer_isn.get()), (0x370a_2477, 0x7a72_59d7));
    assert_eq!(late.with_request(tell.unwrap()), handshake(&second));
    // In place of the other end.
    let mut early = Caller::new(now, to, &options, SeqNo::new(0x7a72_59d7), 0x370a_2477);
    let _ = poll(&mut early, now);
    assert_eq!(early.handle(now, &options, &handshake(&zero)), Outcome::Wait);
    assert_eq!(poll(&mut early, now), first);
    let Outcome::Done { terms, .. } = early.handle(now, &options, &handshake(&second)) else {
        panic!("not connected")
    };
    assert_eq!((terms.peer_id, terms.peer_isn.get()), (0x3da0_71fb, 0x6489_9894));
}
