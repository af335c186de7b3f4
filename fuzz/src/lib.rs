//! The bodies of the fuzz targets, and their initial inputs.
//!
//! Each accepts any bytes and must return: a panic, a hang or unbounded memory is a finding.
//! cargo-fuzz runs them through `fuzz_targets/`; `cargo xtask fuzz` runs the same bodies on random
//! and mutated input with the stable toolchain (`xtask/tests/fuzz_smoke.rs`).

pub mod loss;
pub mod machines;
pub mod sabul;
pub mod session;
pub mod spool;
pub mod udt4;

/// Bodies for parsers that are private to the crates of the product.
pub mod product {
    pub use packtrain_client::fuzzing::*;
    pub use packtrain_diagnose::fuzzing::*;
    pub use packtrain_identity::fuzzing::*;
    pub use packtrain_perf::fuzzing::*;
    pub use packtrain_runtime::fuzzing::*;
    pub use packtrain_stores::fuzzing::*;
}

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use packtrain_identity::authorized::AuthorizedKeys;
use packtrain_identity::tickets::Ticket;
use packtrain_object::acl::{Acl, AclTag, Acls};
use packtrain_object::{
    Attributes, ChunkIndex, Digest, Entry, EntryId, EntryKind, FileKey, Filters, HardLink, Layout,
    Mtime, Record, RelPath, TreeFilter,
};
use packtrain_plan::streams::{predict, samples_from_csv};
use packtrain_proto::{
    Datagrams, Flow, FlowConfig, FlowKeys, Placed, Placement, Role, Suite, Transmit,
};
use packtrain_service::location::Location;
use packtrain_transfer::message::{Decoder, Hello, Message, Options, encode};
use packtrain_units::{ByteCount, Offset, Time};

/// A fuzz target.
pub struct Target {
    /// Its name, also that of its file in `fuzz_targets/`.
    pub name: &'static str,
    /// The function under test.
    pub body: fn(&[u8]),
    /// Valid inputs to mutate.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "manifest", body: manifest, seeds: manifest_seeds },
    Target { name: "journal", body: journal, seeds: journal_seeds },
    Target { name: "control", body: control, seeds: control_seeds },
    Target { name: "packet", body: packet, seeds: packet_seeds },
    Target { name: "filter", body: filter, seeds: filter_seeds },
    Target { name: "filter_file", body: filter_file, seeds: filter_file_seeds },
    Target { name: "location", body: location, seeds: location_seeds },
    Target { name: "authorized_keys", body: authorized_keys, seeds: authorized_seeds },
    Target { name: "ticket", body: ticket, seeds: ticket_seeds },
    Target { name: "samples", body: samples, seeds: samples_seeds },
    Target { name: "scenario", body: scenario, seeds: scenario_seeds },
    Target { name: "udt4", body: udt4::udt4, seeds: udt4::seeds },
    Target { name: "sabul", body: sabul::sabul, seeds: sabul::seeds },
    Target { name: "session", body: session::session, seeds: session::seeds },
    Target { name: "spool", body: spool::spool, seeds: spool::seeds },
    Target { name: "loss", body: loss::loss, seeds: loss::loss_seeds },
    Target {
        name: "session_request",
        body: product::session_request,
        seeds: product::session_request_seeds,
    },
    Target { name: "offer", body: product::offer, seeds: product::offer_seeds },
    Target { name: "perf_word", body: product::perf_word, seeds: product::perf_word_seeds },
    Target {
        name: "query_answer",
        body: product::query_answer,
        seeds: product::query_answer_seeds,
    },
    Target {
        name: "reported_json",
        body: product::reported_json,
        seeds: product::reported_json_seeds,
    },
    Target {
        name: "stream_frames",
        body: product::stream_frames,
        seeds: product::stream_frames_seeds,
    },
    Target { name: "stream_name", body: product::stream_name, seeds: product::stream_name_seeds },
    Target { name: "pack", body: product::pack, seeds: product::pack_seeds },
    Target { name: "http_answer", body: product::http_answer, seeds: product::http_answer_seeds },
    Target {
        name: "proxy_answer",
        body: product::proxy_answer,
        seeds: product::proxy_answer_seeds,
    },
    Target { name: "s3_document", body: product::s3_document, seeds: product::s3_document_seeds },
    Target { name: "s3_profile", body: product::s3_profile, seeds: product::s3_profile_seeds },
    Target { name: "perfsonar", body: product::perfsonar, seeds: product::perfsonar_seeds },
    Target { name: "known_hosts", body: product::known_hosts, seeds: product::known_hosts_seeds },
    Target { name: "ticket_file", body: product::ticket_file, seeds: product::ticket_file_seeds },
    Target {
        name: "reported_evidence",
        body: product::reported_evidence,
        seeds: product::reported_evidence_seeds,
    },
    Target {
        name: "bootstrap_line",
        body: product::bootstrap_line,
        seeds: product::bootstrap_line_seeds,
    },
    Target {
        name: "completion_names",
        body: product::completion_names,
        seeds: product::completion_names_seeds,
    },
    Target { name: "ssh_marker", body: product::ssh_marker, seeds: product::ssh_marker_seeds },
    Target { name: "sink_machine", body: machines::sink_machine, seeds: machines::seeds },
    Target { name: "source_machine", body: machines::source_machine, seeds: machines::seeds },
    Target { name: "loss_model", body: loss::loss_model, seeds: loss::loss_model_seeds },
];

