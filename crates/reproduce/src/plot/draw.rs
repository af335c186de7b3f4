//! Draws a figure as lines and texts.

use super::canvas::{Anchor, Canvas, Colour, Label};
use super::ticks::Scale;
use super::{Figure, Panel, Series, Style, font};

const WIDTH: f32 = 960.0;
const LEFT: f32 = 84.0;
const RIGHT: f32 = 24.0;
const HEAD: f32 = 30.0;
const LINE: f32 = 20.0;
/// Space below each panel for the labels of ticks and of the axis.
const FOOT: f32 = 52.0;
/// Size of the letters at ticks.
const TICK: f32 = 11.5;
/// Maximum length of vertical names.
const MAX_VERTICAL_NAME: f32 = 200.0;

/// A panel's frame in the picture.
struct Frame {
    top: f32,
    height: f32,
    x: Scale,
    y: Scale,
}

impl Frame {
    fn at(&self, (x, y): (f64, f64)) -> Option<(f32, f32)> {
        let (x, y) = (self.x.place(x)?, self.y.place(y)?);
        // Points far outside are limited to the range of both formats.
        let (x, y) = (x.clamp(-10.0, 10.0) as f32, y.clamp(-10.0, 10.0) as f32);
        Some((LEFT + x * (WIDTH - LEFT - RIGHT), self.top + (1.0 - y) * self.height))
    }
}

/// Width and height of the picture.
pub(super) fn size(figure: &Figure) -> (f32, f32) {
    let panels = figure.panels.len().max(1) as f32;
    let legend = legend_rows(figure).len() as f32 * LINE;
    let feet: f32 = figure.panels.iter().map(foot).sum();
    (WIDTH, head(figure) + legend + panels * panel_height(figure) + feet + 8.0)
}

/// Space below a panel: names that do not fit side by side are vertical.
fn foot(panel: &Panel) -> f32 {
    if upright(panel) { widest(panel).min(MAX_VERTICAL_NAME) + 22.0 } else { FOOT }
}

fn widest(panel: &Panel) -> f32 {
    panel.categories.iter().map(|name| font::width(name, TICK)).fold(1.0, f32::max)
}

fn upright(panel: &Panel) -> bool {
    (widest(panel) + 8.0) * panel.categories.len() as f32 > WIDTH - LEFT - RIGHT
}

fn head(figure: &Figure) -> f32 {
    HEAD + if figure.subtitle.is_empty() { 12.0 } else { LINE + 12.0 }
}

fn panel_height(figure: &Figure) -> f32 {
    match figure.panels.len() {
        0 | 1 => 400.0,
        2 => 250.0,
        _ => 180.0,
    }
}

/// Draws the whole figure.
pub(super) fn draw(figure: &Figure, canvas: &mut impl Canvas) {
    let label =
        |y, size, colour| Label { x: LEFT, y, size, anchor: Anchor::Start, turned: false, colour };
    canvas
        .text(&fitted(&figure.title, 17.0, WIDTH - LEFT - RIGHT), label(HEAD, 17.0, Colour::TEXT));
    canvas.text(
        &fitted(&figure.subtitle, 12.0, WIDTH - LEFT - RIGHT),
        label(HEAD + LINE, 12.0, Colour::MUTED),
    );
    let mut top = head(figure);
    for row in legend_rows(figure) {
        legend(&row, top + 4.0, canvas);
        top += LINE;
    }
    for panel in &figure.panels {
        let frame = frame(panel, top + 4.0, panel_height(figure));
        axes(panel, &frame, canvas);
        data(panel, &frame, canvas);
        border(&frame, canvas);
        top += panel_height(figure) + foot(panel);
    }
}

/// A text truncated to a width.
fn fitted(text: &str, size: f32, room: f32) -> String {
    let mut text = text.to_owned();
    if font::width(&text, size) <= room {
        return text;
    }
    while text.pop().is_some() && font::width(&text, size) > room - size {}
    text.push('…');
    text
}

/// The series in the legend, each once, in rows that fit.
fn legend_rows(figure: &Figure) -> Vec<Vec<&Series>> {
    let mut named: Vec<&Series> = Vec::new();
    for series in figure.panels.iter().flat_map(|panel| &panel.series) {
        if !series.name.is_empty() && !named.iter().any(|known| known.name == series.name) {
            named.push(series);
        }
    }
    let mut rows: Vec<Vec<&Series>> = Vec::new();
    let mut used = f32::INFINITY;
    for series in named {
        let width = entry_width(series);
        if used + width > WIDTH - LEFT - RIGHT {
            rows.push(Vec::new());
            used = 0.0;
        }
        used += width;
        if let Some(row) = rows.last_mut() {
            row.push(series);
        }
    }
    rows
}

