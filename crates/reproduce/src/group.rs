//! The goodputs of several flows as one number: over the whole run, or over an interval if the
//! scenario samples.

use packtrain_sim::outcome::{Outcome, Sample};
use packtrain_sim::results::RunRow;
use packtrain_units::Duration;

/// A run as the input of formulas.
pub(super) struct RunContext<'a> {
    /// Its results.
    pub(super) row: &'a RunRow,
    /// Its full outcome with the samples.
    pub(super) outcome: &'a Outcome,
}

/// The statistic of the goodputs, in bit/s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    /// The sum.
    Total,
    /// The mean.
    Mean,
    /// The standard deviation of the population.
    Deviation,
    /// The minimum.
    Min,
    /// The maximum.
    Max,
    /// Jain's index of fairness: 1 if all are equal, 1/n if one flow has everything.
    Jain,
    /// Standard deviation of the sum over time, relative to its mean.
    Wobble,
}

impl Group {
    /// `total`, `mean`, `sd`, `least`, `max`, `jain` and `wobble`.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "total" => Self::Total,
            "mean" => Self::Mean,
            "sd" => Self::Deviation,
            "least" => Self::Min,
            "most" => Self::Max,
            "jain" => Self::Jain,
            "wobble" => Self::Wobble,
            _ => return None,
        })
    }

    /// The statistic over the flows whose names match `flows`, a name or a prefix followed by `*`,
    /// between two times in seconds, or over the whole run.
    pub(super) fn of(
        self,
        context: &RunContext<'_>,
        flows: &str,
        span: Option<(f64, f64)>,
    ) -> Result<f64, String> {
        let chosen: Vec<usize> = chosen(context.row, flows);
        if chosen.is_empty() {
            return Err(format!("no flow is called `{flows}`"));
        }
        if self == Self::Wobble {
            let (from, to) = span.unwrap_or((0.0, f64::INFINITY));
            return wobble(&context.outcome.samples, &chosen, from, to);
        }
        let values: Result<Vec<f64>, _> = chosen
            .iter()
            .map(|&flow| match span {
                None => Ok(context.row.flows[flow].goodput_bps as f64),
                Some((from, to)) => between(&context.outcome.samples, flow, from, to),
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
            Self::Min => values.iter().copied().fold(f64::INFINITY, f64::min),
            Self::Max => values.iter().copied().fold(0.0, f64::max),
            Self::Jain => {
                let squares: f64 = values.iter().map(|value| value * value).sum();
                if squares > 0.0 { total * total / (count * squares) } else { 1.0 }
            }
        }
    }
}

/// Whether a name matches: equal, or with this prefix if the pattern ends in `*`.
pub(super) fn matches(name: &str, pattern: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == pattern,
    }
}

/// The maximum difference in acknowledged payload bytes between one flow and another at the same
/// time: the maximum amount that a depot between them stored.
pub(super) fn ahead(context: &RunContext<'_>, first: &str, second: &str) -> Result<f64, String> {
    let of = |name: &str| {
        let flow = context.row.flows.iter().position(|flow| flow.name == name);
        let flow = flow.ok_or_else(|| format!("no flow is called `{name}`"))?;
        let own = context.outcome.samples.iter().filter(move |sample| sample.flow == flow);
        Ok::<_, String>(own.map(|sample| sample.acked.map_or(0.0, |bytes| bytes.get() as f64)))
    };
    let pairs = of(first)?.zip(of(second)?);
    let max = pairs.map(|(one, other)| one - other).reduce(f64::max);
    max.ok_or_else(|| "the scenario has no samples".to_owned())
}

/// The median over the samples between two times in seconds of how long a packet that arrives then
/// waits at a link, in milliseconds.
pub(super) fn median_wait(
    context: &RunContext<'_>,
    link: &str,
    from: f64,
    to: f64,
) -> Result<f64, String> {
    let index = context.row.links.iter().position(|known| known.name == link);
    let index = index.ok_or_else(|| format!("no link `{link}`"))?;
    let mut waits: Vec<f64> = context
        .outcome
        .waits
        .iter()
        .filter(|wait| wait.link == index)
        .filter(|wait| (from..=to).contains(&(wait.at.as_nanos() as f64 / 1e9)))
        .map(|wait| wait.wait.as_secs_f64() * 1e3)
        .collect();
    waits.sort_by(f64::total_cmp);
    let median = waits.get(waits.len() / 2).copied();
    median.ok_or_else(|| format!("no sample between {from} and {to} seconds"))
}

fn chosen(row: &RunRow, flows: &str) -> Vec<usize> {
    let pattern = flows.trim_start_matches('[').trim_end_matches(']');
    (0..row.flows.len()).filter(|&flow| matches(&row.flows[flow].name, pattern)).collect()
}

/// Samples of a flow that end in an interval.
fn within(samples: &[Sample], flow: usize, from: f64, to: f64) -> impl Iterator<Item = &Sample> {
    // A sample describes the time before it.
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
