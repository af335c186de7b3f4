//! What is installed besides the program, and where.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use flate2::{Compression, GzBuilder};

use crate::capture;

/// A file of a package.
pub(crate) struct Item {
    /// Its path below `/usr` or the prefix that the reader of the tarball chooses.
    pub(crate) path: String,
    /// Its mode.
    pub(crate) mode: u32,
    /// Its contents.
    pub(crate) bytes: Vec<u8>,
}

/// Version and date, which are in the packages and in their names.
pub(crate) struct Release {
    /// The version of the workspace.
    pub(crate) version: String,
    /// Seconds since 1970 of the last commit, or of `SOURCE_DATE_EPOCH`: packages of one commit
    /// have the same bytes.
    pub(crate) time: u32,
}

/// A sentence for package managers.
pub(crate) const SUMMARY: &str = "Copies files and trees over long, fast and lossy networks";

/// What package managers say below it.
pub(crate) const DESCRIPTION: &str = "Packtrain copies files, directory trees and pipes between machines. It encrypts\n\
     all data, verifies what it has written, resumes inside a file, and keeps its rate\n\
     on paths that lose packets at random. It needs no service at the other end but ssh.";

/// Run by both package managers after the installation.
pub(crate) const AFTER_INSTALL: &str = "\
if command -v systemd-sysusers >/dev/null 2>&1; then systemd-sysusers packtrain.conf || true; fi
if command -v systemd-tmpfiles >/dev/null 2>&1; then systemd-tmpfiles --create packtrain.conf || true; fi
if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
";

impl Release {
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let told = std::env::var("SOURCE_DATE_EPOCH").ok();
        let time = match told.and_then(|text| text.parse().ok()) {
            Some(time) => time,
            None => {
                let mut git = Command::new("git");
                git.args(["log", "-1", "--format=%ct"]).current_dir(root);
                String::from_utf8(capture(&mut git)?)?.trim().parse().context("git's time")?
            }
        };
        Ok(Self { version, time })
    }
}

/// Completions and man pages, which the program prints itself.
pub(crate) fn documents(program: &Path) -> Result<Vec<Item>> {
    let mut items = Vec::new();
    for (shell, path) in [
        ("bash", "share/bash-completion/completions/packtrain"),
        ("zsh", "share/zsh/site-functions/_packtrain"),
        ("fish", "share/fish/vendor_completions.d/packtrain.fish"),
    ] {
        let bytes = capture(Command::new(program).args(["completions", shell]))?;
        items.push(Item { path: path.to_owned(), mode: 0o644, bytes });
    }
    let dir = tempfile::tempdir()?;
    capture(Command::new(program).args(["man", "--out"]).arg(dir.path()))?;
    for page in fs::read_dir(dir.path())? {
        let page = page?;
        let name = page.file_name().to_string_lossy().into_owned();
        let bytes = gzip(&fs::read(page.path())?)?;
        items.push(Item { path: format!("share/man/man1/{name}.gz"), mode: 0o644, bytes });
    }
    Ok(items)
}

/// All files of a package, by path.
pub(crate) fn items(program: &Path, documents: &[Item], root: &Path) -> Result<Vec<Item>> {
    let mut items = vec![Item {
        path: "bin/packtrain".to_owned(),
        mode: 0o755,
        bytes: fs::read(program).with_context(|| program.display().to_string())?,
    }];
    for (path, from) in [
        ("lib/systemd/system/packtrain.service", "xtask/dist/units/packtrain.service"),
        ("lib/systemd/system/packtrain-depot.service", "xtask/dist/units/packtrain-depot.service"),
        ("lib/sysusers.d/packtrain.conf", "xtask/dist/units/sysusers.conf"),
        ("lib/tmpfiles.d/packtrain.conf", "xtask/dist/units/tmpfiles.conf"),
        ("share/doc/packtrain/LICENSE-MIT", "LICENSE-MIT"),
        ("share/doc/packtrain/LICENSE-APACHE", "LICENSE-APACHE"),
    ] {
        let bytes = fs::read(root.join(from)).with_context(|| from.to_owned())?;
        items.push(Item { path: path.to_owned(), mode: 0o644, bytes });
    }
    // Its links lead to pages that are not installed.
    let changes = fs::read_to_string(root.join("CHANGELOG.md")).context("CHANGELOG.md")?;
    items.push(Item {
        path: "share/doc/packtrain/CHANGELOG.md".to_owned(),
        mode: 0o644,
        bytes: without_relative_links(&changes).into_bytes(),
    });
    for item in documents {
        let Item { path, mode, bytes } = item;
        items.push(Item { path: path.clone(), mode: *mode, bytes: bytes.clone() });
    }
    items.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(items)
}

