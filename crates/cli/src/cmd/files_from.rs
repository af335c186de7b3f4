//! `--files-from`: a list of paths, one a line, or each terminated by a zero byte.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::exit::Exit;

/// Maximum size of a list, in bytes.
const MAX_LIST_BYTES: u64 = 256 << 20;

/// Reads the list in the file at `path`; `-` is standard input.
pub(crate) fn read(path: &Path, zero: bool) -> Result<Vec<Vec<u8>>, Exit> {
    let failed = |error: io::Error| {
        Exit::usage(format!("--files-from {}: {error}: check the name", path.display()))
    };
    let bytes = read_some(path, MAX_LIST_BYTES).map_err(failed)?;
    parse(&bytes, zero).map_err(|text| Exit::usage(format!("--files-from: {text}")))
}

/// The rules in the file of `--exclude-from` or `--include-from`, each with `sign`. As with rsync,
/// empty lines and those that begin with `#` or `;` are ignored, a line that begins with `+ ` or
/// `- ` is a rule of that kind, and `!` alone drops the rules before it.
pub(crate) fn rules(id: &str, sign: &str, path: &Path, zero: bool) -> Result<Vec<String>, Exit> {
    let option = format!("--{} {}", id.replace('_', "-"), path.display());
    let lines = rule_lines(&option, path, zero)?;
    Ok(lines.iter().map(|line| old_style(sign, line)).collect())
}

/// The lines of a file of rules or patterns that count.
pub(crate) fn rule_lines(option: &str, path: &Path, zero: bool) -> Result<Vec<String>, Exit> {
    let failed = |why: &str| Exit::usage(format!("{option}: {why}"));
    let bytes = read_some(path, MAX_LIST_BYTES)
        .map_err(|error| failed(&format!("{error}: check the name")))?;
    let text = String::from_utf8(bytes).map_err(|_| failed("patterns must be UTF-8"))?;
    let ends = |c: char| if zero { c == '\0' } else { matches!(c, '\n' | '\r' | '\0') };
    let lines = text.split(ends).filter(|line| !line.is_empty());
    let counts = |line: &&str| zero || !line.starts_with(['#', ';']);
    Ok(lines.filter(counts).map(str::to_owned).collect())
}

/// A pattern of an option with `sign` as a rule.
pub(crate) fn old_style(sign: &str, pattern: &str) -> String {
    let is_rule = pattern == "!" || pattern.starts_with("+ ") || pattern.starts_with("- ");
    if is_rule { pattern.to_owned() } else { format!("{sign} {pattern}") }
}

/// Whether the value of an option was read from standard input.
static STDIN_IS_READ: AtomicBool = AtomicBool::new(false);

/// Whether an option has read standard input to its end: it has nothing for another reader.
pub(crate) fn stdin_is_read() -> bool {
    STDIN_IS_READ.load(Ordering::Relaxed)
}

/// All of a file that has at most `most` bytes; `-` is standard input, which is read only once.
pub(crate) fn read_some(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        if STDIN_IS_READ.swap(true, Ordering::Relaxed) {
            return Err(io::Error::other("another option has read standard input"));
        }
        io::stdin().lock().take(most + 1).read_to_end(&mut bytes)?;
    } else {
        File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    }
    if bytes.len() as u64 > most {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the file is far too long"));
    }
    Ok(bytes)
}

/// Parses a list as rsync does. Empty lines and lines that begin with `#` or `;` are ignored; with
/// zero bytes every name counts. A leading slash or `./` is ignored: all paths are below the
/// source. `..` is refused.
fn parse(bytes: &[u8], zero: bool) -> Result<Vec<Vec<u8>>, String> {
    let mut paths = Vec::new();
    for line in bytes.split(|&c| c == if zero { 0 } else { b'\n' }) {
        let line = if zero { line } else { line.strip_suffix(b"\r").unwrap_or(line) };
        if line.is_empty() || (!zero && matches!(line[0], b'#' | b';')) {
            continue;
        }
        if line.contains(&0) {
            return Err("there are zero bytes in it: add --from0".to_owned());
        }
        let mut parts = Vec::new();
        for part in line.split(|&c| c == b'/') {
            match part {
                b"" | b"." => {}
                b".." => {
                    let line = crate::out::shown(line);
                    return Err(format!("`{line}` leaves the source: remove the `..`"));
                }
                part => parts.push(part),
            }
        }
        let path = if parts.is_empty() { b".".to_vec() } else { parts.join(&b'/') };
        paths.push(path);
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(bytes: &[u8], zero: bool) -> Vec<String> {
        let lossy = |path: &Vec<u8>| String::from_utf8_lossy(path).into_owned();
        parse(bytes, zero).expect("a good list").iter().map(lossy).collect()
    }

    #[test]
    fn lists_are_read_as_rsync_reads_them() {
        assert_eq!(names(b"a\n\n# no\n; no\n/b//c/\r\n./d\n.\n", false), ["a", "b/c", "d", "."]);
        assert_eq!(names(b"a\nb\0#c\0\0", true), ["a\nb", "#c"]);
        assert!(parse(b"a\n../b", false).expect_err("leaves").contains("../b"));
        assert!(parse(b"a\0b\0", false).expect_err("zero bytes").contains("--from0"));
        assert!(names(b"", false).is_empty());
    }
}
