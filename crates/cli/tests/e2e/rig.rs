//! A temporary folder, the command with its own state directory, and the other end over ssh.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tempfile::TempDir;

use crate::sshd::{HOST, Sshd};

/// A command of these tests takes longer only if it hangs.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(180);

/// A free port on loopback, for TCP and UDP, that no other test gets. It is outside the kernel's
/// range of ephemeral ports, because the kernel could give it away before a server binds it.
pub(crate) fn free_port() -> u16 {
    const FIRST: u32 = 12_000;
    const PORTS: u32 = 16_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in 0..PORTS {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + std::process::id().wrapping_mul(97).wrapping_add(step) % PORTS;
        let at = (Ipv4Addr::LOCALHOST, port as u16);
        if TcpListener::bind(at).is_ok() && UdpSocket::bind(at).is_ok() {
            return port as u16;
        }
    }
    panic!("no port is free between {FIRST} and {}", FIRST + PORTS);
}

/// The environment of one test. Everything in it is removed at the end of the test.
pub(crate) struct Rig {
    dir: TempDir,
    remote: PathBuf,
    sshd: Option<Sshd>,
}

/// The result of a command.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The exit code; 128 + n after signal n.
    pub(crate) code: i32,
    /// Its output to stdout.
    pub(crate) stdout: Vec<u8>,
    /// Its output to stderr.
    pub(crate) stderr: String,
}

impl Rig {
    /// A rig without an ssh server.
    pub(crate) fn local() -> Self {
        let dir = tempfile::Builder::new()
            .prefix("e2e-")
            .tempdir_in(env!("CARGO_TARGET_TMPDIR"))
            .expect("a temporary folder");
        // The remote end runs under a name of its own, so that tests can find and kill it.
        let remote = dir.path().join("packtrain-far");
        let command = env!("CARGO_BIN_EXE_packtrain");
        if fs::hard_link(command, &remote).is_err() {
            fs::copy(command, &remote).expect("a copy of the command");
        }
        Self { dir, remote, sshd: None }
    }

    /// A rig with an ssh server; `None` if this machine cannot have one.
    pub(crate) fn ssh() -> Option<Self> {
        let mut rig = Self::local();
        let state = rig.path("far-state");
        let config = rig.path("far-config");
        let cache = rig.path("far-cache");
        let environment = [
            ("XDG_CACHE_HOME", cache.to_str().expect("text")),
            ("XDG_STATE_HOME", state.to_str().expect("text")),
            ("XDG_CONFIG_HOME", config.to_str().expect("text")),
        ];
        match Sshd::start(&rig.path("sshd"), &environment) {
            Ok(sshd) => {
                rig.sshd = Some(sshd);
                Some(rig)
            }
            Err(error) => {
                skipped(&format!("no ssh server: {error}"));
                None
            }
        }
    }

    /// A path in the rig's folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The same path as an ssh location.
    pub(crate) fn far(&self, name: &str) -> OsString {
        let mut text = OsString::from(HOST).into_vec();
        text.push(b':');
        text.extend(self.path(name).into_os_string().into_vec());
        OsString::from_vec(text)
    }

    /// `packtrain` without the user's environment variables.
    pub(crate) fn packtrain(&self) -> Command {
        self.packtrain_by(&[])
    }

    /// The same, started by another program such as `nice`.
    pub(crate) fn packtrain_by(&self, by: &[&str]) -> Command {
        let mut words = by.iter().copied().chain([env!("CARGO_BIN_EXE_packtrain")]);
        let mut command = Command::new(words.next().expect("packtrain at least"));
        command.args(words);
        command
            .env("XDG_STATE_HOME", self.path("state"))
            .env("XDG_CONFIG_HOME", self.path("config"))
            .stdin(Stdio::null());
        command
    }

    /// `packtrain cp -r` with the options that reach the remote end, if there is one.
    pub(crate) fn cp(&self) -> Command {
        let mut command = self.packtrain();
        command.args(["cp", "-r"]);
        self.reach(&mut command);
        command
    }

    /// Adds the options that reach the remote end.
    pub(crate) fn reach(&self, command: &mut Command) {
        if let Some(sshd) = &self.sshd {
            command.arg("-e").arg(sshd.ssh()).arg("--remote-path").arg(&self.remote);
        }
    }

    /// The ssh command that reaches the remote end.
    pub(crate) fn ssh_command(&self) -> String {
        self.sshd.as_ref().expect("a rig with ssh").ssh()
    }

    /// Runs a command and waits for its end.
    pub(crate) fn run(&self, command: &mut Command) -> Ended {
        self.start(command).wait()
    }

    /// Runs a command that must end with 0.
    pub(crate) fn ok(&self, command: &mut Command) -> Ended {
        let ended = self.run(command);
        assert_eq!(ended.code, 0, "{command:?}\n{}", ended.stderr);
        ended
    }

    /// Starts a command and captures its output.
    pub(crate) fn start(&self, command: &mut Command) -> Running {
        let number = {
            use std::sync::atomic::{AtomicU32, Ordering};
            static NEXT: AtomicU32 = AtomicU32::new(0);
            NEXT.fetch_add(1, Ordering::Relaxed)
        };
        let out = self.path(&format!("out-{number}"));
        let err = self.path(&format!("err-{number}"));
        let child = command
            .stdout(File::create(&out).expect("a file for stdout"))
            .stderr(File::create(&err).expect("a file for stderr"))
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Running { child, out, err, what: format!("{command:?}") }
    }

