//! A flow in company: how much it gets, and how much it leaves, beside one flow of another kind, in
//! proportion to what one more flow of that kind would get and leave.
//!
//!     cargo run --release -p packtrain-sim --example company -- [KEY=VALUE...]
//!
//! Keys, with lists separated by commas: `cc=native` (an engine's controller; `tcp:NAME` is a TCP),
//! `rivals=reno,cubic,bbr`, `rate=100mbit`, `rtts=10,40,100` (ms), `queues=0.3,1,4` (products of
//! bandwidth and delay), `orders=first,second`, `seeds=1`, `seconds=60`, `threads=2`; `curve=1`
//! prints the curves of the last cell; `controls=1` plays the controls instead.

#![allow(clippy::print_stdout, clippy::expect_used, clippy::disallowed_types)]

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use packtrain_sim::file::ScenarioFile;
use packtrain_sim::outcome::Outcome;

/// The flow that comes second begins this many seconds after the other.
const LATER: f64 = 5.0;

/// One run: two flows over one bottleneck.
#[derive(Clone, Debug, PartialEq)]
struct Cell {
    rival: String,
    /// The flow that is judged: the name of an engine's controller, or `tcp:` and that of a TCP's.
    subject: String,
    rate: String,
    rtt: f64,
    queue: f64,
    first: bool,
    seed: u64,
    seconds: f64,
    curve: bool,
}

/// A flow's table in a scenario.
fn flow(name: &str, cc: &str, start: f64) -> String {
    let (kind, cc) = match cc.strip_prefix("tcp:") {
        Some(cc) => ("tcp", cc),
        None => ("engine", cc),
    };
    format!(
        "[[flow]]\nname = \"{name}\"\nfrom = \"{name}\"\nto = \"far\"\nkind = \"{kind}\"\n\
         cc = \"{cc}\"\nstart = \"{start}s\"\n\
         [[link]]\nfrom = \"{name}\"\nto = \"router\"\nrate = \"10gbit\"\ndelay = \"10us\"\n\
         queue = \"100000 packets\"\n"
    )
}

impl Cell {
    fn scenario(&self) -> String {
        let Self { rate, rtt, queue, seed, seconds, .. } = self;
        let (subject, rival) = if self.first { (0.0, LATER) } else { (LATER, 0.0) };
        let sample = if self.curve { "sample = \"500ms\"\n" } else { "" };
        format!(
            "name = \"company\"\nduration = \"{seconds}s\"\nwarm_up = \"{LATER}s\"\nseed = {seed}\n\
             {sample}[[link]]\nname = \"wan\"\nfrom = \"router\"\nto = \"far\"\nrate = \"{rate}\"\n\
             rtt = \"{rtt}ms\"\nqueue = \"{queue}bdp, at least 10 packets\"\n\
             reverse = {{ queue = \"1000000 packets\" }}\n{}{}",
            flow("rival", &format!("tcp:{}", self.rival), rival),
            flow("subject", &self.subject, subject),
        )
    }

    /// The same place with one more flow of the rival's kind.
    fn reference(&self) -> Self {
        Self { subject: format!("tcp:{}", self.rival), curve: false, ..self.clone() }
    }

    fn key(&self) -> String {
        format!("{self:?}")
    }
}

/// Rival's and subject's goodput in Mbit/s while both are there.
#[derive(Clone, Copy, Debug, Default)]
struct Result {
    rival: f64,
    subject: f64,
}

fn run_scenario(text: &str) -> Outcome {
    let file = ScenarioFile::parse("company", text, &[]).expect("a valid scenario");
    let scenario = file.scenario(0).expect("a valid scenario");
    packtrain_sim::run(&scenario, &mut |_| {}).expect("a scenario that runs")
}

fn play(cell: &Cell) -> Result {
    let outcome = run_scenario(&cell.scenario());
    if cell.curve {
        print_curve(&outcome);
    }
    let mbps = |i: usize| outcome.flows[i].goodput.as_bps() as f64 / 1e6;
    Result { rival: mbps(0), subject: mbps(1) }
}

