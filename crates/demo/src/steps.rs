//! The two processes of the demo.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::net::TcpListener;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use packtrain_transfer::FailureKind;
use packtrain_units::ByteCount;
use serde::Deserialize;

use super::failed;
use packtrain_service::RequestError;

/// How often the demo checks the progress of the copy.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The receiver is killed when it has this share of the large file.
const KILL_SHARE: f64 = 0.4;
const WHOLE: u64 = 1 << 30;

/// The last JSON line of a copy.
#[derive(Debug, Deserialize)]
struct Done {
    ok: bool,
    bytes_moved: u64,
    bytes_resumed: u64,
    chunks_again: u64,
    error: Option<serde_json::Value>,
}

/// The result of the resumed copy.
pub(super) struct Resumed {
    pub(super) resumed: ByteCount,
    pub(super) moved: ByteCount,
    pub(super) again: u64,
}

pub(super) struct Steps {
    dir: PathBuf,
    program: PathBuf,
    port: u16,
    server: Option<Child>,
}

impl Drop for Steps {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Steps {
    pub(super) fn new(dir: &Path) -> Result<Self, RequestError> {
        fs::create_dir(dir.join("target")).map_err(failed("the target"))?;
        let program = std::env::current_exe().map_err(failed("this program"))?;
        // A free port: bound and closed, so that the restarted receiver can use it again.
        let port = TcpListener::bind(("127.0.0.1", 0))
            .and_then(|listener| listener.local_addr())
            .map_err(failed("a port"))?
            .port();
        Ok(Self { dir: dir.to_owned(), program, port, server: None })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        super::own_environment(&mut command, &self.dir);
        command.stdin(Stdio::null());
        command
    }

    fn serve(&mut self) -> Result<(), RequestError> {
        let ticket = self.dir.join("ticket");
        let first = !ticket.exists();
        let mut command = self.command();
        command.args(["serve", "--listen", &format!("127.0.0.1:{}", self.port)]);
        command.args(["--root", "target"]);
        if first {
            command.args(["--ticket-file", "ticket"]);
        }
        command.stdout(Stdio::null()).stderr(Stdio::null());
        self.server = Some(command.spawn().map_err(failed("the receiver"))?);
        for _ in 0..1_000 {
            let up = std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok();
            if up && ticket.exists() {
                return Ok(());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Err(RequestError::new(FailureKind::Fatal, "the receiver did not start"))
    }

    fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            // SIGKILL: the receiver cannot clean up.
            let _ = server.kill();
            let _ = server.wait();
        }
    }

    fn copy_args(&self) -> Vec<OsString> {
        let to = format!("pt://127.0.0.1:{}/", self.port);
        ["cp", "-r", "--retries", "0", "--ticket", "@ticket", "--json", "source", &to]
            .map(OsString::from)
            .to_vec()
    }

    /// Copies until the receiver has 40 %, kills it, and returns the command that the copy printed.
    pub(super) fn interrupted(&mut self) -> Result<Vec<String>, RequestError> {
        self.serve()?;
        let mut copy = self.command();
        copy.args(self.copy_args()).stdout(Stdio::piped()).stderr(Stdio::null());
        let copy = copy.spawn().map_err(failed("the copy"))?;
        for _ in 0..12_000 {
            if self.safe().is_some_and(|(_, bytes)| bytes as f64 >= KILL_SHARE * WHOLE as f64) {
                break;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        self.kill();
        let output = copy.wait_with_output().map_err(failed("the copy"))?;
        if output.status.success() {
            let text = "the copy was over before its receiver could be killed: run the demo again";
            return Err(RequestError::new(FailureKind::Temporary, text));
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let last = text.lines().last().unwrap_or_default();
        let value: serde_json::Value = serde_json::from_str(last).unwrap_or_default();
        let line = value["resume_command"].as_str().unwrap_or_default();
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        if words.len() < 3 {
            let text = format!("the copy printed no command to resume: {last}");
            return Err(RequestError::new(FailureKind::Fatal, text));
        }
        Ok(words)
    }

    /// The temporary of the large file, and its allocated size.
    fn safe(&self) -> Option<(PathBuf, u64)> {
        use std::os::unix::fs::MetadataExt;
        let items = fs::read_dir(self.dir.join("target/source")).ok()?;
        for item in items.flatten() {
            let name = item.file_name();
            if name.to_string_lossy().starts_with(".big.dat.packtrain-") {
                let meta = item.metadata().ok()?;
                return Some((item.path(), meta.blocks() * 512));
            }
        }
        None
    }

    /// Flips one bit in the middle of the first chunk, which is already verified.
    pub(super) fn flip(&self) -> Result<(), RequestError> {
        let oops = failed("flipping a byte");
        let (path, _) = self.safe().ok_or_else(|| {
            RequestError::new(
                FailureKind::Fatal,
                "the dead receiver left nothing: a bug, report it",
            )
        })?;
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(&oops)?;
        let mut byte = [0];
        file.read_exact_at(&mut byte, 2 << 20).map_err(&oops)?;
        byte[0] ^= 1;
        file.write_all_at(&byte, 2 << 20).map_err(&oops)
    }

    /// Runs the command that the interrupted copy printed.
    pub(super) fn resumed(&mut self, words: &[String]) -> Result<Resumed, RequestError> {
        self.serve()?;
        let mut copy = self.command();
        copy.args(&words[1..]).stdout(Stdio::piped()).stderr(Stdio::null());
        let output = copy.output().map_err(failed("the resumed copy"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let last = text.lines().last().unwrap_or_default();
        let done: Done = serde_json::from_str(last).map_err(|e| {
            RequestError::new(FailureKind::Fatal, format!("the resumed copy printed `{last}`: {e}"))
        })?;
        if !done.ok {
            let why = done.error.map_or_else(String::new, |e| e.to_string());
            return Err(RequestError::new(
                FailureKind::Fatal,
                format!("the resumed copy failed: {why}"),
            ));
        }
        self.kill();
        Ok(Resumed {
            resumed: ByteCount(done.bytes_resumed),
            moved: ByteCount(done.bytes_moved),
            again: done.chunks_again,
        })
    }
}
