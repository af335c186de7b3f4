//! Requirements of tests and benches on the machine: finds, installs, or reports them.

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::sh;

/// A requirement of a suite.
pub(crate) struct Need {
    /// The name of a program, or the full path of a file.
    pub(crate) program: &'static str,
    /// The Debian package that has it.
    pub(crate) package: &'static str,
    /// The tests that are skipped without it.
    pub(crate) for_what: &'static str,
}

/// Checks the requirements, installs the missing ones with apt if this is root, and returns those
/// still missing.
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
/// This is not root, apt is missing, or it fails.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    if !sh::is_root() {
        bail!("not root; install them yourself: apt-get install {}", packages.join(" "));
    }
    if sh::find("apt-get").is_none() {
        bail!("no apt-get on this machine; install {} yourself", packages.join(" "));
    }
    let apt = |args: &[&str]| {
        let mut command = sh::command("apt-get", args);
        // Services must not start: that would change the machine.
        command.env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1");
        sh::run(&mut command)
    };
    // Package lists may be missing (in a container) or old; a failed update alone is no error.
    if let Err(error) = apt(&["update", "-q"]) {
        eprintln!("{error:#}; trying with the package lists there are");
    }
    let mut args = vec!["install", "-y", "-q", "--no-install-recommends"];
    args.extend(packages);
    apt(&args)
}

/// The S3 server of the tests, in the version with which they pass.
const MOTO: &str = "moto[s3,server]==5.2.1";

/// Provides moto's server, the program: an existing one, or one in a Python environment in the target
/// directory.
///
/// # Errors
/// Python 3 or pip is not available.
pub(crate) fn moto() -> Result<PathBuf> {
    let place = sh::target_dir().join("moto");
    let own = place.join("bin/moto_server");
    if let Some(program) = sh::find("moto_server").or_else(|| own.is_file().then(|| own.clone())) {
        return Ok(program);
    }
    let place = place.display().to_string();
    if !sh::works("python3", &["-c", "import ensurepip, venv"]) {
        install(&["python3-venv"])?;
    }
    sh::run(&mut sh::command("python3", ["-m", "venv", &place]))?;
    let pip = format!("{place}/bin/pip");
    sh::run(&mut sh::command(&pip, ["install", "--quiet", MOTO]))?;
    Ok(own)
}

/// Whether network namespaces can be created here (as root, or as a user in a user namespace).
pub(crate) fn namespaces() -> bool {
    sh::works("unshare", &["--net", "--mount", "true"])
        || sh::works("unshare", &["--user", "--map-root-user", "--net", "--mount", "true"])
}

/// Whether this is a CI run, in which no test may be skipped for lack of namespaces.
pub(crate) fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}
