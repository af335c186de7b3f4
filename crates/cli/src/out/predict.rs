//! The output of `predict`: JSON lines, or a table and a sentence.

use std::num::NonZeroU32;

use packtrain_plan::streams::{Answer, ModelFit, Prediction, Sample};
use packtrain_units::DataRate;
use serde_json::{Map, Value, json};

/// A curve has one point per number of streams up to this one, and one per power of two above it.
const EXACT_UP_TO: u32 = 64;

/// Prints one line per model, and the answer last.
pub(crate) fn json(prediction: &Prediction, at: Option<NonZeroU32>, max: NonZeroU32) {
    for model in &prediction.models {
        super::json_line(&model_json(model, max));
    }
    let at = prediction.at(at.unwrap_or(prediction.streams));
    super::json_line(&json!({
        "event": "prediction",
        "streams": prediction.streams,
        "throughput_mbps": mbps(prediction.throughput),
        "interval_mbps": interval(prediction.interval),
        "at": {
            "streams": at.streams,
            "throughput_mbps": mbps(at.throughput),
            "interval_mbps": interval(at.interval),
        },
        "curve": curve(max, |n| Some(prediction.at(n).throughput)),
    }));
}

fn model_json(model: &ModelFit, max: NonZeroU32) -> Value {
    let coefficients: Map<String, Value> = model
        .coefficients()
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect();
    let mut line = json!({
        "model": model.name,
        "valid": model.invalid.is_none(),
        "coefficients": coefficients,
        "optimum": model.optimum,
        "curve": curve(max, |n| model.at(n)),
    });
    if let Some(reason) = &model.invalid {
        line["reason"] = reason.to_string().into();
    }
    if let Some(best) = model.best() {
        line["fitted_to"] = best.from.iter().map(|n| n.get()).collect();
        line["error_mbps"] = best.error_mbps.into();
    }
    line
}

fn curve(max: NonZeroU32, at: impl Fn(NonZeroU32) -> Option<DataRate>) -> Vec<(NonZeroU32, f64)> {
    let shown = |n: &u32| *n <= EXACT_UP_TO || n.is_power_of_two() || *n == max.get();
    let numbers = (1..=max.get()).filter(shown).filter_map(NonZeroU32::new);
    numbers.filter_map(|n| Some((n, mbps(at(n)?)))).collect()
}

/// Prints a table of the models and the answer.
pub(crate) fn text(prediction: &Prediction, at: Option<NonZeroU32>, samples: &[Sample]) {
    super::line(&format!("{:<21} {:>7} {:>15}  {}", "model", "optimum", "throughput", "fitted to"));
    for model in &prediction.models {
        super::line(&row(model));
    }
    super::line("");
    let count = samples.len();
    let plural = if count == 1 { "" } else { "s" };
    super::line(&format!(
        "from {count} measurement{plural}: {}",
        answer("use", prediction.at(prediction.streams))
    ));
    if let Some(at) = at {
        super::line(&answer("with", prediction.at(at)));
    }
}

fn row(model: &ModelFit) -> String {
    if let Some(reason) = &model.invalid {
        return format!("{:<21} not valid: {reason}", model.name);
    }
    let optimum = model.optimum.map_or_else(|| "rises".to_owned(), |n| n.to_string());
    let peak = model.optimum.and_then(|n| model.at(n));
    let peak = peak.map_or_else(String::new, |rate| rate.to_string());
    let from = model.best().map_or_else(String::new, |best| {
        let from: Vec<_> = best.from.iter().map(ToString::to_string).collect();
        format!("{} streams", from.join(", "))
    });
    format!("{:<21} {optimum:>7} {peak:>15}  {from}", model.name).trim_end().to_owned()
}

fn answer(verb: &str, answer: Answer) -> String {
    let Answer { streams, throughput, interval: (low, high) } = answer;
    let plural = if streams.get() == 1 { "" } else { "s" };
    format!(
        "{verb} {streams} stream{plural}: {throughput} expected, four times in five between \
         {low} and {high}"
    )
}

fn mbps(rate: DataRate) -> f64 {
    rate.as_bps() as f64 / 1e6
}

fn interval((low, high): (DataRate, DataRate)) -> [f64; 2] {
    [mbps(low), mbps(high)]
}
