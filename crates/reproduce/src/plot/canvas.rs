//! The surface on which a picture is drawn.

/// Red, green, blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Colour(pub(super) u8, pub(super) u8, pub(super) u8);

impl Colour {
    pub(super) const WHITE: Self = Self(255, 255, 255);
    pub(super) const TEXT: Self = Self(38, 42, 51);
    pub(super) const MUTED: Self = Self(96, 102, 115);
    pub(super) const GRID: Self = Self(228, 231, 236);
    pub(super) const FRAME: Self = Self(150, 156, 168);

    /// Colours that colour-blind readers can distinguish (Okabe and Ito 2008).
    pub(super) fn palette(index: usize) -> Self {
        const COLOURS: [Colour; 8] = [
            Colour(0, 114, 178),
            Colour(213, 94, 0),
            Colour(0, 158, 115),
            Colour(204, 121, 167),
            Colour(230, 159, 0),
            Colour(86, 180, 233),
            Colour(90, 90, 90),
            Colour(148, 103, 40),
        ];
        COLOURS[index % COLOURS.len()]
    }
}

/// The horizontal alignment of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// The position and style of a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Label {
    pub(super) x: f32,
    /// The baseline.
    pub(super) y: f32,
    pub(super) size: f32,
    pub(super) anchor: Anchor,
    /// Rotated, upwards.
    pub(super) turned: bool,
    pub(super) colour: Colour,
}

/// A picture being drawn; the origin is at the top left.
pub(super) trait Canvas {
    fn rect(&mut self, x: f32, y: f32, width: f32, height: f32, fill: Colour);
    fn line(&mut self, points: &[(f32, f32)], width: f32, dashed: bool, colour: Colour);
    fn circle(&mut self, x: f32, y: f32, radius: f32, fill: Colour);
    fn text(&mut self, text: &str, at: Label);
}
