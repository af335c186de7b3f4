//! The Debian package: an `ar` archive with the version of the format, the control files and the
//! files (deb(5)).

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::compile::Target;
use crate::payload::{AFTER_INSTALL, DESCRIPTION, Item, Release, SUMMARY, gzip};
use crate::tarball;

/// Writes `packtrain_VERSION_ARCH.deb`.
pub(crate) fn write(
    dir: &Path,
    release: &Release,
    target: &Target,
    items: &[Item],
) -> Result<PathBuf> {
    let path = dir.join(format!("packtrain_{}_{}.deb", release.version, target.arch));
    let size: usize = items.iter().map(|item| item.bytes.len().div_ceil(1024)).sum();
    let file = |path: &str, mode: u32, text: String| Item {
        path: path.to_owned(),
        mode,
        bytes: text.into_bytes(),
    };
    let script = format!("#!/bin/sh\nset -e\n{AFTER_INSTALL}");
    let control = [
        file("control", 0o644, control(&release.version, target.arch, size)),
        file("postinst", 0o755, script),
    ];
    let control = gzip(&tarball::archive(".", release.time, &control)?)?;
    let data = gzip(&tarball::archive("./usr", release.time, items)?)?;
    let mut archive = ar::Builder::new(File::create(&path)?);
    for (name, bytes) in
        [("debian-binary", &b"2.0\n"[..]), ("control.tar.gz", &control), ("data.tar.gz", &data)]
    {
        let mut header = ar::Header::new(name.as_bytes().to_vec(), bytes.len() as u64);
        header.set_mode(0o100_644);
        header.set_mtime(release.time.into());
        archive.append(&header, bytes)?;
    }
    fs::File::sync_all(&archive.into_inner()?)?;
    Ok(path)
}

fn control(version: &str, arch: &str, size: usize) -> String {
    let description = DESCRIPTION.replace('\n', "\n ");
    format!(
        "Package: packtrain\nVersion: {version}\nArchitecture: {arch}\nSection: net\n\
         Priority: optional\nInstalled-Size: {size}\nMaintainer: The Packtrain developers <packtrain@example.invalid>\n\
         Recommends: openssh-client\nDescription: {SUMMARY}\n {description}\n"
    )
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::capture;
    use crate::payload::samples::package;

    #[test]
    fn the_package_has_the_parts_of_the_format_in_order() {
        let (release, items) = package();
        let dir = tempfile::tempdir().unwrap();
        let target = crate::compile::target("x86_64-unknown-linux-gnu").unwrap();
        let path = write(dir.path(), &release, target, &items).unwrap();
        assert_eq!(path.file_name().unwrap(), "packtrain_1.2.3_amd64.deb");
        let mut archive = ar::Archive::new(File::open(&path).unwrap());
        let mut names = Vec::new();
        while let Some(entry) = archive.next_entry() {
            names.push(String::from_utf8_lossy(entry.unwrap().header().identifier()).into_owned());
        }
        assert_eq!(names, ["debian-binary", "control.tar.gz", "data.tar.gz"]);
    }

    /// Where Debian's own program is installed, it must read and unpack the package.
    #[test]
    fn debian_reads_it() {
        if Command::new("dpkg-deb").arg("--version").output().is_err() {
            return packtrain_testkit::skip("no dpkg-deb; the test above reads the parts");
        }
        let (release, items) = package();
        let dir = tempfile::tempdir().unwrap();
        let target = crate::compile::target("aarch64-unknown-linux-gnu").unwrap();
        let path = write(dir.path(), &release, target, &items).unwrap();
        let field = |name: &str| {
            let out = capture(Command::new("dpkg-deb").arg("--field").arg(&path).arg(name));
            String::from_utf8(out.unwrap()).unwrap().trim().to_owned()
        };
        assert_eq!((field("Version"), field("Architecture")), ("1.2.3".into(), "arm64".into()));
        let to = dir.path().join("unpacked");
        capture(Command::new("dpkg-deb").arg("--extract").arg(&path).arg(&to)).unwrap();
        let said = capture(&mut Command::new(to.join("usr/bin/packtrain"))).unwrap();
        assert_eq!(said, b"packtrain\n");
        assert!(to.join("usr/lib/systemd/system/packtrain.service").is_file());
    }
}
