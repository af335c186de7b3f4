use super::*;
use crate::Window;

fn classify(signature: &Signature, drops: Option<u64>) -> Verdict {
    let counted = drops.map(HostDrops::datagrams);
    Classifier::new(Model::builtin()).classify(&Evidence::new(signature).host_drops(counted))
}

/// A receiver that sometimes loses its processor: solid runs.
fn solid() -> Signature {
    let lost = [(9_000, 400), (31_000, 350), (48_500, 420), (77_000, 380)];
    Signature::from_lost(97_656, lost.map(|(at, run)| at..at + run)).expect("inside")
}

#[test]
fn the_builtin_model_is_one() {
    let model = Model::builtin();
    assert!(model.check().is_ok() && !model.provenance.date.is_empty());
    assert!(model.size(97_656).is_some_and(|(size, near)| near && size.packets == 97_656));
}

#[test]
fn the_line_is_what_is_promised() {
    let line = serde_json::to_string(&classify(&solid(), None)).expect("writes");
    let value: serde_json::Value = serde_json::from_str(&line).expect("reads");
    for key in ["loss_rate", "complexity", "success_proportion", "cause", "p_cpu"] {
        assert!(!value[key].is_null(), "{key}: {line}");
    }
    assert_eq!(value["cause"], "cpu", "{line}");
    assert!(value["paper"]["cause"].is_string() && value["paper"]["p_cpu"].is_number(), "{line}");
    let starts =
        r#"{"loss_rate":0.015872,"complexity":0.299263,"success_proportion":0.997419,"cause":"#;
    assert!(line.starts_with(starts), "{line}");
}

#[test]
fn periodic_single_losses_are_not_the_processors() {
    let lost = (0..97_656).step_by(700).map(|at| at..at + 1);
    let verdict = classify(&Signature::from_lost(97_656, lost).expect("inside"), None);
    assert_eq!(verdict.cause, Cause::Network, "{verdict:?}");
    assert!(verdict.p_cpu < 0.05, "{verdict:?}");
}

#[test]
fn nothing_lost_and_nothing_sent_are_inconclusive() {
    for signature in [Signature::default(), Signature::from_lost(97_656, []).expect("fits")] {
        let verdict = classify(&signature, Some(0));
        assert_eq!((verdict.cause, verdict.basis), (Cause::Inconclusive, Basis::NoLoss));
        assert_eq!(verdict.paper, PaperVerdict::INCONCLUSIVE);
        assert_eq!(verdict.success_proportion, None);
    }
}

#[test]
fn the_counter_overrules_the_signature() {
    let signature = solid();
    let lost = signature.lost() as u64;
    let all = classify(&signature, Some(lost));
    assert_eq!((all.cause, all.basis), (Cause::Cpu, Basis::HostCounter));
    let none = classify(&signature, Some(0));
    assert!(none.cause != Cause::Cpu && none.p_cpu < 0.05, "{none:?}");
    assert_eq!(classify(&signature, Some(lost / 2)).cause, Cause::Hybrid);
}

#[test]
fn a_count_of_joined_buffers_leaves_the_rest_to_the_signature() {
    let signature = solid();
    let evidence = Evidence::new(&signature);
    let counted = HostDrops::buffers(signature.lost() as u64 / 16, 64);
    let verdict = Classifier::new(Model::builtin()).classify(&evidence.host_drops(Some(counted)));
    assert_eq!((verdict.cause, verdict.basis), (Cause::Cpu, Basis::CounterAndSignature));
}

#[test]
fn windows_of_unknown_lengths_get_no_verdict() {
    let mut window = Window::new(0, 50).expect("a window");
    window.on_received(0..20);
    window.on_received(40..50);
    let verdict = classify(&window.finish(), None);
    assert_eq!((verdict.cause, verdict.basis), (Cause::Inconclusive, Basis::WindowLength));
    assert!((verdict.p_cpu - 0.5).abs() < 1e-12);
}

#[test]
fn p_cpu_is_above_the_bar_only_with_the_verdict() {
    let mut rng = packtrain_units::Rng::new(17);
    let mut classifier = Classifier::new(Model::builtin());
    for _ in 0..400 {
        let every = 10 + rng.below(3000) as usize;
        let run = 1 + rng.below(400) as usize;
        let (mut runs, mut total) = (Vec::new(), 0);
        while total < 24_000 {
            let next = [1 + rng.below(every as u64) as usize, 1 + rng.below(run as u64) as usize];
            total += next[0] + next[1];
            runs.extend(next);
        }
        let signature = Signature::from_runs(runs).expect("short");
        let verdict = classifier.classify(&Evidence::new(&signature));
        assert_eq!(verdict.p_cpu > SURE, verdict.cause == Cause::Cpu, "{verdict:?}");
        let all = verdict.probabilities;
        let sum = all.network + all.cpu + all.hybrid + all.link;
        assert!((sum - 1.0).abs() < 1e-9, "{verdict:?}");
    }
}
