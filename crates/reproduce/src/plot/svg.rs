//! A picture as SVG text.

use std::fmt::Write as _;

use super::canvas::{Anchor, Canvas, Colour, Label};

pub(super) struct Svg {
    text: String,
}

impl Svg {
    pub(super) fn new(width: f32, height: f32, title: &str) -> Self {
        let text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" \
             font-family=\"'DejaVu Sans', Verdana, Arial, sans-serif\">\n\
             <title>{}</title>\n<rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n",
            escaped(title)
        );
        Self { text }
    }

    pub(super) fn finish(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }

    fn push(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a string never fails.
        let _ = self.text.write_fmt(element);
        self.text.push('\n');
    }
}

struct Hex(Colour);

impl std::fmt::Display for Hex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "#{:02x}{:02x}{:02x}", self.0.0, self.0.1, self.0.2)
    }
}

fn escaped(text: &str) -> String {
    let good = |letter: &char| !letter.is_control();
    let text: String = text.chars().filter(good).collect();
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

impl Canvas for Svg {
    fn rect(&mut self, x: f32, y: f32, width: f32, height: f32, fill: Colour) {
        self.push(format_args!(
            "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\" \
             fill=\"{}\"/>",
            Hex(fill)
        ));
    }

    fn line(&mut self, points: &[(f32, f32)], width: f32, dashed: bool, colour: Colour) {
        let mut list = String::new();
        for (x, y) in points {
            let _ = write!(list, "{x:.2},{y:.2} ");
        }
        let dash = if dashed { " stroke-dasharray=\"6 4\"" } else { "" };
        self.push(format_args!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{width}\" \
             stroke-linejoin=\"round\"{dash}/>",
            list.trim_end(),
            Hex(colour)
        ));
    }

    fn circle(&mut self, x: f32, y: f32, radius: f32, fill: Colour) {
        self.push(format_args!(
            "<circle cx=\"{x:.2}\" cy=\"{y:.2}\" r=\"{radius}\" fill=\"{}\"/>",
            Hex(fill)
        ));
    }

    fn text(&mut self, text: &str, at: Label) {
        let anchor = match at.anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let turn = if at.turned {
            format!(" transform=\"rotate(-90 {:.2} {:.2})\"", at.x, at.y)
        } else {
            String::new()
        };
        self.push(format_args!(
            "<text x=\"{:.2}\" y=\"{:.2}\" font-size=\"{}\" text-anchor=\"{anchor}\" \
             fill=\"{}\"{turn}>{}</text>",
            at.x,
            at.y,
            at.size,
            Hex(at.colour),
            escaped(text)
        ));
    }
}
