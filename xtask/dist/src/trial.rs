//! Runs the program in a root directory that has nothing else: no C library, no shell, no `/proc`.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// A name that only the trial's own `/etc/hosts` has.
const NAME: &str = "packtrain-trial.invalid";
/// How long the server may take to listen. Other programs may keep the machine busy.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Copies a file within the empty root, and from a server there whose name `/etc/hosts` has.
pub(crate) fn run(binary: &Path) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let root = dir.path();
    for name in ["etc", "tmp", "out", "data"] {
        fs::create_dir(root.join(name))?;
    }
    fs::copy(binary, root.join("packtrain"))?;
    fs::write(root.join("etc/hosts"), format!("127.0.0.1 {NAME}\n"))?;
    let content = vec![7; 3 << 20];
    fs::write(root.join("data/f"), &content)?;
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();

    within(root, &["--version"])?;
    within(root, &["cp", "/data/f", "/data/local"])?;
    let at = format!("{NAME}:{port}");
    let server = ["serve", "--listen", &at, "--root", "/data", "--ticket-file", "/out/ticket"];
    let mut server = Server(command(root, &server)?.spawn().context("the server")?);
    wait_until(|| {
        if let Some(status) = server.0.try_wait()? {
            bail!("the server in the empty root ended with {status}");
        }
        Ok(root.join("out/ticket").is_file()
            && std::net::TcpStream::connect(("127.0.0.1", port)).is_ok())
    })?;
    let place = format!("pt://{at}/f");
    within(root, &["cp", "--ticket", "@/out/ticket", &place, "/out/fetched"])?;
    for copy in ["data/local", "out/fetched"] {
        if fs::read(root.join(copy))? != content {
            bail!("{copy} in the empty root differs from its source");
        }
    }
    println!("dist: it copies, serves and finds names in a root directory without a C library");
    Ok(())
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait_until(mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let begun = Instant::now();
    while !is_so()? {
        if begun.elapsed() > TIMEOUT {
            bail!("the server in the empty root does not listen");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn within(root: &Path, args: &[&str]) -> Result<()> {
    let status = command(root, args)?.status().context("changing the root directory")?;
    if !status.success() {
        bail!("`packtrain {}` in an empty root ended with {status}", args.join(" "));
    }
    Ok(())
}

/// `packtrain` with this root directory: by root itself, or in a user namespace.
fn command(root: &Path, args: &[&str]) -> Result<Command> {
    let user = crate::capture(Command::new("id").arg("-u"))?;
    let mut command = Command::new("unshare");
    if user.trim_ascii() != b"0" {
        command.args(["--user", "--map-root-user"]);
    }
    command.arg("--root").arg(root).arg("/packtrain").args(args);
    command.env_clear().env("HOME", "/out").stdin(Stdio::null());
    // `unshare` itself is found by the caller's PATH.
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    Ok(command)
}
