use packtrain_service::TransportShare;
use packtrain_units::{ByteCount, Duration};

use super::*;
use crate::cmd::request::tests::good;

#[test]
fn it_tells_who_and_how_and_how_fast() {
    let told = |line: &str, asked| before(&good(line), asked).join("\n");
    let here = told("a b", None);
    assert!(here.contains("from this machine to this machine"), "{here}");
    assert!(
        here.contains("both ends are on this machine") && here.contains("read again"),
        "{here}"
    );
    let far = told("--no-resume --rate 1gbit --transport tcp me@a:x pt://b/y", None);
    assert!(far.contains("from a by `ssh` to the server b, port 7876; they connect"), "{far}");
    assert!(far.contains("only tcp, as requested") && far.contains("this site's ceiling"), "{far}");
    assert!(far.contains("resume: off"), "{far}");
    let more = told("--rate 1gbit a h:b", Some(DataRate::from_mbps(2000)));
    assert!(more.contains("below the requested 2.00 Gbit/s"), "{more}");
}

#[test]
fn it_tells_what_moved_and_what_was_lost() {
    let share = |name: &str, n| TransportShare { name: name.into(), bytes: ByteCount(n) };
    let outcome = Outcome {
        shares: vec![share("native", 2048), share("pipe", 0)],
        loss_cause: LossCause {
            cause: Some("cpu".to_owned()),
            p_cpu: Some(0.99),
            host_share: Some(0.5),
            bytes: [("host".to_owned(), ByteCount(1024))].into(),
        },
        rtt: Some(Duration::from_millis(12)),
        ..Outcome::default()
    };
    let told = after(&outcome);
    let want = [
        "native moved 2.0 KiB",
        "shortest round-trip time: 12 ms",
        "retransmitted after losses at host: 1.0 KiB",
        "losses look like: cpu (receiver's processor 99 % likely); the receiving host counted \
         50 % of them itself",
    ];
    assert_eq!(told, want);
}
