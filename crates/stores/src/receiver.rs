//! Estimates sender statistics for streams that receive data, for the `StreamCountTuner`.
//!
//! The kernel reports the congestion window, retransmissions and the round-trip time to a sender
//! only. A receiver can estimate them: the round-trip time from the echo of its timestamps, a loss
//! as a burst of out-of-order segments, and the window as the bytes received in a round trip. So
//! one tuner serves both directions.

use std::collections::BTreeMap;

use packtrain_net::tcp::TcpInfo;
use packtrain_units::{ByteCount, DataRate, Duration, Time};

use packtrain_runtime::transports::StreamId;

/// Minimum interval over which a rate is measured.
const RATE_SPAN: Duration = Duration::from_millis(200);
/// A stream is limited by our receive window if this fraction of the window is in flight.
const WINDOW_FULL: f64 = 0.8;

/// State of each stream.
#[derive(Debug, Default)]
pub(super) struct Receiver {
    streams: BTreeMap<StreamId, Stream>,
}

#[derive(Debug)]
struct Stream {
    at: Time,
    out_of_order: u32,
    /// When segments last arrived out of order.
    last_out_of_order: Option<Time>,
    bursts: u32,
    /// Time and received bytes at the start of the rate measurement.
    rate_start: (Time, u64),
    rate: DataRate,
    busy: Duration,
    limited: Duration,
    min_rtt: Option<Duration>,
}

impl Receiver {
    /// The statistics of a stream as its sender would have them; `active`: it waits for data.
    pub(super) fn as_sender(
        &mut self,
        now: Time,
        id: StreamId,
        info: TcpInfo,
        active: bool,
    ) -> TcpInfo {
        let received = info.received.unwrap_or_default().get();
        let out_of_order = info.out_of_order.unwrap_or(0);
        let stream = self.streams.entry(id).or_insert_with(|| Stream {
            at: now,
            out_of_order,
            last_out_of_order: None,
            bursts: 0,
            rate_start: (now, received),
            rate: DataRate::ZERO,
            busy: Duration::ZERO,
            limited: Duration::ZERO,
            min_rtt: None,
        });
        let srtt = info.receive_rtt.unwrap_or(info.srtt);
        // The minimum includes the round trips that this end measured as a sender of the handshake
        // and the requests.
        stream.min_rtt = stream.min_rtt.into_iter().chain(info.min_rtt).chain([srtt]).min();
        if out_of_order > stream.out_of_order {
            // Segments arrive out of order until the lost one is retransmitted, a round trip later:
            // this is one loss event.
            let same = stream.last_out_of_order.is_some_and(|at| now.since(at) <= srtt);
            stream.bursts += u32::from(!same);
            stream.last_out_of_order = Some(now);
            stream.out_of_order = out_of_order;
        }
        let span = now.since(stream.rate_start.0);
        if span >= RATE_SPAN.max(srtt) {
            let bytes = ByteCount(received.saturating_sub(stream.rate_start.1));
            stream.rate = DataRate::from_bytes_over(bytes, span);
            stream.rate_start = (now, received);
        }
        let window = stream.rate.bytes_in(srtt).get();
        let since = now.since(stream.at);
        stream.at = now;
        if active {
            stream.busy += since;
            let own = info.own_window.unwrap_or_default().get() as f64;
            if own > 0.0 && window as f64 > own * WINDOW_FULL {
                stream.limited += since;
            }
        }
        let mss = info.mss.max(ByteCount(536));
        let again = ByteCount(u64::from(stream.bursts) * mss.get());
        TcpInfo {
            srtt,
            min_rtt: stream.min_rtt,
            mss,
            cwnd_segments: u32::try_from(window / mss.get()).unwrap_or(u32::MAX),
            ssthresh_segments: (stream.bursts > 0).then_some(stream.bursts),
            retransmitted_segments: stream.bursts,
            retransmitted: Some(again),
            sent: Some(ByteCount(received) + again),
            acked: Some(ByteCount(received)),
            delivery_rate: Some(stream.rate),
            busy: Some(stream.busy),
            receiver_limited: Some(stream.limited),
            send_buffer_limited: None,
            // The congestion control of the remote end is not known here.
            congestion: String::new(),
            ..info
        }
    }

    /// The stream ended.
    pub(super) fn forget(&mut self, id: StreamId) {
        self.streams.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_out_of_order_is_one_cut() {
        let mut receiver = Receiver::default();
        let stream = StreamId::numbered(1);
        let mut seen = Vec::new();
        let at = |ms: u64| Time::ZERO + Duration::from_millis(ms);
        // Segments are out of order from 200 to 290 ms, and again at 600 ms; 1 MB arrives every 50
        // ms.
        for step in 0..20u64 {
            let ms = step * 50;
            let unordered = match ms {
                0..200 => 0,
                200..250 => 20,
                250..600 => 41,
                _ => 42,
            };
            let info = TcpInfo {
                srtt: Duration::from_millis(100),
                min_rtt: Some(Duration::from_millis(100)),
                receive_rtt: Some(Duration::from_millis(120)),
                mss: ByteCount(1448),
                received: Some(ByteCount(step * 1_000_000)),
                out_of_order: Some(unordered),
                ..TcpInfo::default()
            };
            seen.push(receiver.as_sender(at(ms), stream, info, true));
        }
        let cuts: Vec<u32> = seen.iter().map(|info| info.retransmitted_segments).collect();
        assert_eq!((cuts[3], cuts[5], cuts[11], cuts[19]), (0, 1, 1, 2));
        let last = &seen[19];
        assert_eq!((last.srtt.as_millis(), last.acked), (120, Some(ByteCount(19_000_000))));
        let window = u64::from(last.cwnd_segments) * 1448;
        assert!((2_300_000..2_500_000).contains(&window), "20 MB/s for 120 ms: {window}");
        assert_eq!(last.busy, Some(Duration::from_millis(950)));
    }
}
