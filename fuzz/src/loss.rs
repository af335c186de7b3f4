//! Formats of loss signatures: text, records, qlogs and captures, compressed or not; and models.

use packtrain_loss::read::{Options, Signatures, labelled};
use packtrain_loss::{Classifier, Evidence, Model};

/// Maximum windows that are classified: an input may contain one per bit.
const MAX_WINDOWS: usize = 4096;

/// Every signature has a classification; a record is unchanged after writing and reading.
pub fn loss(data: &[u8]) {
    let Some((&window, data)) = data.split_first() else { return };
    let options = Options { window: (window > 0).then(|| usize::from(window) * 16) };
    let mut classifier = Classifier::new(Model::builtin());
    if let Ok(signatures) = Signatures::open(data, options) {
        for found in signatures.take(MAX_WINDOWS).flatten().take(8) {
            let evidence = Evidence::new(&found.signature)
                .host_drops(found.host_drops)
                .delay(found.delay.as_ref());
            let verdict = classifier.classify(&evidence);
            assert!((0.0..=1.0).contains(&verdict.p_cpu), "{verdict:?}");
            assert!((0.0..=1.0).contains(&verdict.paper.p_cpu), "{verdict:?}");
        }
    }
    if let Ok(records) = labelled(data) {
        for (_, record) in records.take(8).flatten() {
            let text = serde_json::to_string(&record).expect("a record is JSON");
            let again = serde_json::from_str(&text).expect("what was written reads");
            assert_eq!(record, again);
        }
    }
}

/// A model: a parsed model can be used, and is unchanged after writing and reading.
pub fn loss_model(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(model) = Model::from_json(text) else { return };
    let again = Model::from_json(&model.to_json()).expect("what was written reads");
    assert!(model == again);
    let signature = (0..model.sizes[0].packets.min(10_000)).map(|i| i % 97 != 0).collect();
    let verdict = Classifier::new(&model).classify(&Evidence::new(&signature));
    assert!(!verdict.p_cpu.is_nan());
}

/// One of each format; the first byte selects the window.
pub fn loss_seeds() -> Vec<Vec<u8>> {
    let sent = |n: u32| {
        format!(
            r#"{{"name":"quic:packet_sent","data":{{"header":{{"packet_type":"1RTT","packet_number":{n}}}}}}}"#
        )
    };
    let lost = r#"{"name":"quic:packet_lost","data":{"header":{"packet_number":3}}}"#;
    let acked = r#"{"name":"quic:packet_received","data":{"header":{"packet_number":1},"frames":[{"acked_ranges":[[0,2],[4]]}]}}"#;
    let events = (0..5).map(sent).chain([lost.to_owned(), acked.to_owned()]).collect::<Vec<_>>();
    let whole = format!(r#"{{"traces":[{{"events":[{}]}}]}}"#, events.join(","));
    let record = r#"{"family":"a","cause":"hybrid","packets":9,"runs":[1,2,3,3],"host_drops":2,"delay":{"read":{"before":3,"after":1,"typical":0.5,"most":9}}}"#;
    let texts = ["1101\n0001 # two\n".to_owned(), record.to_owned(), whole, events.join("\n")];
    let mut seeds: Vec<Vec<u8>> = texts.map(String::into_bytes).to_vec();
    seeds.push(capture());
    seeds.iter().map(|seed| [&[4], seed.as_slice()].concat()).collect()
}

/// A model small enough for mutations.
pub fn loss_model_seeds() -> Vec<Vec<u8>> {
    let mut model = Model::builtin().clone();
    model.sizes.truncate(1);
    let own = &mut model.sizes[0].own;
    own.causes.truncate(2);
    for cause in &mut own.causes {
        cause.families.truncate(1);
        cause.families[0].pattern.parts.truncate(1);
        cause.families[0].delay = None;
    }
    vec![model.to_json().into_bytes()]
}

/// Eighty data packets of UDT, one missing, in a pcap of raw IPv4.
fn capture() -> Vec<u8> {
    let mut file: Vec<u8> = [0xa1b2_c3d4u32, 0x0002_0004, 0, 0, 65_535, 101]
        .iter()
        .flat_map(|word| word.to_be_bytes())
        .collect();
    for number in (0..81u32).filter(|number| *number != 40) {
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        packet.extend([0, 8, 0, 9, 0, 0, 0, 0]);
        packet.extend(number.to_be_bytes());
        packet.extend([0; 12]);
        for word in [0, 0, packet.len() as u32, packet.len() as u32] {
            file.extend(word.to_be_bytes());
        }
        file.extend(packet);
    }
    file
}
