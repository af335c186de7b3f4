//! What runs on the near host of the demo's emulation: waits for the far one, then runs and
//! times the mover's command.

use std::fs::{self, File};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration as StdDuration;

use packtrain_os::clock;
use serde::{Deserialize, Serialize};

/// How long the far end may take to come up.
const MAX_TRIES: u32 = 200;
const POLL_INTERVAL: StdDuration = StdDuration::from_millis(50);

/// What to run, and what to wait for.
#[derive(Clone, Debug)]
pub struct NearRequest {
    /// Until somebody listens here.
    pub address: SocketAddr,
    /// And until this file is there and not empty.
    pub file: Option<PathBuf>,
    /// Where the command's output goes, and what became of it.
    pub out: PathBuf,
    /// The command and its arguments.
    pub command: Vec<std::ffi::OsString>,
}

/// What became of the command, as written to `out.result`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Ran {
    pub(super) seconds: f64,
    pub(super) code: i32,
}

/// The file that says that the command has begun.
pub(super) fn begun(out: &Path) -> PathBuf {
    out.with_extension("begun")
}

/// The file that says what became of the command.
pub(super) fn result(out: &Path) -> PathBuf {
    out.with_extension("result")
}

/// Runs it; the exit code is the command's.
///
/// # Errors
/// When the far end does not come up or the command does not start.
pub(super) fn run(request: &NearRequest) -> io::Result<i32> {
    wait(request)?;
    let out = File::create(&request.out)?;
    let trouble = File::create(request.out.with_extension("trouble"))?;
    let (program, args) = request.command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    File::create(begun(&request.out))?;
    let start = clock::now();
    let mut command = Command::new(program);
    let status = command.args(args).stdin(Stdio::null()).stdout(out).stderr(trouble).status()?;
    let ran = Ran {
        seconds: clock::now().since(start).as_secs_f64(),
        code: status.code().unwrap_or(128),
    };
    // Renamed when whole, so that nobody reads half of it.
    let path = result(&request.out);
    let part = path.with_extension("part");
    fs::write(&part, serde_json::to_vec(&ran)?)?;
    fs::rename(part, path)?;
    Ok(ran.code)
}

fn wait(request: &NearRequest) -> io::Result<()> {
    for _ in 0..MAX_TRIES {
        let there = request
            .file
            .as_ref()
            .is_none_or(|file| fs::metadata(file).is_ok_and(|meta| meta.len() > 0));
        if there && TcpStream::connect_timeout(&request.address, POLL_INTERVAL * 20).is_ok() {
            return Ok(());
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    let text = format!("the far end did not come up at {}", request.address);
    Err(io::Error::new(io::ErrorKind::TimedOut, text))
}
