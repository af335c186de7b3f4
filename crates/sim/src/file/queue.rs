//! `queue`: `"100 packets"`, `"256KiB"`, `"1bdp"`, or a table for RED and CoDel.

use packtrain_link::{CoDelConfig, Limit, QueueConfig, RedConfig, RedMode};
use packtrain_units::{ByteCount, DataRate, Duration};

use super::error::FileError;
use super::field::{Field, Fields};

/// The units in which a queue's size may be given.
pub(super) struct QueueUnits {
    /// The rate of the link, the highest if it changes.
    pub(super) rate: DataRate,
    /// The round trip that `bdp` refers to.
    pub(super) rtt: Duration,
    /// The largest packet.
    pub(super) mtu: ByteCount,
}

/// The default of a Linux interface.
pub(super) fn default() -> QueueConfig {
    QueueConfig::DropTail(Limit::Packets(1_000))
}

/// Reads a queue.
pub(super) fn read(field: &Field<'_>, room: &QueueUnits) -> Result<QueueConfig, FileError> {
    if !field.is_table() {
        return Ok(QueueConfig::DropTail(limit(field, room)?));
    }
    let fields = field.table("a queue")?;
    let kind = fields.need("kind", "\"drop-tail\"")?;
    let kind = kind.choice(&[("drop-tail", 0), ("red", 1), ("codel", 2)])?;
    let size = limit(&fields.need("limit", "\"100 packets\"")?, room)?;
    let queue = match kind {
        0 => QueueConfig::DropTail(size),
        1 => QueueConfig::Red(red(&fields, size)?),
        _ => QueueConfig::CoDel(CoDelConfig {
            limit: size,
            target: fields.or("target", Duration::from_millis(5), Field::some_duration)?,
            interval: fields.or("interval", Duration::from_millis(100), Field::some_duration)?,
        }),
    };
    fields.done()?;
    Ok(queue)
}

fn red(fields: &Fields<'_>, limit: Limit) -> Result<RedConfig, FileError> {
    let modes = [
        ("classic", RedMode::Classic),
        ("gentle", RedMode::Gentle),
        ("adaptive", RedMode::Adaptive),
    ];
    let min_threshold = fields.or("min", 5.0, |field| field.number(0.0, 1e9))?;
    let max = fields.get("max");
    let max_threshold = max.as_ref().map_or(Ok(15.0), |field| field.number(0.0, 1e9))?;
    if max_threshold <= min_threshold {
        let what = format!("must be above `min`, which is {min_threshold}");
        return Err(match max {
            Some(max) => max.error(what),
            None => fields.error(format!("`max`, 15, {what}")),
        });
    }
    Ok(RedConfig {
        limit,
        min_threshold,
        max_threshold,
        linterm: fields.or("linterm", 10.0, |field| field.number(0.999, 1e9))?,
        weight: fields.or("weight", 0.002, |field| field.number(0.0, 1.0))?,
        mean_packet: fields.or("mean_packet", ByteCount(500), |field| field.size(1, 65_535))?,
        mode: fields.or("mode", RedMode::Classic, |field| field.choice(&modes))?,
    })
}

const FORMS: &str = "a queue: write \"100 packets\", \"256KiB\" or \"1bdp\"";

fn limit(field: &Field<'_>, room: &QueueUnits) -> Result<Limit, FileError> {
    let text = field.text(FORMS)?.trim();
    if let Some((products, packets)) = text.split_once(", at least") {
        return at_least(field, (products.trim(), packets.trim()), room);
    }
    for word in ["packets", "packet"] {
        let Some(number) = text.strip_suffix(word) else { continue };
        let max = 1u64 << 40;
        return match number.trim().parse::<u64>() {
            Ok(0) => Err(field.error("holds no packet: write \"1 packet\" or more")),
            Ok(packets) if packets <= max => Ok(Limit::Packets(packets)),
            _ => Err(field.error(format!("`{text}` is not {FORMS}"))),
        };
    }
    let bytes = match text.strip_suffix("bdp") {
        Some(number) => products(field, number.trim(), room)?,
        None => field.bytes().map_err(|error| with_forms(error, text))?,
    };
    let packet = room.mtu.get().min(1_500);
    if bytes.get() < packet {
        let what = format!(
            "`{text}` is {} bytes, less than a packet of {packet}: write \"1 packet\" or more",
            bytes.get()
        );
        return Err(field.error(what));
    }
    Ok(Limit::Bytes(bytes))
}

/// `"1bdp, at min 10 packets"`: in whole packets of the link's largest size.
fn at_least(
    field: &Field<'_>,
    (product, min): (&str, &str),
    room: &QueueUnits,
) -> Result<Limit, FileError> {
    let number = product.strip_suffix("bdp");
    let min = min.strip_suffix("packets").and_then(|number| number.trim().parse().ok());
    let (Some(number), Some(min @ 1..=1_000_000)) = (number, min) else {
        return Err(field.error("is no queue: write \"1bdp, at least 10 packets\""));
    };
    let bytes = products(field, number.trim(), room)?;
    Ok(Limit::Packets((bytes.get() / room.mtu.get().max(1)).max(min)))
}

/// A bare number could also mean packets.
fn with_forms(mut error: FileError, text: &str) -> FileError {
    if text.parse::<f64>().is_ok_and(|number| number >= 0.0) {
        error.what = format!("`{text}` needs a unit: write \"{text} packets\" or \"{text}KiB\"");
    }
    error
}

/// A number of bandwidth-delay products.
fn products(field: &Field<'_>, number: &str, room: &QueueUnits) -> Result<ByteCount, FileError> {
    let factor = number.parse::<f64>().ok().filter(|n| *n > 0.0 && *n <= 1e6).ok_or_else(|| {
        field
            .error(format!("`{number}bdp` is no queue: write \"1bdp\", or \"0.5bdp\" and the like"))
    })?;
    if room.rate == DataRate::MAX {
        return Err(field.error("a link without limit has no bdp: write \"1000 packets\""));
    }
    if room.rtt.is_zero() {
        let what = "the round trip is zero, and so the bdp: write packets or bytes, or `bdp_rtt`";
        return Err(field.error(what));
    }
    let bytes = room.rate.as_bps() as f64 / 8.0 * room.rtt.as_secs_f64() * factor;
    if bytes > 1e15 {
        return Err(field.error("is more than 1000 TB: write less"));
    }
    Ok(ByteCount(bytes.round() as u64))
}
