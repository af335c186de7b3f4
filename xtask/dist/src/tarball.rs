//! The tarball: one directory, to be copied to `/usr/local` or `~/.local`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use tar::{Builder, EntryType, Header};

use crate::compile::Target;
use crate::payload::{Item, Release, directories, gzip};

/// Writes `packtrain-VERSION-TARGET.tar.gz`.
pub(crate) fn write(
    dir: &Path,
    release: &Release,
    target: &Target,
    items: &[Item],
) -> Result<PathBuf> {
    let name = format!("packtrain-{}-{}", release.version, target.name);
    let path = dir.join(format!("{name}.tar.gz"));
    fs::write(&path, gzip(&archive(&name, release.time, items)?)?)?;
    Ok(path)
}

/// An uncompressed archive of the items below `prefix`, all of root.
pub(crate) fn archive(prefix: &str, time: u32, items: &[Item]) -> Result<Vec<u8>> {
    let mut archive = Builder::new(Vec::new());
    let header = |kind: EntryType, mode: u32, size: usize| {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(size as u64);
        header.set_mtime(time.into());
        header.set_uid(0);
        header.set_gid(0);
        header
    };
    for name in directories(items) {
        let mut header = header(EntryType::Directory, 0o755, 0);
        archive.append_data(&mut header, format!("{prefix}/{name}/"), &[][..])?;
    }
    for item in items {
        let mut header = header(EntryType::Regular, item.mode, item.bytes.len());
        archive.append_data(&mut header, format!("{prefix}/{}", item.path), &item.bytes[..])?;
    }
    Ok(archive.into_inner()?)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;
    use crate::payload::samples::package;

    #[test]
    fn the_archive_has_all_items_and_the_same_bytes_each_time() {
        let (release, items) = package();
        let bytes = archive("p", release.time, &items).unwrap();
        assert!(bytes == archive("p", release.time, &items).unwrap());
        let mut archive = tar::Archive::new(&bytes[..]);
        let mut found = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            if entry.header().entry_type() != EntryType::Regular {
                continue;
            }
            let path = entry.path().unwrap().display().to_string();
            let (mode, mut content) = (entry.header().mode().unwrap(), Vec::new());
            entry.read_to_end(&mut content).unwrap();
            found.push((path, mode, content));
        }
        let expected: Vec<_> = items
            .into_iter()
            .map(|item| (format!("p/{}", item.path), item.mode, item.bytes))
            .collect();
        assert!(found == expected);
    }
}
