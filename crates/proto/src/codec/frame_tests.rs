use proptest::prelude::*;

use super::*;

fn ack(lane: u8, start: u64, lengths: &[(u64, u64)]) -> Ack {
    let mut at = start;
    let mut runs = Vec::new();
    for &(gap, len) in lengths {
        let a = at + gap;
        runs.push((a, a + len));
        at = a + len;
    }
    Ack { lane, start, end: at, runs }
}

prop_compose! {
    fn any_ack()(
        lane in 0u8..16,
        start in 0u64..1 << 40,
        first in 0u64..3,
        rest in proptest::collection::vec((1u64..40, 1u64..400), 0..60),
    ) -> Ack {
        let mut lengths = vec![(first, 1)];
        lengths.extend(rest);
        ack(lane, start, &lengths)
    }
}

fn report() -> Report {
    Report {
        number: 3,
        at: Time::from_nanos(5_000_000),
        received: ByteCount(70_000),
        refused: 1,
        host_drops: 2,
        ecn: EcnCounts { ect0: 9, ce: 3 },
        room: ByteCount(1 << 20),
        drain: DataRate::from_mbps(100),
        marks: vec![Mark { lane: 1, pn: 44, at: Time::from_nanos(4_900_000) }],
        acks: vec![ack(1, 10, &[(0, 30), (2, 3)])],
    }
}

fn bytes_of(frame: &Frame) -> Vec<u8> {
    let mut out = Vec::new();
    write(frame, &mut out);
    out
}

#[test]
fn golden_frames() {
    let golden = [
        (
            Frame::Ping { token: 0x0102, rtt: Duration::from_millis(20) },
            "01000000000000010280004e20",
        ),
        (Frame::Pong { token: 0x0102, size: 1472 }, "02000000000000010245c0"),
        (Frame::Close { code: 1 }, "0401"),
        (
            Frame::Report(report()),
            "0303804c4b4080011170010209038010000085f5e10001012c800186a001010a2302001e0203",
        ),
    ];
    for (frame, hex) in golden {
        let bytes: String = bytes_of(&frame).iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(bytes, hex, "{frame:?}");
    }
}

#[test]
fn the_shorter_form_is_taken() {
    let sparse = ack(0, 0, &[(0, 5000), (1, 5000)]);
    assert!(
        bytes_of(&Frame::Report(Report { acks: vec![sparse], ..Report::default() })).len() < 40
    );
    let dense = ack(0, 0, &[(1, 1); 400]);
    assert!(
        bytes_of(&Frame::Report(Report { acks: vec![dense], ..Report::default() })).len() < 130
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_report_survives_the_wire(acks in proptest::collection::vec(any_ack(), 0..4)) {
        let frame = Frame::Report(Report { acks, ..report() });
        prop_assert_eq!(parse(&bytes_of(&frame)), Some(vec![frame]));
    }

    #[test]
    fn the_bound_on_an_interval_holds(ack in any_ack()) {
        let mut out = Vec::new();
        write_ack(&ack, &mut out);
        prop_assert!(out.len() <= ack_len(&ack));
    }

    #[test]
    fn any_bytes_give_frames_or_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..1500)) {
        let _ = parse(&bytes);
    }

    #[test]
    fn a_bent_report_never_panics(at in 0usize..40, bits in 1u8..) {
        let mut bytes = bytes_of(&Frame::Report(report()));
        let at = at % bytes.len();
        bytes[at] ^= bits;
        let _ = parse(&bytes);
    }
}
