//! The table of an experiment's README.

use super::{Basis, Bound, Reproduced, Row};

/// The markers of the table in a README.
const BEGIN: &str = "<!-- numbers: written by `packtrain sim reproduce` -->";
const END: &str = "<!-- end of numbers -->";

/// A README with its table replaced; none: it has no markers.
pub fn spliced(readme: &str, table: &str) -> Option<String> {
    let (before, rest) = readme.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{table}{END}{after}"))
}

/// The paper's numbers and the measured ones in Markdown. A number within the tolerance is bold. The
/// last columns have the deviation of the scored number, and with variants the closest one.
pub fn table(result: &Reproduced) -> String {
    let mut variants: Vec<&str> = Vec::new();
    for found in result.rows.iter().flat_map(|row| &row.found) {
        let name = found.variant.as_deref().unwrap_or("ours");
        if !variants.contains(&name) {
            variants.push(name);
        }
    }
    let scored = result.rows.iter().find_map(|row| row.variant.as_deref());
    let heads: String = variants.iter().map(|name| format!(" {name} |")).collect();
    let nearest_head = if scored.is_some() { " nearest |" } else { "" };
    let off_head = scored.unwrap_or("ours");
    let mut text =
        format!("| | paper | tolerance | basis |{heads} {off_head}, off by |{nearest_head}\n");
    text.push_str("|---|---|---|---|");
    text.push_str(&"---|".repeat(variants.len() + 1 + usize::from(scored.is_some())));
    text.push('\n');
    for row in &result.rows {
        let sign = row.bound.sign();
        let tolerance = match (row.bound, row.tolerance) {
            (Bound::Between { low, high }, _) => format!("{} to {}", short(low), short(high)),
            (_, 0.0) => String::new(),
            (_, some) if row.paper != 0.0 => format!("{} %", short(some / row.paper.abs() * 100.0)),
            (_, some) => short(some),
        };
        let (paper, basis) = (short(row.paper), row.basis.name());
        text.push_str(&format!("| {} | {sign}{paper} | {tolerance} | {basis} |", row.key));
        for name in &variants {
            let found = row.found.iter().find(|f| f.variant.as_deref().unwrap_or("ours") == *name);
            let cell = found.map_or_else(String::new, |found| {
                let number = short(found.ours);
                if row.fits(found.ours) { format!("**{number}**") } else { number }
            });
            text.push_str(&format!(" {cell} |"));
        }
        text.push_str(&format!(" {} |", deviation(row)));
        if scored.is_some() {
            let nearest = row.nearest().and_then(|found| found.variant.as_deref());
            text.push_str(&format!(" {} |", nearest.unwrap_or("-")));
        }
        text.push('\n');
    }
    text.push('\n');
    text.push_str(&score(result));
    text
}

/// The score in sentences: the paper's numbers by the scored variant, the other rows apart, and what
/// the best variant of each row would give.
fn score(result: &Reproduced) -> String {
    let variant = result.rows.iter().find_map(|row| row.variant.as_deref());
    let of = variant.map_or_else(String::new, |variant| format!(" (`{variant}`)"));
    let mut parts = Vec::new();
    for basis in Basis::ALL {
        let (good, all) = result.score(basis);
        match basis {
            _ if all == 0 => {}
            Basis::Paper => parts.push(format!("{good} of {all} numbers within tolerance{of}.")),
            other => {
                let name = other.name();
                parts.push(format!("Not scored, {name}: {good} of {all} within tolerance."));
            }
        }
    }
    if variant.is_some() {
        let fits = |row: &&Row| row.nearest().is_some_and(|found| row.fits(found.ours));
        let best = result.rows.iter().filter(fits).count();
        let all = result.rows.len();
        parts.push(format!("For information: {best} of {all} by the best variant of each row."));
    }
    format!("{}\n", parts.join(" "))
}

fn deviation(row: &Row) -> String {
    let Some(ours) = row.ours else { return "outside; no number".to_owned() };
    let off = match row.paper {
        0.0 => short(ours),
        paper => format!("{:+.1} %", (ours - paper) / paper.abs() * 100.0),
    };
    if row.ok() { off } else { format!("outside; {off}") }
}

/// A number with four digits.
fn short(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let digits = (3 - value.abs().log10().floor() as i64).clamp(0, 8) as usize;
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Found, PaperRow};

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (198.5, "198.5"),
            (0.098, "0.098"),
            (12_345.6, "12346"),
            (94.4412, "94.44"),
        ] {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn the_scored_variant_counts_and_the_nearest_is_named() {
        let paper = PaperRow {
            key: "k".into(),
            value: 10.0,
            tolerance: 0.5,
            bound: Bound::About,
            source: String::new(),
            basis: Basis::Paper,
        };
        let own = PaperRow {
            key: "own".into(),
            value: 1.0,
            tolerance: 0.0,
            bound: Bound::Between { low: 0.5, high: 1.0 },
            basis: Basis::OwnReading,
            ..paper.clone()
        };
        let found = |name: &str, ours| Found { variant: Some(name.into()), ours };
        let rows = vec![
            Row::new(&paper, vec![found("a", 9.0), found("b", 10.2)], Some("a")),
            Row::new(&own, vec![found("a", 0.75), found("b", 1.5)], Some("a")),
        ];
        assert_eq!(rows[0].ours, Some(9.0));
        let result =
            Reproduced { event: "", name: String::new(), ok: true, rows, panels: Vec::new() };
        let table = table(&result);
        let row = "| k | 10 | 5 % | paper | 9 | **10.2** | outside; -10.0 % | b |";
        assert!(table.contains(row), "{table}");
        let row = "| own | 1 | 0.5 to 1 | own reading | **0.75** | 1.5 | -25.0 % | a |";
        assert!(table.contains(row), "{table}");
        let score = "0 of 1 numbers within tolerance (`a`). Not scored, own reading: 1 of 1 within \
                     tolerance. For information: 2 of 2 by the best variant of each row.";
        assert!(table.contains(score), "{table}");
        let readme = format!("x\n{BEGIN}\nold\n{END}\ny\n");
        let new = spliced(&readme, &table).expect("it has a place");
        assert_eq!(spliced(&new, &table).as_deref(), Some(new.as_str()));
        assert!(new.starts_with("x\n") && new.ends_with("y\n") && !new.contains("old"));
        assert_eq!(spliced("x", &table), None);
    }
}
