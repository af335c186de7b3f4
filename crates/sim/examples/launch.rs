//! The launch of a flow that is alone: when it reaches 90 % of the link, what it loses by
//! overshoot, and what it delivers in its first seconds.
//!
//!     cargo run --release -p packtrain-sim --example launch -- [KEY=VALUE...]
//!
//! Keys, with lists separated by commas: `cc=native` (an engine's controller), `rates=100mbit,1gbit`,
//! `rtts=10,100,300` (ms), `queues=0.1,1` (products of bandwidth and delay), `losses=0`, `seeds=1`,
//! `rounds=12` (round trips from the first data packet on that are played), `seconds` (in their
//! place), `coalesce=true` (the receiving host reads what has arrived as one batch), `train=false`
//! (`true`: the sender validates the path with a train of pings, as in a fetch), `jitter=5` (ms, each
//! way), `saved=900mbit` (the rate of an earlier flow over the path); `curve=1` prints what was
//! offered to the link and what it delivered in each half round trip.

#![allow(clippy::print_stdout, clippy::expect_used, clippy::disallowed_types)]

use std::collections::BTreeMap;

use packtrain_sim::file::ScenarioFile;
use packtrain_sim::outcome::{Outcome, Recorded};
use packtrain_units::{Duration, Time, parse_rate};

/// Smaller packets carry no data.
const MIN_DATA_BYTES: u32 = 1_000;
/// Share of the link that counts as reached.
const REACHED: f64 = 0.9;

/// One run.
#[derive(Clone, Debug)]
struct Cell<'a> {
    args: &'a BTreeMap<String, String>,
    rate: String,
    rtt: f64,
    queue: f64,
    loss: f64,
    seed: u64,
}

impl Cell<'_> {
    fn text(&self, key: &str, default: &str) -> String {
        self.args.get(key).map_or(default, |v| v).to_owned()
    }

    fn seconds(&self) -> f64 {
        // The validation of the path takes the first round trip.
        let rounds: f64 = self.text("rounds", "12").parse().expect("a number");
        let seconds = self.args.get("seconds").map(|v| v.parse().expect("a number"));
        seconds.unwrap_or((rounds + 1.5) * self.rtt / 1e3)
    }

    fn scenario(&self) -> String {
        let Self { rate, rtt, queue, loss, seed, .. } = self;
        let jitter = self.args.get("jitter").map(|ms| format!("jitter = \"{ms}ms\"\n"));
        let saved = self
            .args
            .get("saved")
            .map(|rate| format!("saved = {{ rate = \"{rate}\", rtt = \"{rtt}ms\" }}\n"));
        let train = match self.text("train", "false").as_str() {
            "true" => format!("probe_train = \"{rtt}ms\"\n"),
            _ => String::new(),
        };
        format!(
            "name = \"launch\"\nduration = \"{}s\"\nseed = {seed}\nrecord = \"wan\"\n\
             [[link]]\nname = \"wan\"\nfrom = \"near\"\nto = \"far\"\nrate = \"{rate}\"\n\
             rtt = \"{rtt}ms\"\nbdp_rtt = \"{rtt}ms\"\nqueue = \"{queue}bdp, at least 4 packets\"\n\
             loss = {loss}\n{}reverse = {{ loss = 0, queue = \"1000000 packets\" }}\n\
             [[flow]]\nname = \"a\"\nfrom = \"near\"\nto = \"far\"\nkind = \"engine\"\n\
             cc = \"{}\"\ncoalesce = {}\n{train}{}",
            self.seconds(),
            jitter.unwrap_or_default(),
            self.text("cc", "native"),
            self.text("coalesce", "true"),
            saved.unwrap_or_default(),
        )
    }

    fn play(&self) {
        let file = ScenarioFile::parse("launch", &self.scenario(), &[]).expect("a valid scenario");
        let scenario = file.scenario(0).expect("a valid scenario");
        let outcome = packtrain_sim::run(&scenario, &mut |_| {}).expect("a scenario that runs");
        let link = parse_rate(&self.rate).expect("a rate").as_bps() as f64 / 8.0;
        let rtt = self.rtt / 1e3;
        let curve = Curve::new(&outcome, rtt);
        let bdp = link * rtt;
        let reached = |bytes: &[f64]| {
            // Half a round trip, so that one burst does not count.
            let full = |pair: &[f64]| pair.iter().sum::<f64>() >= REACHED * link * rtt / 2.0;
            bytes
                .windows(4)
                .position(full)
                .map_or("never".into(), |i| format!("{:.2}", i as f64 / 8.0))
        };
        let first = curve.arrived.len().min(32);
        println!(
            "| {} | {} ms | {} | {} | {} | {} | {} | {:.2} | {:.2} | {:.3} | {:.1} |",
            self.rate,
            self.rtt,
            self.queue,
            self.loss,
            self.seed,
            reached(&curve.offered),
            reached(&curve.arrived),
            curve.arrived[..first].iter().sum::<f64>() / bdp,
            curve.arrived.iter().sum::<f64>() / bdp,
            (outcome.links[0].dropped[0] * 1_500) as f64 / bdp,
            outcome.flows[0].delivered.get() as f64 * 8.0 / 1e6 / self.seconds(),
        );
        if self.args.contains_key("curve") {
            let share = |bytes: &[f64]| bytes.iter().sum::<f64>() / (link * rtt / 2.0);
            for (i, (offered, arrived)) in
                curve.offered.chunks(4).zip(curve.arrived.chunks(4)).enumerate()
            {
                println!("{:6.1} {:6.3} {:6.3}", i as f64 / 2.0, share(offered), share(arrived));
            }
        }
    }
}