/// A manifest segment: a decoded segment is valid, encodes to the same entries, and has a layout.
pub fn manifest(data: &[u8]) {
    let Ok((first, entries)) = packtrain_object::decode_segment(data) else { return };
    let bytes = packtrain_object::encode_segment(first, &entries);
    let again = packtrain_object::decode_segment(&bytes).expect("what was encoded decodes");
    assert_eq!(again, (first, entries.clone()));
    let mut layout = Layout::new();
    for (index, entry) in (first.0..).zip(&entries) {
        if let Ok(Some(range)) = layout.try_push(EntryId(index), &entry.kind) {
            assert!(range.start < range.end);
            let chunk = ChunkIndex::of(range.start);
            assert!(layout.pieces(chunk).iter().any(|piece| piece.entry == EntryId(index)));
        }
    }
}

/// A journal: reading ends, and a second reading gives the same.
pub fn journal(data: &[u8]) {
    let Ok(replay) = packtrain_object::journal::replay(data) else { return };
    let valid = usize::try_from(replay.valid_len).expect("no longer than the input");
    let again = packtrain_object::journal::replay(&data[..valid]).expect("a good prefix is good");
    assert_eq!(again.state, replay.state);
    assert!(!again.torn);
}

/// Control messages, in two parts: a decoded message encodes and decodes again.
pub fn control(data: &[u8]) {
    let mut decoder = Decoder::new();
    let half = data.len() / 2;
    for part in [&data[..half], &data[half..]] {
        decoder.feed(part);
        loop {
            match decoder.next() {
                Ok(Some(message)) => round_trip(&message),
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
}

fn round_trip(message: &Message) {
    let mut bytes = Vec::new();
    encode(message, &mut bytes);
    let mut decoder = Decoder::new();
    decoder.feed(&bytes);
    let again = decoder.next().expect("what was encoded decodes").expect("all of it is there");
    assert_eq!(&again, message);
}

/// Datagrams from unauthenticated peers, at both ends of a flow: none of their data is placed.
pub fn packet(data: &[u8]) {
    struct RefusingPlacement;
    impl Placement for RefusingPlacement {
        fn place(&mut self, _: Offset, _: &[u8]) -> Placed {
            panic!("a forged packet was placed");
        }
        fn room(&self) -> ByteCount {
            ByteCount(1 << 20)
        }
    }
    let _ = packtrain_proto::peek(data);
    // Frames are parsed after authentication, and a fuzzer has no key.
    packtrain_proto::fuzzing::frames(data);
    // The same applies to SABUL's control channel.
    packtrain_proto::fuzzing::reliable(data);
    let Some((&stride, data)) = data.split_first() else { return };
    let from = "127.0.0.1:9".parse().expect("an address");
    let now = Time::ZERO;
    let mut flow = flow(Role::Receiver);
    let mut bytes = data.to_vec();
    let batch = Datagrams {
        lane: 0,
        from,
        bytes: &mut bytes,
        stride: usize::from(stride).max(1) * 6,
        ecn: None,
        received_at: now,
    };
    let authentic = flow.handle(now, batch, &mut RefusingPlacement);
    assert_eq!(authentic, 0, "a forged packet was believed");
}

fn flow(role: Role) -> Flow {
    let keys = FlowKeys { suite: Suite::Aes128Gcm, secret: [7; 32] };
    let peer = "127.0.0.1:9".parse().expect("an address");
    let config = FlowConfig::new(role, keys, 1, vec![vec![peer]]);
    Flow::new(config, None, Time::ZERO).expect("a flow")
}

/// A filter rule: a parsed rule is unchanged after encoding and decoding.
pub fn filter(data: &[u8]) {
    let mut parts = data.splitn(2, |&byte| byte == 0);
    let (rule, path) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let mut filters = Filters::new();
    if filters.rule(rule).is_err() {
        return;
    }
    let mut again = Filters::new();
    for rule in filters.to_rules() {
        again.rule(&rule).expect("our own rules are understood");
    }
    for is_dir in [false, true] {
        assert_eq!(filters.excludes(path, is_dir), again.excludes(path, is_dir));
        let _ = filters.excludes_within(path, is_dir);
    }
}

/// A file of rules in a directory: what it excludes is the same for an end that gets its text.
pub fn filter_file(data: &[u8]) {
    let mut parts = data.splitn(3, |&byte| byte == 0);
    let mut part = || parts.next().unwrap_or_default();
    let (rule, path, text) = (part(), part(), part());
    let mut filters = Filters::new();
    if filters.rule(rule).is_err() || !filters.has_files() {
        return;
    }
    let dir = path.iter().rposition(|&byte| byte == b'/').map_or(&path[..0], |at| &path[..at]);
    let mut tree = TreeFilter::new(filters.clone());
    if tree.add_file(0, dir, text).is_err() {
        return;
    }
    let mut sent = Filters::new();
    filters
        .to_rules()
        .iter()
        .for_each(|rule| sent.rule(rule).expect("our own rules are understood"));
    let mut other = TreeFilter::new(sent);
    other.add_file(0, dir, text).expect("the same file is understood");
    for is_dir in [false, true] {
        assert_eq!(tree.excludes(path, is_dir), other.excludes(path, is_dir));
        assert_eq!(tree.protects(path, is_dir), other.protects(path, is_dir));
        // Without the file these rules decide nothing.
        assert!(!filters.excludes(path, is_dir));
        let _ = tree.excludes_within(path, is_dir);
    }
}

/// A location of the command line.
pub fn location(data: &[u8]) {
    if let Ok(location) = Location::parse(OsStr::from_bytes(data)) {
        assert!(!location.path().contains(&0));
        let _ = location.same_end(&location);
    }
}

/// A file of authorized keys.
pub fn authorized_keys(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        let keys = AuthorizedKeys::parse(text);
        assert!(keys.len() + keys.refused.len() <= text.lines().count());
    }
}

/// A table of measurements: every valid table has a result.
pub fn samples(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Ok(samples) = samples_from_csv(&text) else { return };
    let few = &samples[..samples.len().min(8)];
    let found = predict(few, Default::default()).expect("there is a sample");
    assert!(found.streams.get() <= 64);
    assert!(found.interval.0 <= found.throughput && found.throughput <= found.interval.1);
}

/// The text of a ticket: a parsed ticket has the same text.
pub fn ticket(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(ticket) = text.parse::<Ticket>() {
        let again: Ticket = ticket.to_text().parse().expect("our own text is understood");
        assert!(again.to_text() == ticket.to_text());
    }
}

fn entry(path: &[u8], kind: EntryKind) -> Entry {
    let path = RelPath::new(path.to_vec()).expect("a path");
    Entry {
        path,
        kind,
        mode: 0o644,
        mtime: Mtime { secs: 1, nanos: 2 },
        uid: 3,
        gid: 4,
        extras: Default::default(),
    }
}

fn manifest_seeds() -> Vec<Vec<u8>> {
    let entries = [
        entry(b"d", EntryKind::Directory),
        entry(b"d/a", EntryKind::File { size: 10 }),
        entry(b"d/ab", EntryKind::File { size: 9 << 20 }),
        entry(b"d/l", EntryKind::Symlink { target: b"../x".to_vec() }),
        entry(b"s", EntryKind::Stream),
    ];
    let mut more = [
        entry(b"a", EntryKind::File { size: 10 }),
        entry(b"b", EntryKind::File { size: 10 }),
        entry(b"d", EntryKind::Directory),
    ];
    more[0].extras.hard_link = HardLink::First { further: 1 };
    more[1].extras.hard_link = HardLink::To(EntryId(0));
    let pairs = [(b"a".to_vec(), b"value".to_vec()), (b"b".to_vec(), Vec::new())];
    more[1].extras.attributes = Attributes::new(pairs.to_vec()).ok().map(Arc::new);
    let tags = [
        (AclTag::Owner, 7),
        (AclTag::User(7), 5),
        (AclTag::OwningGroup, 5),
        (AclTag::Mask, 5),
        (AclTag::Other, 0),
    ];
    let list = Acl::new(tags.to_vec()).ok();
    more[2].extras.acls = Some(Arc::new(Acls { access: list.clone(), default: list }));
    vec![
        packtrain_object::encode_segment(EntryId(0), &entries),
        packtrain_object::encode_segment(EntryId(7), &entries[1..2]),
        packtrain_object::encode_segment(EntryId(0), &more),
    ]
}

fn journal_seeds() -> Vec<Vec<u8>> {
    let path = RelPath::new(b"d/ab".to_vec()).expect("a path");
    let key = FileKey { path, size: 9 << 20, mtime: Mtime { secs: 1, nanos: 2 } };
    let records = [
        Record::Begin { format: 1, transfer: [1; 16], note: "note".to_owned() },
        Record::File { id: 0, key },
        Record::Chunk { file: 0, index: 0, digest: Digest([2; 32]) },
        Record::Durable,
        Record::Chunk { file: 0, index: 1, digest: Digest([3; 32]) },
        Record::Bad { file: 0, index: 1 },
        Record::Forget { file: 0 },
    ];
    let mut bytes = Vec::new();
    records.iter().for_each(|record| packtrain_object::journal::encode(record, &mut bytes));
    vec![bytes]
}

fn control_seeds() -> Vec<Vec<u8>> {
    let hello = Hello { magic: *b"PKTR", lowest: 1, highest: 1, agent: "packtrain 0".to_owned() };
    let messages = [
        Message::Hello(hello),
        Message::Open(packtrain_transfer::message::Open {
            role: packtrain_transfer::Role::Sink,
            paths: vec![b"/x".to_vec()],
            sources: None,
            options: Options::default(),
            channel: vec![1, 2, 3],
        }),
        Message::Need {
            segment: Some(EntryId(0)),
            ranges: vec![Offset(0)..Offset(5)],
            present: 1,
            again: false,
        },
        Message::Data { offset: Offset(5), bytes: vec![9; 40] },
        Message::Bye,
    ];
    let mut all = Vec::new();
    let mut seeds = Vec::new();
    for message in &messages {
        let mut bytes = Vec::new();
        encode(message, &mut bytes);
        all.extend(&bytes);
        seeds.push(bytes);
    }
    seeds.push(all);
    seeds
}

fn packet_seeds() -> Vec<Vec<u8>> {
    // Packets of a flow with unknown keys: their headers are valid.
    let mut flow = flow(Role::Receiver);
    let mut out = vec![0; packtrain_proto::BATCH_BYTES];
    let mut seeds = Vec::new();
    struct EmptyPayload;
    impl packtrain_proto::Payload for EmptyPayload {
        fn fill(&mut self, _: Offset, _: &mut [u8]) -> packtrain_proto::Fill {
            packtrain_proto::Fill::Pending
        }
        fn release(&mut self, _: std::ops::Range<Offset>) {}
    }
    while let Some(Transmit { len, .. }) =
        flow.poll_transmit(Time::ZERO, &mut EmptyPayload, &mut out)
    {
        let mut seed = vec![200];
        seed.extend(&out[..len]);
        // An unchanged packet would be the flow's own, and a receiver ignores packets of a
        // receiver; one changed bit makes it a forgery in either case.
        seed[len] ^= 1;
        seeds.push(seed);
        if seeds.len() == 4 {
            break;
        }
    }
    seeds.push(vec![1; 64]);
    seeds
}

fn filter_seeds() -> Vec<Vec<u8>> {
    ["+ *.dat\0a/b.dat", "- /x/**/y[a-z]?\0x/q/yb1", "-! dir/***\0dir/f", "exclude \\*\0*"]
        .map(|text| text.as_bytes().to_vec())
        .to_vec()
}

fn filter_file_seeds() -> Vec<Vec<u8>> {
    [": f\0a/b\0- *.o\n!\n+ /b\n", ":-n f\0a/b\0b\n#c\n", ":wr f\0b\0-_a +_b ! exclude_c"]
        .map(|text| text.as_bytes().to_vec())
        .to_vec()
}

fn location_seeds() -> Vec<Vec<u8>> {
    ["a/b:c", "user@host:path", "[::1]:x", "pt://host:7876/p", "pt://[::1]/", "-", "host::m"]
        .map(|text| text.as_bytes().to_vec())
        .to_vec()
}

fn authorized_seeds() -> Vec<Vec<u8>> {
    let key = "packtrain-ed25519 AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    [
        format!("# comment\n\n{key} me\n"),
        format!("root=\"/data/a b\",read-only {key} you\nread-only {key}\n"),
    ]
    .map(String::into_bytes)
    .to_vec()
}

fn samples_seeds() -> Vec<Vec<u8>> {
    let plain = b"streams,throughput_mbps\n1,100\n2,190.5\n4,1e3\n".to_vec();
    let other = b"# x\r\nruns,\"throughput_mbps\",streams\r\n3,0,1\r\n1,5,65535\r\n".to_vec();
    vec![plain, other]
}

fn ticket_seeds() -> Vec<Vec<u8>> {
    let key = packtrain_identity::pubkey::PublicKey([5; 32]);
    vec![Ticket::new([1; 16], key.fingerprint()).to_text().into_bytes(), b"pt1-AAAA".to_vec()]
}

/// A scenario file: any text gives a scenario or an error.
pub fn scenario(data: &[u8]) {
    packtrain_sim::fuzzing::scenario(data);
}

fn scenario_seeds() -> Vec<Vec<u8>> {
    let link = "duration = \"1s\"\n[[link]]\nname = \"wan\"\nfrom = \"a\"\nto = \"b\"\n\
                rate = \"1gbit\"\nrtt = \"20ms\"\nqueue = \"1bdp\"\nreverse = { loss = 0 }\n";
    let flow = "[[flow]]\nname = \"one\"\nfrom = \"a\"\nto = \"b\"\ncc = \"cubic\"\ncount = 2\n";
    let cross = "[[flow]]\nfrom = \"b\"\nto = \"a\"\nkind = \"cross\"\ntraffic = \"bursts\"\n\
                 rate = \"10mbit\"\nline = \"1gbit\"\n";
    let sweep = "[sweep]\nrepeat = 2\n\"link.wan.loss\" = [1e-4, \"1%\"]\n\
                 \"link.wan.rtt, duration\" = [[\"1ms\", \"1s\"]]\n";
    let queue = "queue = { kind = \"red\", limit = \"9 packets\" }\nloss = { kind = \"trace\", \
                 lost = \"01\" }\njitter = \"1ms\"\n";
    [link.to_owned(), format!("{link}{flow}"), format!("{link}{flow}{cross}{sweep}")]
        .into_iter()
        .chain([format!("{}{flow}", link.replace("queue = \"1bdp\"\n", queue))])
        .map(String::into_bytes)
        .collect()
}
