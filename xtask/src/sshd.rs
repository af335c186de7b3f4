//! A temporary ssh server on a high loopback port, with its own keys and configuration.
//!
//! It changes nothing on the machine except for the empty folder `/run/sshd`, which sshd requires
//! when it runs as root. Both the bench and the end-to-end tests of the command use it, so it
//! depends on the standard library only.

use std::fs;
use std::io::{self, Error};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The host name of the server for `ssh -F config`.
pub(crate) const HOST: &str = "packtrain-test";

/// A running server; dropping it stops it.
pub(crate) struct Sshd {
    child: Child,
    config: PathBuf,
}

impl Sshd {
    /// Starts a server with its files in `dir`; `environment` is the environment of its sessions.
    ///
    /// # Errors
    /// A program is missing or the server does not start.
    pub(crate) fn start(dir: &Path, environment: &[(&str, &str)]) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        key(&dir.join("host_key"))?;
        key(&dir.join("user_key"))?;
        fs::copy(dir.join("user_key.pub"), dir.join("authorized"))?;
        let user = output(Command::new("id").arg("-un"))?;
        if user == "root" {
            fs::create_dir_all("/run/sshd")?;
        }
        let mut last = None;
        for _ in 0..5 {
            match Self::try_start(dir, &user, environment) {
                Ok(server) => return Ok(server),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| Error::other("sshd did not start")))
    }

    /// The ssh command that connects to it, for `-e`.
    pub(crate) fn ssh(&self) -> String {
        format!("ssh -F {}", self.config.display())
    }

    fn try_start(dir: &Path, user: &str, environment: &[(&str, &str)]) -> io::Result<Self> {
        // The port is free now; if another process takes it, the caller tries again.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let at = dir.display();
        let mut server = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {at}/host_key\nPidFile none\n\
             AuthorizedKeysFile {at}/authorized\nStrictModes no\nUsePAM no\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\n\
             PermitRootLogin prohibit-password\nMaxStartups 100\nMaxSessions 100\n"
        );
        if !environment.is_empty() {
            server.push_str("SetEnv");
            for (name, value) in environment {
                server.push_str(&format!(" \"{name}={value}\""));
            }
            server.push('\n');
        }
        fs::write(dir.join("sshd_config"), server)?;
        let host_key = fs::read_to_string(dir.join("host_key.pub"))?;
        fs::write(dir.join("known_hosts"), format!("[127.0.0.1]:{port} {host_key}"))?;
        let config = dir.join("ssh_config");
        let client = format!(
            "Host {HOST}\n HostName 127.0.0.1\n Port {port}\n User {user}\n\
             \x20IdentityFile {at}/user_key\n IdentitiesOnly yes\n BatchMode yes\n\
             \x20UserKnownHostsFile {at}/known_hosts\n GlobalKnownHostsFile none\n\
             \x20StrictHostKeyChecking yes\n LogLevel ERROR\n"
        );
        fs::write(&config, client)?;
        let log = fs::File::create(dir.join("sshd.log"))?;
        let mut child = Command::new(program("sshd")?)
            .args(["-D", "-e", "-f"])
            .arg(dir.join("sshd_config"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()?;
        for _ in 0..100 {
            if let Some(status) = child.try_wait()? {
                let log = fs::read_to_string(dir.join("sshd.log")).unwrap_or_default();
                return Err(Error::other(format!("sshd ended with {status}: {log}")));
            }
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Ok(Self { child, config });
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = child.kill();
        let _ = child.wait();
        Err(Error::other("sshd does not listen after 5 s"))
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The full path of a system program; sshd must be started by its full path.
pub(crate) fn program(name: &str) -> io::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
        .ok_or_else(|| Error::new(io::ErrorKind::NotFound, format!("no {name} on this machine")))
}

fn key(file: &Path) -> io::Result<()> {
    if file.exists() {
        return Ok(());
    }
    let mut keygen = Command::new("ssh-keygen");
    output(keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(file)).map(drop)
}

fn output(command: &mut Command) -> io::Result<String> {
    let out = command.stdin(Stdio::null()).output()?;
    if !out.status.success() {
        return Err(Error::other(String::from_utf8_lossy(&out.stderr).into_owned()));
    }
    Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned())
}
