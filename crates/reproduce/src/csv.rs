//! Tables of numbers: `paper.csv` (key, value, tolerance, source, and optionally basis),
//! `expected.csv` (key, ours, seed) and `spread.csv` (key, seeds, median, min, max).

use serde::Serialize;

use super::Row;

/// A number of a paper.
#[derive(Clone, Debug, PartialEq)]
pub struct PaperRow {
    /// Name of the number.
    pub key: String,
    /// Its value.
    pub value: f64,
    /// The maximum deviation of the measured number, in its unit; absolute, or as a share such as
    /// `5%`.
    pub tolerance: f64,
    /// The relation of the measured number to it; `>=` or `<=` before the tolerance, which is then
    /// optional.
    pub bound: Bound,
    /// Its place in the paper.
    pub source: String,
    /// What the number rests on.
    pub basis: Basis,
}

/// What a number in `paper.csv` rests on. Only numbers of the paper are scored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// The paper (or the measured reference) states the number.
    #[default]
    Paper,
    /// The paper states it in words; the number is our reading of them.
    OwnReading,
    /// The scenario was inferred from this number or from those beside it.
    Inferred,
    /// A parameter of the scenario was fitted to this number.
    Fitted,
    /// No paper: the number is an aim of this project.
    Own,
}

impl Basis {
    /// All, in this order.
    pub const ALL: [Self; 5] =
        [Self::Paper, Self::OwnReading, Self::Inferred, Self::Fitted, Self::Own];

    /// Its name in `paper.csv` and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Paper => "paper",
            Self::OwnReading => "own reading",
            Self::Inferred => "inferred",
            Self::Fitted => "fitted",
            Self::Own => "own",
        }
    }
}

/// The relation of a measured number to a paper's number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// Approximately equal.
    #[default]
    About,
    /// The measured number is at least this.
    AtLeast,
    /// The measured number is at most this.
    AtMost,
    /// The measured number is between two numbers around it.
    Between {
        /// The lower one.
        low: f64,
        /// The upper one.
        high: f64,
    },
}

impl Bound {
    /// The sign in `paper.csv` and in tables.
    pub fn sign(self) -> &'static str {
        match self {
            Self::About | Self::Between { .. } => "",
            Self::AtLeast => ">=",
            Self::AtMost => "<=",
        }
    }

    /// By how much a number deviates beyond `paper`; below zero within it.
    pub(super) fn miss(self, ours: f64, paper: f64) -> f64 {
        match self {
            Self::About => (ours - paper).abs(),
            Self::AtLeast => paper - ours,
            Self::AtMost => ours - paper,
            // The last digits of a sum may pass the end of an interval, such as 1 for a share.
            Self::Between { low, high } => (low - ours).max(ours - high) - 1e-9 * high.abs(),
        }
    }
}

/// A measured number at the time of writing.
#[derive(Clone, Debug, PartialEq)]
pub struct Expected {
    /// Name of the number; the variant, if any, follows ` @ `.
    pub key: String,
    /// Its value.
    pub ours: f64,
    /// The seed of the runs.
    pub seed: u64,
}

