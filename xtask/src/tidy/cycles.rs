//! Import cycles between the modules of a crate: their number may only decrease.
//!
//! A module here is a file or folder directly below `src`. The imports of a file count for the
//! module that contains it; names that the crate's root re-exports count for the module that
//! defines them. Tests do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::sh;

/// Crates with modules in cycles, and the number of these modules. No other crate may have one.
const IN_CYCLES: &[(&str, usize)] = &[("cli", 3)];

/// The imports of each module.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// Checks every crate.
pub(super) fn check() -> Result<Vec<String>> {
    let mut crates: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for file in sh::files()? {
        let parts: Vec<_> = file.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        let is_rust = file.extension().is_some_and(|end| end == "rs");
        let [root, name, src, path @ ..] = &parts[..] else { continue };
        if root != "crates" || src != "src" || !is_rust || is_test(path) {
            continue;
        }
        let text = fs::read_to_string(sh::root().join(&file))?;
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned();
        crates.entry(name.clone()).or_default().push((path.join("/"), text));
    }
    let mut findings = Vec::new();
    for (name, files) in &crates {
        let cycles = cycles(&imports(files));
        let modules: usize = cycles.iter().map(BTreeSet::len).sum();
        let allowed = IN_CYCLES.iter().find(|(other, _)| other == name).map_or(0, |(_, n)| *n);
        let list: Vec<_> = cycles.iter().map(|one| format!("{one:?}")).collect();
        if modules > allowed {
            findings.push(format!(
                "crate {name} has {modules} modules in import cycles, {allowed} are allowed: {}",
                list.join(", ")
            ));
        } else if modules < allowed {
            findings.push(format!(
                "crate {name} has only {modules} modules in import cycles: write that into \
                 IN_CYCLES of xtask/src/tidy/cycles.rs"
            ));
        }
    }
    Ok(findings)
}

fn is_test(path: &[String]) -> bool {
    let named =
        |name: &String| name == "tests" || name == "tests.rs" || name.ends_with("_tests.rs");
    path.iter().any(|part| named(part) || part.ends_with("_tests") || part == "fuzzing.rs")
}

fn module_of(path: &str) -> String {
    let first = path.split('/').next().unwrap_or_default();
    first.strip_suffix(".rs").unwrap_or(first).to_owned()
}

fn imports(files: &[(String, String)]) -> Imports {
    let is_root = |module: &str| matches!(module, "lib" | "main");
    let modules: BTreeSet<_> =
        files.iter().map(|(path, _)| module_of(path)).filter(|name| !is_root(name)).collect();
    let mut exported = BTreeMap::new();
    for (_, text) in files.iter().filter(|(path, _)| is_root(&module_of(path))) {
        for path in used_paths(text) {
            let path =
                path.strip_prefix("crate::").or(path.strip_prefix("self::")).unwrap_or(&path);
            if let Some((module, rest)) = path.split_once("::")
                && modules.contains(module)
            {
                let name = rest.rsplit([':', ' ']).next().unwrap_or_default();
                exported.insert(name.to_owned(), module.to_owned());
            }
        }
    }
    let mut all = Imports::new();
    for (path, text) in files {
        let module = module_of(path);
        if is_root(&module) {
            continue;
        }
        // How many `super` lead from this file's module to the root.
        let is_mod = Path::new(path).file_stem().is_some_and(|stem| stem == "mod");
        let depth = path.split('/').count() - usize::from(is_mod);
        let to_root = "super::".repeat(depth);
        let own = all.entry(module.clone()).or_default();
        for used in used_paths(text) {
            let Some(rest) = used.strip_prefix("crate::").or(used.strip_prefix(&to_root)) else {
                continue;
            };
            let first = rest.split("::").next().unwrap_or_default();
            let to = if modules.contains(first) {
                Some(first)
            } else {
                exported.get(first).map(|m| &m[..])
            };
            if let Some(to) = to.filter(|to| *to != module) {
                own.insert(to.to_owned());
            }
        }
    }
    all
}

