//! What tests and benches need from the machine: found, installed, or named as missing.

use anyhow::{Result, bail};

use crate::sh;

/// Something a suite needs and what cannot run without it.
pub(crate) struct Need {
    /// A program that must be there, or a file by its whole path.
    pub(crate) program: &'static str,
    /// The Debian package that has it.
    pub(crate) package: &'static str,
    /// What is skipped without it.
    pub(crate) for_what: &'static str,
}

/// Finds the needs, installing the missing with apt when we are root; returns those still missing.
pub(crate) fn provide(needs: &[Need]) -> Vec<&Need> {
    let missing = |needs: &[&Need]| -> Vec<usize> {
        (0..needs.len()).filter(|&i| sh::find(needs[i].program).is_none()).collect()
    };
    let all: Vec<&Need> = needs.iter().collect();
    let wanted = missing(&all);
    if wanted.is_empty() {
        return Vec::new();
    }
    let packages: Vec<&str> = wanted.iter().map(|&i| all[i].package).collect();
    if let Err(error) = install(&packages) {
        eprintln!("cannot install {}: {error:#}", packages.join(" "));
    }
    missing(&all).into_iter().map(|i| all[i]).collect()
}

/// Installs Debian packages.
///
/// # Errors
/// When we are not root, apt is not there, or it fails.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    if !sh::is_root() {
        bail!("not root; install them yourself: apt-get install {}", packages.join(" "));
    }
    if sh::find("apt-get").is_none() {
        bail!("no apt-get on this machine; install {} yourself", packages.join(" "));
    }
    let apt = |args: &[&str]| {
        let mut command = sh::command("apt-get", args);
        // A started service would be a change to the machine that no test asks for.
        command.env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1");
        sh::run(&mut command)
    };
    // Lists may be absent (a container) or old; a failed update alone is no reason to stop.
    if let Err(error) = apt(&["update", "-q"]) {
        eprintln!("{error:#}; trying with the package lists there are");
    }
    let mut args = vec!["install", "-y", "-q", "--no-install-recommends"];
    args.extend(packages);
    apt(&args)
}

/// The store of the tests with S3, by the version they are known to pass with.
const MOTO: &str = "moto[s3,server]==5.2.1";

/// Provides moto's server: what there is, or an environment of its own in the target directory.
///
/// # Errors
/// When neither python3 nor pip can be had.
pub(crate) fn moto() -> Result<()> {
    let place = sh::target_dir().join("moto");
    if sh::find("moto_server").is_some() || place.join("bin/moto_server").is_file() {
        return Ok(());
    }
    let place = place.display().to_string();
    if !sh::works("python3", &["-c", "import ensurepip, venv"]) {
        install(&["python3-venv"])?;
    }
    sh::run(&mut sh::command("python3", ["-m", "venv", &place]))?;
    let pip = format!("{place}/bin/pip");
    sh::run(&mut sh::command(&pip, ["install", "--quiet", MOTO]))
}

/// Whether network namespaces can be made here (as root, or as a user in a user namespace).
pub(crate) fn namespaces() -> bool {
    sh::works("unshare", &["--net", "--mount", "true"])
        || sh::works("unshare", &["--user", "--map-root-user", "--net", "--mount", "true"])
}

/// Whether this is a CI run, in which nothing may be skipped for want of a namespace.
pub(crate) fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}
