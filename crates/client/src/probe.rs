//! What would limit a transfer to a host: one is made, of a file that means nothing, and looked at.
//!
//! It goes the way any copy goes, so that all that may limit one shows: whether UDP gets through,
//! what the path carries, how fast both ends read, seal, open, write and sync, their quotas and
//! buffers.

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

/// The first file; one that is gone too quickly to be measured is followed by a larger one.
const FIRST: ByteCount = ByteCount(32 << 20);
/// The largest.
const LARGEST: ByteCount = ByteCount(512 << 20);
/// How long a file should take.
const ENOUGH: Duration = Duration::from_secs(3);

/// Copies a file of nothing to `request.dest`, a directory at a host reached over ssh (its home if
/// the path is empty), and removes it. `request.sources` is not looked at.
///
/// # Errors
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
    let here = Scrap(std::env::temp_dir().join(&name));
    request.sources = vec![Location::Local(path_bytes(&here.0))];
    request.dest = Location::Ssh { user: user.clone(), host: host.clone(), path: there.clone() };
    request.options.inplace = false;
    request.options.resume = packtrain_transfer::Resume::Off;
    let mut size = FIRST;
    let record = loop {
        here.write(size)?;
        let outcome = cp::run(request.clone(), reporter);
        // Whatever came of it, nothing stays there.
        ssh::remove(&request.ssh, user.as_deref(), &host, &there);
        let outcome = outcome?;
        if let Some(failure) = outcome.failure {
            return Err(RequestError::new(failure.kind, failure.text));
        }
        if outcome.elapsed >= ENOUGH || size >= LARGEST {
            break diagnose::find(&Which::Id(outcome.id), &request.history)?;
        }
        let more = ENOUGH.as_secs_f64() / outcome.elapsed.as_secs_f64().max(0.05);
        size = ByteCount((size.get() as f64 * more.clamp(2.0, 16.0)) as u64).min(LARGEST);
    };
    let mut record = record;
    record.evidence.probed = true;
    Ok(record)
}

fn path_bytes(path: &Path) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt as _;
    path.as_os_str().as_bytes().to_vec()
}

/// A file that goes when it is dropped.
struct Scrap(PathBuf);

impl Scrap {
    /// Writes it anew with bytes that no file system or link can make smaller.
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

impl Drop for Scrap {
    fn drop(&mut self) {
        // A temporary file that stays is the system's to clean.
        let _ = std::fs::remove_file(&self.0);
    }
}
