//! Dead files: Rust files that no `mod` includes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::Result;

use crate::sh;

/// Follows `mod name;` from every crate root and reports the files not reached.
pub(super) fn check() -> Result<Vec<String>> {
    let files: BTreeSet<PathBuf> =
        sh::files()?.into_iter().filter(|f| f.extension().is_some_and(|ext| ext == "rs")).collect();
    let mut reached = BTreeSet::new();
    let mut open: Vec<PathBuf> = files.iter().filter(|file| is_root(file)).cloned().collect();
    while let Some(file) = open.pop() {
        if !files.contains(&file) || !reached.insert(file.clone()) {
            continue;
        }
        let text = fs::read_to_string(sh::root().join(&file))?;
        open.extend(modules(&file, &text));
    }
    Ok(files
        .difference(&reached)
        .map(|file| format!("{} is reached by no `mod`", file.display()))
        .collect())
}

/// Whether cargo compiles this file as the root of a crate, by its folder.
fn is_root(file: &Path) -> bool {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let parent = file.parent().and_then(Path::file_name).and_then(|name| name.to_str());
    let above = file.parent().and_then(Path::parent).and_then(Path::file_name);
    match parent {
        Some("src") => name == "lib.rs" || name == "main.rs",
        Some("bin" | "tests" | "examples" | "benches" | "fuzz_targets") => !in_src(file, parent),
        _ if name == "build.rs" => true,
        // tests/NAME/main.rs
        _ => {
            name == "main.rs" && above.is_some_and(|above| above == "tests" || above == "examples")
        }
    }
}

/// `src/tests/x.rs` is a module of its crate, `src/bin/x.rs` and `tests/x.rs` are roots.
fn in_src(file: &Path, parent: Option<&str>) -> bool {
    parent != Some("bin") && file.components().any(|part| part.as_os_str() == "src")
}

/// The possible files of the `mod` lines of `file`.
fn modules(file: &Path, text: &str) -> Vec<PathBuf> {
    let dir = file.parent().unwrap_or(Path::new(""));
    let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let own = is_root(file) || stem == "mod";
    let base = if own { dir.to_path_buf() } else { dir.join(stem) };
    let mut found = Vec::new();
    let mut path = None;
    for line in text.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("#[path") {
            path = rest.split('"').nth(1).map(str::to_owned);
            continue;
        }
        let declared = ["", "pub ", "pub(crate) ", "pub(super) "]
            .iter()
            .find_map(|vis| line.strip_prefix(vis)?.strip_prefix("mod "))
            .and_then(|rest| rest.strip_suffix(';'));
        if let Some(name) = declared {
            match path.take() {
                Some(path) => found.push(plain(&dir.join(path))),
                None => {
                    found.push(base.join(format!("{name}.rs")));
                    found.push(base.join(name).join("mod.rs"));
                }
            }
        } else if !line.starts_with("#[") {
            path = None;
        }
    }
    found
}

/// The path with `..` resolved.
fn plain(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::{is_root, modules};

    #[test]
    fn roots() {
        for root in ["crates/a/src/lib.rs", "crates/a/tests/e2e/main.rs", "crates/a/tests/x.rs"] {
            assert!(is_root(Path::new(root)), "{root}");
        }
        for not in ["crates/a/src/b.rs", "crates/a/src/tests/x.rs", "crates/a/tests/e2e/x.rs"] {
            assert!(!is_root(Path::new(not)), "{not}");
        }
    }

    #[test]
    fn declarations() {
        let found = modules(Path::new("c/src/b.rs"), "pub mod x;\n#[path = \"../y.rs\"]\nmod z;\n");
        assert!(found.contains(&PathBuf::from("c/src/b/x.rs")));
        assert!(found.contains(&PathBuf::from("c/y.rs")));
        assert!(!found.contains(&PathBuf::from("c/src/b/z.rs")));
    }
}
