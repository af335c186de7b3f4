//! Stored sessions: frames, a depot's files, records, tickets, plans.

use packtrain_client::store_forward::{ClaimTicket, DepotPlan};
use packtrain_session::SessionId;
use packtrain_session::spool::{FRAME_HEAD, Frame, Head, Mark, Opener, Sealer, is_genuine, newest};
use packtrain_units::ByteCount;

const SESSION: SessionId = SessionId([1; 16]);

/// Parsed data is written to the same bytes; no record is accepted without a signature.
pub fn spool(data: &[u8]) {
    if let Some(head) = data.first_chunk::<FRAME_HEAD>()
        && let Ok(frame) = Frame::read(head)
    {
        assert_eq!(frame.write(), *head);
    }
    if let Some(mark) = newest(SESSION, data) {
        assert_eq!(Mark::read(SESSION, &mark.write(SESSION)), Some(mark));
    }
    if let Some(head) = Head::read(data) {
        assert_eq!(head.write(), data);
    }
    assert!(!is_genuine(SESSION, &[2; 32], 0, true, data));
    assert!(Opener::new(SESSION, [3; 32], [2; 32]).open(0, true, data.to_vec()).is_err());
    if let Ok(text) = std::str::from_utf8(data) {
        if let Ok(plan) = text.parse::<DepotPlan>() {
            assert_eq!(plan.to_string().parse::<DepotPlan>(), Ok(plan));
        }
        if let Ok(ticket) = text.parse::<ClaimTicket>() {
            assert_eq!(ticket.to_text().parse::<ClaimTicket>(), Ok(ticket));
        }
    }
}

/// Frames of each kind, marks, a record, plans.
pub fn seeds() -> Vec<Vec<u8>> {
    let frames = [
        Frame::Record { number: 1, last: true, len: 100 },
        Frame::Have { records: 5, all: true },
        Frame::Refused { len: 20 },
        Frame::Get { from: 3, count: 64 },
        Frame::Lack { records: 2, all: false },
    ];
    let mut seeds: Vec<Vec<u8>> = frames.iter().map(|frame| frame.write().to_vec()).collect();
    let mark = Mark { count: 2, records: 1, bytes: ByteCount(100), all: true, over: false };
    let mut marks = vec![0; 4096 + 56];
    marks[..56].copy_from_slice(&mark.write(SESSION));
    marks[4096..].copy_from_slice(&Mark::default().write(SESSION));
    seeds.push(marks);
    let sealer = Sealer::new(SESSION, &[3; 32], [4; 16], |_| [0; 64]);
    seeds.push(sealer.seal(0, true, b"the end"));
    seeds.push(b"a:1(b:2,wait:[::1]:3(drop:d:4))".to_vec());
    seeds.push(b"depot.example:7879,10.0.0.1:7879".to_vec());
    seeds
}
