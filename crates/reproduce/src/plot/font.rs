//! The glyphs of PNG plots and their widths.

use std::sync::OnceLock;

use ttf_parser::{Face, OutlineBuilder};

static BYTES: &[u8] = include_bytes!("../../assets/plot-sans.ttf");

fn face() -> Option<&'static Face<'static>> {
    static FACE: OnceLock<Option<Face<'static>>> = OnceLock::new();
    FACE.get_or_init(|| Face::parse(BYTES, 0).ok()).as_ref()
}

/// The width of a text of this size.
pub(super) fn width(text: &str, size: f32) -> f32 {
    let Some(face) = face() else { return text.chars().count() as f32 * size * 0.6 };
    let scale = size / f32::from(face.units_per_em());
    text.chars().map(|letter| advance(face, letter) * scale).sum()
}

fn advance(face: &Face<'_>, letter: char) -> f32 {
    let glyph = face.glyph_index(letter).unwrap_or_default();
    f32::from(face.glyph_hor_advance(glyph).unwrap_or_default())
}

/// Draws the outlines of a text into `path`, with the start of its baseline at the origin.
pub(super) fn outline(text: &str, size: f32, path: &mut impl OutlineBuilder) {
    let Some(face) = face() else { return };
    let scale = size / f32::from(face.units_per_em());
    let mut x = 0.0;
    for letter in text.chars() {
        let glyph = face.glyph_index(letter).unwrap_or_default();
        face.outline_glyph(glyph, &mut Placed { path, x, scale });
        x += advance(face, letter) * scale;
    }
}

/// Positions a glyph; fonts count upwards, pictures downwards.
struct Placed<'a, P> {
    path: &'a mut P,
    x: f32,
    scale: f32,
}

impl<P> Placed<'_, P> {
    fn at(&self, x: f32, y: f32) -> (f32, f32) {
        (self.x + x * self.scale, -y * self.scale)
    }
}

impl<P: OutlineBuilder> OutlineBuilder for Placed<'_, P> {
    fn move_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.at(x, y);
        self.path.move_to(x, y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.at(x, y);
        self.path.line_to(x, y);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        let ((x1, y1), (x, y)) = (self.at(x1, y1), self.at(x, y));
        self.path.quad_to(x1, y1, x, y);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        let ((x1, y1), (x2, y2), (x, y)) = (self.at(x1, y1), self.at(x2, y2), self.at(x, y));
        self.path.curve_to(x1, y1, x2, y2, x, y);
    }

    fn close(&mut self) {
        self.path.close();
    }
}
