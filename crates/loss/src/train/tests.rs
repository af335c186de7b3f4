//! The complete process on small generators: generate, fit, classify windows that were not fitted.

use super::*;
use crate::{Lost, Signature};

const PACKETS: usize = 20_000;

/// Independent losses, as on a saturated backbone.
fn independent(p: f64, rng: &mut Rng) -> Signature {
    (0..PACKETS).map(|_| !rng.chance(p)).collect()
}

/// A drop-tail queue overrun by bursts: within a burst a share of the packets is admitted.
fn overrun(p: f64, rng: &mut Rng) -> Signature {
    let burst = 30 + rng.below(200) as usize;
    let admitted = 0.2 + 0.6 * rng.unit();
    let every = burst as f64 * (1.0 - admitted) / p;
    let mut bits = Vec::with_capacity(PACKETS + burst);
    while bits.len() < PACKETS {
        let quiet = -every * (1.0 - rng.unit()).ln();
        bits.resize(bits.len() + quiet as usize, true);
        bits.extend((0..burst).map(|_| rng.chance(admitted)));
    }
    bits.into_iter().take(PACKETS).collect()
}

/// A paced flow above its bottleneck rate: at regular intervals a packet finds the queue full.
fn periodic(p: f64, rng: &mut Rng) -> Signature {
    let every = 1.0 / p;
    let jitter = 0.05 * rng.unit();
    let mut next = every * rng.unit();
    let mut lost = Vec::new();
    while (next as usize) < PACKETS {
        lost.push(next as usize..next as usize + 1);
        next += (every * (1.0 + jitter * (rng.unit() - 0.5))).max(1.0);
    }
    Signature::from_lost(PACKETS, lost).expect("inside")
}

/// A receiver that loses its processor: solid runs of about a time slice.
fn off(p: f64, rng: &mut Rng) -> Signature {
    let slice = 60 + rng.below(600);
    let mut bits = Vec::with_capacity(PACKETS + 1000);
    while bits.len() < PACKETS {
        let run = slice / 2 + rng.below(slice);
        let quiet = run as f64 / p * (0.5 + rng.unit());
        bits.resize(bits.len() + quiet as usize, true);
        bits.resize(bits.len() + run as usize, false);
    }
    let skip = rng.below(500) as usize;
    bits.into_iter().skip(skip).take(PACKETS).collect()
}

fn draw(name: &str, rng: &mut Rng) -> Labelled {
    let p = 10f64.powf(-3.0 + 1.5 * rng.unit());
    let (cause, signature) = match name {
        "independent" => (Cause::Network, independent(p, rng)),
        "overrun" => (Cause::Network, overrun(p, rng)),
        "periodic" => (Cause::Network, periodic(p, rng)),
        _ => (Cause::Cpu, off(p, rng)),
    };
    let lost = signature.lost() as u64;
    let host = if cause == Cause::Cpu { lost } else { 0 };
    Labelled {
        family: name.to_owned(),
        cause,
        seed: 0,
        window: 0,
        signature,
        lost: Lost { network: lost - host, host, link: 0 },
        host_drops: Some(host),
        delay: None,
        split: Split::Train,
        more: BTreeMap::new(),
    }
}

fn trained(rng: &mut Rng) -> Model {
    let mut trainer = Trainer::new(WordLength::PAPER);
    for family in ["independent", "overrun", "periodic", "off", "off again"] {
        for _ in 0..250 {
            let mut labelled = draw(family, rng);
            if family == "independent" || family == "off" {
                labelled.more.insert("paper".to_owned(), true.into());
            }
            trainer.add(&labelled);
        }
        // Success proportions need windows with very few losses.
        for _ in 0..40 {
            let mut labelled = draw(family, rng);
            labelled.signature = match family {
                "off" | "off again" => {
                    Signature::from_lost(PACKETS, std::iter::once(50..57)).expect("inside")
                }
                _ => (0..PACKETS).map(|i| i % 4001 != 0).collect(),
            };
            trainer.add(&labelled);
        }
    }
    trainer.finish(Provenance { seed: 5, ..Provenance::default() }).expect("enough data")
}

