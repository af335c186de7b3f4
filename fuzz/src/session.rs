//! Headers of sessions, answers of depots, and rules of depots.

use packtrain_net::tcp::Identity;
use packtrain_service::address_policy::AllowRule;
use packtrain_session::echo::EchoHead;
use packtrain_session::hop::{FRAME_HEAD, Frame, Hello};
use packtrain_session::{Answer, DepotId, Header, Hop, Kind, Refusal, Session, SessionId};
use packtrain_session::{Place, Reason, measure};
use packtrain_units::{DataRate, Duration};

/// A parsed header is written to the same bytes; an answer and a rule are unchanged after writing
/// and reading.
pub fn session(data: &[u8]) {
    if let Ok(header) = Header::read(data) {
        let written = header.write();
        assert_eq!(written, data);
        assert_eq!(Header::read(&written).as_ref(), Ok(&header));
        let _ = (header.is_signed(), header.next());
        if header.position() < header.session.route.len() {
            let passed = header.forwarded_by(DepotId([1; 16])).write();
            assert!(Header::read(&passed).is_ok() || passed.len() > 4096);
        }
    }
    if let Ok(answer) = Answer::read(data) {
        // An invalid text may be truncated when it is written.
        let again = Answer::read(&answer.write()).expect("what was written is read");
        assert_eq!(Answer::read(&again.write()), Ok(again));
    }
    if let Ok(report) = measure::read_report(data) {
        // Names are written in lower case, and a report has a limited length.
        let written = measure::write_report(&report);
        let again = measure::read_report(&written[measure::REPORT_HEAD..]);
        let again = again.expect("what was written is read");
        assert_eq!(again[..], report[..again.len()]);
    }
    if let Some(reply) = data.first_chunk().and_then(measure::Reply::read) {
        assert_eq!(&reply.write()[..], &data[..measure::REPLY]);
    }
    if let Some((head, body)) = data.split_first_chunk::<FRAME_HEAD>()
        && Frame::len(head) == Ok(body.len())
        && let Ok(frame) = Frame::read(head[0], body)
    {
        assert_eq!(frame.write(), data);
    }
    if let Some(hello) = data.first_chunk().and_then(|bytes| Hello::read(bytes).ok()) {
        assert_eq!(Hello::read(&hello.write()), Ok(hello));
    }
    if let Some(bytes) = data.first_chunk()
        && let Some(head) = EchoHead::read(bytes)
    {
        assert_eq!(&head.write(), bytes);
    }
    if let Ok(text) = std::str::from_utf8(data) {
        if let Ok(rule) = text.parse::<AllowRule>() {
            assert_eq!(rule.to_string().parse::<AllowRule>(), Ok(rule));
        }
        if let Ok(place) = text.parse::<Place>() {
            assert_eq!(place.to_string().parse::<Place>(), Ok(place));
        }
    }
}

/// Headers with and without further depots, both answers, rules.
pub fn seeds() -> Vec<Vec<u8>> {
    let hop = |text: &str| Hop::tcp(text.parse().expect("a place"));
    let session = Session {
        kind: Kind::Synchronous,
        id: SessionId([3; 16]),
        sent: Duration::from_secs(1_763_800_000),
        hop_limit: 4,
        source: Some("[2001:db8::2]:9".parse().expect("a place")),
        destination: hop("192.0.2.1:7876"),
        route: vec![hop("depot.example:7879"), hop("[2001:db8::1]:7879")],
        by_destination: true,
        tree: Vec::new(),
        spool: None,
    };
    let identity = Identity::generate([1; 32]);
    let header = session.seal(identity.public().0, |text| identity.sign(text)).expect("it fits");
    let token = measure::Measure::Token(measure::Epoch { number: 5, author: 6 }, 7);
    let turn = Session { kind: Kind::Measure(token), ..session.clone() };
    let turn = turn.seal(identity.public().0, |text| identity.sign(text)).expect("it fits");
    let series = measure::Series {
        to: "depot.example:7879".parse().expect("a place"),
        sensor: measure::Sensor::Relayed,
        age: Duration::from_secs(3),
        samples: 4,
        rate: DataRate::from_mbps(90),
        interval: (DataRate::from_mbps(80), DataRate::from_mbps(99)),
        error_ppm: 50_000,
        each: DataRate::from_mbps(30),
        min_rtt: Some(Duration::from_millis(20)),
        lost_ppm: 100,
    };
    let report = measure::write_report(&[series.clone(), series]);
    let refusal = Refusal {
        reason: Reason::Busy,
        depot: 1,
        retry_after: Some(Duration::from_secs(2)),
        text: "full".to_owned(),
    };
    vec![
        header.write(),
        turn.write(),
        report[measure::REPORT_HEAD..].to_vec(),
        header.forwarded_by(DepotId([2; 16])).write(),
        Answer::Accepted.write(),
        Answer::Refused(refusal).write(),
        Hello { aes: true, key: [7; 32] }.write().to_vec(),
        Frame::Data(b"bytes").write(),
        Frame::Offer(5000).write(),
        Frame::Switch(1 << 20).write(),
        EchoHead { len: 0, flags: 1, tag: 9 }.write().to_vec(),
        b"10.1.0.0/16:5000-5100".to_vec(),
        b"[2001:db8::]/32:7876".to_vec(),
    ]
}
