//! The rpm, written by the crate `rpm`. It is not signed.

use std::path::{Path, PathBuf};

use anyhow::Result;
use rpm::{BuildConfig, CompressionType, FileOptions, PackageBuilder, Scriptlet};

use crate::compile::Target;
use crate::payload::{AFTER_INSTALL, DESCRIPTION, Item, Release, SUMMARY};

/// Writes `packtrain-VERSION-1.PROCESSOR.rpm`.
pub(crate) fn write(
    dir: &Path,
    release: &Release,
    target: &Target,
    items: &[Item],
) -> Result<PathBuf> {
    let licence = "MIT OR Apache-2.0";
    let mut builder =
        PackageBuilder::new("packtrain", &release.version, licence, target.processor, SUMMARY);
    let config =
        BuildConfig::default().compression(CompressionType::Gzip).source_date(release.time);
    builder.using_config(config).release("1").description(DESCRIPTION);
    builder.build_host("packtrain").post_install_script(Scriptlet::new(AFTER_INSTALL));
    for item in items {
        let options = FileOptions::new(format!("/usr/{}", item.path));
        let options = options.permissions(u16::try_from(item.mode)?);
        builder.with_file_contents(item.bytes.clone(), options)?;
    }
    let path = dir.join(format!("packtrain-{}-1.{}.rpm", release.version, target.processor));
    builder.build()?.write_file(&path)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::samples::package;

    #[test]
    fn the_package_can_be_read_and_has_all_items() {
        let (release, items) = package();
        let dir = tempfile::tempdir().unwrap();
        let target = crate::compile::target("x86_64-unknown-linux-gnu").unwrap();
        let path = write(dir.path(), &release, target, &items).unwrap();
        assert_eq!(path.file_name().unwrap(), "packtrain-1.2.3-1.x86_64.rpm");
        let package = rpm::Package::open(&path).unwrap();
        package.verify_digests().unwrap();
        assert_eq!(package.metadata.get_version().unwrap(), "1.2.3");
        let found = package.metadata.get_file_paths().unwrap();
        let mut found: Vec<_> = found.iter().map(|path| path.display().to_string()).collect();
        found.sort();
        let mut expected: Vec<_> = items.iter().map(|item| format!("/usr/{}", item.path)).collect();
        expected.sort();
        assert_eq!(found, expected);
    }
}
