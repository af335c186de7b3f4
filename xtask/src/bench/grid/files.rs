//! The programs that copy a file, and their command lines. Source and target are in memory, and the
//! measured time is that of the whole command.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::cells::Programs;
use super::parse;
use super::programs::{Program, Role, SRT, default_control, missing};
use crate::bench::file::make;
use crate::bench::lab::Lab;
use crate::bench::wan::{FAR, quoted};
use crate::sh;

/// A copy that takes longer is cut off, in seconds.
pub(super) const TIMEOUT: u32 = 60;
/// The name of the file at both ends.
const NAME: &str = "copy";

/// Folders of the copies, and the ssh server's files.
pub(crate) struct Folders {
    memory: PathBuf,
    ssh: PathBuf,
}

impl Folders {
    /// Makes keys for an ssh server that listens on the far host only, and a hosts file for
    /// GridFTP.
    pub(crate) fn new(lab: &Lab, memory: &Path) -> Result<Self> {
        let folders = Self { memory: memory.to_owned(), ssh: lab.fresh("grid-ssh")? };
        let at = folders.ssh.display();
        for key in ["host", "user"] {
            let file = format!("{at}/{key}");
            sh::capture(&mut sh::command(
                "ssh-keygen",
                ["-q", "-t", "ed25519", "-N", "", "-f", &file],
            ))?;
        }
        // sshd wants this folder when it runs as root.
        fs::create_dir_all("/run/sshd")?;
        let server = format!(
            "Port 7418\nListenAddress {FAR}\nHostKey {at}/host\nPidFile none\n\
             AuthorizedKeysFile {at}/user.pub\nStrictModes no\nUsePAM no\nLogLevel ERROR\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\n\
             PermitRootLogin prohibit-password\nSubsystem sftp internal-sftp\n"
        );
        let client = format!(
            "Host far\n HostName {FAR}\n Port 7418\n User root\n IdentityFile {at}/user\n\
             \x20IdentitiesOnly yes\n BatchMode yes\n UserKnownHostsFile {at}/known\n\
             \x20GlobalKnownHostsFile none\n StrictHostKeyChecking yes\n LogLevel ERROR\n"
        );
        let key = fs::read_to_string(folders.ssh.join("host.pub"))?;
        fs::write(folders.ssh.join("known"), format!("[{FAR}]:7418 {key}"))?;
        fs::write(folders.ssh.join("sshd_config"), server)?;
        fs::write(folders.ssh.join("ssh_config"), client)?;
        fs::write(
            folders.ssh.join("hosts"),
            format!("127.0.0.1 localhost\n10.77.0.1 near\n{FAR} far\n"),
        )?;
        Ok(folders)
    }

    /// An empty target, and a source of this size.
    pub(crate) fn prepare(&self, megabytes: u32) -> Result<()> {
        self.clear();
        fs::create_dir_all(self.target())?;
        // GridFTP's server writes as nobody.
        fs::set_permissions(self.target(), fs::Permissions::from_mode(0o777))?;
        let source = self.source();
        let bytes = u64::from(megabytes) * 1_000_000;
        if fs::metadata(&source).is_ok_and(|found| found.len() == bytes) {
            return Ok(());
        }
        fs::create_dir_all(source.parent().context("a folder")?)?;
        make(&source, bytes.div_ceil(1 << 20))?;
        fs::OpenOptions::new().write(true).open(&source)?.set_len(bytes)?;
        Ok(())
    }

    /// Removes the copy.
    pub(crate) fn clear(&self) {
        let _ = fs::remove_dir_all(self.target());
    }

    /// Whether the copy has the source's content.
    ///
    /// # Errors
    /// It has not.
    pub(crate) fn check(&self) -> Result<()> {
        let copy = self.target().join(NAME);
        if !sh::works("cmp", &["-s", &self.source().to_string_lossy(), &copy.to_string_lossy()]) {
            let size = fs::metadata(&copy).map_or(0, |found| found.len());
            bail!("the copy differs from its source ({size} bytes arrived)");
        }
        Ok(())
    }

    fn source(&self) -> PathBuf {
        self.memory.join("file-source").join(NAME)
    }

    fn target(&self) -> PathBuf {
        self.memory.join("file-target")
    }
}

/// Every program that copies a file, in the order in which they take turns.
pub(crate) fn all(lab: &Lab, folders: &Folders) -> Vec<Program> {
    let mut all = vec![
        packtrain(lab, folders, "native", Role::Native),
        packtrain(lab, folders, "auto", Role::Auto),
        packtrain(lab, folders, "tcp", Role::Tcp),
    ];
    for (streams, set) in [(1, Programs::Single), (4, Programs::Single), (16, Programs::All)] {
        all.push(gridftp(folders, streams, set));
    }
    all.extend([rsync(folders), rclone(folders), srt(folders)]);
    all
}

