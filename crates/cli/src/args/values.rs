//! Values of options: quantities with units, choices, and the errors for values of later versions.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command};
use packtrain_client::store_forward::{DepotPlan, PlanError};
use packtrain_service::address_policy::{AllowError, AllowRule};
use packtrain_service::{HopTransport, Place, PortRange, TransportChoice};
use packtrain_units::{ByteCount, DataRate, Duration, date};

use super::history::When;

/// Parses a rate above zero, such as `500mbit` or `60MB/s`.
pub(crate) fn rate(text: &str) -> Result<DataRate, String> {
    let rate = packtrain_units::parse_rate(text).map_err(|error| error.to_string())?;
    if rate == DataRate::ZERO {
        return Err("a rate of zero moves no data: leave the option out for no limit".to_owned());
    }
    Ok(rate)
}

/// Parses the highest rate of a transfer. rsync's `--bwlimit` has other units, so an error about one
/// says what rsync means by the text.
pub(crate) fn limit(text: &str) -> Result<DataRate, String> {
    rate(text).map_err(|error| {
        let Some(meant) = rsync_rate(text) else { return error };
        let units = [("k", "kB/s"), ("m", "MB/s"), ("g", "GB/s")];
        let lower = text.to_ascii_lowercase();
        let letter = units.iter().find_map(|(letter, bytes)| {
            let number = lower.strip_suffix(letter)?;
            Some(format!(
                "`{text}` may be bits or bytes: write `{number}{letter}bit` or `{number}{bytes}`"
            ))
        });
        format!("{}; rsync's --bwlimit={text} is {meant}", letter.unwrap_or(error))
    })
}

/// A rate of rsync in units of this program, if it has none of them: a number counts KiB/s, the
/// letters K, M and G are powers of 1024 B/s.
fn rsync_rate(text: &str) -> Option<String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    number.parse::<f64>().ok().filter(|number| *number > 0.0)?;
    let unit = match unit.to_ascii_lowercase().as_str() {
        "" | "k" | "kib" => "KiB/s",
        "m" | "mib" => "MiB/s",
        "g" | "gib" => "GiB/s",
        "kb" => "kB/s",
        "mb" => "MB/s",
        "gb" => "GB/s",
        _ => return None,
    };
    Some(format!("{number}{unit}"))
}

/// Parses a duration, such as `10m` or `250ms`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    packtrain_units::parse_duration(text).map_err(|error| error.to_string())
}

/// Parses a time ago (`7d`), a day (`2026-11-22`) or a time of a day (`2026-11-22T08:30`, UTC).
pub(crate) fn when(text: &str) -> Result<When, String> {
    if let Some(at) = date::read(text) {
        return Ok(When::At(at));
    }
    let wrong = |error| format!("{error}, or a day: 2026-11-22");
    packtrain_units::parse_duration(text).map(When::Ago).map_err(wrong)
}

/// Parses seconds above zero. The unit may be missing, since the option's name states it: `10`,
/// `0.5`, `10s`.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let bare = text.bytes().all(|c| c.is_ascii_digit() || c == b'.');
    let parsed = if bare { duration(&format!("{text}s")) } else { duration(text) }?;
    if parsed.is_zero() {
        return Err("zero seconds is too short: write 1 or more".to_owned());
    }
    Ok(parsed)
}

/// Parses bytes above zero. The unit may be missing, since the option's name states it: `1000000`,
/// `1GiB`.
pub(crate) fn bytes(text: &str) -> Result<ByteCount, String> {
    match text.parse::<u64>() {
        Ok(0) => Err("zero bytes is too little: write 1 or more".to_owned()),
        Ok(bytes) => Ok(ByteCount(bytes)),
        Err(_) => packtrain_units::parse_bytes(text).map_err(|error| error.to_string()),
    }
}