#[test]
fn what_is_trained_tells_the_causes_apart() {
    let mut rng = Rng::new(21);
    let model = trained(&mut rng);
    let again = Model::from_json(&model.to_json()).expect("a model");
    assert!(again == model, "a file keeps everything");
    let mut judge = Judge::new(&model);
    for family in ["independent", "overrun", "periodic", "off"] {
        for _ in 0..150 {
            judge.add(&draw(family, &mut rng));
        }
    }
    let judgement = judge.finish();
    let ours = &judgement.families[&Kind::Signature];
    for (name, tally) in ours {
        let (right, called) = if name.starts_with("cpu") {
            (Cause::Cpu, 0)
        } else {
            (Cause::Network, tally.elsewhere_called_cpu)
        };
        let right = tally.verdicts.get(&right).copied().unwrap_or(0);
        assert!(called == 0, "{name}: {tally:?}");
        assert!(right * 100 >= tally.windows * 85, "{name}: {tally:?} {:?}", model.sizes[0].fit);
    }
    // The counter is more accurate.
    let counted = &judgement.families[&Kind::Counter]["cpu off"];
    assert_eq!(counted.verdicts.get(&Cause::Cpu), Some(&counted.windows));
    // The paper's classifier under the conditions that it was fitted to.
    let paper = &judgement.families[&Kind::Paper];
    let right = paper["network independent"].verdicts.get(&Cause::Network).copied().unwrap_or(0);
    assert!(right >= 120, "{paper:?}");
}

#[test]
fn too_little_data_is_said() {
    let mut rng = Rng::new(22);
    let mut trainer = Trainer::new(WordLength::PAPER);
    for _ in 0..40 {
        trainer.add(&draw("independent", &mut rng));
    }
    let mut test = draw("off", &mut rng);
    test.split = Split::Test;
    trainer.add(&test);
    assert_eq!(trainer.counts(), (40, 1));
    assert_eq!(trainer.finish(Provenance::default()), Err(TrainError::NoSize));
}

/// The paper's classifier learns from windows with the paper's rates where there are any, ours does
/// not; and a metric that never varied is no model.
#[test]
fn windows_at_the_papers_rates_train_the_papers_classifier_only() {
    let train = |extra: bool, varies: bool| {
        let mut rng = Rng::new(4);
        let mut trainer = Trainer::new(WordLength::PAPER);
        for family in ["independent", "off"] {
            for _ in 0..300 {
                trainer.add(&draw(family, &mut rng));
            }
        }
        for (n, family) in
            ["independent", "off"].repeat(if extra { 200 } else { 0 }).iter().enumerate()
        {
            let mut labelled = draw(family, &mut rng);
            labelled.more.insert("meta".to_owned(), serde_json::json!({"conditions": "paper"}));
            trainer.add(&labelled);
            // Few losses: a run of one or two for the network, of seven or nine for the host.
            let one = usize::from(varies && n % 3 == 0);
            let few: Vec<_> = match *family {
                "off" => std::iter::once(50..56 + n % 4).collect(),
                _ => (1..5).map(|at| at * 900..at * 900 + 1 + one).collect(),
            };
            labelled.signature = Signature::from_lost(PACKETS, few).expect("inside");
            trainer.add(&labelled);
        }
        trainer.finish(Provenance { seed: 5, ..Provenance::default() }).expect("enough data")
    };
    let (with, without) = (train(true, true), train(false, true));
    assert_eq!(with.sizes[0].own, without.sizes[0].own);
    assert_eq!(with.sizes[0].windows["network independent at the paper's rates"], 400);
    let windows = |model: &Model| model.sizes[0].fit["paper network complexity windows"];
    assert!(windows(&with) < 210.0 && windows(&with) > 190.0 && windows(&without) > 250.0);
    assert!(with.sizes[0].paper.success.is_some());
    let flat = train(true, false);
    assert!(flat.sizes[0].paper.success.is_none(), "{:?}", flat.sizes[0].fit);
    assert_eq!(flat.sizes[0].fit["paper network success proportion deviation"], 0.0);
}
