//! Goodputs of several flows as one number: over the whole run, or over a span of it where the
//! scenario samples.

use packtrain_sim::outcome::{Outcome, Sample};
use packtrain_sim::results::RunRow;
use packtrain_units::Duration;

/// A run as formulas see it.
pub(super) struct Seen<'a> {
    /// Its numbers.
    pub(super) row: &'a RunRow,
    /// Everything else, its curves among it.
    pub(super) outcome: &'a Outcome,
}

/// What is made of the goodputs, in bit/s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    /// All together.
    Total,
    /// Their mean.
    Mean,
    /// Their standard deviation, as of a whole population.
    Deviation,
    /// The least.
    Least,
    /// The greatest.
    Most,
    /// Jain's index of fairness: 1 if all have the same, 1/n if one has all.
    Jain,
    /// Standard deviation over time of all together, by their mean.
    Wobble,
}

impl Group {
    /// `total`, `mean`, `sd`, `least`, `most`, `jain` and `wobble`.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "total" => Self::Total,
            "mean" => Self::Mean,
            "sd" => Self::Deviation,
            "least" => Self::Least,
            "most" => Self::Most,
            "jain" => Self::Jain,
            "wobble" => Self::Wobble,
            _ => return None,
        })
    }

    /// Of the flows whose names match `flows`, a name or a beginning with `*` behind it; between
    /// two instants in seconds, or over the whole run.
    pub(super) fn of(
        self,
        seen: &Seen<'_>,
        flows: &str,
        span: Option<(f64, f64)>,
    ) -> Result<f64, String> {
        let chosen: Vec<usize> = chosen(seen.row, flows);
        if chosen.is_empty() {
            return Err(format!("no flow is called `{flows}`"));
        }
        if self == Self::Wobble {
            let (from, to) = span.unwrap_or((0.0, f64::INFINITY));
            return wobble(&seen.outcome.samples, &chosen, from, to);
        }
        let values: Result<Vec<f64>, _> = chosen
            .iter()
            .map(|&flow| match span {
                None => Ok(seen.row.flows[flow].goodput_bps as f64),
                Some((from, to)) => between(&seen.outcome.samples, flow, from, to),
            })
            .collect();
        Ok(self.over(&values?))
    }

    fn over(self, values: &[f64]) -> f64 {
        let count = values.len() as f64;
        let total: f64 = values.iter().sum();
        let mean = total / count;
        match self {
            Self::Total => total,
            Self::Mean => mean,
            Self::Deviation | Self::Wobble => {
                (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt()
            }
            Self::Least => values.iter().copied().fold(f64::INFINITY, f64::min),
            Self::Most => values.iter().copied().fold(0.0, f64::max),
            Self::Jain => {
                let squares: f64 = values.iter().map(|value| value * value).sum();
                if squares > 0.0 { total * total / (count * squares) } else { 1.0 }
            }
        }
    }
}

/// Whether a name is meant: equal, or beginning so where a `*` ends the pattern.
pub(super) fn matches(name: &str, pattern: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == pattern,
    }
}

/// The most payload bytes that one flow had acknowledged more than another at the same instant:
/// what a depot between them held.
pub(super) fn ahead(seen: &Seen<'_>, first: &str, second: &str) -> Result<f64, String> {
    let of = |name: &str| {
        let flow = seen.row.flows.iter().position(|flow| flow.name == name);
        let flow = flow.ok_or_else(|| format!("no flow is called `{name}`"))?;
        let own = seen.outcome.samples.iter().filter(move |sample| sample.flow == flow);
        Ok::<_, String>(own.map(|sample| sample.acked.map_or(0.0, |bytes| bytes.get() as f64)))
    };
    let pairs = of(first)?.zip(of(second)?);
    let most = pairs.map(|(one, other)| one - other).reduce(f64::max);
    most.ok_or_else(|| "the scenario has no samples".to_owned())
}

fn chosen(row: &RunRow, flows: &str) -> Vec<usize> {
    let pattern = flows.trim_start_matches('[').trim_end_matches(']');
    (0..row.flows.len()).filter(|&flow| matches(&row.flows[flow].name, pattern)).collect()
}

/// Samples of a flow that end in a span.
fn within(samples: &[Sample], flow: usize, from: f64, to: f64) -> impl Iterator<Item = &Sample> {
    // A sample speaks of the time before it.
    let (from, to) = (Duration::from_secs_f64(from.max(0.0)), to);
    samples.iter().filter(move |sample| {
        let at = sample.at.as_nanos();
        sample.flow == flow && at > from.as_nanos() && at as f64 <= to * 1e9 + 0.5
    })
}

fn between(samples: &[Sample], flow: usize, from: f64, to: f64) -> Result<f64, String> {
    let (mut sum, mut count) = (0.0, 0.0);
    for sample in within(samples, flow, from, to) {
        sum += sample.goodput.as_bps() as f64;
        count += 1.0;
    }
    if count == 0.0 {
        return Err(format!("no sample between {from} and {to} seconds: the scenario has none"));
    }
    Ok(sum / count)
}

fn wobble(samples: &[Sample], flows: &[usize], from: f64, to: f64) -> Result<f64, String> {
    let mut totals: Vec<f64> = Vec::new();
    for &flow in flows {
        for (index, sample) in within(samples, flow, from, to).enumerate() {
            let value = sample.goodput.as_bps() as f64;
            match totals.get_mut(index) {
                Some(total) => *total += value,
                None => totals.push(value),
            }
        }
    }
    let mean = Group::Mean.over(&totals);
    if totals.is_empty() || mean <= 0.0 {
        return Err("nothing was sampled there".to_owned());
    }
    Ok(Group::Deviation.over(&totals) / mean)
}
