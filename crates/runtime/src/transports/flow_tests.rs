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
    let flow = udp::start_sender(&plan, own, (&udp::offer(), None), &peer, Empty, events).unwrap();
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
