//! The table of a depot that forwards by destination: for each destination the next depot.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

use packtrain_session::{Host, Place};

/// Largest file of a table, in bytes.
const MAX_BYTES: u64 = 4 << 20;

/// Next depots by destination host. A destination that is not in the table is reached directly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteTable(BTreeMap<Host, Place>);

/// Why a table was refused.
#[derive(Debug, thiserror::Error)]
pub enum RouteTableError {
    /// The file cannot be read.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The file is too big.
    #[error("a table of routes has at most {MAX_BYTES} bytes")]
    Size,
    /// A line is wrong; lines count from one.
    #[error("line {line}: {what}")]
    Line {
        /// Its number.
        line: usize,
        /// The error and its correction.
        what: String,
    },
}

impl RouteTable {
    /// Reads the file `path`.
    ///
    /// # Errors
    /// The file cannot be read, or it is no table.
    pub fn load(path: &Path) -> Result<Self, RouteTableError> {
        let mut text = String::new();
        // One byte more than allowed shows that there is more.
        std::fs::File::open(path)?.take(MAX_BYTES + 1).read_to_string(&mut text)?;
        if text.len() as u64 > MAX_BYTES {
            return Err(RouteTableError::Size);
        }
        Self::parse(&text)
    }

    /// Parses lines `DESTINATION NEXT`: a host without a port, and a depot `HOST:PORT`. Empty lines
    /// and those that begin with `#` are skipped.
    ///
    /// # Errors
    /// The first line that is wrong, or whose destination was there before.
    pub fn parse(text: &str) -> Result<Self, RouteTableError> {
        let mut table = BTreeMap::new();
        for (index, line) in text.lines().enumerate() {
            let wrong = |what: String| RouteTableError::Line { line: index + 1, what };
            let words: Vec<&str> = line.split_whitespace().take(3).collect();
            let (destination, next) = match words[..] {
                [] => continue,
                [first, ..] if first.starts_with('#') => continue,
                [destination, next] => (destination, next),
                _ => return Err(wrong("write a destination and the next depot".to_owned())),
            };
            let shown = |word: &str| word.chars().take(60).collect::<String>();
            let bad_host = |_| {
                let word = shown(destination);
                wrong(format!("{word:?} is no host: write a name or an address, without a port"))
            };
            let bad_place = |error| wrong(format!("{:?} is {error}", shown(next)));
            let destination = Host::parse(destination).map_err(bad_host)?;
            let next = next.parse::<Place>().map_err(bad_place)?;
            if table.contains_key(&destination) {
                return Err(wrong(format!("{destination} is there twice: name it once")));
            }
            table.insert(destination, next);
        }
        Ok(Self(table))
    }

    /// The next depot towards `destination`; `None`: it is reached directly.
    pub fn next(&self, destination: &Host) -> Option<&Place> {
        self.0.get(destination)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Host {
        Host::parse(text).expect("a host")
    }

    #[test]
    fn a_table_is_read() {
        let text = "# from the planner\n\n192.0.2.7 10.0.0.2:7879\nFar.Example\tdepot.example:7879\n\
                    2001:db8::7 [2001:db8::2]:7879\n";
        let table = RouteTable::parse(text).expect("it is right");
        let next = |to: &str| table.next(&host(to)).map(Place::to_string);
        assert_eq!(next("192.0.2.7").as_deref(), Some("10.0.0.2:7879"));
        assert_eq!(
            next("far.example").as_deref(),
            Some("depot.example:7879"),
            "names have no case"
        );
        assert_eq!(next("2001:db8::7").as_deref(), Some("[2001:db8::2]:7879"));
        assert_eq!(next("192.0.2.8"), None);
    }

    #[test]
    fn hostile_tables_are_refused_with_the_line() {
        for (text, line) in [
            ("a.example\n", 1),
            ("a.example d.example\n", 1),
            ("a.example d.example:0\n", 1),
            ("\na.example:80 d.example:7879\n", 2),
            ("a.example d.example:7879 more\n", 1),
            ("a.example d.example:7879\nA.EXAMPLE e.example:7879\n", 2),
            ("a.example d.example:7879\n\u{0} d.example:7879\n", 2),
            ("127.1 d.example:7879\n", 1),
        ] {
            match RouteTable::parse(text) {
                Err(RouteTableError::Line { line: found, .. }) => {
                    assert_eq!(found, line, "{text:?}")
                }
                other => panic!("{text:?}: {other:?}"),
            }
        }
        let error = RouteTable::parse(&"x".repeat(100_000)).expect_err("one word").to_string();
        assert!(error.len() < 200, "{error}");
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("routes");
        std::fs::write(&file, "#".repeat(MAX_BYTES as usize + 1)).expect("writable");
        assert!(matches!(RouteTable::load(&file), Err(RouteTableError::Size)));
        assert!(matches!(RouteTable::load(&dir.path().join("none")), Err(RouteTableError::Io(_))));
    }
}
