//! Plots: curves of a run, results of a sweep, comparisons with a paper. As SVG and as PNG, by the
//! same arithmetic, without fonts or programs of the machine.

mod canvas;
mod charts;
mod draw;
mod font;
mod png;
mod svg;
mod ticks;

use std::path::Path;

pub(crate) use charts::comparison;
pub use charts::{curves, over_axis};

/// A picture: panels in a column under one title.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figure {
    /// The title.
    pub title: String,
    /// A smaller line below the title; may be empty.
    pub subtitle: String,
    /// The panels from top to bottom.
    pub panels: Vec<Panel>,
}

/// One pair of axes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Panel {
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The series, in drawing order.
    pub series: Vec<Series>,
    /// Labels of the positions 0, 1, ... of the horizontal axis; empty: the axis is numeric.
    pub categories: Vec<String>,
}

/// An axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Axis {
    /// Its label, with the unit.
    pub label: String,
    /// Logarithmic; points at or below zero are omitted.
    pub log: bool,
    /// Whether it starts at zero.
    pub zero: bool,
}

/// One curve or one set of bars.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its style.
    pub style: Style,
    /// Its points.
    pub points: Vec<(f64, f64)>,
    /// Half the height of each point's error bar; empty: none.
    pub error: Vec<f64>,
    /// Its colour, as an index of the palette; the same index has the same meaning in every panel.
    pub colour: usize,
}

/// The style of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// A line.
    Line,
    /// A dashed line.
    Dashes,
    /// A line with markers.
    Marked,
    /// Markers alone.
    Marks,
    /// Bars, side by side with those of other series.
    Bars,
}

/// Why a plot was not written.
#[derive(Debug, thiserror::Error)]
pub enum PlotError {
    /// The name is neither SVG nor PNG.
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
    /// The text of an SVG file.
    pub fn svg(&self) -> String {
        let (width, height) = draw::size(self);
        let mut canvas = svg::Svg::new(width, height, &self.title);
        draw::draw(self, &mut canvas);
        canvas.finish()
    }

    /// The bytes of a PNG file, at twice the size of the SVG's.
    ///
    /// # Errors
    /// It is too large.
    pub fn png(&self) -> Result<Vec<u8>, PlotError> {
        let (width, height) = draw::size(self);
        let mut canvas = png::Png::new(width, height).ok_or(PlotError::TooLarge)?;
        draw::draw(self, &mut canvas);
        canvas.finish().ok_or(PlotError::TooLarge)
    }

    /// Writes a file in the format that its name selects.
    ///
    /// # Errors
    /// The name selects no format, or the file cannot be written.
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

/// Checks that a plot can be written under this name, before the work is done.
///
/// # Errors
/// The name is neither SVG nor PNG.
pub fn check_name(path: &Path) -> Result<(), PlotError> {
    kind(path).map(|_| ())
}

#[cfg(test)]
mod tests;
