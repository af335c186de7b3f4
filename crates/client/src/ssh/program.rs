//! The program that is sent to another machine.

use std::io;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest;
use packtrain_units::escape;

use super::image;

/// A program and its digest.
pub(super) struct Program {
    /// What is sent, before compression.
    pub(super) bytes: Vec<u8>,
    /// SHA-256 of it, in hexadecimal digits: what `sha256sum` there prints.
    pub(super) digest: String,
}

impl Program {
    fn new(bytes: Vec<u8>) -> Self {
        let digest = escape::hex(digest::digest(&digest::SHA256, &bytes).as_ref());
        Self { bytes, digest }
    }
}

/// The program for a system, which is named as `uname -sm` there prints it. A static program beside
/// this one is preferred, because it runs on every machine of that system.
///
/// # Errors
/// Why there is none, for the user.
pub(super) fn for_system(system: &str) -> Result<Program, String> {
    let own = rustix::system::uname();
    let here = format!("{} {}", own.sysname().to_string_lossy(), own.machine().to_string_lossy());
    let exe = std::env::current_exe().ok();
    if let Some(path) = exe.and_then(|exe| beside(&exe, system)) {
        let bytes = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        return Ok(Program::new(bytes));
    }
    if here != system {
        return Err(format!(
            "this program ({here}) does not run there ({system}); `cargo xtask dist` builds programs \
             for other machines"
        ));
    }
    let bytes = running().map_err(|e| format!("this program's own file cannot be read: {e}"))?;
    Ok(Program::new(bytes))
}

/// The file `packtrain-SYSTEM-MACHINE` beside this program, where packages put it, or where
/// `cargo xtask dist` writes it.
fn beside(exe: &Path, system: &str) -> Option<PathBuf> {
    // The words come from the other machine.
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ' ';
    if !system.chars().all(plain) {
        return None;
    }
    let name = format!("packtrain-{}", system.replace(' ', "-"));
    let dir = exe.parent()?;
    let dirs = [dir.to_owned(), dir.join("../lib/packtrain"), dir.join("../dist")];
    dirs.iter().map(|dir| dir.join(&name)).find(|path| path.is_file())
}

/// This program without the parts that the kernel does not load.
fn running() -> io::Result<Vec<u8>> {
    let mut program = std::fs::read("/proc/self/exe")?;
    image::without_sections(&mut program);
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_static_program_of_the_other_system_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let (bin, lib) = (dir.path().join("bin"), dir.path().join("lib/packtrain"));
        std::fs::create_dir(&bin).unwrap();
        std::fs::create_dir_all(&lib).unwrap();
        let exe = bin.join("packtrain");
        std::fs::write(lib.join("packtrain-Linux-aarch64"), "arm").unwrap();
        let found = beside(&exe, "Linux aarch64").unwrap();
        assert_eq!(std::fs::read(found).unwrap(), b"arm");
        for none in ["Linux x86_64", "Linux /../aarch64", "..", ""] {
            assert!(beside(&exe, none).is_none(), "{none:?}");
        }
    }

    #[test]
    fn the_digest_is_that_of_sha256sum() {
        let program = Program::new(b"abc".to_vec());
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(program.digest, expected);
    }

    #[test]
    fn a_machine_of_another_kind_is_told_what_to_do() {
        let why = for_system("Plan9 mips").err().unwrap();
        assert!(why.contains("Plan9 mips") && why.contains("cargo xtask dist"), "{why}");
    }
}