/// Every path that a text imports, or that starts with `crate` or `super`.
fn used_paths(text: &str) -> Vec<String> {
    let code: Vec<_> =
        text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    let mut found = Vec::new();
    for statement in code.join("\n").split(';') {
        let start = statement.rfind("use ").filter(|at| begins_word(statement, *at));
        let (body, tree) = start.map_or((statement, ""), |at| statement.split_at(at));
        // An attribute or a block may precede it, but a path contains none of these characters.
        let tree = tree.strip_prefix("use ").filter(|tree| !tree.contains(['(', '=', '.']));
        expand("", tree.unwrap_or_default(), &mut found);
        for word in ["crate::", "super::"] {
            for (at, _) in body.match_indices(word).filter(|(at, _)| begins_word(body, *at)) {
                let path = &body[at..];
                let end = path.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
                found.push(path[..end.unwrap_or(path.len())].to_owned());
            }
        }
    }
    found
}

fn begins_word(text: &str, at: usize) -> bool {
    !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':')
}

/// Expands the tree of a `use` to paths.
fn expand(before: &str, tree: &str, found: &mut Vec<String>) {
    let tree = tree.trim();
    let Some(open) = tree.find('{') else {
        if !tree.is_empty() {
            found.push(format!("{before}{tree}"));
        }
        return;
    };
    let inner = tree[open + 1..].trim_end().strip_suffix('}').unwrap_or(&tree[open + 1..]);
    let before = format!("{before}{}", tree[..open].trim());
    let (mut depth, mut from) = (0, 0);
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                expand(&before, &inner[from..at], found);
                from = at + 1;
            }
            _ => {}
        }
    }
    expand(&before, &inner[from..], found);
}

/// The sets of modules that reach each other.
fn cycles(imports: &Imports) -> Vec<BTreeSet<String>> {
    let reached: BTreeMap<_, _> = imports.keys().map(|from| (from, reach(imports, from))).collect();
    let mut found: Vec<BTreeSet<String>> = Vec::new();
    for (from, to) in &reached {
        let mut cycle: BTreeSet<String> = to
            .iter()
            .filter(|other| reached.get(other).is_some_and(|back| back.contains(*from)))
            .cloned()
            .collect();
        if cycle.is_empty() || found.iter().any(|known| known.contains(*from)) {
            continue;
        }
        cycle.insert((*from).clone());
        found.push(cycle);
    }
    found
}

fn reach(imports: &Imports, from: &str) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from.to_owned()];
    while let Some(next) = open.pop() {
        for to in imports.get(&next).into_iter().flatten() {
            if reached.insert(to.clone()) {
                open.push(to.clone());
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<BTreeSet<String>> {
        let files: Vec<_> =
            files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        cycles(&imports(&files))
    }

    #[test]
    fn a_cycle_is_seen_over_uses_paths_and_the_root() {
        let both = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        let plain = [("a.rs", "use crate::b::{C, D};"), ("b.rs", "fn f() { crate::a::g(); }")];
        assert_eq!(found(&plain), vec![both.clone()]);
        let inner = [("a/x.rs", "use super::super::b;"), ("b.rs", "use super::a::{\n    X,\n};")];
        assert_eq!(found(&inner), vec![both.clone()]);
        let root = [
            ("lib.rs", "pub use a::Thing;"),
            ("a.rs", "use crate::b;"),
            ("b.rs", "use crate::Thing;"),
        ];
        assert_eq!(found(&root), [both]);
    }

    #[test]
    fn one_way_is_no_cycle() {
        let files =
            [("a.rs", "use crate::{b, c::D};"), ("b.rs", "use crate::c;"), ("c.rs", "// crate::a")];
        assert_eq!(found(&files), [] as [BTreeSet<String>; 0]);
    }
}
