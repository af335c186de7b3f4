use std::sync::mpsc;

use packtrain_proto::{Fill, Payload};

use super::*;
use packtrain_service::TransportChoice;

struct Empty;

impl Payload for Empty {
    fn fill(&mut self, _: Offset, _: &mut [u8]) -> Fill {
        Fill::Pending
    }
    fn release(&mut self, _: Range<Offset>) {}
}

/// A flow that runs, as if datagrams had passed both ways, what it reports, and a peer's socket.
fn running(choice: TransportChoice) -> (FlowSource, mpsc::Receiver<FlowEvent>, UdpSocket) {
    let plan = TransportConfig::on_loopback(choice);
    let (own, mut far) = (udp::bind(&plan).unwrap(), udp::bind(&plan).unwrap());
    let far = far.swap_remove(0);
    let peer = Offer { udp: vec![far.local_addr().port()], ..Offer::new(&plan) };
    let (tell, told) = mpsc::channel();
    let events = move |event| drop(tell.send(event));
    let flow =
        udp::start_sender(&plan, own, (&udp::offer(), None), &peer, Empty, None, events).unwrap();
    let mut source = FlowSource::new(plan, None);
    (source.state, source.established) = (State::Running(flow), true);
    (source, told, far)
}

#[test]
fn without_its_connection_after_ten_seconds_sabul_gives_up_and_says_why() {
    let (mut source, told, _far) = running(TransportChoice::Sabul);
    let almost = source.started + beside::WAIT - Duration::from_nanos(1);
    assert_eq!(source.poll_event(almost), None, "it may still come");
    let event = source.poll_event(source.started + beside::WAIT);
    let Some(TransportEvent::Closed(failure)) = event else { panic!("{event:?}") };
    assert!(failure.text.contains("not the TCP connection that --transport sabul needs"));
    assert!(source.is_over());
    let closed = told.into_iter().find_map(|event| match event {
        FlowEvent::Flow(Event::Closed(reason)) => Some(reason),
        _ => None,
    });
    assert_eq!(closed, Some(CloseReason::Channel), "and the other end is told");
    assert_eq!(source.poll_event(source.started + beside::WAIT * 2), None, "once");
}

#[test]
fn with_its_connection_or_no_need_of_one_time_does_not_matter() {
    for choice in [TransportChoice::Sabul, TransportChoice::Fobs] {
        let (mut source, _told, _far) = running(choice);
        source.beside_up = choice == TransportChoice::Sabul;
        let event = source.poll_event(source.started + beside::WAIT * 100);
        assert!(!matches!(event, Some(TransportEvent::Closed(_))), "{event:?}");
    }
}

#[test]
fn an_end_without_a_port_says_that_datagrams_are_not_used() {
    let plan = TransportConfig::on_loopback(TransportChoice::Auto);
    let held =
        std::net::UdpSocket::bind("[::]:0").or_else(|_| std::net::UdpSocket::bind("0.0.0.0:0"));
    let held = held.expect("a free port");
    let port = held.local_addr().expect("bound").port();
    let ports = Some(packtrain_service::PortRange { first: port, last: port });
    let full = TransportConfig { ports, ..plan.clone() };
    let told = |notice: Option<Notice>, words: &str| {
        let text = notice.expect("a notice").text;
        assert!(text.starts_with("native is not used: ") && text.contains(words), "{text}");
    };
    let intake = || Intake::new(&plan);
    let (near, _far) = crate::control::pair().expect("sockets");

    let mut source = FlowSource::new(full.clone(), None);
    assert!(source.bind().is_none());
    told(source.poll_notice(), "no free UDP port");
    let mut sink = FlowSink::new(full, intake());
    let mut nothing = Offer::new(&plan);
    sink.bind(&near.tx, &mut nothing);
    told(sink.poll_notice(), "at this end");
    assert!(nothing.udp.is_empty());

    // The other end has one and learns it from the offer.
    let mut sink = FlowSink::new(plan.clone(), intake());
    sink.bind(&near.tx, &mut Offer::new(&plan));
    assert!(sink.poll_notice().is_none());
    sink.on_offer(&nothing);
    told(sink.poll_notice(), "the other end");
    let mut source = FlowSource::new(plan.clone(), None);
    let sockets = source.bind().expect("a port");
    source.state = State::Bound(sockets, udp::offer());
    source.on_offer(&nothing);
    told(source.poll_notice(), "the other end");
    // An end that is not to use datagrams offers no port either.
    let mut source = FlowSource::new(plan.clone(), None);
    source.state = State::Bound(source.bind().expect("a port"), udp::offer());
    let only_tcp = TransportConfig { allowed: Some(vec!["tcp".to_owned()]), ..plan };
    source.on_agreed(&only_tcp, None);
    source.on_offer(&nothing);
    assert!(source.poll_notice().is_none());
}
