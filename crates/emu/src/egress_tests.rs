use super::*;
use crate::header::Layout;
use crate::store::Store;

const HOLD: Duration = Duration::from_micros(200);

/// A super-packet of `count` segments of 1,000 bytes.
fn piece(count: u32) -> Piece {
    let len = 10 + 40 + 1_000 * count as usize;
    let mut store = Store::new();
    {
        let mut room = store.room();
        let head = &mut room[0];
        head[1] = 1;
        head[4..6].copy_from_slice(&1_000_u16.to_ne_bytes());
        head[10] = 0x45;
        head[12..14].copy_from_slice(&((len - 10) as u16).to_be_bytes());
        head[19] = 6;
        head[42] = 0x50;
    }
    let layout = Layout::of(store.head(), len, 0).expect("a good packet");
    let piece = Piece::whole(store.packet(len, layout));
    assert_eq!(piece.count, count);
    piece
}

fn at(micros: u64) -> Time {
    Time::ZERO + Duration::from_micros(micros)
}

fn pace(first: u64, gap: u64) -> Pace {
    Pace { first: at(first), gap: Duration::from_micros(gap) }
}

/// All runs in the order in which they are due: first segment, end, time.
fn all(egress: &mut Egress) -> Vec<(u32, u32, u64)> {
    let mut runs = Vec::new();
    while let Some(time) = egress.next() {
        let run = egress.due(time).expect("due");
        let from = run.piece.from;
        runs.push((from, from + run.piece.count, run.last.since(Time::ZERO).as_micros()));
    }
    runs
}

#[test]
fn a_train_that_is_short_enough_stays_whole() {
    let mut egress = Egress::new(HOLD);
    egress.push(pace(100, 10), piece(20));
    egress.expect(None);
    assert_eq!(all(&mut egress), [(0, 20, 290)]);
}

#[test]
fn nothing_waits_longer_than_it_may() {
    let mut egress = Egress::new(HOLD);
    egress.push(pace(0, 100), piece(7));
    egress.expect(None);
    assert_eq!(all(&mut egress), [(0, 3, 200), (3, 6, 500), (6, 7, 600)]);
}

#[test]
fn what_lost_its_middle_is_two() {
    let mut egress = Egress::new(HOLD);
    let mut first = piece(10);
    let mut rest = first.split_off(4);
    let rest = rest.split_off(1);
    egress.push(pace(0, 10), first);
    egress.push(pace(50, 10), rest);
    egress.expect(None);
    assert_eq!(all(&mut egress), [(0, 4, 30), (5, 10, 90)]);
}

#[test]
fn segments_that_come_singly_are_joined() {
    let mut egress = Egress::new(HOLD);
    let mut rest = piece(3);
    let mut next = 0;
    while rest.count > 0 {
        let more = (rest.count > 1).then(|| rest.split_off(1));
        egress.push(pace(next, 0), rest);
        next += 50;
        egress.expect(Some(at(next)));
        let Some(more) = more else { break };
        rest = more;
    }
    assert_eq!(all(&mut egress), [(0, 3, 100)]);
}

#[test]
fn what_is_late_is_overtaken() {
    let mut egress = Egress::new(HOLD);
    egress.push(pace(500, 0), piece(2));
    egress.expect(None);
    egress.push(pace(100, 0), piece(3));
    egress.expect(None);
    assert_eq!(all(&mut egress), [(0, 3, 100), (0, 2, 500)]);
}
