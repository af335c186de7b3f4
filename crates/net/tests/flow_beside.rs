//! A flow with a separate feedback channel, and its behaviour without one.

mod flow_ends;

use std::thread::JoinHandle;
use std::time::Duration;

use flow_ends::{Ends, ends, is, range, until};
use packtrain_net::flow::{ChannelInput, ChannelOutput, FeedbackChannel, FlowEvent};
use packtrain_proto::{CloseReason, Event};

/// Forwards the messages of one end to the other, in pieces of `cut` bytes as a stream may deliver
/// them.
async fn carry(mut from: ChannelOutput, to: ChannelInput, cut: usize) {
    while let Some(bytes) = from.next().await {
        for piece in bytes.chunks(cut) {
            if !to.push(piece.to_vec()).await {
                return;
            }
        }
    }
}

/// Connects two channels until one of them ends, or for at most `limit`.
fn bridge(a: FeedbackChannel, b: FeedbackChannel, limit: Duration) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().build().unwrap().block_on(async move {
            let ((from_a, to_a), (from_b, to_b)) = (a.split(), b.split());
            let both = async {
                tokio::select! {
                    () = carry(from_a, to_b, 7) => {}
                    () = carry(from_b, to_a, 1_000) => {}
                }
            };
            let _ = tokio::time::timeout(limit, both).await;
        });
    })
}

fn joined(cc: &str, limit: Duration) -> (Ends, JoinHandle<()>) {
    let mut ends = ends("127.0.0.1:0", 2, cc);
    let (a, b) = (ends.tx.channel().unwrap(), ends.rx.channel().unwrap());
    assert!(ends.tx.channel().is_none(), "there is one");
    (ends, bridge(a, b, limit))
}

#[test]
fn bytes_move_when_what_is_said_of_them_goes_by_a_stream() {
    let (ends, bridge) = joined("sabul:400mbit", flow_ends::TIMEOUT);
    let size = (16 << 20) + 5;
    ends.tx.assign(range(0, size));
    let mut placed = 0;
    until(&ends.told, |event| {
        if let FlowEvent::Flow(Event::Placed(range)) = event {
            placed += range.end.since(range.start).get();
        }
        is(event, &Event::Idle)
    });
    assert_eq!((placed, ends.sink.total()), (size, size));
    ends.tx.close(CloseReason::Done);
    until(&ends.told_rx, |e| matches!(e, FlowEvent::Flow(Event::Closed(_))));
    ends.tx.join();
    ends.rx.join();
    // The channel ends with its flows.
    bridge.join().unwrap();
}

#[test]
fn a_stream_that_breaks_closes_both_ends_and_gives_the_rest_back() {
    let (ends, bridge) = joined("sabul:50mbit", Duration::from_millis(700));
    let size = 64 << 20;
    ends.tx.assign(range(0, size));
    let (mut placed, mut returned, mut why) = (0, 0, None);
    until(&ends.told, |event| {
        match event {
            FlowEvent::Flow(Event::Placed(range)) => placed += range.end.since(range.start).get(),
            FlowEvent::Flow(Event::Returned(range)) => {
                returned += range.end.since(range.start).get();
            }
            FlowEvent::Flow(Event::Closed(reason)) => why = Some(reason.clone()),
            _ => {}
        }
        matches!(event, FlowEvent::Ended(_))
    });
    bridge.join().unwrap();
    assert_eq!(why, Some(CloseReason::Channel));
    assert!(placed > 0 && placed + returned == size, "{placed} {returned}");
    until(&ends.told_rx, |e| is(e, &Event::Closed(CloseReason::Channel)));
}

#[test]
fn a_native_flow_has_none() {
    let mut ends = ends("127.0.0.1:0", 1, "native");
    assert!(ends.tx.channel().is_none() && ends.rx.channel().is_none());
}
