//! `loss`: a probability, or a table for bit errors, two states, or a recorded trace.

use packtrain_link::LossConfig;

use super::error::FileError;
use super::field::Field;

/// Maximum length of a trace.
const MAX_TRACE_BYTES: usize = 16 << 20;

/// Reads a loss model.
pub(super) fn read(field: &Field<'_>) -> Result<LossConfig, FileError> {
    if !field.is_table() {
        return Ok(independent(field.probability()?));
    }
    let fields = field.table("a loss model")?;
    let kind = fields.need("kind", "\"independent\"")?;
    let kinds =
        [("independent", 0), ("ber", 1), ("gilbert-elliott", 2), ("trace", 3), ("periodic", 4)];
    let loss = match kind.choice(&kinds)? {
        0 => independent(fields.need("probability", "1e-4")?.probability()?),
        1 => LossConfig::BitError(fields.need("rate", "1e-9")?.probability()?),
        2 => LossConfig::GilbertElliott {
            to_bad: fields.need("to_bad", "1e-4")?.probability()?,
            to_good: fields.need("to_good", "0.1")?.probability()?,
            loss_good: fields.or("loss_good", 0.0, Field::probability)?,
            loss_bad: fields.or("loss_bad", 1.0, Field::probability)?,
        },
        4 => periodic(fields.need("every", "1000")?.integer(2, MAX_TRACE_BYTES as u64)? as usize),
        _ => {
            let outcomes = match (fields.get("lost"), fields.get("file")) {
                (Some(lost), None) => trace(&lost, lost.text("ones and zeros in quotes")?)?,
                (None, Some(file)) => {
                    let name = file.text("the name of a file")?;
                    let text = (file.source.include)(name)
                        .map_err(|error| file.error(format!("cannot read `{name}`: {error}")))?;
                    trace(&file, &text)?
                }
                (Some(_), Some(file)) => {
                    return Err(file.error("a trace is `lost` or `file`: leave one out"));
                }
                (None, None) => {
                    return Err(fields.error(
                        "needs the fates: write `file = \"losses.txt\"` or `lost = \"0010\"`",
                    ));
                }
            };
            LossConfig::Trace(outcomes)
        }
    };
    fields.done()?;
    Ok(loss)
}

fn independent(probability: f64) -> LossConfig {
    if probability == 0.0 { LossConfig::None } else { LossConfig::Independent(probability) }
}

/// Loses the last of every `every` packets.
fn periodic(every: usize) -> LossConfig {
    let mut outcomes = vec![false; every];
    outcomes[every - 1] = true;
    LossConfig::Trace(outcomes)
}

/// Ones for lost, zeros for delivered; blanks are ignored.
fn trace(field: &Field<'_>, text: &str) -> Result<Vec<bool>, FileError> {
    if text.len() > MAX_TRACE_BYTES {
        return Err(field.error("the trace has more than 16 MiB: shorten it"));
    }
    let mut outcomes = Vec::new();
    for letter in text.chars().filter(|letter| !letter.is_whitespace()) {
        match letter {
            '0' => outcomes.push(false),
            '1' => outcomes.push(true),
            other => {
                let what = format!("`{}` in the trace is neither 0 nor 1", other.escape_debug());
                return Err(field.error(what));
            }
        }
    }
    if outcomes.is_empty() {
        return Err(field.error("the trace is empty: write a 0 or 1 for each packet"));
    }
    Ok(outcomes)
}
