//! `cargo xtask dist`: builds the static program, tries it where there is no C library, and packs
//! it as a tarball, a deb and an rpm with completions, man pages, systemd units and checksums.
//!
//! This is not part of the product: it may read clocks, print and run other programs.
#![allow(clippy::disallowed_methods, clippy::print_stdout)]

mod compile;
mod deb;
mod elf;
mod payload;
mod rpms;
mod tarball;
mod trial;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use compile::Target;
use payload::Release;

const USAGE: &str = "\
usage: cargo xtask dist [--dir DIR] [--target TARGET ...] [--binary FILE]

Builds packtrain for each TARGET (by default for all of x86_64 and aarch64, GNU and musl, that are
installed) and writes tarball, deb, rpm and SHA256SUMS to DIR (target/dist). --binary packs an
existing program of the first target.
";

/// The largest program, in bytes. It is sent to machines that do not have it.
const MAX_PROGRAM: u64 = 15_000_000;

struct Options {
    dir: PathBuf,
    targets: Vec<&'static Target>,
    binary: Option<PathBuf>,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|word| word == "--help" || word == "-h") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    match options(&args).and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dist: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn options(args: &[String]) -> Result<Options> {
    let (mut dir, mut targets, mut binary) = (None, Vec::new(), None);
    let mut words = args.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} needs a value"));
        match word.as_str() {
            "--dir" => dir = Some(PathBuf::from(value()?)),
            "--binary" => binary = Some(PathBuf::from(value()?)),
            "--target" => targets.push(compile::target(value()?)?),
            _ => bail!("{word} is not understood\n{USAGE}"),
        }
    }
    if targets.is_empty() {
        targets = compile::installed()?;
    }
    let dir = dir.unwrap_or_else(|| compile::target_dir().join("dist"));
    Ok(Options { dir, targets, binary })
}

fn run(options: &Options) -> Result<()> {
    fs::create_dir_all(&options.dir)?;
    let release = Release::read(&compile::root())?;
    let mut written = Vec::new();
    let mut documents = None;
    for (index, target) in options.targets.iter().enumerate() {
        let binary = match &options.binary {
            Some(binary) if index == 0 => binary.clone(),
            _ => compile::build(target)?,
        };
        check(&binary, target)?;
        if target.runs_here() {
            trial::run(&binary)?;
        } else {
            println!("dist: {} is not tried: it does not run on this machine", target.name);
        }
        // Completions and pages are those of the first program that runs here.
        let documents = match &mut documents {
            Some(known) => known,
            none => none.insert(payload::documents(&binary)?),
        };
        let items = payload::items(&binary, documents, &compile::root())?;
        written.push(tarball::write(&options.dir, &release, target, &items)?);
        // A package manager needs one package for each processor: that of the GNU target.
        if target.packaged {
            written.push(deb::write(&options.dir, &release, target, &items)?);
            written.push(rpms::write(&options.dir, &release, target, &items)?);
            // `cp` sends this file to machines of its kind.
            let alone = options.dir.join(format!("packtrain-Linux-{}", target.processor));
            fs::copy(&binary, &alone)?;
            written.push(alone);
        }
    }
    sums(&options.dir, &written)?;
    for path in &written {
        println!("dist: {} ({} bytes)", path.display(), fs::metadata(path)?.len());
    }
    println!("dist: {}", options.dir.join("SHA256SUMS").display());
    Ok(())
}

/// The program must be static, of the right processor, and small enough to be sent.
fn check(binary: &Path, target: &Target) -> Result<()> {
    let bytes = fs::read(binary).with_context(|| binary.display().to_string())?;
    elf::check(&bytes, target.machine).with_context(|| binary.display().to_string())?;
    let size = bytes.len() as u64;
    if size > MAX_PROGRAM {
        bail!("{} has {size} bytes; at most {MAX_PROGRAM} are allowed", binary.display());
    }
    println!("dist: {}: static, {size} bytes of at most {MAX_PROGRAM}", target.name);
    Ok(())
}

/// Writes the file that `sha256sum -c` reads.
fn sums(dir: &Path, written: &[PathBuf]) -> Result<()> {
    let mut text = String::new();
    for path in written {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        text.push_str(&format!("{}  {name}\n", hex(&Sha256::digest(fs::read(path)?))));
    }
    fs::write(dir.join("SHA256SUMS"), text).context("SHA256SUMS")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Runs a program quietly and returns its stdout; its stderr is part of the error.
fn capture(command: &mut Command) -> Result<Vec<u8>> {
    let out = command.stdin(Stdio::null()).output().with_context(|| format!("{command:?}"))?;
    if !out.status.success() {
        bail!("{command:?} ended with {}\n{}", out.status, String::from_utf8_lossy(&out.stderr));
    }
    Ok(out.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sums_are_those_that_sha256sum_checks() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("one");
        fs::write(&path, "abc").unwrap();
        sums(dir.path(), &[path]).unwrap();
        let text = fs::read_to_string(dir.path().join("SHA256SUMS")).unwrap();
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(text, format!("{expected}  one\n"));
    }

    #[test]
    fn options_are_understood_or_refused() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let read = options(&words("--dir d --target x86_64-unknown-linux-musl")).unwrap();
        assert_eq!((read.dir, read.targets[0].arch), (PathBuf::from("d"), "amd64"));
        assert!(options(&words("--target sparc")).is_err());
        assert!(options(&words("--dir")).is_err());
        assert!(options(&words("--loud")).is_err());
    }
}