/// Bytes of data offered to the link and bytes arrived, in steps from the first data packet on. An
/// arrival counts half a round trip earlier.
#[derive(Debug)]
struct Curve {
    offered: Vec<f64>,
    arrived: Vec<f64>,
}

impl Curve {
    fn new(outcome: &Outcome, rtt: f64) -> Self {
        let step = rtt / 8.0;
        // In the first round trip there are pings only.
        let begins = Time::ZERO + Duration::from_secs_f64(rtt / 2.0);
        let is_data = |packet: &&Recorded| packet.size >= MIN_DATA_BYTES && packet.offered > begins;
        let data: Vec<_> = outcome.record.iter().filter(is_data).collect();
        let start = data.first().expect("data").offered;
        let delay = data.iter().filter_map(|p| p.left.map(|left| left.since(p.offered))).min();
        let mut curve = Self { offered: Vec::new(), arrived: Vec::new() };
        for packet in data {
            let bytes = f64::from(packet.size);
            add(&mut curve.offered, packet.offered.since(start).as_secs_f64() / step, bytes);
            if let Some(left) = packet.left {
                let after = left.since(start + delay.unwrap_or_default()).as_secs_f64();
                add(&mut curve.arrived, after / step, bytes);
            }
        }
        curve
    }
}

fn add(steps: &mut Vec<f64>, at: f64, bytes: f64) {
    let at = at as usize;
    steps.resize(steps.len().max(at + 1), 0.0);
    steps[at] += bytes;
}

fn main() {
    let args: BTreeMap<String, String> = std::env::args()
        .skip(1)
        .map(|arg| {
            let (key, value) = arg.split_once('=').expect("KEY=VALUE");
            (key.to_owned(), value.to_owned())
        })
        .collect();
    let list = |key: &str, default: &str| -> Vec<String> {
        args.get(key).map_or(default, |v| v).split(',').map(str::to_owned).collect()
    };
    let numbers = |key: &str, default: &str| -> Vec<f64> {
        list(key, default).iter().map(|v| v.parse().expect("a number")).collect()
    };
    println!(
        "| rate | RTT | queue in BDP | loss | seed | RTTs to 90 %, sent | arrived | BDPs arrived in \
         4 RTT | in all | overflow in BDP | Mbit/s |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    for rate in list("rates", "100mbit,1gbit") {
        for rtt in numbers("rtts", "10,100,300") {
            for queue in numbers("queues", "0.1,1") {
                for loss in numbers("losses", "0") {
                    for seed in numbers("seeds", "1") {
                        let (rate, seed) = (rate.clone(), seed as u64);
                        Cell { args: &args, rate, rtt, queue, loss, seed }.play();
                    }
                }
            }
        }
    }
}
