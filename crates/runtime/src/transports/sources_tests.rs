use std::net::{IpAddr, Ipv4Addr};
use std::sync::mpsc;

use packtrain_proto::{Fill, Payload};

use super::super::{Hints, MAX_STREAMS, TcpSettings};
use super::*;
use packtrain_service::TransportChoice;

struct Empty;

impl Payload for Empty {
    fn fill(&mut self, _: Offset, _: &mut [u8]) -> Fill {
        Fill::Pending
    }
    fn release(&mut self, _: Range<Offset>) {}
}

fn plan(choice: TransportChoice) -> TransportConfig {
    let own = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
    TransportConfig {
        choice,
        cc: None,
        streams: None,
        most_streams: MAX_STREAMS,
        earlier: Vec::new(),
        kernel: TcpSettings::default(),
        background: false,
        rate_bps: None,
        rate_by: None,
        ports: None,
        via: None,
        ways: None,
        relayed: false,
        hints: Hints { peer: own.clone(), own, ..Hints::default() },
        allowed: None,
    }
}

/// A source whose flow runs, as if datagrams had passed both ways, and what the flow tells.
fn running(choice: TransportChoice) -> (SourceTransports, mpsc::Receiver<FlowEvent>, UdpSocket) {
    let plan = plan(choice);
    let (own, mut far) = (udp::bind(&plan).unwrap(), udp::bind(&plan).unwrap());
    let far = far.swap_remove(0);
    let peer = Offer { udp: vec![far.local_addr().port()], ..Offer::new(&plan) };
    let (tell, told) = mpsc::channel();
    let events = move |event| drop(tell.send(event));
    let flow = udp::start_sender(&plan, own, (&udp::offer(), None), &peer, Empty, events).unwrap();
    let mut source = SourceTransports::new(plan);
    (source.udp, source.established) = (Udp::Running(flow), true);
    (source, told, far)
}

#[test]
fn without_its_connection_after_ten_seconds_sabul_gives_up_and_says_why() {
    let (mut source, told, _far) = running(TransportChoice::Sabul);
    let almost = source.started + beside::WAIT - Duration::from_nanos(1);
    assert!(source.nothing_left(almost).is_none(), "it may still come");
    let failure = source.nothing_left(source.started + beside::WAIT).unwrap();
    assert!(failure.text.contains("not the TCP connection that --transport sabul needs"));
    let closed = told.into_iter().find_map(|event| match event {
        FlowEvent::Flow(Event::Closed(reason)) => Some(reason),
        _ => None,
    });
    assert_eq!(closed, Some(CloseReason::Channel), "and the other end is told");
    assert!(source.nothing_left(source.started + beside::WAIT * 2).is_none(), "once");
}

#[test]
fn with_its_connection_or_no_need_of_one_time_does_not_matter() {
    for choice in [TransportChoice::Sabul, TransportChoice::Fobs] {
        let (mut source, _told, _far) = running(choice);
        source.beside_up = choice == TransportChoice::Sabul;
        assert!(source.nothing_left(source.started + beside::WAIT * 100).is_none());
    }
}
