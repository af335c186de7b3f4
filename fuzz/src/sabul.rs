//! SABUL messages of a peer: Open, and the control channel of a running flow.

use packtrain_proto::{
    FeedbackKind, Fill, Flow, FlowConfig, FlowKeys, Payload, Placed, Placement, Role, Suite,
};
use packtrain_units::{ByteCount, Duration, Offset, Time};

/// Bytes from the peer: as an Open, then as messages to either end of a flow, in parts of up to 255
/// bytes at intervals. No input causes a panic, and only existing data is sent.
pub fn sabul(data: &[u8]) {
    packtrain_socket::sabul::fuzz_open(data);
    for role in [Role::Sender, Role::Receiver] {
        let mut now = Time::ZERO + Duration::from_secs(1);
        let mut flow = flow(role, now);
        let mut slab = vec![0; packtrain_proto::BATCH_BYTES];
        let mut rest = data;
        while let [len, bytes @ ..] = rest {
            let (bytes, behind) = bytes.split_at(usize::from(*len).min(bytes.len()));
            rest = behind;
            flow.handle_reliable(now, bytes);
            now += Duration::from_millis(20);
            flow.handle_timeout(now);
            for _ in 0..64 {
                if flow.poll_transmit(now, &mut Bytes, &mut slab).is_none() {
                    break;
                }
            }
            while flow.poll_reliable().is_some() {}
            while flow.poll_event().is_some() {}
        }
    }
}

fn flow(role: Role, now: Time) -> Flow {
    let keys = FlowKeys { suite: Suite::Aes128Gcm, secret: [7; 32] };
    let peer = "127.0.0.1:9".parse().expect("an address");
    let config = FlowConfig {
        feedback: FeedbackKind::Sabul,
        ..FlowConfig::new(role, keys, 1, vec![vec![peer]])
    };
    let controller = (role == Role::Sender).then(|| {
        let config = packtrain_cc::ControllerConfig {
            mtu: config.first_mtu(),
            seed: 1,
            now,
            ceiling: None,
            rtt: None,
        };
        packtrain_cc::build("sabul", &config).expect("a controller")
    });
    let mut flow = Flow::new(config, controller, now).expect("a flow");
    if role == Role::Sender {
        flow.assign(Offset(0)..Offset(1 << 20));
    }
    flow
}

struct Bytes;

impl Payload for Bytes {
    fn fill(&mut self, at: Offset, out: &mut [u8]) -> Fill {
        assert!(at.get() + out.len() as u64 <= 1 << 20, "bytes that nobody assigned");
        Fill::Ready
    }
    fn release(&mut self, range: std::ops::Range<Offset>) {
        assert!(range.end.get() <= 1 << 20);
    }
}

impl Placement for Bytes {
    fn place(&mut self, _: Offset, _: &[u8]) -> Placed {
        panic!("no datagram came");
    }
    fn room(&self) -> ByteCount {
        ByteCount(1 << 20)
    }
}

/// A valid Open; states of a receiver, one with losses; a buffer and a drop of a sender.
pub fn seeds() -> Vec<Vec<u8>> {
    let part = |bytes: &[u8]| [&[bytes.len() as u8], bytes].concat();
    let state = |body: &[u8]| part(&[&(body.len() as u32).to_be_bytes()[..], body].concat());
    let lossy = state(&[1, 3, 2, 9, 7, 0x40, 64, 11, 10, 5, 0, 0, 0, 0, 1, 7, 2]);
    let end = state(&[1, 8, 0, 9, 9, 0x40, 64, 0, 0, 0, 0, 0]);
    let buffer = state(&[2, 0x41, 0]);
    let drop = state(&[3, 4, 7]);
    vec![
        packtrain_socket::sabul::a_good_open(),
        [&lossy[..], &end].concat(),
        [&buffer[..], &drop, &lossy].concat(),
    ]
}
