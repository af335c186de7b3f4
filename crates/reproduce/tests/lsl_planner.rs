//! The planner on a few networks that no parameter was tuned on; `experiments/lsl-planner` has
//! more.

mod lsl;

use lsl::{packets, study, world};

#[test]
fn ours_is_near_the_oracle_and_rarely_slower_than_direct() {
    let mut ours = study::Score::default();
    let mut paper = study::Score::default();
    for kind in [world::LOSSY, world::CORE] {
        let [_, theirs, own] = study::compare(world::Kind { hosts: 16, ..kind }, 201, 80);
        ours.and(&own);
        paper.and(&theirs);
    }
    assert!(ours.share(ours.of_oracle) >= 0.9, "{ours:?}");
    assert!(ours.share(ours.slower) < 0.05, "{ours:?}");
    assert!(paper.share(paper.slower) > 0.1, "the paper's rule errs: {paper:?}");
}

#[test]
fn the_fluid_model_is_near_the_packets() {
    let mut ratios = packets::ratios(world::PLANETLAB, 7, 8);
    ratios.sort_by(f64::total_cmp);
    assert!((0.75..1.35).contains(&ratios[4]), "{ratios:?}");
}
