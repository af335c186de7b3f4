//! What the tests of all crates share: how they report that they were skipped, and how they read
//! the documents.
//!
//! A test that needs something this machine lacks calls [`skip`] and returns. [`skip`] writes a
//! line to stderr, and a line to the file that `PACKTRAIN_TEST_SKIPS` names, which `cargo xtask
//! test` lists at its end. It fails if skips are not allowed ([`strict`]).

pub mod documents;

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;

/// The variable with the file to which skips are appended: `crate`, `test` and `reason`, separated
/// by tabs.
pub const SKIPS: &str = "PACKTRAIN_TEST_SKIPS";

/// Whether a skip is a failure: `PACKTRAIN_TEST_STRICT=1`, or that variable is not set and `CI` is
/// `true` or `1`.
#[must_use]
pub fn strict() -> bool {
    Policy::from_env().strict
}

/// Reports that the running test is skipped. The name of the test is that of its thread, as libtest
/// sets it.
///
/// # Panics
/// If skips are not allowed ([`strict`]).
#[track_caller]
pub fn skip(reason: &str) {
    let here = std::panic::Location::caller();
    let thread = std::thread::current();
    // The threads of a runtime, and a harness without threads, do not have the name of a test.
    let test = match thread.name() {
        Some(name) if name != "main" && !name.starts_with("tokio") => name.to_owned(),
        _ => format!("{}:{}", here.file(), here.line()),
    };
    skip_test(&test, reason);
}

/// Like [`skip`], for a harness that knows the test's name.
///
/// # Panics
/// If skips are not allowed ([`strict`]).
#[track_caller]
pub fn skip_test(test: &str, reason: &str) {
    Policy::from_env().skip(test, reason);
}

/// The settings for skips.
struct Policy {
    strict: bool,
    skips: Option<PathBuf>,
    package: String,
}

impl Policy {
    fn from_env() -> Self {
        let get = |name: &str| std::env::var(name).ok();
        Self {
            strict: is_strict(get("PACKTRAIN_TEST_STRICT").as_deref(), get("CI").as_deref()),
            skips: std::env::var_os(SKIPS).map(PathBuf::from),
            // Cargo sets this variable for tests.
            package: get("CARGO_PKG_NAME").unwrap_or_else(|| "?".to_owned()),
        }
    }

    #[track_caller]
    fn skip(&self, test: &str, reason: &str) {
        assert!(!self.strict, "{test} may not be skipped here: {reason}");
        eprintln!("*** SKIPPED: {test}: {reason} ***");
        let Some(path) = &self.skips else { return };
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let line = format!("{}\t{}\t{}\n", self.package, words(test), words(reason));
        // A line is written with one call, because tests of other processes append to the same
        // file.
        let file = OpenOptions::new().create(true).append(true).open(path);
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        written
            .unwrap_or_else(|error| panic!("cannot report a skip in {}: {error}", path.display()));
    }
}

fn is_strict(own: Option<&str>, ci: Option<&str>) -> bool {
    match own {
        Some(own) => own == "1",
        None => matches!(ci, Some("true" | "1")),
    }
}

#[cfg(test)]
mod tests {
    use super::{Policy, is_strict};

    #[test]
    fn ci_is_strict_unless_the_own_variable_says_otherwise() {
        assert!(is_strict(None, Some("true")) && is_strict(None, Some("1")));
        assert!(is_strict(Some("1"), None));
        assert!(!is_strict(Some("0"), Some("true")));
        assert!(!is_strict(None, None) && !is_strict(None, Some("false")));
    }

    #[test]
    fn each_skip_is_a_line_of_the_report() {
        let dir = tempfile::tempdir().expect("a folder");
        let skips = dir.path().join("skips");
        let policy =
            Policy { strict: false, skips: Some(skips.clone()), package: "packtrain-x".to_owned() };
        policy.skip("a::b", "no\tsuch\nthing");
        policy.skip("c", "no IPv6");
        let text = std::fs::read_to_string(skips).expect("a report");
        assert_eq!(text, "packtrain-x\ta::b\tno such thing\npacktrain-x\tc\tno IPv6\n");
    }

    #[test]
    #[should_panic(expected = "may not be skipped here: no IPv6")]
    fn a_strict_run_fails() {
        Policy { strict: true, skips: None, package: String::new() }.skip("a", "no IPv6");
    }
}