/// A command for the near host that leaves its exit code and its time, with kernel bbr as the
/// default of the hosts.
fn timed(before: &str, command: &str) -> String {
    format!(
        "{}{before}begin=$(date +%s%N); timeout -k 1 {TIMEOUT} {command} > \"$OUT.log\" 2>&1; \
         code=$?; end=$(date +%s%N); \
         echo \"{{\\\"code\\\":$code,\\\"nanoseconds\\\":$((end - begin))}}\" > \"$OUT\"; \
         test $code = 0 || tail -n 1 \"$OUT.log\" >&2",
        default_control("bbr")
    )
}

fn program(name: String, role: Role, set: Programs, far: String, near: String) -> Program {
    let (far, read) = (vec![far], parse::copy_seconds as fn(&str) -> Result<f64>);
    Program { name, role, set, raised: false, far, near, read, missing: None }
}

fn packtrain(lab: &Lab, folders: &Folders, transport: &str, role: Role) -> Program {
    let product = quoted(&lab.packtrain);
    let far = format!(
        "{product} key show > \"$OUT.key\" && mv \"$OUT.key\" \"$OUT.keys\" && exec {product} serve \
         --listen {FAR}:7416 --root {} --authorized-keys \"$OUT.keys\"",
        quoted(&folders.target())
    );
    let near = timed(
        "until test -s \"$OUT.keys\"; do sleep 0.05; done; sleep 0.3; ",
        &format!(
            "{product} cp --json --progress none --accept-new-host --history none \
             --transport {transport} {} pt://{FAR}:7416/{NAME}",
            quoted(&folders.source())
        ),
    );
    program(format!("packtrain cp, {transport}"), role, Programs::Few, far, near)
}

/// GridFTP without authentication. It wants names of hosts, which only its own mount namespace has.
fn gridftp(folders: &Folders, streams: u32, set: Programs) -> Program {
    let hosts = quoted(&folders.ssh.join("hosts"));
    let named = |host: &str, command: &str| {
        format!(
            "unshare -m sh -c \"mount --bind {hosts} /etc/hosts && GLOBUS_HOSTNAME={host} exec \
             {command}\""
        )
    };
    let server = format!(
        "globus-gridftp-server -aa -anonymous-user nobody -p 7419 -control-interface {FAR} \
         -data-interface {FAR} -log-level ERROR"
    );
    let client = format!(
        "globus-url-copy -p {streams} file://{} ftp://far:7419{}/{NAME}",
        folders.source().display(),
        folders.target().display()
    );
    let name = match streams {
        1 => "GridFTP".to_owned(),
        _ => format!("GridFTP x {streams}"),
    };
    let near = timed("sleep 0.5; ", &named("near", &client));
    let far = named("far", &server);
    let missing = missing("globus-url-copy").or_else(|| missing("globus-gridftp-server"));
    Program { missing, ..program(name, Role::Peer(streams), set, far, near) }
}

fn sshd(folders: &Folders) -> String {
    let sshd = sh::find("sshd").unwrap_or_else(|| "sshd".into());
    format!("{} -D -e -f {}", quoted(&sshd), quoted(&folders.ssh.join("sshd_config")))
}

fn rsync(folders: &Folders) -> Program {
    let near = timed(
        "sleep 0.5; ",
        &format!(
            "rsync --whole-file -e \"ssh -F {}\" {} far:{}/{NAME}",
            folders.ssh.join("ssh_config").display(),
            quoted(&folders.source()),
            folders.target().display()
        ),
    );
    let name = "rsync over ssh".to_owned();
    let missing = missing("rsync").or_else(|| missing("sshd"));
    Program { missing, ..program(name, Role::Peer(1), Programs::Single, sshd(folders), near) }
}

/// With the largest requests that OpenSSH answers, and as many at once as is rclone's default.
fn rclone(folders: &Folders) -> Program {
    let at = folders.ssh.display();
    let remote = format!(
        ":sftp,host={FAR},port=7418,user=root,key_file={at}/user,known_hosts_file={at}/known,\
         chunk_size=255Ki,concurrency=64,disable_hashcheck=true:{}/{NAME}",
        folders.target().display()
    );
    let near = timed(
        "sleep 0.5; ",
        &format!("rclone --config /dev/null copyto {} \"{remote}\"", quoted(&folders.source())),
    );
    let name = "rclone over sftp".to_owned();
    let missing = missing("rclone").or_else(|| missing("sshd"));
    Program { missing, ..program(name, Role::Peer(1), Programs::All, sshd(folders), near) }
}

fn srt(folders: &Folders) -> Program {
    let far = format!(
        "srt-file-transmit -q \"srt://{FAR}:7417?mode=listener&{SRT}\" {}/x > /dev/null",
        quoted(&folders.target())
    );
    let copy =
        format!("srt-file-transmit -q {} \"srt://{FAR}:7417?{SRT}\"", quoted(&folders.source()));
    // The sender ends when all is acknowledged. The receiver has not written all of it by then.
    let near = timed("sleep 0.5; ", &copy) + "; sleep 0.5";
    let missing = missing("srt-file-transmit");
    let name = "SRT file mode".to_owned();
    Program { missing, ..program(name, Role::Peer(1), Programs::All, far, near) }
}
