//! Measures what would limit a transfer to a host, with a transfer of a temporary file.
//!
//! It is an ordinary copy, so everything that may limit one is measured: whether UDP works, the
//! capacity of the path, the rates at which both ends read, encrypt, decrypt, write and sync, and
//! their quotas and buffers.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use packtrain_os::entropy;
use packtrain_transfer::FailureKind;
use packtrain_units::{ByteCount, Duration};

use crate::{cp, ssh};
use packtrain_diagnose as diagnose;
use packtrain_diagnose::Which;
use packtrain_service::evidence::Record;
use packtrain_service::{CpRequest, Location, Reporter, RequestError};

/// Size of the first file. If its transfer is too short for measurements, a larger file follows.
const FIRST_SIZE: ByteCount = ByteCount(32 << 20);
/// Size of the largest file.
const MAX_SIZE: ByteCount = ByteCount(512 << 20);
/// Minimum duration of a transfer.
const MIN_DURATION: Duration = Duration::from_secs(3);

/// Copies a temporary file to `request.dest`, a directory on a host that is reached over ssh (its
/// home directory if the path is empty), and removes it. `request.sources` is ignored.
///
/// # Errors
/// The other end cannot be reached or written to, or there is no space for a file on this machine.
/// The other end cannot be reached or written to, or there is no room for a file here.
pub fn probe(mut request: CpRequest, reporter: &dyn Reporter) -> Result<Record, RequestError> {
    let Location::Ssh { user, host, path } = request.dest.clone() else {
        let text = "diagnose asks a host that is reached over ssh: write user@host";
        return Err(RequestError::new(FailureKind::Usage, text));
    };
    let name = format!(".packtrain-probe-{:016x}", entropy::seed());
    let mut there = path;
    if !there.is_empty() && !there.ends_with(b"/") {
        there.push(b'/');
    }
    there.extend_from_slice(name.as_bytes());
    let here = TempFile(std::env::temp_dir().join(&name));
    request.sources = vec![Location::Local(path_bytes(&here.0))];
    request.dest = Location::Ssh { user: user.clone(), host: host.clone(), path: there.clone() };
    request.options.inplace = false;
    request.options.resume = packtrain_transfer::Resume::Off;
    let mut size = FIRST_SIZE;
    let record = loop {
        here.write(size)?;
        let outcome = cp::run(request.clone(), reporter);
        // The file is removed after a failure too.
        ssh::remove(&request.ssh, (user.as_deref(), &host), &there, &request.stop);
        let outcome = outcome?;
        if let Some(failure) = outcome.failure {
            return Err(RequestError::new(failure.kind, failure.text));
        }
        if outcome.elapsed >= MIN_DURATION || size >= MAX_SIZE {
            break diagnose::find(&Which::Id(outcome.id), &request.history)?;
        }
        let more = MIN_DURATION.as_secs_f64() / outcome.elapsed.as_secs_f64().max(0.05);
        size = ByteCount((size.get() as f64 * more.clamp(2.0, 16.0)) as u64).min(MAX_SIZE);
    };
    let mut record = record;
    record.evidence.probed = true;
    Ok(record)
}

fn path_bytes(path: &Path) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt as _;
    path.as_os_str().as_bytes().to_vec()
}

/// A file that is removed on drop.
struct TempFile(PathBuf);

impl TempFile {
    /// Writes it again, with bytes that no file system or link can compress.
    fn write(&self, size: ByteCount) -> Result<(), RequestError> {
        let failed = |e: std::io::Error| {
            let text = format!("{}: {e}; set TMPDIR to a place with room", self.0.display());
            RequestError::new(FailureKind::TargetFull, text)
        };
        let mut file = std::fs::File::create(&self.0).map_err(failed)?;
        let mut stream = blake3::Hasher::new_keyed(&entropy::bytes()).finalize_xof();
        let mut block = vec![0; 1 << 20];
        let mut left = size.get();
        while left > 0 {
            let step = left.min(block.len() as u64);
            stream.fill(&mut block[..step as usize]);
            file.write_all(&block[..step as usize]).map_err(failed)?;
            left -= step;
        }
        Ok(())
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        // A remaining temporary file is removed by the system.
        let _ = std::fs::remove_file(&self.0);
    }
}
