//! `[[link]]`: two directions unless `one_way`; the second equals the first except for `reverse`.

use packtrain_link::{DelayVariation, LinkConfig, RateSchedule, ReorderConfig};
use packtrain_units::{ByteCount, DataRate, Duration, Time};

use super::error::FileError;
use super::field::{Field, Fields};
use super::names::Names;
use super::{loss, queue};

/// A link whose ends and delays are known; its queue may depend on the round trip of its flows.
pub(super) struct Draft<'a> {
    fields: Fields<'a>,
    reverse: Option<Fields<'a>>,
    /// Its name.
    pub(super) name: String,
    /// Its source and destination.
    pub(super) ends: (usize, usize),
    /// Whether there is no reverse direction.
    pub(super) one_way: bool,
    /// Delay of each direction.
    pub(super) delays: [Duration; 2],
    /// The largest packet of each direction.
    pub(super) mtus: [ByteCount; 2],
}

/// The name of a link: its own, or one made of its ends.
pub(super) fn name(own: Option<&str>, from: &str, to: &str) -> String {
    own.map_or_else(|| format!("{from}-{to}"), str::to_owned)
}

impl<'a> Draft<'a> {
    /// Reads the fields that routes need.
    pub(super) fn read(link: &Field<'a>, names: &mut Names) -> Result<Self, FileError> {
        let fields = link.table("a table")?;
        let from = fields.need("from", "\"a\"")?;
        let to = fields.need("to", "\"b\"")?;
        let ends = (names.named(&from)?, names.named(&to)?);
        if ends.0 == ends.1 {
            return Err(to.error("is where the link starts: write the name of another node"));
        }
        let own = fields.map("name", Field::name)?;
        let list = names.list();
        let name = name(own.as_deref(), &list[ends.0], &list[ends.1]);
        let one_way = fields.or("one_way", false, Field::bool)?;
        let reverse = fields.get("reverse");
        if let (true, Some(reverse)) = (one_way, &reverse) {
            return Err(reverse.error("a link that is `one_way` has no reverse: leave one out"));
        }
        let reverse = reverse.map(|field| field.table("a table such as { loss = 0 }"));
        let mut draft = Self {
            fields,
            reverse: reverse.transpose()?,
            name,
            ends,
            one_way,
            delays: [Duration::ZERO; 2],
            mtus: [ByteCount::ZERO; 2],
        };
        let there = delay(&draft.fields)?;
        let Some(there) = there else {
            let example = "\"10ms\"` (one way) or `rtt = \"20ms\"";
            return Err(draft
                .fields
                .need("delay", example)
                .err()
                .unwrap_or_else(|| draft.fields.error("has no delay")));
        };
        let back = draft.reverse.as_ref().map(delay).transpose()?.flatten();
        draft.delays = [there, back.unwrap_or(there)];
        for way in 0..2 {
            let mtu = draft.get(way, "mtu");
            let mtu = mtu.map(|field| field.size(68, 65_535)).transpose()?;
            draft.mtus[way] = mtu.unwrap_or(ByteCount(1_500));
        }
        Ok(draft)
    }

    /// Number of directions.
    pub(super) fn directions(&self) -> usize {
        if self.one_way { 1 } else { 2 }
    }

    /// The name of a direction.
    pub(super) fn name_of(&self, way: usize) -> String {
        if way == 0 { self.name.clone() } else { format!("{}'", self.name) }
    }

    /// Source and destination of a direction.
    pub(super) fn ends_of(&self, way: usize) -> (usize, usize) {
        if way == 0 { self.ends } else { (self.ends.1, self.ends.0) }
    }

    /// The configuration of a direction; `rtt` is the round trip of the flows that pass it.
    pub(super) fn config(
        &self,
        way: usize,
        rtt: Duration,
        seed: u64,
    ) -> Result<LinkConfig, FileError> {
        let rate = match self.get(way, "rate") {
            Some(field) => rate(&field)?,
            None => rate(&self.fields.need("rate", "\"100mbit\"` or `rate = \"unlimited\"")?)?,
        };
        let own_rtt = self.read_at(way, "bdp_rtt", Field::some_duration)?;
        let mtu = self.mtus[way];
        let (rate, product_rate) = rate;
        let room = queue::QueueUnits { rate: product_rate, rtt: own_rtt.unwrap_or(rtt), mtu };
        Ok(LinkConfig {
            delay: self.delays[way],
            queue: match self.get(way, "queue") {
                Some(field) => queue::read(&field, &room)?,
                None => queue::default(),
            },
            loss: self
                .read_at(way, "loss", loss::read)?
                .unwrap_or(packtrain_link::LossConfig::None),
            jitter: self.read_at(way, "jitter", jitter)?,
            reorder: self.read_at(way, "reorder", reorder)?,
            duplicate: self.read_at(way, "duplicate", Field::probability)?.unwrap_or(0.0),
            mtu,
            overhead: self
                .read_at(way, "overhead", |field| field.size(0, 65_535))?
                .unwrap_or(ByteCount::ZERO),
            seed: self
                .read_at(way, "seed", |field| field.integer(0, i64::MAX as u64))?
                .unwrap_or(seed),
            rate,
        })
    }

    /// Refuses fields that were not read.
    pub(super) fn done(&self) -> Result<(), FileError> {
        self.fields.done()?;
        self.reverse.as_ref().map_or(Ok(()), Fields::done)
    }

