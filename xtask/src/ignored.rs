//! Tests marked `#[ignore = "..."]`. The reason of each names the command that runs it.

use std::path::PathBuf;

use anyhow::Result;

use crate::sh;

/// Part of the reason of an ignored test that `xtask test` runs.
pub(crate) const BY_TEST: &str = "`cargo xtask test` runs it";
/// Part of the reason of a test that only `xtask nightly` runs.
pub(crate) const BY_NIGHTLY: &str = "`cargo xtask nightly` runs it";

/// A test that plain `cargo test` does not run.
pub(crate) struct Ignored {
    /// Its file, relative to the top of the repository.
    pub(crate) file: PathBuf,
    /// The name of the function.
    pub(crate) name: String,
    /// The reason; empty if missing.
    pub(crate) reason: String,
}

/// The tests below `place` that only `xtask nightly` runs.
pub(crate) fn nightly(place: &str) -> Result<Vec<Ignored>> {
    let mut tests = all()?;
    tests.retain(|test| test.file.starts_with(place) && test.reason.contains(BY_NIGHTLY));
    Ok(tests)
}

/// Checks that every ignored test names the command that runs it.
pub(crate) fn check() -> Result<Vec<String>> {
    let silent = all()?
        .into_iter()
        .filter(|test| !(test.reason.contains(BY_TEST) || test.reason.contains(BY_NIGHTLY)));
    let finding = |test: Ignored| {
        format!(
            "{}: {} is ignored, and its reason names neither {BY_TEST} nor {BY_NIGHTLY}",
            test.file.display(),
            test.name
        )
    };
    Ok(silent.map(finding).collect())
}

fn all() -> Result<Vec<Ignored>> {
    let mut tests = Vec::new();
    for file in sh::files()? {
        if file.extension().is_some_and(|ext| ext == "rs") && file.starts_with("crates") {
            let text = std::fs::read_to_string(sh::root().join(&file))?;
            tests.extend(read(&text).map(|(name, reason)| Ignored {
                file: file.clone(),
                name,
                reason,
            }));
        }
    }
    Ok(tests)
}

/// Names and reasons of the ignored tests of a file.
fn read(text: &str) -> impl Iterator<Item = (String, String)> {
    text.split("#[ignore").skip(1).filter_map(|part| {
        let (attribute, rest) = part.split_once(']')?;
        let reason = attribute.split('"').nth(1).unwrap_or_default();
        let name = rest.split_once("fn ")?.1.split('(').next()?;
        Some((name.trim().to_owned(), reason.to_owned()))
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_and_reasons_are_found() {
        let text = "#[test]\n#[ignore = \"long; who runs it\"]\nfn a() {}\n#[ignore]\n\
                    #[tokio::test]\nasync fn b_c() {}\n";
        let found: Vec<_> = super::read(text).collect();
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(found, [pair("a", "long; who runs it"), pair("b_c", "")]);
    }
}
