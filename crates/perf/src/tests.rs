//! The called end of a test, and other ends that are silent or hostile.

use packtrain_runtime::control::pair;
use packtrain_service::StopHandle;

use super::*;

const LIMIT: std::time::Duration = std::time::Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(3600);

fn request(choice: TransportChoice, millis: u64, bytes: Option<u64>) -> SessionRequest {
    let perf = Some(MeasureRequest { parallel: 2, millis, bytes });
    SessionRequest { perf, choice: handshake::number(choice), ..SessionRequest::default() }
}

/// Calls an end with this request and these timeouts; `talk` has the caller's control connection.
fn call(
    ask: &SessionRequest,
    role: Role,
    timeouts: Timeouts,
    talk: impl FnOnce(&Control),
) -> Failure {
    call_with(ask, role, timeouts, StopHandle::new(), talk)
}

/// The same with a request to stop.
fn call_with(
    ask: &SessionRequest,
    role: Role,
    timeouts: Timeouts,
    handle: StopHandle,
    talk: impl FnOnce(&Control),
) -> Failure {
    let (near, far) = pair().expect("sockets");
    let hints = Hints::default();
    let plan = ask.plan(hints, &Permissions::default(), &Ceilings::default(), None);
    let test = ask.perf.clone().expect("a test");
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let stop = Stop::of_called_end(handle);
        let ended = called_within(timeouts, far, plan, role, (&test, None), stop);
        let _ = tell.send(ended.err());
    });
    talk(&near);
    told.recv_timeout(LIMIT).expect("it ends").expect("with a failure")
}

#[test]
fn a_test_whose_caller_is_silent_ends() {
    let forever = u64::MAX;
    for (role, millis, bytes, timeouts) in [
        (Role::Sink, forever, None, Timeouts { overtime: LONG, stall: SHORT }),
        (Role::Sink, forever, Some(1 << 40), Timeouts { overtime: LONG, stall: SHORT }),
        (Role::Source, forever, None, Timeouts { overtime: LONG, stall: SHORT }),
        (Role::Sink, 10, None, Timeouts { overtime: SHORT, stall: LONG }),
        (Role::Source, 10, None, Timeouts { overtime: SHORT, stall: LONG }),
    ] {
        let ask = request(TransportChoice::Native, millis, bytes);
        let failure = call(&ask, role, timeouts, |_| {});
        assert_eq!(failure.kind, FailureKind::Temporary, "{failure}");
    }
}

#[test]
fn an_end_that_waits_for_offers_can_be_stopped() {
    for role in [Role::Source, Role::Sink] {
        let ask = request(TransportChoice::Native, u64::MAX, None);
        let (handle, timeouts) = (StopHandle::new(), Timeouts { overtime: LONG, stall: LONG });
        handle.request(15);
        let failure = call_with(&ask, role, timeouts, handle, |_| {});
        assert!(failure.text.contains("was stopped"), "{failure}");
    }
}

/// Each offer makes an end connect, over TCP with all its streams.
#[test]
fn offers_are_made_once() {
    for role in [Role::Source, Role::Sink] {
        let ask = request(TransportChoice::Tcp, 1000, None);
        let failure = call(&ask, role, Timeouts::default(), |near| {
            let hints = Hints::default();
            let plan = ask.plan(hints, &Permissions::default(), &Ceilings::default(), None);
            let offer = packtrain_runtime::transports::offer::Offer::new(&plan).encode();
            for _ in 0..2 {
                PerfMessage::Offers(vec![offer.clone()]).send(near);
            }
        });
        assert_eq!(failure.kind, FailureKind::Protocol, "{failure}");
    }
}

#[test]
fn flows_over_udp_are_counted_within_the_limits() {
    let own = Ceilings::default();
    let mut ask = request(TransportChoice::Native, 1000, None);
    assert_eq!(datagram_flows(&ask, &own), 2);
    ask.choice = handshake::number(TransportChoice::Auto);
    for (parallel, most, flows) in [(0, None, 1), (u32::MAX, None, 64), (64, Some(8), 8)] {
        let test = ask.perf.as_mut().expect("a test");
        test.parallel = parallel;
        assert_eq!(datagram_flows(&ask, &Ceilings { streams: most, ..own.clone() }), flows);
    }
    assert_eq!(datagram_flows(&request(TransportChoice::Tcp, 1000, None), &own), 0);
    assert_eq!(datagram_flows(&SessionRequest::default(), &own), 0, "a copy");
}
