//! Builds the static program for a target.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{capture, elf};

/// A target of the compiler.
#[derive(Debug)]
pub(crate) struct Target {
    /// Its name.
    pub(crate) name: &'static str,
    /// The name of the processor in `uname -m` and in rpm.
    pub(crate) processor: &'static str,
    /// The name of the processor in Debian.
    pub(crate) arch: &'static str,
    /// Its number in ELF.
    pub(crate) machine: u16,
    /// Whether a deb and an rpm are made.
    pub(crate) packaged: bool,
}

const TARGETS: &[Target] = &[
    Target {
        name: "x86_64-unknown-linux-gnu",
        processor: "x86_64",
        arch: "amd64",
        machine: elf::X86_64,
        packaged: true,
    },
    Target {
        name: "x86_64-unknown-linux-musl",
        processor: "x86_64",
        arch: "amd64",
        machine: elf::X86_64,
        packaged: false,
    },
    Target {
        name: "aarch64-unknown-linux-gnu",
        processor: "aarch64",
        arch: "arm64",
        machine: elf::AARCH64,
        packaged: true,
    },
    Target {
        name: "aarch64-unknown-linux-musl",
        processor: "aarch64",
        arch: "arm64",
        machine: elf::AARCH64,
        packaged: false,
    },
];

impl Target {
    /// Whether this machine runs its programs.
    pub(crate) fn runs_here(&self) -> bool {
        self.processor == std::env::consts::ARCH
    }
}

/// The target of this name.
pub(crate) fn target(name: &str) -> Result<&'static Target> {
    let found = TARGETS.iter().find(|target| target.name == name);
    found.with_context(|| {
        let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
        format!("{name} is none of {}", names.join(", "))
    })
}

/// The targets that are installed; the others are named with the command that installs them.
pub(crate) fn installed() -> Result<Vec<&'static Target>> {
    let mut rustc = Command::new("rustc");
    let sysroot = capture(rustc.args(["--print", "sysroot"]).current_dir(root()))?;
    let libraries = PathBuf::from(String::from_utf8(sysroot)?.trim()).join("lib/rustlib");
    let (found, missing): (Vec<_>, Vec<_>) =
        TARGETS.iter().partition(|target| libraries.join(target.name).join("lib").is_dir());
    for target in missing {
        println!(
            "dist: not built: {}: `rustup target add {0}` installs it{}",
            target.name,
            if target.runs_here() { "" } else { ", and a C compiler and linker for it are needed" }
        );
    }
    if found.is_empty() {
        bail!("no target is installed");
    }
    Ok(found)
}

/// The top of the repository.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap_or_default()
}

/// Cargo's target directory.
pub(crate) fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Parts of SQLite that the history does not use, in addition to those of `.cargo/config.toml`.
const SQLITE: &str = "-USQLITE_ENABLE_FTS3 -USQLITE_ENABLE_FTS3_PARENTHESIS \
                      -USQLITE_ENABLE_FTS5 -USQLITE_ENABLE_RTREE -USQLITE_ENABLE_STAT4 \
                      -USQLITE_ENABLE_DBSTAT_VTAB -DSQLITE_OMIT_JSON \
                      -DSQLITE_OMIT_LOAD_EXTENSION";

/// Builds the program and returns its path.
pub(crate) fn build(target: &Target) -> Result<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    let mut flags = vec![
        "-Ctarget-feature=+crt-static".to_owned(),
        // No path of the machine that built it. They also take 200 kB.
        format!("--remap-path-prefix={}=packtrain", root().display()),
    ];
    if let Some(home) = home {
        flags.push(format!("--remap-path-prefix={}=crates", home.join("registry/src").display()));
    }
    if target.name.ends_with("-gnu") {
        // Relocations in the short form, which the start-up code of glibc 2.36 understands.
        flags.push("-Clink-arg=-Wl,-z,pack-relative-relocs".to_owned());
    }
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root());
    cargo.args(["rustc", "--locked", "--profile", "portable", "--package", "packtrain"]);
    cargo.args(["--bin", "packtrain", "--features", "resolver", "--target", target.name]);
    // The linker of this target (lld) makes functions with the same code one. Nothing here compares
    // addresses of functions.
    if target.name == "x86_64-unknown-linux-gnu" {
        cargo.args(["--", "-Clink-arg=-Wl,--icf=all"]);
    }
    // Flags of the user's own would change what is built.
    cargo.env_remove("RUSTFLAGS").env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
    cargo.env("LIBSQLITE3_FLAGS", SQLITE);
    println!("dist: building for {} (5 minutes on two cores)", target.name);
    let status = cargo.status().context("running cargo")?;
    if !status.success() {
        bail!("the build for {} ended with {status}", target.name);
    }
    Ok(target_dir().join(target.name).join("portable/packtrain"))
}