fn print_curve(outcome: &Outcome) {
    println!("   time   rival subject   rival's and subject's window in kB, round trip in ms");
    let mut rows: BTreeMap<u64, [f64; 5]> = BTreeMap::new();
    for sample in &outcome.samples {
        let row = rows.entry(sample.at.as_nanos()).or_default();
        let i = sample.flow.min(1);
        row[i] = sample.goodput.as_bps() as f64 / 1e6;
        row[2 + i] = sample.cwnd.unwrap_or_default().get() as f64 / 1e3;
        row[4] = sample.rtt.unwrap_or_default().as_secs_f64() * 1e3;
    }
    for (at, row) in rows {
        let [rival, subject, w0, w1, rtt] = row;
        let at = at as f64 / 1e9;
        println!("{at:7.2} {rival:7.1} {subject:7.1} {w0:9.0} {w1:9.0} {rtt:7.1}");
    }
}

/// Plays all, on several threads.
fn play_all(cells: &[Cell], threads: usize) -> Vec<Result> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(vec![Result::default(); cells.len()]);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((i, cell)) = {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    cells.get(i).map(|cell| (i, cell))
                } {
                    let result = play(cell);
                    results.lock().expect("no thread panicked")[i] = result;
                }
            });
        }
    });
    results.into_inner().expect("no thread panicked")
}

/// Scenarios that a controller must keep within limits: its own kind, constant-rate traffic, short
/// flows, and nobody.
mod controls {
    use super::{flow, run_scenario};
    use packtrain_sim::outcome::Outcome;

    fn link(rate: &str, rtt: f64, queue: f64, loss: f64) -> String {
        format!(
            "[[link]]\nname = \"wan\"\nfrom = \"router\"\nto = \"far\"\nrate = \"{rate}\"\n\
             rtt = \"{rtt}ms\"\nbdp_rtt = \"{rtt}ms\"\nqueue = \"{queue}bdp, at least 10 packets\"\n\
             loss = {loss}\nreverse = {{ loss = 0, queue = \"1000000 packets\" }}\n"
        )
    }

    fn head(seconds: f64, warm_up: f64, seed: u64) -> String {
        format!(
            "name = \"control\"\nduration = \"{seconds}s\"\nwarm_up = \"{warm_up}s\"\n\
             seed = {seed}\nsample = \"100ms\"\n"
        )
    }

    fn goodputs(outcome: &Outcome) -> Vec<f64> {
        outcome.flows.iter().map(|flow| flow.goodput.as_bps() as f64 / 1e6).collect()
    }

    /// Median and 95th percentile of the wait at the bottleneck from `from` seconds on, in ms.
    fn waits(outcome: &Outcome, from: f64) -> (f64, f64) {
        let late =
            outcome.waits.iter().filter(|w| w.link == 0 && w.at.as_nanos() as f64 > from * 1e9);
        let mut waits: Vec<f64> = late.map(|w| w.wait.as_secs_f64() * 1e3).collect();
        waits.sort_by(f64::total_cmp);
        let at = |share: f64| waits.get((waits.len() as f64 * share) as usize).copied();
        (at(0.5).unwrap_or(0.0), at(0.95).unwrap_or(0.0))
    }

    fn jain(goodputs: &[f64]) -> f64 {
        let (sum, squares) = goodputs.iter().fold((0.0, 0.0), |(s, q), g| (s + g, q + g * g));
        sum * sum / (goodputs.len() as f64 * squares)
    }

    /// `n` flows of `cc`, one each second; Jain's index from the 30th second to the 60th.
    pub(super) fn alike(cc: &str, n: usize, rtt: f64, queue: f64, seed: u64) {
        let flows: String = (0..n).map(|i| flow(&format!("f{i}"), cc, i as f64)).collect();
        let text = head(60.0, 30.0, seed) + &link("100mbit", rtt, queue, 0.0) + &flows;
        let outcome = run_scenario(&text);
        let (goodputs, (median, high)) = (goodputs(&outcome), waits(&outcome, 30.0));
        println!(
            "| {n} flows, {rtt} ms, {queue} BDP | Jain {:.3} | sum {:.1} Mbit/s | queue {median:.1}, {high:.1} ms |",
            jain(&goodputs),
            goodputs.iter().sum::<f64>(),
        );
    }

    /// Two flows of which one has a round trip of 10 ms and one of 100 ms.
    pub(super) fn near_and_far(cc: &str, queue: f64, seed: u64) {
        let far = flow("b", cc, 1.0).replace("10us", "45ms");
        let text = head(60.0, 30.0, seed)
            + &link("100mbit", 10.0, queue, 0.0)
            + &flow("a", cc, 0.0)
            + &far;
        let outcome = run_scenario(&text);
        let g = goodputs(&outcome);
        let (median, high) = waits(&outcome, 30.0);
        println!(
            "| RTT 10 beside 100 ms, {queue} BDP of 10 ms | ratio {:.2} | {:.1}, {:.1} Mbit/s | queue {median:.1}, {high:.1} ms |",
            g[0].min(g[1]) / g[0].max(g[1]),
            g[0],
            g[1],
        );
    }

