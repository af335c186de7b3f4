//! The process on the local host of the emulation: waits for the remote host, then runs and times a
//! command.

use std::fs::{self, File};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration as StdDuration;

use packtrain_os::clock;
use serde::{Deserialize, Serialize};

/// Maximum number of checks for the remote end.
const MAX_TRIES: u32 = 200;
const POLL_INTERVAL: StdDuration = StdDuration::from_millis(50);

/// The command, and the conditions for its start.
#[derive(Clone, Debug)]
pub struct NearRequest {
    /// Wait until a process listens at this address.
    pub address: SocketAddr,
    /// Wait until this file exists and is not empty.
    pub file: Option<PathBuf>,
    /// File for the command's output; the result is written next to it.
    pub out: PathBuf,
    /// The command and its arguments.
    pub command: Vec<std::ffi::OsString>,
}

/// The result of the command, as written to `out.result`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Ran {
    pub(super) seconds: f64,
    pub(super) code: i32,
}

/// The file that is created when the command starts.
pub(super) fn begun(out: &Path) -> PathBuf {
    out.with_extension("begun")
}

/// The file with the result of the command.
pub(super) fn result(out: &Path) -> PathBuf {
    out.with_extension("result")
}

/// Runs the command; returns its exit code.
///
/// # Errors
/// The remote end or the command does not start.
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
    // Renamed when it is complete, so that no reader sees a part of it.
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
    let text = format!("the remote end did not start at {}", request.address);
    Err(io::Error::new(io::ErrorKind::TimedOut, text))
}