/// Markdown with the text of each relative link instead of the link.
fn without_relative_links(text: &str) -> String {
    let mut parts = text.split("](");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match (out.rfind('['), part.split_once(')')) {
            (Some(at), Some((target, rest))) if !target.contains("://") => {
                out.remove(at);
                out.push_str(rest);
            }
            _ => out.extend(["](", part]),
        }
    }
    out
}

/// The directories above all items, parents first, without the prefix itself.
pub(crate) fn directories(items: &[Item]) -> Vec<String> {
    let mut found: Vec<String> = items
        .iter()
        .flat_map(|item| item.path.match_indices('/').map(|(at, _)| item.path[..at].to_owned()))
        .collect();
    found.sort();
    found.dedup();
    found
}

/// Compresses without a date.
pub(crate) fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

#[cfg(test)]
pub(crate) mod samples {
    use super::*;

    /// A package whose program is a script.
    pub(crate) fn package() -> (Release, Vec<Item>) {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("packtrain");
        fs::write(&program, "#!/bin/sh\necho packtrain\n").unwrap();
        let page =
            Item { path: "share/man/man1/packtrain.1.gz".into(), mode: 0o644, bytes: vec![1] };
        let items = items(&program, &[page], &crate::compile::root()).unwrap();
        (Release { version: "1.2.3".into(), time: 1_700_000_000 }, items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_come_before_what_is_in_them() {
        let (_, items) = samples::package();
        let found = directories(&items);
        assert_eq!(&found[..4], ["bin", "lib", "lib/systemd", "lib/systemd/system"]);
        assert!(found.contains(&"share/man/man1".to_owned()));
    }

    #[test]
    fn every_path_that_a_unit_starts_with_is_packaged_or_made() {
        let (_, items) = samples::package();
        let text = |path: &str| {
            let item = items.iter().find(|item| item.path == path).expect(path);
            String::from_utf8(item.bytes.clone()).unwrap()
        };
        let made = text("lib/tmpfiles.d/packtrain.conf");
        let made: Vec<Vec<&str>> = made
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| line.split_whitespace().collect())
            .collect();
        let users = text("lib/sysusers.d/packtrain.conf");
        for line in &made {
            assert!(line.len() == 5 && line[1].starts_with('/'), "{line:?}");
            assert!(line[3] == "-" || users.starts_with(&format!("u {} ", line[3])), "{line:?}");
        }
        let mut paths = 0;
        for unit in ["packtrain.service", "packtrain-depot.service"] {
            let unit = text(&format!("lib/systemd/system/{unit}"));
            let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
            let written = unit.lines().filter_map(|line| line.strip_prefix("ReadWritePaths=-"));
            for path in start.split(' ').filter(|word| word.starts_with('/')).chain(written) {
                let packaged = path.strip_prefix("/usr/");
                let packaged = packaged.is_some_and(|path| items.iter().any(|i| i.path == path));
                assert!(packaged || made.iter().any(|line| line[1] == path), "{path}: {unit}");
                paths += 1;
            }
            assert!(unit.contains("\nUser=packtrain\n"));
        }
        assert_eq!(paths, 6, "a unit has another command line: is it understood?");
        // The owner of what is made must exist before.
        let order = ["systemd-sysusers packtrain.conf", "systemd-tmpfiles --create packtrain.conf"];
        let [user, file] = order.map(|command| AFTER_INSTALL.find(command).expect(command));
        assert!(user < file);
    }

    #[test]
    fn pages_that_are_installed_link_to_no_file() {
        let (_, items) = samples::package();
        for item in items.iter().filter(|item| item.path.ends_with(".md")) {
            assert!(!String::from_utf8_lossy(&item.bytes).contains("]("), "{}", item.path);
        }
        let text = "a [b c](docs/d.md), [e](https://f/) and x[1](2)";
        assert_eq!(without_relative_links(text), "a b c, [e](https://f/) and x1");
    }
}