    /// Beside constant-rate traffic of 30 % of the link.
    pub(super) fn constant(cc: &str, rtt: f64, queue: f64, seed: u64) {
        let cross = "[[flow]]\nname = \"cross\"\nfrom = \"a\"\nto = \"far\"\nkind = \"cross\"\n\
                     traffic = \"cbr\"\nrate = \"30mbit\"\nstart = \"10s\"\n";
        let text = head(60.0, 15.0, seed)
            + &link("100mbit", rtt, queue, 0.0)
            + &flow("a", cc, 0.0)
            + cross;
        let outcome = run_scenario(&text);
        let (median, high) = waits(&outcome, 15.0);
        println!(
            "| 30 % of constant rate, {rtt} ms, {queue} BDP | {:.1} Mbit/s of 67 | | queue {median:.1}, {high:.1} ms |",
            goodputs(&outcome)[0],
        );
    }

    /// Alone for ten minutes.
    pub(super) fn alone(cc: &str, rtt: f64, queue: f64, loss: f64, seed: u64) {
        let text =
            head(600.0, 10.0, seed) + &link("100mbit", rtt, queue, loss) + &flow("a", cc, 0.0);
        let outcome = run_scenario(&text);
        let (median, high) = waits(&outcome, 10.0);
        println!(
            "| alone, {rtt} ms, {queue} BDP, loss {loss} | {:.1} Mbit/s | lost {:.4} | queue {median:.1}, {high:.1} ms |",
            goodputs(&outcome)[0],
            outcome.flows[0].dropped_packets as f64 / outcome.flows[0].sent_packets as f64,
        );
    }

    /// Alone at 1 Gbit/s and 100 ms for twelve seconds, as in the project's bench.
    pub(super) fn bench(cc: &str, loss: f64, seed: u64) {
        let text = head(12.0, 0.0, seed) + &link("1gbit", 100.0, 1.0, loss) + &flow("a", cc, 0.0);
        let outcome = run_scenario(&text);
        println!(
            "| alone, 1 Gbit/s, 100 ms, 12 s, loss {loss} | {:.1} Mbit/s | | |",
            goodputs(&outcome)[0]
        );
    }

    /// The mean time of 50 short TCP connections of 100 kB beside a flow.
    pub(super) fn short(cc: &str, rtt: f64, queue: f64, seed: u64) {
        let short = "[[flow]]\nname = \"short\"\nfrom = \"s\"\nto = \"far\"\nkind = \"short\"\n\
                     bytes = \"100kB\"\nconnections = 50\nper_second = 1\nstart = \"5s\"\n\
                     [[link]]\nfrom = \"s\"\nto = \"router\"\nrate = \"10gbit\"\ndelay = \"10us\"\n\
                     queue = \"100000 packets\"\n";
        let mut times = Vec::new();
        for cc in [cc, "bbr"] {
            let text = head(90.0, 0.0, seed)
                + &link("100mbit", rtt, queue, 0.0)
                + &flow("a", cc, 0.0)
                + short;
            let outcome = run_scenario(&text);
            let (done, mean, _) = outcome.flows[1].completed.unwrap_or_default();
            times.push((done, mean.as_secs_f64() * 1e3, goodputs(&outcome)[0]));
        }
        println!(
            "| 50 short flows, {rtt} ms, {queue} BDP | ratio {:.2} | {:.0} and {:.0} ms ({}, {}) | {:.1}, {:.1} Mbit/s |",
            times[0].1 / times[1].1,
            times[0].1,
            times[1].1,
            times[0].0,
            times[1].0,
            times[0].2,
            times[1].2,
        );
    }
}

