//! Plots: curves of a run, results of a sweep, ours beside a paper's. As SVG and as PNG, drawn by
//! the same arithmetic, without fonts or programs of the machine.

mod canvas;
mod charts;
mod draw;
mod font;
mod png;
mod svg;
mod ticks;

use std::path::Path;

pub use charts::{comparison, curves, over_axis};

/// A picture: panels below each other under one title.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figure {
    /// Above everything.
    pub title: String,
    /// A smaller line below the title; may be empty.
    pub subtitle: String,
    /// From above to below.
    pub panels: Vec<Panel>,
}

/// One pair of axes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Panel {
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// What is drawn, in this order.
    pub series: Vec<Series>,
    /// Names of the positions 0, 1, ... of the horizontal axis; empty: it is a number.
    pub categories: Vec<String>,
}

/// An axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Axis {
    /// What it tells, with its unit.
    pub label: String,
    /// Logarithmic; points at or below zero are left out.
    pub log: bool,
    /// It starts at zero.
    pub zero: bool,
}

/// One curve or one set of bars.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// For the legend.
    pub name: String,
    /// How it is drawn.
    pub style: Style,
    /// Where.
    pub points: Vec<(f64, f64)>,
    /// Half the height of each point's error bar; empty: none.
    pub error: Vec<f64>,
    /// Its colour, as a number of the palette; the same number means the same thing in every
    /// panel.
    pub colour: usize,
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// A line.
    Line,
    /// A line of dashes.
    Dashes,
    /// A line through marks.
    Marked,
    /// Marks alone.
    Marks,
    /// Bars, side by side with those of other series.
    Bars,
}

/// Why a plot was not written.
#[derive(Debug, thiserror::Error)]
pub enum PlotError {
    /// The name says neither.
    #[error("{0}: the name of a plot ends in .svg or .png")]
    Kind(String),
    /// The file cannot be written.
    #[error("{0}: {1}")]
    Io(String, std::io::Error),
    /// The picture would be too large.
    #[error("the plot has too many panels for a PNG")]
    TooLarge,
}

impl Figure {
    /// As the text of an SVG file.
    pub fn svg(&self) -> String {
        let (width, height) = draw::size(self);
        let mut canvas = svg::Svg::new(width, height, &self.title);
        draw::draw(self, &mut canvas);
        canvas.finish()
    }

    /// As the bytes of a PNG file, at twice the size of the SVG's.
    ///
    /// # Errors
    /// It is too large.
    pub fn png(&self) -> Result<Vec<u8>, PlotError> {
        let (width, height) = draw::size(self);
        let mut canvas = png::Png::new(width, height).ok_or(PlotError::TooLarge)?;
        draw::draw(self, &mut canvas);
        canvas.finish().ok_or(PlotError::TooLarge)
    }

    /// Writes a file whose name says which of the two.
    ///
    /// # Errors
    /// The name says neither, or the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), PlotError> {
        let bytes = match kind(path)? {
            Kind::Svg => self.svg().into_bytes(),
            Kind::Png => self.png()?,
        };
        std::fs::write(path, bytes).map_err(|e| PlotError::Io(path.display().to_string(), e))
    }
}

enum Kind {
    Svg,
    Png,
}

fn kind(path: &Path) -> Result<Kind, PlotError> {
    let extension = path.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
    match extension.as_deref() {
        Some("svg") => Ok(Kind::Svg),
        Some("png") => Ok(Kind::Png),
        _ => Err(PlotError::Kind(path.display().to_string())),
    }
}

/// Whether a plot can be written under this name, before the work is done.
///
/// # Errors
/// It says neither SVG nor PNG.
pub fn check_name(path: &Path) -> Result<(), PlotError> {
    kind(path).map(|_| ())
}

#[cfg(test)]
mod tests;
