//! The terminal behind stderr: its width, whether lines can be redrawn, and whether it shows
//! colours.

use std::io::IsTerminal as _;

use anstream::{AutoStream, ColorChoice};

/// The width of a terminal that does not report one, in columns.
const DEFAULT_WIDTH: usize = 80;
/// Narrower terminals are treated as this wide: no line of ours fits them anyway.
const MIN_WIDTH: usize = 20;

/// The width in columns, if stderr is a terminal.
pub(crate) fn width() -> Option<usize> {
    let stderr = std::io::stderr();
    stderr.is_terminal().then(|| {
        let reported = rustix::termios::tcgetwinsize(&stderr).map_or(0, |size| size.ws_col);
        columns(reported)
    })
}

/// The usable width of a terminal that reports `reported` columns. Serial lines and some containers
/// report 0.
fn columns(reported: u16) -> usize {
    match usize::from(reported) {
        0 => DEFAULT_WIDTH,
        columns => columns.max(MIN_WIDTH),
    }
}

/// Whether a line on stderr can be drawn again: it is a terminal that moves its cursor.
pub(crate) fn redraws() -> bool {
    std::io::stderr().is_terminal() && moves_cursor(std::env::var("TERM").ok().as_deref())
}

/// Terminals named `dumb` (in editors, for example) only append.
fn moves_cursor(term: Option<&str>) -> bool {
    term != Some("dumb")
}

/// The weight of a message, which its colour shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// A result or information.
    Plain,
    /// A warning.
    Warning,
    /// A failure.
    Failure,
}

/// `packtrain: `, in the colour of `tone` if stderr shows colours. `NO_COLOR`, `CLICOLOR`,
/// `CLICOLOR_FORCE` and `TERM` decide.
pub(crate) fn prefix(tone: Tone) -> &'static str {
    let colours = AutoStream::choice(&std::io::stderr()) != ColorChoice::Never;
    match tone {
        Tone::Failure if colours => "\x1b[1;31mpacktrain:\x1b[0m ",
        Tone::Warning if colours => "\x1b[1;33mpacktrain:\x1b[0m ",
        Tone::Plain if colours => "\x1b[1mpacktrain:\x1b[0m ",
        Tone::Failure | Tone::Warning | Tone::Plain => "packtrain: ",
    }
}

/// Breaks `text` at spaces into lines of at most `width` columns. The first line has `used` columns
/// already; later ones are indented by two. A word that is longer than a line, such as a path, is
/// kept whole, so that it can be copied.
pub(crate) fn wrap(text: &str, width: usize, used: usize) -> String {
    const INDENT: &str = "\n  ";
    let (mut lines, mut column, mut start) = (String::with_capacity(text.len() + 16), used, true);
    for word in text.split(' ') {
        let length = word.chars().count();
        if start {
            start = false;
        } else if column + 1 + length > width {
            lines.push_str(INDENT);
            column = INDENT.len() - 1;
        } else {
            lines.push(' ');
            column += 1;
        }
        lines.push_str(word);
        column += length;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_without_a_width_has_80_columns() {
        assert_eq!([0, 1, 60, 200].map(columns), [80, 20, 60, 200]);
        assert!(moves_cursor(Some("xterm")) && moves_cursor(None) && !moves_cursor(Some("dumb")));
    }

    #[test]
    fn long_messages_break_at_words() {
        let text = "nothing gets through by native between the two ends: open its ports (--ports)";
        for width in [20, 60, 80] {
            let wrapped = wrap(text, width, 11);
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            assert_eq!(words(&wrapped), words(text));
            let lines = wrapped.lines().enumerate();
            let columns =
                |(n, line): (usize, &str)| line.chars().count() + if n == 0 { 11 } else { 0 };
            assert!(lines.map(columns).all(|columns| columns <= width), "{wrapped}");
        }
        let path = "/a/very/long/path/that/does/not/fit/in/a/line/of/twenty";
        assert_eq!(wrap(&format!("{path}: no"), 20, 0), format!("{path}:\n  no"));
        assert_eq!(wrap("", 20, 0), "");
        assert_eq!(wrap("a  b", 20, 0), "a  b", "spaces of a name stay");
    }
}