/// Plays the controls.
fn controls(cc: &str, seed: u64) {
    println!("| control | | | |\n|---|---|---|---|");
    for n in [2, 4, 8, 10] {
        for rtt in [10.0, 40.0, 100.0] {
            controls::alike(cc, n, rtt, 1.0, seed);
        }
    }
    controls::alike(cc, 4, 40.0, 0.3, seed);
    controls::alike(cc, 4, 40.0, 4.0, seed);
    controls::near_and_far(cc, 1.0, seed);
    controls::near_and_far(cc, 4.0, seed);
    for (rtt, queue) in [(10.0, 0.3), (40.0, 1.0), (100.0, 4.0)] {
        controls::constant(cc, rtt, queue, seed);
    }
    for loss in [0.0, 1e-2] {
        for (rtt, queue) in [(10.0, 1.0), (40.0, 1.0), (100.0, 0.1), (100.0, 1.0), (100.0, 4.0)] {
            controls::alone(cc, rtt, queue, loss, seed);
        }
    }
    for loss in [0.0, 1e-4, 1e-3, 1e-2] {
        controls::bench(cc, loss, seed);
    }
    for (rtt, queue) in [(10.0, 1.0), (40.0, 1.0), (100.0, 1.0)] {
        controls::short(cc, rtt, queue, seed);
    }
}

fn main() {
    let mut args: BTreeMap<String, String> = BTreeMap::new();
    for arg in std::env::args().skip(1) {
        let (key, value) = arg.split_once('=').expect("KEY=VALUE");
        args.insert(key.to_owned(), value.to_owned());
    }
    let text = |key: &str, default: &str| args.get(key).map_or(default, |v| v).to_owned();
    let list = |key: &str, default: &str| -> Vec<String> {
        text(key, default).split(',').map(str::to_owned).collect()
    };
    let numbers = |key: &str, default: &str| -> Vec<f64> {
        list(key, default).iter().map(|v| v.parse().expect("a number")).collect()
    };
    let seeds = numbers("seeds", "1");
    if args.contains_key("controls") {
        return controls(&text("cc", "native"), seeds[0] as u64);
    }
    let mut cells = Vec::new();
    for rival in list("rivals", "reno,cubic,bbr") {
        for rtt in numbers("rtts", "10,40,100") {
            for queue in numbers("queues", "0.3,1,4") {
                for order in list("orders", "first,second") {
                    for seed in &seeds {
                        cells.push(Cell {
                            rival: rival.clone(),
                            subject: text("cc", "native"),
                            rate: text("rate", "100mbit"),
                            rtt,
                            queue,
                            first: order == "first",
                            seed: *seed as u64,
                            seconds: numbers("seconds", "60")[0],
                            curve: args.contains_key("curve"),
                        });
                    }
                }
            }
        }
    }
    let threads = numbers("threads", "2")[0] as usize;
    let mut references: Vec<Cell> = Vec::new();
    for cell in &cells {
        // A flow without randomness of its own needs only one seed.
        let reference = cell.reference();
        if !references.contains(&reference) {
            references.push(reference);
        }
    }
    let known: BTreeMap<String, Result> =
        references.iter().map(Cell::key).zip(play_all(&references, threads)).collect();
    let results = play_all(&cells, threads);
    println!("| rival | RTT | queue | order | rival, subject | of its kind | gets | leaves |");
    println!("|---|---|---|---|---|---|---|---|");
    let (mut met, mut worst) = (0, f64::INFINITY);
    let of_seeds = cells.len() / seeds.len();
    for i in 0..of_seeds {
        let cell = &cells[i * seeds.len()];
        let (mut got, mut own) = (Result::default(), Result::default());
        for j in i * seeds.len()..(i + 1) * seeds.len() {
            let reference = known[&cells[j].reference().key()];
            got.rival += results[j].rival / seeds.len() as f64;
            got.subject += results[j].subject / seeds.len() as f64;
            own.rival += reference.rival / seeds.len() as f64;
            own.subject += reference.subject / seeds.len() as f64;
        }
        let (gets, leaves) = (got.subject / own.subject, got.rival / own.rival);
        met += usize::from(gets >= 0.7 && leaves >= 0.7);
        worst = worst.min(gets).min(leaves);
        let order = if cell.first { "first" } else { "second" };
        println!(
            "| {} | {} ms | {} | {order} | {:.1}, {:.1} | {:.1}, {:.1} | {gets:.2} | {leaves:.2} |{}",
            cell.rival,
            cell.rtt,
            cell.queue,
            got.rival,
            got.subject,
            own.rival,
            own.subject,
            if gets.min(leaves) < 0.7 { " *" } else { "" },
        );
    }
    println!("\n{met} of {of_seeds} cells reach 0.7 both ways; the lowest share is {worst:.2}.");
}