fn entry_width(series: &Series) -> f32 {
    font::width(&series.name, 12.0) + 50.0
}

fn legend(row: &[&Series], y: f32, canvas: &mut impl Canvas) {
    let mut x = LEFT;
    for series in row {
        let colour = Colour::palette(series.colour);
        match series.style {
            Style::Bars => canvas.rect(x + 6.0, y - 5.0, 14.0, 10.0, colour),
            Style::Marks => canvas.circle(x + 13.0, y, 4.0, colour),
            style => {
                canvas.line(&[(x, y), (x + 26.0, y)], 2.0, style == Style::Dashes, colour);
                if style == Style::Marked {
                    canvas.circle(x + 13.0, y, 3.5, colour);
                }
            }
        }
        let at = Label {
            x: x + 32.0,
            y: y + 4.0,
            size: 12.0,
            anchor: Anchor::Start,
            turned: false,
            colour: Colour::TEXT,
        };
        canvas.text(&series.name, at);
        x += entry_width(series);
    }
}

fn frame(panel: &Panel, top: f32, height: f32) -> Frame {
    let points = || panel.series.iter().flat_map(|series| series.points.iter());
    let errors = panel.series.iter().flat_map(|series| {
        series.points.iter().zip(&series.error).flat_map(|(p, e)| [p.1 - e, p.1 + e])
    });
    let bars = panel.series.iter().any(|series| series.style == Style::Bars);
    let y = Scale::over(
        points().map(|p| p.1).chain(errors),
        panel.y.log,
        panel.y.zero || (bars && !panel.y.log),
    );
    let x = if panel.categories.is_empty() {
        let scale = Scale::over(points().map(|p| p.0), panel.x.log, panel.x.zero);
        if panel.x.zero { scale.tight(points().map(|p| p.0)) } else { scale }
    } else {
        Scale::exact(-0.5, panel.categories.len() as f64 - 0.5)
    };
    Frame { top, height, x, y }
}

fn axes(panel: &Panel, frame: &Frame, canvas: &mut impl Canvas) {
    let (right, bottom) = (WIDTH - RIGHT, frame.top + frame.height);
    let text =
        |x, y, anchor| Label { x, y, size: TICK, anchor, turned: false, colour: Colour::TEXT };
    for (value, label) in frame.y.ticks(if frame.height > 300.0 { 8 } else { 4 }) {
        let Some(at) = frame.y.place(value) else { continue };
        let y = bottom - at as f32 * frame.height;
        canvas.line(&[(LEFT, y), (right, y)], 1.0, false, Colour::GRID);
        canvas.text(&label, text(LEFT - 8.0, y + 4.0, Anchor::End));
    }
    for (value, label) in x_ticks(panel, frame) {
        let Some((x, _)) = frame.x.place(value).map(|at| (LEFT + at as f32 * (right - LEFT), 0))
        else {
            continue;
        };
        if panel.categories.is_empty() {
            canvas.line(&[(x, frame.top), (x, bottom)], 1.0, false, Colour::GRID);
        }
        if upright(panel) {
            let label = fitted(&label, TICK, MAX_VERTICAL_NAME);
            canvas.text(&label, Label { turned: true, ..text(x + 4.0, bottom + 8.0, Anchor::End) });
        } else {
            canvas.text(&label, text(x, bottom + 17.0, Anchor::Middle));
        }
    }
    let middle = Label { size: 12.5, ..text((LEFT + right) / 2.0, bottom + 37.0, Anchor::Middle) };
    if !upright(panel) {
        canvas.text(&panel.x.label, middle);
    }
    let turned = Label {
        turned: true,
        size: 12.5,
        ..text(20.0, frame.top + frame.height / 2.0, Anchor::Middle)
    };
    canvas.text(&panel.y.label, turned);
}

/// Names of categories, thinned if even vertical ones overlap.
fn x_ticks(panel: &Panel, frame: &Frame) -> Vec<(f64, String)> {
    if panel.categories.is_empty() {
        return frame.x.ticks(9);
    }
    // The width of a vertical line of text.
    let room = ((WIDTH - LEFT - RIGHT) / 14.0) as usize;
    let stride = panel.categories.len().div_ceil(room).max(1);
    let named = panel.categories.iter().enumerate().step_by(stride);
    named.map(|(index, name)| (index as f64, name.clone())).collect()
}