    /// A file with the public key of this rig's user. An existing one stays, since a program may
    /// be reading it.
    pub(crate) fn own_key(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        if !path.exists() {
            let shown = self.ok(self.packtrain().args(["key", "show"]));
            fs::write(&path, shown.stdout).expect("a file of keys");
        }
        path
    }

    /// Process ids of the remote end.
    pub(crate) fn far_pids(&self) -> Vec<u32> {
        let mut pids = Vec::new();
        for entry in fs::read_dir("/proc").expect("/proc").flatten() {
            let exe = fs::read_link(entry.path().join("exe"));
            if exe.is_ok_and(|exe| exe == self.remote) {
                pids.extend(entry.file_name().to_string_lossy().parse::<u32>());
            }
        }
        pids
    }

    /// Sends a signal to the remote end; returns whether it was running.
    pub(crate) fn signal_far(&self, signal: &str) -> bool {
        let pids = self.far_pids();
        pids.iter().for_each(|pid| send(signal, *pid));
        !pids.is_empty()
    }

    /// Waits until the remote end runs.
    pub(crate) fn wait_far(&self) {
        let start = Instant::now();
        while self.far_pids().is_empty() {
            assert!(start.elapsed() < TIMEOUT, "the far end never started");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // A remote end may wait for its caller to reconnect, which does not happen here.
        self.signal_far("KILL");
    }
}

/// A running command.
pub(crate) struct Running {
    child: Child,
    out: PathBuf,
    err: PathBuf,
    what: String,
}

impl Running {
    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its output to stderr so far.
    pub(crate) fn stderr(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.err).unwrap_or_default()).into_owned()
    }

    /// Its output to stdout so far.
    pub(crate) fn stdout(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.out).unwrap_or_default()).into_owned()
    }

    /// Whether it has ended.
    pub(crate) fn ended(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_some()
    }

    /// The program when `is_up` has returned true; it may not end before.
    pub(crate) fn when_up(mut self, mut is_up: impl FnMut(&Self) -> bool) -> Self {
        wait_until(&format!("{} is up", self.what), || {
            assert!(!self.ended(), "{} ended: {}", self.what, self.stderr());
            is_up(&self)
        });
        self
    }

    /// Waits for its end.
    pub(crate) fn wait(mut self) -> Ended {
        use std::os::unix::process::ExitStatusExt;
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                break status;
            }
            if start.elapsed() > TIMEOUT {
                let _ = self.child.kill();
                let _ = self.child.wait();
                panic!("{} hangs\n{}", self.what, self.stderr());
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        let stderr = self.stderr();
        assert!(!stderr.contains("panicked at"), "{} panicked\n{stderr}", self.what);
        Ended { code, stdout: fs::read(&self.out).unwrap_or_default(), stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    /// All lines of stdout, which `--json` promises to be JSON.
    pub(crate) fn json_lines(&self) -> Vec<serde_json::Value> {
        let text = String::from_utf8_lossy(&self.stdout).into_owned();
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// A number of the last JSON line, which `--json` promises.
    pub(crate) fn number(&self, name: &str) -> u64 {
        let text = String::from_utf8_lossy(&self.stdout);
        let last = text.lines().last().unwrap_or_default();
        let value: serde_json::Value = serde_json::from_str(last)
            .unwrap_or_else(|error| panic!("last line {last:?}: {error}\n{}", self.stderr));
        assert_eq!(value["event"], "done", "{last}");
        value[name].as_u64().unwrap_or_else(|| panic!("no number {name} in {last}"))
    }
}

/// Whether something accepts TCP connections at this address.
pub(crate) fn listens(at: impl ToSocketAddrs) -> bool {
    TcpStream::connect(at).is_ok()
}

/// Waits until `is_so` returns true.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < TIMEOUT, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Sends a signal by name.
pub(crate) fn send(signal: &str, pid: u32) {
    let _ = Command::new("kill")
        .args([format!("-{signal}"), pid.to_string()])
        .stderr(Stdio::null())
        .status();
}

/// Reports that this test is skipped, or fails if skips are not allowed.
#[track_caller]
pub(crate) fn skipped(why: &str) {
    packtrain_testkit::skip(why);
}

/// Whether the tests run as root.
pub(crate) fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0)
}

/// The seed of this run, printed; `PACKTRAIN_SEED` sets it.
pub(crate) fn seed(test: &str) -> u64 {
    let seed = std::env::var("PACKTRAIN_SEED").ok().and_then(|s| s.parse().ok());
    let seed: u64 = seed.unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::from(now.subsec_nanos()) ^ now.as_secs() << 20
    });
    eprintln!("{test}: PACKTRAIN_SEED={seed}");
    seed
}

/// Random numbers from a seed that is printed; `PACKTRAIN_SEED` repeats a run.
pub(crate) struct Dice(u64);

impl Dice {
    /// Random numbers of this run.
    pub(crate) fn new(test: &str) -> Self {
        Self(seed(test) | 1)
    }

    /// Random numbers that depend only on the seed.
    pub(crate) fn seeded(seed: u64) -> Self {
        let mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        Self(mixed ^ mixed >> 29 | 1)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) % end.max(1)
    }
}

/// The argument `SRC/`, which names the contents of a folder.
pub(crate) fn contents(path: &Path) -> OsString {
    slash(path.as_os_str())
}

/// The same with a slash at its end.
pub(crate) fn slash(text: &OsStr) -> OsString {
    let mut text = text.to_os_string();
    text.push("/");
    text
}
