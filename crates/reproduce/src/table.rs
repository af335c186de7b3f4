//! The table of an experiment's README.

use super::Reproduced;

/// The markers of the table in a README.
const BEGIN: &str = "<!-- numbers: written by `packtrain sim reproduce` -->";
const END: &str = "<!-- end of numbers -->";

/// A README with its table replaced; none: it has no markers.
pub fn spliced(readme: &str, table: &str) -> Option<String> {
    let (before, rest) = readme.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{table}{END}{after}"))
}

/// The paper's numbers and the measured ones in Markdown. A number within the tolerance is bold;
/// with variants, the last column names the closest one and its deviation.
pub fn table(result: &Reproduced) -> String {
    let mut variants: Vec<&str> = Vec::new();
    for found in result.rows.iter().flat_map(|row| &row.found) {
        let name = found.variant.as_deref().unwrap_or("ours");
        if !variants.contains(&name) {
            variants.push(name);
        }
    }
    let heads: String = variants.iter().map(|name| format!(" {name} |")).collect();
    let mut text = format!("| | paper | tolerance |{heads} nearest |\n|---|---|---|");
    text.push_str(&"---|".repeat(variants.len() + 1));
    text.push('\n');
    for row in &result.rows {
        let sign = row.bound.sign();
        let tolerance = match row.tolerance {
            0.0 => String::new(),
            some if row.paper != 0.0 => format!("{} %", short(some / row.paper.abs() * 100.0)),
            some => short(some),
        };
        text.push_str(&format!("| {} | {sign}{} | {tolerance} |", row.key, short(row.paper)));
        for name in &variants {
            let found = row.found.iter().find(|f| f.variant.as_deref().unwrap_or("ours") == *name);
            let cell = found.map_or_else(String::new, |found| {
                let number = short(found.ours);
                if row.fits(found.ours) { format!("**{number}**") } else { number }
            });
            text.push_str(&format!(" {cell} |"));
        }
        text.push_str(&format!(" {} |\n", nearest(row)));
    }
    let good = result.rows.iter().filter(|row| row.ok()).count();
    text.push_str(&format!("\n{good} of {} within tolerance.\n", result.rows.len()));
    text
}

fn nearest(row: &super::Row) -> String {
    let Some(ours) = row.ours else { return "none".to_owned() };
    let off = match row.paper {
        0.0 => short(ours),
        paper => format!("{:+.1} %", (ours - paper) / paper.abs() * 100.0),
    };
    match &row.variant {
        Some(variant) if row.ok() => format!("{variant} {off}"),
        Some(variant) => format!("none; {variant} {off}"),
        None if row.ok() => off,
        None => format!("outside; {off}"),
    }
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
    use crate::{Bound, Found, PaperRow, Row};

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
    fn the_table_names_the_nearest_variant() {
        let paper = PaperRow {
            key: "k".into(),
            value: 10.0,
            tolerance: 0.5,
            bound: Bound::About,
            source: String::new(),
        };
        let found = |name: &str, ours| Found { variant: Some(name.into()), ours };
        let rows = vec![Row::new(&paper, vec![found("a", 9.0), found("b", 10.2)])];
        let result =
            Reproduced { event: "", name: String::new(), ok: true, rows, panels: Vec::new() };
        let table = table(&result);
        assert!(table.contains("| k | 10 | 5 % | 9 | **10.2** | b +2.0 % |"), "{table}");
        let readme = format!("x\n{BEGIN}\nold\n{END}\ny\n");
        let new = spliced(&readme, &table).expect("it has a place");
        assert_eq!(spliced(&new, &table).as_deref(), Some(new.as_str()));
        assert!(new.starts_with("x\n") && new.ends_with("y\n") && !new.contains("old"));
        assert_eq!(spliced("x", &table), None);
    }
}
