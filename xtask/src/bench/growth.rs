//! The goodput of a receiver that writes a file and reports nothing: the growth of the file.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// The argument of `cargo xtask bench` that watches a file.
pub(super) const VERB: &str = "growth";
/// How long the file may stay away or empty.
const START: Duration = Duration::from_secs(10);
/// Time between two looks.
const LOOK: Duration = Duration::from_millis(2);

/// `growth DIR SECONDS`: waits for a file in the folder that is not empty, and prints its growth
/// over so many seconds as a JSON line.
pub(super) fn run(args: &[String]) -> Result<()> {
    let [dir, seconds] = args else { bail!("growth DIR SECONDS") };
    let duration = Duration::from_secs_f64(seconds.parse().context("seconds")?);
    let file = appear(Path::new(dir))?;
    let began = Instant::now();
    std::thread::sleep(duration);
    println!("{}", line(fs::metadata(&file)?.len(), began.elapsed()));
    Ok(())
}

fn line(bytes: u64, time: Duration) -> Value {
    let seconds = time.as_secs_f64();
    json!({"ok": true, "bytes": bytes, "seconds": seconds,
           "goodput_bps": bytes as f64 * 8.0 / seconds})
}

fn appear(dir: &Path) -> Result<PathBuf> {
    let waited = Instant::now();
    while waited.elapsed() < START {
        for entry in fs::read_dir(dir)?.flatten() {
            if entry.metadata().is_ok_and(|found| found.is_file() && found.len() > 0) {
                return Ok(entry.path());
            }
        }
        std::thread::sleep(LOOK);
    }
    bail!("nothing arrived in {} s", START.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_bytes_over_time() {
        let line = line(125_000_000, Duration::from_secs(10));
        assert_eq!(line["goodput_bps"], 1e8);
        assert_eq!(line["bytes"], 125_000_000);
    }
}
