//! A picture in pixels.

use tiny_skia::{
    FillRule, LineCap, LineJoin, Paint, PathBuilder, Pixmap, Rect, Stroke, StrokeDash, Transform,
};
use ttf_parser::OutlineBuilder;

use super::canvas::{Anchor, Canvas, Colour, Label};
use super::font;

/// Pixels per unit of the picture.
const SCALE: f32 = 2.0;

pub(super) struct Png {
    pixels: Pixmap,
}

impl Png {
    /// None: too large.
    pub(super) fn new(width: f32, height: f32) -> Option<Self> {
        let mut pixels = Pixmap::new((width * SCALE) as u32, (height * SCALE) as u32)?;
        pixels.fill(tiny_skia::Color::WHITE);
        Some(Self { pixels })
    }

    pub(super) fn finish(self) -> Option<Vec<u8>> {
        self.pixels.encode_png().ok()
    }

    fn fill(&mut self, path: Option<tiny_skia::Path>, colour: Colour, transform: Transform) {
        let Some(path) = path else { return };
        let transform = transform.post_scale(SCALE, SCALE);
        self.pixels.fill_path(&path, &paint(colour), FillRule::Winding, transform, None);
    }
}

fn paint(Colour(red, green, blue): Colour) -> Paint<'static> {
    let mut paint = Paint { anti_alias: true, ..Paint::default() };
    paint.set_color_rgba8(red, green, blue, 255);
    paint
}

impl Canvas for Png {
    fn rect(&mut self, x: f32, y: f32, width: f32, height: f32, fill: Colour) {
        let path = Rect::from_xywh(x, y, width, height).map(PathBuilder::from_rect);
        self.fill(path, fill, Transform::identity());
    }

    fn line(&mut self, points: &[(f32, f32)], width: f32, dashed: bool, colour: Colour) {
        let mut path = PathBuilder::new();
        for (index, &(x, y)) in points.iter().enumerate() {
            if index == 0 { path.move_to(x, y) } else { path.line_to(x, y) }
        }
        let Some(path) = path.finish() else { return };
        let stroke = Stroke {
            width,
            line_cap: LineCap::Butt,
            line_join: LineJoin::Round,
            dash: if dashed { StrokeDash::new(vec![6.0, 4.0], 0.0) } else { None },
            ..Stroke::default()
        };
        let scale = Transform::from_scale(SCALE, SCALE);
        self.pixels.stroke_path(&path, &paint(colour), &stroke, scale, None);
    }

    fn circle(&mut self, x: f32, y: f32, radius: f32, fill: Colour) {
        self.fill(PathBuilder::from_circle(x, y, radius), fill, Transform::identity());
    }

    fn text(&mut self, text: &str, at: Label) {
        let mut path = Outline(PathBuilder::new());
        font::outline(text, at.size, &mut path);
        let shift = match at.anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => font::width(text, at.size) / -2.0,
            Anchor::End => -font::width(text, at.size),
        };
        let mut transform = Transform::from_translate(shift, 0.0);
        if at.turned {
            transform = transform.post_rotate(-90.0);
        }
        self.fill(path.0.finish(), at.colour, transform.post_translate(at.x, at.y));
    }
}

struct Outline(PathBuilder);

impl OutlineBuilder for Outline {
    fn move_to(&mut self, x: f32, y: f32) {
        self.0.move_to(x, y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        self.0.line_to(x, y);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        self.0.quad_to(x1, y1, x, y);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        self.0.cubic_to(x1, y1, x2, y2, x, y);
    }

    fn close(&mut self) {
        self.0.close();
    }
}