/// Parses a size as rsync's `--max-size` does: bytes, or a number with a suffix. K, M, G, T, P and
/// KiB, MiB, ... are powers of 1024, KB, MB, ... of 1000. `+1` or `-1` at the end adjusts by a byte.
pub(crate) fn rsync_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is no size: write bytes, or 10M, 1.5G, 500KB, 1M-1");
    let (body, adjust) = match (text.strip_suffix("+1"), text.strip_suffix("-1")) {
        (Some(body), _) => (body, 1),
        (_, Some(body)) => (body, -1),
        _ => (text, 0),
    };
    let end = body.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(body.len());
    let (number, suffix) = body.split_at(end);
    let suffix = suffix.to_ascii_lowercase();
    let (letter, kind) = suffix.split_at_checked(suffix.len().min(1)).ok_or_else(wrong)?;
    let base: u32 = match kind {
        "" | "ib" => 1024,
        "b" => 1000,
        _ => return Err(wrong()),
    };
    let power = match letter {
        "" | "b" if kind.is_empty() => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return Err(wrong()),
    };
    let unit = u64::from(base).pow(power);
    let size = match number.parse::<u64>() {
        Ok(whole) => whole.checked_mul(unit),
        Err(_) => number
            .parse::<f64>()
            .ok()
            .map(|number| number * unit as f64)
            .filter(|size| *size < u64::MAX as f64)
            .map(|size| size as u64),
    };
    size.and_then(|size| size.checked_add_signed(adjust)).ok_or_else(wrong)
}

/// Parses a number of times.
pub(crate) fn count(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "write a number, such as 5".to_owned())
}

/// Parses a range of ports (`5000-5100`) or one port.
pub(crate) fn ports(text: &str) -> Result<PortRange, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let port = |text: &str| text.trim().parse::<u16>().ok().filter(|&port| port > 0);
    match (port(first), port(last)) {
        (Some(first), Some(last)) if first <= last => Ok(PortRange { first, last }),
        _ => Err("write the lowest and the highest port, such as 5000-5100".to_owned()),
    }
}

/// The number of TCP streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Streams {
    /// Chosen by measurement while the streams run.
    Auto,
    /// A fixed number.
    Fixed(u32),
}

/// Parses `auto` or a number of streams from 1 to 64.
pub(crate) fn streams_or_auto(text: &str) -> Result<Streams, String> {
    if text == "auto" {
        return Ok(Streams::Auto);
    }
    streams(text).map(Streams::Fixed).map_err(|error| format!("{error}, or auto"))
}

/// Parses a size of TCP's buffers (`4MiB`), or `auto` for the kernel's choice.
pub(crate) fn buffer(text: &str) -> Result<Buffer, String> {
    if text == "auto" {
        return Ok(Buffer(None));
    }
    let size = packtrain_units::parse_bytes(text).map_err(|error| error.to_string())?;
    if size < ByteCount(4096) || size > ByteCount(1 << 30) {
        return Err("write a size from 4KiB to 1GiB, or auto".to_owned());
    }
    Ok(Buffer(Some(size)))
}

/// A size of TCP's buffers; `None` leaves them to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Buffer(pub(crate) Option<ByteCount>);

/// Parses a number of streams from 1 to 64.
pub(crate) fn streams(text: &str) -> Result<u32, String> {
    text.parse::<u32>()
        .ok()
        .filter(|&n| (1..=64).contains(&n))
        .ok_or_else(|| "write a number from 1 to 64".to_owned())
}

/// The route of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Via {
    /// Over these depots, from first to last; directly if there is none.
    Over(Vec<Place>),
    /// Over the best of several depots or directly, chosen by measurement.
    Auto,
}

/// Maximum number of depots on a route.
const MAX_DEPOTS: usize = 4;

/// Parses the address of a depot.
pub(crate) fn place(text: &str) -> Result<Place, String> {
    text.trim().parse::<Place>().map_err(|e| format!("`{text}` is {e}"))
}

/// Parses `none`, `auto` or depots.
pub(crate) fn via(text: &str) -> Result<Via, String> {
    match text {
        "none" => return Ok(Via::Over(Vec::new())),
        "auto" => return Ok(Via::Auto),
        _ => {}
    }
    let places: Vec<Place> = text.split(',').map(place).collect::<Result<_, _>>()?;
    let twice = places.iter().enumerate().find(|(n, place)| places[..*n].contains(place));
    match twice {
        _ if places.len() > MAX_DEPOTS => Err(format!("a route has at most {MAX_DEPOTS} depots")),
        Some((_, place)) => Err(format!("{place} is there twice: name each depot once")),
        None => Ok(Via::Over(places)),
    }
}

/// Parses a chain or a tree of depots.
pub(crate) fn plan(text: &str) -> Result<DepotPlan, String> {
    text.parse().map_err(|error: PlanError| error.to_string())
}

