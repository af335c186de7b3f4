//! Tables, numbers and plots of a folder of `experiments/`.

use std::fmt::Write as _;
use std::path::Path;

use packtrain_reproduce::plot::{Axis, Figure, Panel, Series, Style};

/// The markers of the generated part of a README.md.
const BEGIN: &str = "<!-- numbers: written by the example lsl_planner -->";
const END: &str = "<!-- end of numbers -->";

/// The result of an experiment.
pub(crate) struct Report {
    title: String,
    /// In Markdown.
    pub(crate) table: String,
    numbers: String,
    series: Vec<(String, Vec<(f64, f64)>)>,
    label: [String; 2],
}

impl Report {
    pub(crate) fn new(title: &str, heads: &str) -> Self {
        let columns = heads.matches('|').count() - 1;
        let table = format!("{heads}\n|{}\n", "---|".repeat(columns));
        Self {
            title: title.to_owned(),
            table,
            numbers: "key,ours\n".to_owned(),
            series: Vec::new(),
            label: [String::new(), String::new()],
        }
    }

    pub(crate) fn row(&mut self, cells: &[String]) {
        let _ = writeln!(self.table, "| {} |", cells.join(" | "));
    }

    /// Adds a sentence below the table.
    pub(crate) fn note(&mut self, text: &str) {
        let _ = write!(self.table, "\n{text}\n");
    }

    pub(crate) fn number(&mut self, key: String, value: f64) {
        let _ = writeln!(self.numbers, "{key},{value:.4}");
    }

    /// Adds a point of a curve.
    pub(crate) fn at(&mut self, series: &str, x: f64, y: f64) {
        match self.series.iter_mut().find(|known| known.0 == series) {
            Some(known) => known.1.push((x, y)),
            None => self.series.push((series.to_owned(), vec![(x, y)])),
        }
    }

    /// Sets the labels of the axes.
    pub(crate) fn axes(mut self, x: &str, y: &str) -> Self {
        self.label = [x.to_owned(), y.to_owned()];
        self
    }

    pub(crate) fn write(self, out: &Path) -> Result<(), Box<dyn std::error::Error>> {
        std::fs::write(out.join("expected.csv"), &self.numbers)?;
        let series = self.series.into_iter().enumerate().map(|(colour, (name, points))| Series {
            name,
            style: Style::Marked,
            points,
            error: Vec::new(),
            colour,
        });
        let [x, y] = self.label.map(|label| Axis { label, log: false, zero: true });
        let panel = Panel { x, y, series: series.collect(), categories: Vec::new() };
        let figure = Figure { title: self.title, subtitle: String::new(), panels: vec![panel] };
        figure.write(&out.join("plot.svg"))?;
        let path = out.join("README.md");
        let old = std::fs::read_to_string(&path)?;
        let (Some(begin), Some(end)) = (old.find(BEGIN), old.find(END)) else {
            return Err(format!("{}: the two remarks are not there", path.display()).into());
        };
        let text = format!("{}\n{}{}", &old[..begin + BEGIN.len()], self.table, &old[end..]);
        Ok(std::fs::write(path, text)?)
    }
}