    /// The value for a direction: the second looks into `reverse` first.
    fn get(&self, way: usize, key: &'static str) -> Option<Field<'a>> {
        let own = self.fields.get(key);
        let over = self.reverse.as_ref().and_then(|reverse| reverse.get(key));
        if way == 1 { over.or(own) } else { own }
    }

    fn read_at<T>(
        &self,
        way: usize,
        key: &'static str,
        read: impl FnOnce(&Field<'a>) -> Result<T, FileError>,
    ) -> Result<Option<T>, FileError> {
        self.get(way, key).map(|field| read(&field)).transpose()
    }
}

/// `delay`, or half of `rtt`.
fn delay(fields: &Fields<'_>) -> Result<Option<Duration>, FileError> {
    let (delay, rtt) = (fields.get("delay"), fields.get("rtt"));
    match (delay, rtt) {
        (Some(_), Some(rtt)) => {
            Err(rtt.error("a link has `delay` (one way) or `rtt` (both): leave one out"))
        }
        (Some(delay), None) => delay.duration().map(Some),
        (None, Some(rtt)) => Ok(Some(Duration::from_nanos(rtt.duration()?.as_nanos() / 2))),
        (None, None) => Ok(None),
    }
}

/// `"1gbit"`, `"unlimited"`, `[["0s", "1gbit"], ["10s", "0mbit"]]`, `{ steps = ..., period = ... }`,
/// `{ trace = "file" }`. Beside it the rate that `bdp` means: the mean of a trace, whose fastest
/// millisecond says nothing, and otherwise the highest rate.
fn rate(field: &Field<'_>) -> Result<(RateSchedule, DataRate), FileError> {
    let schedule = schedule(field)?;
    let traced = field.is_table() && field.table("a rate")?.get("trace").is_some();
    let fastest = schedule.steps.iter().map(|step| step.1).max().unwrap_or(DataRate::ZERO);
    let rate = if traced { schedule.mean() } else { fastest };
    Ok((schedule, rate))
}

fn schedule(field: &Field<'_>) -> Result<RateSchedule, FileError> {
    if field.is_list() {
        return Ok(RateSchedule { steps: steps(field)?, period: None });
    }
    if !field.is_table() {
        return Ok(RateSchedule::constant(one_rate(field, false)?));
    }
    let fields = field.table("a rate")?;
    if let Some(trace) = fields.get("trace") {
        fields.done()?;
        let name = trace.text("the name of a file")?;
        let text = (trace.source.include)(name)
            .map_err(|error| trace.error(format!("cannot read `{name}`: {error}")))?;
        return RateSchedule::from_trace(&text)
            .map_err(|error| trace.error(format!("`{name}`: {error}")));
    }
    let steps = steps(&fields.need("steps", "[[\"0s\", \"1gbit\"], [\"10s\", \"100mbit\"]]")?)?;
    let last = steps.last().map_or(Time::ZERO, |step| step.0);
    let period = fields.map("period", |period| {
        let span = period.some_duration()?;
        if Time::ZERO + span <= last {
            return Err(period.error("must be after the last step"));
        }
        Ok(span)
    })?;
    fields.done()?;
    Ok(RateSchedule { steps, period })
}

fn one_rate(field: &Field<'_>, none: bool) -> Result<DataRate, FileError> {
    if field.is_text() && field.text("a rate")? == "unlimited" {
        return Ok(DataRate::MAX);
    }
    if none { field.rate() } else { field.some_rate() }
}

/// Times and rates, the first at zero.
fn steps(field: &Field<'_>) -> Result<Vec<(Time, DataRate)>, FileError> {
    let mut steps = Vec::new();
    for step in super::flow::pairs(field, "[\"10s\", \"100mbit\"]")? {
        let at = Time::ZERO + step.0.duration()?;
        if steps.last().is_some_and(|(before, _)| *before >= at) {
            return Err(step.0.error("is not after the step before it"));
        }
        steps.push((at, one_rate(&step.1, true)?));
    }
    if steps.first().is_none_or(|first| first.0 != Time::ZERO) {
        return Err(field.error("the first step must be at \"0s\""));
    }
    if steps.iter().all(|step| step.1 == DataRate::ZERO) {
        return Err(field.error("the link is down all the time: write a rate above zero"));
    }
    Ok(steps)
}

/// `"2ms"`: uniform up to this; or a table.
fn jitter(field: &Field<'_>) -> Result<DelayVariation, FileError> {
    if !field.is_table() {
        return Ok(DelayVariation::Uniform(field.duration()?));
    }
    let fields = field.table("a table")?;
    let kind = fields.need("kind", "\"uniform\"")?;
    let variation = match kind.choice(&[("uniform", 0), ("normal", 1), ("pareto", 2)])? {
        0 => DelayVariation::Uniform(fields.need("most", "\"2ms\"")?.duration()?),
        1 => DelayVariation::Normal(fields.need("deviation", "\"1ms\"")?.duration()?),
        _ => DelayVariation::Pareto {
            mean: fields.need("mean", "\"1ms\"")?.duration()?,
            shape: fields.need("shape", "1.5")?.number(1.0, 1e3)?,
        },
    };
    fields.done()?;
    Ok(variation)
}

fn reorder(field: &Field<'_>) -> Result<ReorderConfig, FileError> {
    let fields = field.table("a table such as { probability = 1e-3, extra = \"2ms\" }")?;
    let config = ReorderConfig {
        probability: fields.need("probability", "1e-3")?.probability()?,
        extra: fields.need("extra", "\"2ms\"")?.some_duration()?,
    };
    fields.done()?;
    Ok(config)
}
