//! Matrices as CSV: a table with the hosts along both sides.

use packtrain_units::DataRate;

use super::Matrix;

/// The table is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct MatrixError {
    /// Counted from 1.
    pub line: usize,
    /// The error and its correction.
    pub what: String,
}

/// The column with the bandwidth that its row's host can relay.
const THROUGH: &str = "host";
/// Maximum hosts in one table: its edges take 800 MB.
const MAX_HOSTS: usize = 10_000;
/// Maximum bandwidth of an edge that is accepted: 1 Pbit/s.
const FASTEST_MBPS: f64 = 1e9;

impl Matrix {
    /// Parses a table of comma-separated values: the first row and the first column name the hosts,
    /// an entry is the bandwidth in Mbit/s from its row's host to its column's. Empty, `-` or 0
    /// means no edge; the entry of a host to itself is ignored. An optional last column called
    /// `host` is the bandwidth that the row's host can relay, empty for no limit. Lines that begin
    /// with `#` are comments.
    ///
    /// # Errors
    /// The table is invalid.
    pub fn from_csv(text: &str) -> Result<Self, MatrixError> {
        let mut lines = text
            .lines()
            .enumerate()
            .map(|(at, line)| (at + 1, line.trim_end_matches('\r')))
            .filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
        let (at, head) = lines.next().ok_or_else(|| {
            wrong(1, "the table is empty: its first row must name the hosts".to_owned())
        })?;
        let mut names = names(at, head)?;
        let with_through = names.last().is_some_and(|last| last == THROUGH);
        if with_through {
            names.pop();
        }
        if names.is_empty() {
            return Err(wrong(at, "the first row names no host after its first column".into()));
        }
        let mut matrix = Self::new(names);
        let mut seen = vec![false; matrix.len()];
        for (at, line) in lines {
            let from = row(&mut matrix, with_through, at, line)?;
            if std::mem::replace(&mut seen[from], true) {
                let name = matrix.name(super::HostId(from as u32));
                return Err(wrong(at, format!("a second row for {name:?}: a host has one")));
            }
        }
        Ok(matrix)
    }
}

fn wrong(line: usize, what: String) -> MatrixError {
    MatrixError { line, what }
}

/// The hosts of the first row.
fn names(at: usize, head: &str) -> Result<Vec<String>, MatrixError> {
    let names: Vec<String> =
        head.split(',').skip(1).take(MAX_HOSTS + 2).map(|name| clean(name).to_owned()).collect();
    if names.len() > MAX_HOSTS + 1 {
        return Err(wrong(at, format!("more than {MAX_HOSTS} hosts")));
    }
    let mut sorted: Vec<&String> = names.iter().collect();
    sorted.sort();
    if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(wrong(at, format!("two columns are called {:?}", twice[0])));
    }
    if sorted.first().is_some_and(|name| name.is_empty()) {
        return Err(wrong(at, "a column has no name".to_owned()));
    }
    Ok(names)
}

/// Adds a row to the matrix; returns the index of its host.
fn row(
    matrix: &mut Matrix,
    with_through: bool,
    at: usize,
    line: &str,
) -> Result<usize, MatrixError> {
    let mut fields = line.split(',');
    let name = clean(fields.next().unwrap_or_default());
    let from = matrix.host(name).map_err(|_| {
        wrong(at, format!("{name:?} is no column of the first row: rows and columns name the same"))
    })?;
    let wanted = matrix.len() + usize::from(with_through);
    let mut found = 0;
    for field in fields {
        found += 1;
        if found > wanted {
            break;
        }
        let column = found - 1;
        if column == from.index() {
            continue;
        }
        let Some(rate) = rate(at, found + 1, clean(field))? else { continue };
        if column < matrix.len() {
            matrix.set_edge(from, super::HostId(column as u32), rate);
        } else {
            matrix.set_through(from, rate);
        }
    }
    if found != wanted {
        let than = if found > wanted { "more" } else { "fewer" };
        return Err(wrong(
            at,
            format!(
                "{than} entries than the {wanted} columns; where there is no edge, leave the \
                     entry empty"
            ),
        ));
    }
    Ok(from.index())
}

/// An entry; none where there is no edge.
fn rate(line: usize, column: usize, field: &str) -> Result<Option<DataRate>, MatrixError> {
    if field.is_empty() || field == "-" {
        return Ok(None);
    }
    match field.parse::<f64>() {
        Ok(mbps) if (0.0..=FASTEST_MBPS).contains(&mbps) => {
            Ok(Some(DataRate::from_bps((mbps * 1e6).round() as u64)))
        }
        _ => Err(wrong(
            line,
            format!(
                "{field:?} in column {column} is no bandwidth: a number of Mbit/s from 0 to \
                     1e9, or empty where there is no edge"
            ),
        )),
    }
}

fn clean(field: &str) -> &str {
    let field = field.trim();
    field.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(field)
}