/// Reads `paper.csv`.
pub(super) fn paper(text: &str) -> Result<Vec<PaperRow>, String> {
    let mut rows: Vec<PaperRow> = Vec::new();
    let heading = ["key", "value", "tolerance", "source", "basis"];
    let has_basis = table(text, &heading).is_ok();
    let heading = if has_basis { &heading[..] } else { &heading[..4] };
    for (line, cells) in table(text, heading)? {
        let value = number(&cells[1], line, "value")?;
        let bounds = [Bound::AtLeast, Bound::AtMost];
        let bound = bounds.into_iter().find(|bound| cells[2].starts_with(bound.sign()));
        let bound = match cells[2].split_once("..") {
            Some((low, high)) => Bound::Between {
                low: number(low, line, "tolerance")?,
                high: number(high, line, "tolerance")?,
            },
            None => bound.unwrap_or_default(),
        };
        if matches!(bound, Bound::Between { low, high } if !(low..=high).contains(&value)) {
            return Err(format!("line {line}: tolerance: the value is not between its ends"));
        }
        let tolerance = match cells[2].trim_start_matches(bound.sign()).trim() {
            _ if matches!(bound, Bound::Between { .. }) => 0.0,
            "" if bound != Bound::About => 0.0,
            text => match text.strip_suffix('%') {
                Some(share) => number(share, line, "tolerance")? / 100.0 * value.abs(),
                None => number(text, line, "tolerance")?,
            },
        };
        if tolerance < 0.0 {
            return Err(format!("line {line}: tolerance: is below zero"));
        }
        if rows.iter().any(|row| row.key == cells[0]) {
            return Err(format!("line {line}: key: `{}` is there already", cells[0]));
        }
        let basis = match cells.get(4).map(String::as_str) {
            None => Basis::Paper,
            Some(text) => Basis::ALL.into_iter().find(|basis| basis.name() == text).ok_or_else(
                || format!("line {line}: basis: `{text}` is none of paper, own reading, inferred, fitted, own"),
            )?,
        };
        let (key, source) = (cells[0].clone(), cells[3].clone());
        rows.push(PaperRow { key, value, tolerance, bound, source, basis });
    }
    Ok(rows)
}

/// Reads `expected.csv`.
pub(super) fn read_expected(text: &str) -> Result<Vec<Expected>, String> {
    let rows = table(text, &["key", "ours", "seed"])?.into_iter().map(|(line, cells)| {
        let seed = cells[2].parse().map_err(|_| format!("line {line}: seed: is no number"))?;
        Ok(Expected { key: cells[0].clone(), ours: number(&cells[1], line, "ours")?, seed })
    });
    rows.collect()
}

/// Writes `expected.csv`.
pub(super) fn expected(rows: &[Row], seed: u64) -> String {
    let mut text = "key,ours,seed\n".to_owned();
    for row in rows {
        for found in &row.found {
            let (key, ours) = (found.key(&row.key), found.ours);
            text.push_str(&format!("{},{ours},{seed}\n", quoted(&key)));
        }
    }
    text
}

/// A number over several seeds.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread {
    /// Name of the number; the variant, if any, follows ` @ `.
    pub key: String,
    /// Number of seeds that gave it.
    pub seeds: u64,
    /// The median; of an even count the mean of the two in the middle.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
}

/// The heading of `spread.csv`.
const SPREAD: [&str; 5] = ["key", "seeds", "median", "min", "max"];

/// Writes `spread.csv`.
pub(super) fn spread(rows: &[Spread]) -> String {
    let mut text = format!("{}\n", SPREAD.join(","));
    for Spread { key, seeds, median, min, max } in rows {
        text.push_str(&format!("{},{seeds},{median},{min},{max}\n", quoted(key)));
    }
    text
}

