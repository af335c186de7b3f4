use packtrain_service::{
    StreamEnd, StreamReport, StreamsMoment, StreamsReport, Summary, TransportShare,
};
use packtrain_units::{ByteCount, DataRate};

use super::*;

#[test]
fn the_last_line_of_cp_keeps_its_shape() {
    let outcome = Outcome {
        id: String::new(),
        summary: Summary {
            bytes: 4000,
            bytes_moved: 3000,
            entries: 3,
            files_moved: 2,
            unchanged: 1,
            bytes_resumed: 500,
            bytes_same: 300,
            changed: 2,
            bytes_durable: 0,
            removed: 4,
            chunks_again: 1,
            deleted: 0,
            failed: 1,
            vanished: 0,
            not_owned: 0,
        },
        elapsed: Duration::from_millis(1500),
        transport: "native".into(),
        shares: vec![
            TransportShare { name: "native".into(), bytes: ByteCount(2000) },
            TransportShare { name: "tcp".into(), bytes: ByteCount(1000) },
        ],
        retransmitted: ByteCount(12),
        loss_cause: LossCause {
            cause: Some("cpu".to_owned()),
            p_cpu: Some(0.98765432),
            host_share: None,
            bytes: [("host".to_owned(), ByteCount(12))].into(),
        },
        verdict: Some("bounded by the disk".into()),
        held_by: None,
        rtt: Some(Duration::from_micros(1234)),
        streams: Some(StreamsReport {
            asked: Some(2),
            last: 1,
            most: 2,
            broken: 1,
            congestion: "reno".to_owned(),
            retransmitted: ByteCount(5),
            moved_twice: ByteCount(7),
            streams: vec![StreamReport {
                age: Duration::from_secs(1),
                acked: ByteCount(1000),
                rate: DataRate::from_bps(8000),
                srtt: Duration::from_millis(2),
                min_rtt: Some(Duration::from_millis(1)),
                retransmitted: ByteCount(5),
                cwnd: ByteCount(14600),
                receiver_limited: 0.25,
                buffer_limited: 0.0,
                end: StreamEnd::Broken,
            }],
            moments: vec![StreamsMoment {
                at: Duration::from_millis(250),
                streams: 2,
                rate: DataRate::from_bps(9000),
                lost: 0.001,
                queue: Duration::from_millis(1),
            }],
            reasons: Vec::new(),
            ..StreamsReport::default()
        }),
        differing: 0,
        extra: 0,
        dry_run: false,
        metadata: 0,
        resumable: false,
        failure: None,
        failed: vec![(b"a\xff".to_vec(), Failure::new(FailureKind::Changed, "it changed"))],
    };
    let line = serde_json::to_string(&cp(&outcome, Code(23), None)).expect("it serializes");
    let want = concat!(
        r#"{"event":"done","ok":false,"exit_code":23,"bytes":4000,"bytes_moved":3000,"#,
        r#""seconds":1.5,"goodput_bps":16000,"transport":"native","retransmitted_bytes":12,"#,
        r#""loss_cause":{"cause":"cpu","p_cpu":0.9877,"host":12},"transports":{"native":2000,"tcp":1000},"#,
        r#""entries":3,"files_moved":2,"unchanged":1,"bytes_resumed":500,"bytes_same":300,"chunks_again":1,"#,
        r#""deleted":0,"removed":4,"failed":1,"vanished":0,"not_owned":0,"differing":0,"extra":0,"dry_run":false,"metadata":0,"#,
        r#""rtt_ms":1.234,"#,
        r#""streams":{"asked":2,"last":1,"most":2,"broken":1,"congestion":"reno","#,
        r#""retransmitted_bytes":5,"moved_twice_bytes":7,"each":[{"seconds":1.0,"#,
        r#""acked_bytes":1000,"rate_bps":8000,"rtt_ms":2.0,"min_rtt_ms":1.0,"#,
        r#""retransmitted_bytes":5,"cwnd_bytes":14600,"receiver_limited":0.25,"#,
        r#""buffer_limited":0.0,"end":"broken"}],"over_time":[{"seconds":0.25,"streams":2,"#,
        r#""rate_bps":9000,"lost":0.001,"queue_ms":1.0}],"reasons":[]},"#,
        r#""verdict":"bounded by the disk","id":"","resumable":false,"resume_command":null,"#,
        r#""error":null,"failed_files":[{"path":"a�","path_bytes":"Yf8=","kind":"changed","text":"it changed"}]}"#
    );
    assert_eq!(line, want);
}

#[test]
fn nothing_is_missing_after_a_failure() {
    let failed = Outcome {
        failure: Some(Failure::new(FailureKind::Temporary, "the network is away")),
        resumable: true,
        ..Outcome::default()
    };
    let good = serde_json::to_value(cp(&Outcome::default(), Code(0), None)).expect("fine");
    let bad = serde_json::to_value(cp(&failed, Code(5), Some("packtrain cp a b")));
    let bad = bad.expect("fine");
    let keys = |value: &serde_json::Value| -> Vec<String> {
        value.as_object().expect("an object").keys().cloned().collect()
    };
    assert_eq!(keys(&good), keys(&bad));
    assert_eq!((&good["ok"], &bad["ok"]), (&true.into(), &false.into()));
    assert_eq!(bad["error"]["kind"], "temporary");
    assert_eq!(bad["resume_command"], "packtrain cp a b");
    assert_eq!(good["goodput_bps"], 0, "nothing moved in no time");
}

#[test]
fn the_last_line_of_perf_keeps_its_shape() {
    let second = Duration::from_secs(1);
    let outcome = PerfOutcome {
        transport: "tcp".into(),
        bytes: ByteCount(1_000_000),
        elapsed: second,
        cpu_sender: Some(CpuUse { user: second, system: Duration::from_millis(500) }),
        ..PerfOutcome::default()
    };
    let line = serde_json::to_string(&perf(&outcome, Code(0))).expect("it serializes");
    let want = concat!(
        r#"{"event":"done","ok":true,"exit_code":0,"bytes":1000000,"seconds":1.0,"#,
        r#""goodput_bps":8000000,"transport":"tcp","retransmitted_bytes":0,"rtt_ms":null,"#,
        r#""loss_cause":{},"cpu":{"sender":{"user_s":1.0,"system_s":0.5,"percent":150.0},"#,
        r#""receiver":null},"error":null}"#
    );
    assert_eq!(line, want);
}