/// Parses how a depot is reached.
pub(crate) fn hop(text: &str) -> Result<HopTransport, String> {
    let one = HopTransport::named(text.trim());
    one.ok_or_else(|| "a depot can be reached by tcp, native or udt".to_owned())
}

/// Parses a destination that a depot may connect to.
pub(crate) fn allow(text: &str) -> Result<AllowRule, String> {
    text.parse().map_err(|error: AllowError| error.to_string())
}

/// Parses an address that a server may connect to. Names are refused, because the owner of a name
/// can change its address.
pub(crate) fn addresses(text: &str) -> Result<AllowRule, String> {
    let rule = allow(text)?;
    if rule.is_name() { Err("write an address, not a name".to_owned()) } else { Ok(rule) }
}

/// Parses a load per core, such as 1.5.
pub(crate) fn load(text: &str) -> Result<f64, String> {
    let read = text.parse::<f64>().ok().filter(|load| load.is_finite() && *load > 0.0);
    read.ok_or_else(|| "write a load per core, such as 1.5".to_owned())
}

/// Parses a size above zero, such as 64MiB.
pub(crate) fn size(text: &str) -> Result<ByteCount, String> {
    let size = packtrain_units::parse_bytes(text).map_err(|error| error.to_string())?;
    if size.get() == 0 {
        Err("a size of zero has no effect: leave the option out".to_owned())
    } else {
        Ok(size)
    }
}

/// Parses the name of one of these transports. Shells complete the names.
#[derive(Clone)]
pub(crate) struct Transports(pub(crate) &'static [TransportChoice]);

/// The transports of `cp` and `verify`.
pub(crate) const TRANSPORTS: Transports = Transports(&[
    TransportChoice::Auto,
    TransportChoice::Native,
    TransportChoice::Udt,
    TransportChoice::Fobs,
    TransportChoice::Sabul,
    TransportChoice::Tcp,
    TransportChoice::Pipe,
]);

/// The transports of `perf`. The pipe is accepted here so that `perf` can refuse it with an error
/// of its own.
pub(crate) const MEASURED: Transports = Transports(&[
    TransportChoice::Auto,
    TransportChoice::Native,
    TransportChoice::Udt,
    TransportChoice::Fobs,
    TransportChoice::Sabul,
    TransportChoice::Tcp,
    TransportChoice::Pipe,
    TransportChoice::Udt4,
]);

impl TypedValueParser for Transports {
    type Value = TransportChoice;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<TransportChoice, clap::Error> {
        let choices = self.0;
        let read = move |text: &str| transport(text, choices);
        read.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.0.iter().map(|choice| PossibleValue::new(choice.name()))))
    }
}

fn transport(text: &str, choices: &[TransportChoice]) -> Result<TransportChoice, String> {
    if let Some(choice) = choices.iter().find(|choice| choice.name() == text) {
        return Ok(*choice);
    }
    let names: Vec<&str> = choices.iter().map(|choice| choice.name()).collect();
    let (last, others) = names.split_last().unwrap_or((&"auto", &[]));
    let all = format!("use {} or {last}", others.join(", "));
    Err(match text {
        "udt4" => "udt4 is a place here, not a transport between two packtrain ends: write \
                   udt4://host:port/name"
            .to_owned(),
        _ => all,
    })
}

/// A command, split into words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Words(pub(crate) Vec<String>);

/// Splits a command as a shell does: blanks, quotes and backslashes, no expansion.
pub(crate) fn words(text: &str) -> Result<Words, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = text.chars();
    let unfinished = |what: &str| format!("the command ends within {what}: close it");
    while let Some(letter) = letters.next() {
        match letter {
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next().ok_or_else(|| unfinished("single quotes"))? {
                        '\'' => break,
                        inner => word.push(inner),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next().ok_or_else(|| unfinished("double quotes"))? {
                        '"' => break,
                        '\\' => match letters.next().ok_or_else(|| unfinished("double quotes"))? {
                            escaped @ ('"' | '\\' | '$' | '`') => word.push(escaped),
                            other => word.extend(['\\', other]),
                        },
                        inner => word.push(inner),
                    }
                }
            }
            '\\' => {
                let escaped = letters.next().ok_or_else(|| unfinished("a backslash"))?;
                word.get_or_insert_default().push(escaped);
            }
            blank if blank.is_ascii_whitespace() => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    if words.is_empty() {
        return Err("write a command, such as 'ssh -p 2222'".to_owned());
    }
    Ok(Words(words))
}
