//! Results: medians and ratios, as a table and as JSON.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};

/// All measurements of one run of the bench.
pub(super) struct Report {
    machine: Vec<(String, String)>,
    suites: Vec<Suite>,
    /// Text before everything else, by suite.
    headlines: Vec<(&'static str, String)>,
    /// Further values of the JSON, by name.
    attached: Vec<(&'static str, Value)>,
}

pub(super) struct Suite {
    key: String,
    title: String,
    unit: &'static str,
    more_is_better: bool,
    rows: Vec<Row>,
    remarks: Vec<String>,
}

struct Row {
    name: String,
    values: Vec<f64>,
    failures: Vec<String>,
}

impl Report {
    /// An empty report about this machine.
    pub(super) fn new(machine: Vec<(String, String)>) -> Self {
        Self { machine, suites: Vec::new(), headlines: Vec::new(), attached: Vec::new() }
    }

    /// Adds a property of the machine.
    pub(super) fn note(&mut self, name: &str, value: &str) {
        self.machine.push((name.to_owned(), value.to_owned()));
    }

    /// Opens a suite. The first row added to it is the reference of the ratios.
    pub(super) fn suite(
        &mut self,
        key: &'static str,
        title: &str,
        unit: &'static str,
        more_is_better: bool,
    ) {
        self.suites.push(Suite::new(key, title, unit, more_is_better));
    }

    /// Replaces the suites whose key starts with `prefix` by others. A suite that writes results
    /// after each round does so again and again.
    pub(super) fn replace(&mut self, prefix: &str, suites: Vec<Suite>) {
        self.suites.retain(|suite| !suite.key.starts_with(prefix));
        self.suites.extend(suites);
    }

    /// Sets the Markdown text that the report begins with, for the suite of this name.
    pub(super) fn headline(&mut self, name: &'static str, text: String) {
        self.headlines.retain(|(known, _)| *known != name);
        self.headlines.push((name, text));
    }

    /// Sets a value at the top of the JSON.
    pub(super) fn attach(&mut self, name: &'static str, value: Value) {
        self.attached.retain(|(known, _)| *known != name);
        self.attached.push((name, value));
    }

    /// Adds a sentence below the table of a suite.
    pub(super) fn remark(&mut self, suite: &str, text: String) {
        eprintln!("{text}");
        if let Some(suite) = self.suites.iter_mut().find(|s| s.key == suite) {
            suite.remarks.push(text);
        }
    }

    /// Adds the result of one run.
    pub(super) fn add(&mut self, suite: &str, name: &str, round: usize, value: Result<f64>) {
        let Some(suite) = self.suites.iter_mut().find(|s| s.key == suite) else { return };
        if !suite.rows.iter().any(|row| row.name == name) {
            let name = name.to_owned();
            suite.rows.push(Row { name, values: Vec::new(), failures: Vec::new() });
        }
        let Some(row) = suite.rows.iter_mut().find(|row| row.name == name) else { return };
        match value {
            Ok(value) => {
                eprintln!("round {}: {name}: {value:.3} {}", round + 1, suite.unit);
                row.values.push(value);
            }
            Err(error) => {
                eprintln!("round {}: {name}: FAILED: {error:#}", round + 1);
                row.failures.push(format!("{error:#}"));
            }
        }
    }

    /// Writes `DATE-CPU.json` and `.md` into `dir` and shows the table.
    pub(super) fn write(&self, dir: &Path) -> Result<()> {
        let name = self.save(dir)?;
        println!("{}", self.markdown());
        eprintln!("written: {}/{name}.md and .json", dir.display());
        Ok(())
    }

    /// Writes the files of [`Report::write`] and returns their name.
    pub(super) fn save(&self, dir: &Path) -> Result<String> {
        fs::create_dir_all(dir)?;
        let fact = |name: &str| {
            self.machine.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
        };
        let name: String = format!("{}-{}-{}cores", fact("date"), fact("cpu"), fact("cores"))
            .to_lowercase()
            .replace(" utc", "")
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .collect();
        let mut name = name;
        while name.contains("--") {
            name = name.replace("--", "-");
        }
        let json = serde_json::to_string_pretty(&self.json())?;
        fs::write(dir.join(format!("{name}.json")), json + "\n")?;
        fs::write(dir.join(format!("{name}.md")), self.markdown())?;
        Ok(name)
    }

    fn json(&self) -> Value {
        let machine: serde_json::Map<String, Value> =
            self.machine.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
        let suites: Vec<Value> = self
            .suites
            .iter()
            .map(|suite| {
                let rows: Vec<Value> = suite
                    .rows
                    .iter()
                    .map(|row| {
                        json!({"name": row.name, "median": median(&row.values),
                               "values": row.values, "failures": row.failures})
                    })
                    .collect();
                json!({"suite": suite.key, "title": suite.title, "unit": suite.unit,
                       "rows": rows, "remarks": suite.remarks})
            })
            .collect();
        let mut all = json!({"machine": machine, "suites": suites});
        for (name, value) in &self.attached {
            all[*name] = value.clone();
        }
        all
    }

    fn markdown(&self) -> String {
        let mut text = String::from("# Packtrain beside its peers\n\n");
        for (_, headline) in &self.headlines {
            let _ = writeln!(text, "{headline}");
        }
        for (name, value) in &self.machine {
            let _ = writeln!(text, "- {name}: {value}");
        }
        for suite in &self.suites {
            let _ = write!(
                text,
                "\n## {}\n\n| program | median {} | lowest | highest | runs | first row against it |\n\
                 |---|---|---|---|---|---|\n",
                suite.title, suite.unit
            );
            let first = suite.rows.first().and_then(|row| median(&row.values));
            for row in &suite.rows {
                let _ = writeln!(text, "{}", line(row, first, suite.more_is_better));
            }
            for (reason, name, count) in suite.failures() {
                let _ = writeln!(text, "\nFailed, {name}, {count} of the runs: {reason}");
            }
            for remark in &suite.remarks {
                let _ = writeln!(text, "\n{remark}");
            }
        }
        text
    }
}

impl Suite {
    /// An empty table. Its first row is the reference of the ratios.
    pub(super) fn new(key: &str, title: &str, unit: &'static str, more_is_better: bool) -> Self {
        let (key, title) = (key.to_owned(), title.to_owned());
        Self { key, title, unit, more_is_better, rows: Vec::new(), remarks: Vec::new() }
    }

    /// Adds a row with all its results.
    pub(super) fn row(&mut self, name: String, values: Vec<f64>, failures: Vec<String>) {
        self.rows.push(Row { name, values, failures });
    }

    /// Adds a sentence below the table.
    pub(super) fn say(&mut self, text: String) {
        self.remarks.push(text);
    }

    /// The causes of failed runs, by program, with their number.
    fn failures(&self) -> Vec<(&str, &str, usize)> {
        let mut counted: Vec<(&str, &str, usize)> = Vec::new();
        for row in &self.rows {
            for reason in &row.failures {
                let known = counted.iter_mut().find(|(r, n, _)| r == reason && *n == row.name);
                match known {
                    Some((_, _, count)) => *count += 1,
                    None => counted.push((reason, &row.name, 1)),
                }
            }
        }
        counted
    }
}

fn line(row: &Row, first: Option<f64>, more_is_better: bool) -> String {
    let runs = row.values.len();
    let failed = match row.failures.len() {
        0 => String::new(),
        n => format!(", {n} failed"),
    };
    let Some(middle) = median(&row.values) else {
        return format!("| {} | failed | | | 0{failed} | |", row.name);
    };
    let low = row.values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = row.values.iter().copied().fold(0.0, f64::max);
    let ratio = match first {
        Some(first) if more_is_better => format!("{:.2} x", first / middle),
        Some(first) => format!("{:.2} x", middle / first),
        None => String::new(),
    };
    format!("| {} | {middle:.2} | {low:.2} | {high:.2} | {runs}{failed} | {ratio} |", row.name)
}

/// The median; of an even number of values the lower middle one.
pub(super) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().checked_sub(1)? / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0]), Some(1.0));
    }
}
