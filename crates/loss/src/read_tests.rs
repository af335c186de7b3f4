use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};
use proptest::prelude::*;

use super::*;

fn all(bytes: &[u8], window: Option<usize>) -> Result<Vec<(String, String)>, ReadError> {
    Signatures::open(bytes, Options { window })?
        .map(|found| found.map(|found| (found.place, found.signature.to_string())))
        .collect()
}

fn signatures(bytes: &[u8], window: Option<usize>) -> Vec<String> {
    all(bytes, window).expect("reads").into_iter().map(|(_, signature)| signature).collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

#[test]
fn text_plain_and_compressed() {
    let text = b"# a comment\n1101\r\n\n 1 0 1 # packets apart\n0";
    assert_eq!(signatures(text, None), ["1101", "101", "0"]);
    assert_eq!(signatures(&gzip(text), None), ["1101", "101", "0"]);
    assert_eq!(signatures(b"110101\n11", Some(4)), ["1101", "01", "11"]);
    let places: Vec<_> = all(text, None).expect("reads").into_iter().map(|(at, _)| at).collect();
    assert_eq!(places, ["line 2", "line 4", "line 5"]);
}

#[test]
fn errors_name_the_line() {
    let error = |bytes: &[u8]| all(bytes, None).expect_err("an error").to_string();
    assert_eq!(error(b"11\n1x1\n"), "line 2: 'x' is neither 1 (received) nor 0 (lost)");
    assert!(error(b"hello").starts_with("neither signatures"), "{}", error(b"hello"));
    assert_eq!(error(b""), "the file is empty");
    let record = br#"{"family":"a","cause":"cpu","packets":3,"runs":[1,2]}"#;
    let two = [&record[..], b"\n", b"{\"family\":1}"].concat();
    assert!(error(&two).starts_with("line 2: "), "{}", error(&two));
    assert!(error(b"{\"traces\":[]}").starts_with("qlog: no events"));
    assert!(error(&gzip(b"11\n")[..12]).len() > 5, "a gzip that breaks off");
}

#[test]
fn records_bring_their_evidence() {
    let record = br#"{"family":"a","cause":"cpu","packets":4,"runs":[1,2,1],"host_drops":2}"#;
    let found: Vec<_> = Signatures::open(&record[..], Options::default())
        .expect("opens")
        .collect::<Result<_, _>>()
        .expect("reads");
    assert_eq!(
        (found[0].signature.to_string().as_str(), found[0].host_drops),
        ("1001", Some(HostDrops::datagrams(2)))
    );
    let cut: Vec<_> = Signatures::open(&record[..], Options { window: Some(3) })
        .expect("opens")
        .collect::<Result<_, _>>()
        .expect("reads");
    assert_eq!((cut.len(), cut[0].host_drops), (2, None));
}

/// Events of a sender: packets 0 to 9, of which 3 and 4 are lost, 7 is a spurious loss, 9 is open.
fn events() -> Vec<String> {
    let sent = |n: u64| {
        format!(
            r#"{{"time":{n},"name":"transport:packet_sent","data":{{"header":{{"packet_type":"1RTT","packet_number":{n}}},"raw":{{"length":1200}}}}}}"#
        )
    };
    let lost = |n: u64| {
        format!(
            r#"{{"time":20,"name":"recovery:packet_lost","data":{{"header":{{"packet_type":"1RTT","packet_number":{n}}},"trigger":"time_threshold"}}}}"#
        )
    };
    let mut events: Vec<String> = (0..10).map(sent).collect();
    events.push(r#"{"name":"transport:packet_sent","data":{"header":{"packet_type":"initial","packet_number":77}}}"#.to_owned());
    events.push(r#"{"name":"transport:packet_received","data":{"header":{"packet_type":"1RTT","packet_number":5},"frames":[{"frame_type":"ack","acked_ranges":[[0,2],["5","6"],[8]]}]}}"#.to_owned());
    events.extend([3, 4, 7].map(lost));
    events.push(r#"{"name":"recovery:packets_acked","data":{"packet_number_space":"application_data","packet_numbers":[7]}}"#.to_owned());
    events
}

#[test]
fn qlog_in_all_its_forms() {
    let expected = ["111001111"];
    let list = events().join(",");
    let whole = format!(
        r#"{{"qlog_version":"0.3","traces":[{{"vantage_point":{{"type":"client"}},"events":[{list}]}}]}}"#
    );
    assert_eq!(signatures(whole.as_bytes(), None), expected);
    assert_eq!(signatures(&gzip(whole.as_bytes()), None), expected);
    let head = r#"{"qlog_version":"0.3","qlog_format":"JSON-SEQ","trace":{}}"#;
    let records = std::iter::once(head.to_owned()).chain(events());
    let seq: String = records.clone().map(|event| format!("\u{1e}{event}\n")).collect();
    assert_eq!(signatures(seq.as_bytes(), None), expected);
    let lines: String = records.map(|event| format!("{event}\n")).collect();
    assert_eq!(signatures(lines.as_bytes(), None), expected);
    assert_eq!(signatures(lines.as_bytes(), Some(5)), ["11100", "1111"]);
}

#[test]
fn qlog_of_a_receiver() {
    let received = [2, 3, 5, 6, 9].map(|n| {
        format!(r#"{{"name":"quic:packet_received","data":{{"header":{{"packet_type":"1RTT","packet_number":{n}}}}}}}"#)
    });
    let log = format!(r#"{{"qlog_version":"0.4","events":[{}]}}"#, received.join(","));
    assert_eq!(signatures(log.as_bytes(), None), ["11011001"]);
}

/// A frame of Ethernet, IPv4 and UDP.
fn frame(reverse: bool, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([8, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0]);
    let (from, to): ([u8; 4], [u8; 4]) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    frame.extend(if reverse { [to, from].concat() } else { [from, to].concat() });
    let ports: [u8; 4] = if reverse { [0, 9, 0, 8] } else { [0, 8, 0, 9] };
    frame.extend(ports);
    frame.extend([0, 0, 0, 0]);
    frame.extend(payload);
    frame
}

fn data(number: u32) -> Vec<u8> {
    let mut payload = number.to_be_bytes().to_vec();
    payload.extend([0; 20]);
    frame(false, &payload)
}

fn report(list: &[u32]) -> Vec<u8> {
    let mut payload = 0x8003_0000u32.to_be_bytes().to_vec();
    payload.extend([0; 12]);
    payload.extend(list.iter().flat_map(|word| word.to_be_bytes()));
    frame(true, &payload)
}

fn pcap(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65_535, 1] {
        file.extend(word.to_le_bytes());
    }
    for frame in frames {
        for word in [0, 0, frame.len() as u32, frame.len() as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame);
    }
    file
}

fn pcapng(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut block = |kind: u32, body: Vec<u8>| {
        let body = [body.clone(), vec![0; body.len().next_multiple_of(4) - body.len()]].concat();
        let size = (12 + body.len() as u32).to_le_bytes();
        file.extend([&kind.to_le_bytes()[..], &size, &body, &size].concat());
    };
    let words =
        |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    block(0x0a0d_0d0a, words(&[0x1a2b_3c4d, 1, u32::MAX, u32::MAX]));
    block(1, words(&[1, 65_535]));
    for frame in frames {
        let length = frame.len() as u32;
        block(6, [words(&[0, 0, 0, length, length]), frame.clone()].concat());
    }
    file
}

/// 100 numbers across the end of the number space; 10 to 12 missing and retransmitted, 50 and 60 to
/// 62 reported lost although they passed.
fn udt() -> (Vec<Vec<u8>>, String) {
    let number = |index: u32| (0x7fff_ffe0 + index) & 0x7fff_ffff;
    let mut frames: Vec<_> =
        (0..70).filter(|index| !(10..13).contains(index)).map(|i| data(number(i))).collect();
    frames.extend((10..13).map(|index| data(number(index))));
    frames.push(report(&[number(50), number(60) | 1 << 31, number(62)]));
    frames.extend((70..100).map(|index| data(number(index))));
    let lost = [10, 11, 12, 50, 60, 61, 62];
    (frames, (0..100).map(|index| if lost.contains(&index) { '0' } else { '1' }).collect())
}

#[test]
fn captures_of_udt() {
    let (frames, expected) = udt();
    for file in [pcap(&frames), pcapng(&frames), gzip(&pcap(&frames))] {
        let found = all(&file, None).expect("reads");
        assert_eq!(found, [("10.0.0.1:8 -> 10.0.0.2:9, window 1".to_owned(), expected.clone())]);
    }
    let cut = signatures(&pcap(&frames), Some(64));
    assert_eq!(cut, [expected[..64].to_owned(), expected[64..].to_owned()]);
    // An interrupted capture is used as far as it goes; one without UDT gives an error.
    let file = pcap(&frames);
    assert_eq!(signatures(&file[..file.len() - 7], None), [expected[..99].to_owned()]);
    let error = all(&pcap(&frames[..20]), None).expect_err("too few").to_string();
    assert_eq!(error, "capture: no flow of UDT data packets in it");
}

#[test]
fn a_jump_of_numbers_is_no_loss_and_costs_no_memory() {
    let mut frames: Vec<_> = (0..100).map(data).collect();
    frames.extend((0..100).map(|index| data(0x3000_0000 + index)));
    assert_eq!(signatures(&pcap(&frames), None), ["1".repeat(200)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn anything_is_read_or_refused(
        mut bytes in prop::collection::vec(any::<u8>(), 0..600), which in 0usize..6,
        changes in prop::collection::vec((any::<u16>(), any::<u8>()), 0..6),
    ) {
        let (frames, _) = udt();
        let seeds = [
            b"110101\n0011\n".to_vec(), pcap(&frames), pcapng(&frames),
            events().join("\n").into_bytes(),
            format!(r#"{{"qlog_version":"0.3","traces":[{{"events":[{}]}}]}}"#, events().join(",")).into_bytes(),
        ];
        if let Some(seed) = seeds.get(which) {
            bytes = seed.clone();
            for (at, value) in changes {
                let at = usize::from(at) % bytes.len();
                bytes[at] = value;
            }
        }
        for window in [None, Some(10)] {
            if let Ok(found) = Signatures::open(&bytes[..], Options { window }) {
                prop_assert!(found.take(20_000).count() <= 20_000);
            }
        }
        let _ = labelled(&bytes[..]).map(Iterator::count);
    }
}
