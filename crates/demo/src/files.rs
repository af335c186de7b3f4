//! The files of the demo, and the digest of a tree.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

use packtrain_os::entropy;
use packtrain_transfer::FailureKind;
use packtrain_units::{ByteCount, DataRate, Duration, Rng};

use super::failed;
use packtrain_runtime::sink::hash_file;
use packtrain_service::RequestError;

/// Disk space for source and target, with a margin.
const NEEDED_SPACE: ByteCount = ByteCount(2_300 << 20);
const BIG_FILE_BYTES: u64 = 1 << 30;
const SPARSE_FILE_BYTES: u64 = 256 << 20;
const SMALL_FILES: u32 = 5_000;

pub(super) fn check_room(dir: &Path) -> Result<(), RequestError> {
    let space = packtrain_disk::Root::open(dir)
        .and_then(|root| root.free_space())
        .map_err(failed("the disk"))?;
    if space.available < NEEDED_SPACE {
        let text = format!(
            "{} has {} free and the demo needs {NEEDED_SPACE}: set TMPDIR to a place with more",
            dir.display(),
            space.available
        );
        return Err(RequestError::new(FailureKind::TargetFull, text));
    }
    Ok(())
}

pub(super) fn make(dir: &Path) -> Result<(), RequestError> {
    let mut rng = Rng::new(entropy::seed());
    let oops = failed("making the demo's files");
    fs::create_dir(dir).map_err(&oops)?;
    big(&dir.join("big.dat"), &mut rng).map_err(&oops)?;
    small(&dir.join("small"), &mut rng).map_err(&oops)?;
    sparse(&dir.join("sparse.img"), &mut rng).map_err(&oops)?;
    std::os::unix::fs::symlink("big.dat", dir.join("latest")).map_err(&oops)?;
    fs::create_dir(dir.join("empty")).map_err(&oops)
}

/// Creates one large file and 200 small ones for the comparison over a long path; returns their
/// bytes.
pub(super) fn make_small(dir: &Path, rate: DataRate) -> Result<ByteCount, RequestError> {
    let mut rng = Rng::new(entropy::seed());
    let oops = failed("making the demo's files");
    fs::create_dir(dir).map_err(&oops)?;
    let mut block = vec![0; 1 << 20];
    let blocks = amount(rate).get() / block.len() as u64;
    let mut out = BufWriter::new(File::create(dir.join("big.dat")).map_err(&oops)?);
    for _ in 0..blocks {
        noise(&mut rng, &mut block);
        out.write_all(&block).map_err(&oops)?;
    }
    out.flush().map_err(&oops)?;
    let mut total = blocks * block.len() as u64;
    for n in 0..200 {
        let size = 1 + rng.below(128 << 10) as usize;
        noise(&mut rng, &mut block[..size]);
        fs::write(dir.join(format!("file-{n:03}")), &block[..size]).map_err(&oops)?;
        total += size as u64;
    }
    Ok(ByteCount(total))
}

/// One digest of the names and contents below `dir`.
pub(super) fn digest_contents(dir: &Path) -> Result<String, RequestError> {
    let oops = failed("comparing");
    let mut items: Vec<_> =
        fs::read_dir(dir).and_then(Iterator::collect::<Result<_, _>>).map_err(&oops)?;
    items.sort_by_key(fs::DirEntry::file_name);
    let mut hasher = blake3::Hasher::new();
    for item in items {
        hasher.update(item.file_name().as_bytes());
        hasher.update(&[0]);
        let file = File::open(item.path()).map_err(&oops)?;
        let root = hash_file(&file)
            .ok_or_else(|| RequestError::new(FailureKind::Fatal, "a file cannot be read"))?;
        hasher.update(&root.0);
    }
    Ok(hasher.finalize().to_hex()[..32].to_owned())
}

fn noise(rng: &mut Rng, out: &mut [u8]) {
    for word in out.chunks_mut(8) {
        let bytes = rng.next_u64().to_le_bytes();
        word.copy_from_slice(&bytes[..word.len()]);
    }
}

fn big(path: &Path, rng: &mut Rng) -> std::io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut block = vec![0; 1 << 20];
    for _ in 0..BIG_FILE_BYTES / block.len() as u64 {
        noise(rng, &mut block);
        out.write_all(&block)?;
    }
    out.flush()
}

fn small(dir: &Path, rng: &mut Rng) -> std::io::Result<()> {
    fs::create_dir(dir)?;
    let mut bytes = vec![0; 16 << 10];
    for n in 0..SMALL_FILES {
        let sub = dir.join(format!("{:02}", n % 50));
        if n < 50 {
            fs::create_dir(&sub)?;
        }
        let size = rng.below(bytes.len() as u64) as usize;
        noise(rng, &mut bytes[..size]);
        fs::write(sub.join(format!("file-{n:04}")), &bytes[..size])?;
    }
    Ok(())
}

fn sparse(path: &Path, rng: &mut Rng) -> std::io::Result<()> {
    let file = File::create(path)?;
    file.set_len(SPARSE_FILE_BYTES)?;
    let mut block = vec![0; 64 << 10];
    for at in [0, 100 << 20, SPARSE_FILE_BYTES - block.len() as u64] {
        noise(rng, &mut block);
        file.write_all_at(&block, at)?;
    }
    Ok(())
}

/// One digest of the names, kinds, modes, times and contents of a tree.
pub(super) fn digest(dir: &Path) -> Result<String, RequestError> {
    let mut hasher = blake3::Hasher::new();
    add(dir, &mut hasher).map_err(failed("comparing"))?;
    Ok(hasher.finalize().to_hex()[..32].to_owned())
}

fn add(dir: &Path, hasher: &mut blake3::Hasher) -> std::io::Result<()> {
    let mut items: Vec<_> = fs::read_dir(dir)?.collect::<Result<_, _>>()?;
    items.sort_by_key(std::fs::DirEntry::file_name);
    for item in items {
        let path = item.path();
        let meta = fs::symlink_metadata(&path)?;
        hasher.update(item.file_name().as_bytes());
        hasher.update(&[0]);
        hasher.update(&meta.permissions().mode().to_le_bytes());
        if meta.is_dir() {
            add(&path, hasher)?;
        } else if meta.is_symlink() {
            hasher.update(fs::read_link(&path)?.as_os_str().as_bytes());
        } else {
            hasher.update(&meta.len().to_le_bytes());
            let time = meta.modified()?.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            hasher.update(&time.as_nanos().to_le_bytes());
            let root = hash_file(&File::open(&path)?)
                .ok_or_else(|| std::io::Error::other("a file cannot be read"))?;
            hasher.update(&root.0);
        }
    }
    Ok(())
}

/// Size of the comparison's files: more than one second at `rate`.
pub(super) fn amount(rate: DataRate) -> ByteCount {
    rate.bytes_in(Duration::from_millis(2_500))
}