/// Reads `spread.csv`.
pub(super) fn read_spread(text: &str) -> Result<Vec<Spread>, String> {
    let rows = table(text, &SPREAD)?.into_iter().map(|(line, cells)| {
        let seeds = cells[1].parse().map_err(|_| format!("line {line}: seeds: is no number"))?;
        let (median, min) = (number(&cells[2], line, "median")?, number(&cells[3], line, "min")?);
        let max = number(&cells[4], line, "max")?;
        if min > median || median > max {
            return Err(format!("line {line}: the numbers are not in order"));
        }
        Ok(Spread { key: cells[0].clone(), seeds, median, min, max })
    });
    rows.collect()
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

fn number(text: &str, line: usize, field: &str) -> Result<f64, String> {
    let number = text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
    number.ok_or_else(|| format!("line {line}: {field}: `{text}` is no number"))
}

/// Rows with their line numbers, with as many cells as the heading; lines that begin with `#` are
/// comments.
fn table(text: &str, heading: &[&str]) -> Result<Vec<(usize, Vec<String>)>, String> {
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
    let mut lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let head = lines.next().map(|(_, line)| cells(line)).unwrap_or_default();
    if head != heading {
        return Err(format!("the first line must be {}", heading.join(",")));
    }
    let mut rows = Vec::new();
    for (number, line) in lines {
        let cells = cells(line);
        if cells.len() != heading.len() {
            let wanted = heading.len();
            return Err(format!("line {number}: {} cells instead of {wanted}", cells.len()));
        }
        rows.push((number, cells));
    }
    Ok(rows)
}

/// The cells of a line (RFC 4180, without line ends in cells).
fn cells(line: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut quoted = false;
    let mut letters = line.trim_end_matches('\r').chars().peekable();
    while let Some(letter) = letters.next() {
        let Some(cell) = cells.last_mut() else { break };
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => {
                letters.next();
                cell.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(String::new()),
            other => cell.push(other),
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Found;

    #[test]
    fn tables_are_read() {
        let text = "# remark\nkey,value,tolerance,source\n\"a, b\",10,5%,\"the \"\"paper\"\"\"\n\
                    c,2,0.5,\nd,3,>=,\ne,4,<= 10%,\nf,1,0.9..1.5,\n";
        let rows = paper(text).expect("it is right");
        assert_eq!((rows[0].key.as_str(), rows[0].tolerance), ("a, b", 0.5));
        assert_eq!(rows[0].source, "the \"paper\"");
        assert_eq!(rows[1].tolerance, 0.5);
        assert_eq!((rows[2].bound, rows[2].tolerance), (Bound::AtLeast, 0.0));
        assert_eq!((rows[3].bound, rows[3].tolerance), (Bound::AtMost, 0.4));
        assert_eq!(rows[4].bound, Bound::Between { low: 0.9, high: 1.5 });
        assert!(rows.iter().all(|row| row.basis == Basis::Paper));
        for bad in [
            "",
            "key,value\n",
            "key,value,tolerance,source\na,1\n",
            "key,value,tolerance,source\na,2,0..1,\n",
            "key,value,tolerance,source\na,2,0..,\n",
            "key,value,tolerance,source,basis\na,2,1,,guess\n",
            "key,value,tolerance,source,basis\na,2,1,\n",
        ] {
            assert!(paper(bad).is_err(), "{bad}");
        }
        let rows = paper("key,value,tolerance,source,basis\na,2,1,,own reading\n");
        assert_eq!(rows.expect("it is right")[0].basis, Basis::OwnReading);
        let rows =
            paper("key,value,tolerance,source,basis\na,2,>=,aim,own\n").expect("it is right");
        assert_eq!((rows[0].basis, rows[0].bound), (Basis::Own, Bound::AtLeast));
        let error = paper("key,value,tolerance,source\na,x,1,\n").expect_err("x is no number");
        assert!(error.starts_with("line 2: value: `x`"), "{error}");
    }

    #[test]
    fn what_is_written_is_read() {
        let found = |variant: Option<&str>, ours| Found { variant: variant.map(Into::into), ours };
        let paper = PaperRow {
            key: "a,\"b\"".into(),
            value: 1.0,
            tolerance: 1.0,
            bound: Bound::About,
            source: String::new(),
            basis: Basis::Paper,
        };
        let row = Row::new(&paper, vec![found(None, 0.1 + 0.2), found(Some("v"), 2.0)], None);
        let read = read_expected(&expected(&[row], 7)).expect("it is right");
        let row = |key: &str, ours| Expected { key: key.into(), ours, seed: 7 };
        assert_eq!(read, [row("a,\"b\"", 0.1 + 0.2), row("a,\"b\" @ v", 2.0)]);
        let row =
            |key: &str, median| Spread { key: key.into(), seeds: 3, median, min: 1.0, max: 2.5 };
        let rows = [row("a,\"b\" @ v, 0s", 2.0), row("c", 1.0)];
        assert_eq!(read_spread(&spread(&rows)).as_deref(), Ok(&rows[..]));
        assert!(read_spread(&spread(&[row("c", 9.0)])).is_err());
    }
}
