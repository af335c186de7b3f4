//! `[node.host]`: the receiving host.

use packtrain_link::{HostConfig, Scheduler};
use packtrain_units::{ByteCount, Duration};

use super::error::FileError;
use super::field::{Field, Fields};

/// Reads a host; defaults are those of an idle Linux machine.
pub(super) fn read(field: &Field<'_>, seed: u64) -> Result<HostConfig, FileError> {
    let fields = field.table("a table such as { buffer = \"208KiB\" }")?;
    let config = HostConfig {
        buffer: fields.or("buffer", ByteCount(212_992), |f| f.size(2_048, 1 << 40))?,
        coalesce: fields.or("coalesce", Duration::from_micros(50), Field::duration)?,
        coalesce_most: fields.or("coalesce_most", 44, |f| f.integer(1, 64))? as u32,
        per_packet: fields.or("per_packet", Duration::from_nanos(300), Field::duration)?,
        per_batch: fields.or("per_batch", Duration::from_micros(3), Field::duration)?,
        scheduler: fields.or("scheduler", Scheduler::Alone, scheduler)?,
        seed: fields.or("seed", seed, |f| f.integer(0, i64::MAX as u64))?,
    };
    fields.done()?;
    Ok(config)
}

/// `"alone"` or a table.
fn scheduler(field: &Field<'_>) -> Result<Scheduler, FileError> {
    if !field.is_table() {
        return field.choice(&[("alone", Scheduler::Alone)]);
    }
    let fields = field.table("a scheduler")?;
    let kind = fields.need("kind", "\"slices\"")?;
    let scheduler =
        match kind.choice(&[("alone", 0), ("slices", 1), ("on-off", 2), ("generator", 3)])? {
            0 => Scheduler::Alone,
            1 => slices(&fields)?,
            3 => generator(&fields)?,
            _ => Scheduler::OnOff {
                on: fields.need("on", "\"20ms\"")?.some_duration()?,
                off: fields.need("off", "\"5ms\"")?.some_duration()?,
            },
        };
    fields.done()?;
    Ok(scheduler)
}

fn slices(fields: &Fields<'_>) -> Result<Scheduler, FileError> {
    Ok(Scheduler::Slices {
        slice: fields.or("slice", Duration::from_millis(3), Field::some_duration)?,
        competitors: fields.need("competitors", "2")?.integer(0, 1_000)? as u32,
    })
}

fn generator(fields: &Fields<'_>) -> Result<Scheduler, FileError> {
    let slice = fields.or("slice", Duration::from_millis(3), Field::some_duration)?;
    Ok(Scheduler::Generator {
        most: fields.or("most", 7, |f| f.integer(0, 1_000))? as u32,
        slice,
        spread: fields.or("spread", 0.2, Field::probability)?,
        keep: fields.or("keep", slice, Field::some_duration)?,
    })
}
