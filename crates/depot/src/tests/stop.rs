//! The end of a depot.

use super::spool::{branch_to, bring, hello, keeping, record, until_safe};
use super::*;

/// Stops it, and fails if it does not end.
fn ends(depot: TestDepot) -> (Vec<DepotSession>, DepotStats) {
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || {
        let _ = done.send(depot.end());
    });
    ended.recv_timeout(std::time::Duration::from_secs(60)).expect("it ends")
}

#[test]
fn a_request_to_stop_at_once_ends_running_sessions() {
    let depot = TestDepot::start(|request| request.drain = Duration::from_secs(3600));
    let socket = executor::handle().block_on(async {
        let session = ask(&echo().await, &[&depot.place]);
        let (socket, answer) = call(&depot.place, &header(&session, 1)).await;
        assert_eq!(answer, Answer::Accepted);
        socket
    });
    depot.stop.request_at_once(15);
    let (sessions, _) = ends(depot);
    assert_eq!(sessions.len(), 1);
    assert_eq!(sessions[0].failure.as_deref(), Some("the depot has ended"));
    drop(socket);
}

#[test]
fn a_depot_ends_although_a_next_depot_still_lacks_records() {
    let (depot, _dir) = keeping(|_| {});
    executor::handle().block_on(async {
        // Nobody listens there.
        let next: Place = "127.0.0.1:1".parse().expect("a place");
        let hello = hello(&branch_to(&depot.place, 1, &next), 0);
        let (mut sender, answer) = bring(&depot.place, &hello).await;
        assert_eq!(answer, Answer::Accepted);
        sender.write_all(&record(0, true)).await.expect("room");
        until_safe(&mut sender, 1).await;
    });
    let (_, stats) = ends(depot);
    assert_eq!(stats.spool.map(|spool| (spool.deposited, spool.forwarded)), Some((1, 0)));
}
