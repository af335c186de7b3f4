//! A control connection and peers that do not read.

use super::*;

#[test]
fn a_peer_that_asks_and_never_reads_is_cut_off() {
    let (near, mut far) = UnixStream::pair().unwrap();
    let control = over_streams("test", near.try_clone().unwrap(), WriteHalf(near));
    let writer = std::thread::spawn(move || {
        let mut pings = Vec::new();
        for n in 0..10_000 {
            message::encode(&Message::Ping(u64::MAX - n), &mut pings);
        }
        // More pings than pongs may be queued; the far end never reads.
        for _ in 0..200 {
            if far.write_all(&pings).is_err() {
                break;
            }
        }
        far
    });
    let limit = std::time::Duration::from_secs(60);
    match control.rx.recv_timeout(limit) {
        Ok(Incoming::Closed(failure)) => assert_eq!(failure.kind, FailureKind::Protocol),
        other => panic!("{other:?}"),
    }
    let waiting = control.tx.waiting.pongs.load(Ordering::Relaxed);
    assert!(waiting <= MAX_QUEUED_PONGS + 1, "{waiting} answers wait");
    drop(control);
    drop(writer);
}

#[test]
fn texts_of_failures_are_short_before_anyone_reads_them() {
    let (near, far) = pair().unwrap();
    let failure = Failure::new(FailureKind::Fatal, "long ".repeat(50_000));
    let listed = vec![(b"a".to_vec(), failure.clone())];
    let entry = packtrain_object::EntryId(1);
    let (files, failed, failures) = (0, 1, listed.clone());
    let (entries, vanished, empty) = (0, 0, Vec::new());
    for message in [
        Message::Cancel(failure.clone()),
        Message::Refused(failure.clone()),
        Message::SourceFailed { entry, failure: failure.clone() },
        Message::SinkFailed { entry, failure },
        Message::Removed { files, failed, failures },
        Message::ManifestEnd { entries, failed, vanished, failures: listed, empty },
    ] {
        far.tx.send(&message);
        let limit = std::time::Duration::from_secs(60);
        match near.rx.recv_timeout(limit) {
            Ok(Incoming::Message(
                Message::Cancel(failure)
                | Message::Refused(failure)
                | Message::SourceFailed { failure, .. }
                | Message::SinkFailed { failure, .. },
            )) => assert_eq!(failure.text.len(), packtrain_transfer::limits::MAX_TEXT),
            Ok(Incoming::Message(
                Message::Removed { failures, .. } | Message::ManifestEnd { failures, .. },
            )) => assert_eq!(failures[0].1.text.len(), packtrain_transfer::limits::MAX_TEXT),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_waits_to_be_looked_at_is_bounded_in_bytes() {
    let (near, mut far) = UnixStream::pair().unwrap();
    let control = over_streams("test", near.try_clone().unwrap(), WriteHalf(near));
    let writer = std::thread::spawn(move || {
        let mut frame = Vec::new();
        message::encode(&Message::Manifest(vec![0; 1 << 19]), &mut frame);
        (0..MAX_WAITING).take_while(|_| far.write_all(&frame).is_ok()).count()
    });
    // The connection is read up to the limit and no further.
    let frames = MAX_WAITING_BYTES >> 19;
    let mut waited = 0;
    while control.rx.len() + 1 < frames && waited < 60_000 {
        std::thread::sleep(std::time::Duration::from_millis(1));
        waited += 1;
    }
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert!(control.rx.len() <= frames, "{} messages wait", control.rx.len());
    // Processing messages makes room for more. Dropping the end stops its reader.
    for _ in 0..2 * frames {
        let limit = std::time::Duration::from_secs(60);
        assert!(matches!(control.rx.recv_timeout(limit), Ok(Incoming::Message(_))));
    }
    drop(control);
    assert!(writer.join().unwrap() < MAX_WAITING);
}

#[test]
fn payload_for_a_peer_that_does_not_read_waits_no_longer_than_the_connection() {
    let (near, far) = UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    let mut control = packtrain_service::executor::handle()
        .block_on(async { over_async(tokio::net::UnixStream::from_std(near).unwrap(), None) });
    control.set_linger(std::time::Duration::from_millis(10));
    let end = control.connection_end();
    let tx = control.tx.clone();
    let (over, ended) = bounded(0);
    spawn("sends", move || {
        while tx.send_payload(Offset(0), Slice::owned(Offset(0), vec![7; 1 << 20])) {}
        drop(over);
    });
    // The queue is full: the sender waits. The far end neither reads nor closes.
    while control.tx.waiting.state.lock().0 + (1 << 20) <= PAYLOAD_QUEUE_BYTES {
        std::thread::yield_now();
    }
    drop(control);
    let limit = std::time::Duration::from_secs(60);
    let still: Result<(), _> = ended.recv_timeout(limit);
    assert_eq!(still, Err(crossbeam_channel::RecvTimeoutError::Disconnected));
    packtrain_service::executor::handle().block_on(end.wait());
    drop(far);
}

#[test]
fn what_was_queued_leaves_before_the_end() {
    let (near, far) = pair().unwrap();
    for n in 0..100 {
        near.tx.send(&Message::Pong(n));
    }
    let tx = near.tx.clone();
    drop(near);
    tx.wait_closed(std::time::Duration::from_secs(20));
    for n in 0..100 {
        match far.rx.recv_timeout(std::time::Duration::from_secs(20)) {
            Ok(Incoming::Message(Message::Pong(m))) => assert_eq!(m, n),
            other => panic!("{n}: {other:?}"),
        }
    }
    assert!(matches!(far.rx.recv(), Ok(Incoming::Closed(_))), "and then the end");
}
