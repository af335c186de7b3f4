use packtrain_session::Host;
use parking_lot::Mutex;

use super::*;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn place(n: usize) -> Place {
    format!("d{n}.example.org:7879").parse().unwrap()
}

/// Two depots in a row: 60 ms directly, 20 ms a hop, if `between` is measured.
fn paths(fetch: bool, between: bool) -> CandidatePaths {
    let depots: Vec<Place> = (1..=2).map(place).collect();
    let names = depots.iter().map(|depot| format!("via {depot}")).collect();
    let host = Host::parse("far.example.org").unwrap();
    let reach = Reach { host, fetch, depots, routes: Vec::new() };
    let mut known = Known::default();
    let rtt = |rtt| Beyond { rtt: Some(rtt), cap: None };
    known.near.extend([(PathId::numbered(1), ms(20)), (PathId::numbered(2), ms(40))]);
    known.beyond.insert(PathId::numbered(2), rtt(ms(20)));
    if between {
        known.between.insert((0, 1), rtt(ms(20)));
    }
    CandidatePaths { names, reach: Some(reach), known: Mutex::new(known) }
}

fn chains(paths: &CandidatePaths) -> Vec<String> {
    paths.known().chains.iter().map(|chain| chain.name.clone()).collect()
}

const BOTH: &str = "via d1.example.org:7879,d2.example.org:7879";

#[test]
fn a_chain_is_proposed_once_all_queries_have_ended() {
    let paths = paths(false, true);
    paths.known().pending = 1;
    let mut selector = PathSelector::new();
    for name in paths.names() {
        selector.add(name.clone());
    }
    paths.update_selector(&mut selector, Some(ms(60)));
    assert_eq!((chains(&paths).len(), selector.len()), (0, 3), "a depot has not answered");
    paths.end_query();
    paths.update_selector(&mut selector, None);
    assert_eq!(chains(&paths).len(), 0, "the direct round trip is unknown");
    for _ in 0..2 {
        paths.update_selector(&mut selector, Some(ms(60)));
        assert_eq!((chains(&paths), selector.len()), (vec![BOTH.to_owned()], 4));
    }
    assert_eq!(selector.name(PathId::numbered(3)), BOTH);
    assert_eq!(paths.known().chains[0].hops(ms(60)), Some(vec![ms(20); 3]));
    assert!(paths.has(3) && !paths.has(4));
    // The route leads over both.
    assert_eq!(paths.route(PathId::numbered(3)).unwrap().1.to_string(), &BOTH[4..]);
}

#[test]
fn without_a_measured_hop_between_depots_there_is_no_chain_unless_it_was_used_before() {
    let unknown = paths(false, false);
    unknown.propose(&mut unknown.known(), Some(ms(60)));
    assert_eq!(chains(&unknown), Vec::<String>::new());
    let used = paths(false, false);
    let forecast = Forecasted { rate: DataRate::from_mbps(90), error: 0.1 };
    for name in [BOTH, "via d1.example.org:7879,elsewhere:1", "via d1.example.org:7879", "odd"] {
        used.known().others.insert(name.to_owned(), forecast);
    }
    used.propose(&mut used.known(), Some(ms(60)));
    assert_eq!(chains(&used), [BOTH]);
    assert_eq!(used.known().forecasts.get(&PathId::numbered(3)), Some(&forecast));
    assert_eq!(used.known().chains[0].hops(ms(60)), None);
}

#[test]
fn a_fetch_reports_its_chains_to_the_sending_end() {
    let own = paths(true, true);
    let far = CandidatePaths::from_report(&own.encode()).unwrap();
    own.known().pending = 1;
    own.end_query();
    assert_eq!(chains(&own), [BOTH]);
    assert!(!far.has(3));
    far.update(&own.encode());
    assert!(far.has(3) && far.route(PathId::numbered(3)).is_none());
    let mut selector = PathSelector::new();
    for name in far.names() {
        selector.add(name.clone());
    }
    far.update_selector(&mut selector, Some(ms(60)));
    assert_eq!(selector.name(PathId::numbered(3)), BOTH);
    assert_eq!(far.known().chains[0].hops(ms(60)), Some(vec![ms(20); 3]));
    // A number keeps its path.
    let text = String::from_utf8(own.encode()).unwrap();
    far.update(text.replace("d1.example.org:7879,d2", "d3.example.org:7879,d2").as_bytes());
    assert_eq!(chains(&far), [BOTH]);
}

#[test]
fn odd_chains_make_a_report_invalid() {
    let own = paths(true, true);
    own.propose(&mut own.known(), None);
    let text = String::from_utf8(own.encode()).unwrap();
    assert!(CandidatePaths::from_report(text.as_bytes()).is_some());
    let depots = &BOTH[4..];
    let five = ["d:1"; 5].join(",");
    for other in ["", "d:1", "d:1,", ",", "d:1,\\u001b[31m:7", "d:1,d:01", &five] {
        let odd = text.replace(depots, other);
        assert!(CandidatePaths::from_report(odd.as_bytes()).is_none(), "{odd}");
    }
    // Fewer round trips than hops.
    assert!(text.contains("\"middle\":[20000000]"), "{text}");
    let odd = text.replace("\"middle\":[20000000]", "\"middle\":[1,2]");
    assert!(CandidatePaths::from_report(odd.as_bytes()).is_none());
}