fn border(frame: &Frame, canvas: &mut impl Canvas) {
    let (right, bottom) = (WIDTH - RIGHT, frame.top + frame.height);
    let points =
        [(LEFT, frame.top), (LEFT, bottom), (right, bottom), (right, frame.top), (LEFT, frame.top)];
    canvas.line(&points, 1.0, false, Colour::FRAME);
}

fn data(panel: &Panel, frame: &Frame, canvas: &mut impl Canvas) {
    let bars = panel.series.iter().filter(|series| series.style == Style::Bars).count();
    let mut bar = 0;
    for series in &panel.series {
        let colour = Colour::palette(series.colour);
        if series.style == Style::Bars {
            let width = 0.8 / bars as f64;
            let shift = (bar as f64 - (bars as f64 - 1.0) / 2.0) * width;
            draw_bars(series, (shift, width), frame, canvas);
            bar += 1;
            continue;
        }
        let places: Vec<_> = series.points.iter().map(|&point| frame.at(point)).collect();
        // A point that cannot be drawn is a gap; a point between two gaps is a mark.
        let parts = places.split(Option::is_none);
        let parts: Vec<Vec<_>> =
            parts.map(|part| part.iter().copied().flatten().collect()).collect();
        for part in parts.iter().filter(|part| part.len() > 1) {
            if !matches!(series.style, Style::Marks) {
                canvas.line(&thinned(part), 1.8, series.style == Style::Dashes, colour);
            }
        }
        error_bars(series, 0.0, frame, canvas);
        let marked = matches!(series.style, Style::Marked | Style::Marks);
        for part in parts.iter().filter(|part| marked || part.len() == 1) {
            for &(x, y) in part {
                canvas.circle(x, y, 4.4, Colour::WHITE);
                canvas.circle(x, y, 3.5, colour);
            }
        }
    }
}

fn draw_bars(series: &Series, (shift, width): (f64, f64), frame: &Frame, canvas: &mut impl Canvas) {
    let bottom = frame.top + frame.height;
    for &(x, y) in &series.points {
        let left = frame.at((x + shift - width / 2.0, y));
        let right = frame.at((x + shift + width / 2.0, y));
        if let (Some((left, top)), Some((right, _))) = (left, right) {
            let base = frame.at((x, 0.0)).map_or(bottom, |zero| zero.1.min(bottom));
            let (top, base) = (top.min(base), top.max(base));
            let colour = Colour::palette(series.colour);
            canvas.rect(left + 0.5, top, (right - left - 1.0).max(0.5), base - top, colour);
        }
    }
    error_bars(series, shift, frame, canvas);
}

fn error_bars(series: &Series, shift: f64, frame: &Frame, canvas: &mut impl Canvas) {
    for (&(x, y), error) in series.points.iter().zip(&series.error) {
        let (low, high) = (frame.at((x + shift, y - error)), frame.at((x + shift, y + error)));
        let (Some(low), Some(high)) = (low, high) else { continue };
        canvas.line(&[low, high], 1.2, false, Colour::MUTED);
        for (x, y) in [low, high] {
            canvas.line(&[(x - 3.0, y), (x + 3.0, y)], 1.2, false, Colour::MUTED);
        }
    }
}

/// Reduces a line of many points: for each column of the picture the first, lowest, highest and
/// last are kept, so that the picture stays the same.
fn thinned(points: &[(f32, f32)]) -> Vec<(f32, f32)> {
    if points.len() < 4_000 {
        return points.to_vec();
    }
    let mut kept: Vec<(f32, f32)> = Vec::new();
    for column in points.chunk_by(|a, b| a.0.floor() == b.0.floor()) {
        let by = |a: &(usize, &(f32, f32)), b: &(usize, &(f32, f32))| a.1.1.total_cmp(&b.1.1);
        let low = column.iter().enumerate().min_by(by).map_or(0, |found| found.0);
        let high = column.iter().enumerate().max_by(by).map_or(0, |found| found.0);
        let mut keep = vec![0, low, high, column.len() - 1];
        keep.sort_unstable();
        keep.dedup();
        kept.extend(keep.into_iter().map(|index| column[index]));
    }
    kept
}
