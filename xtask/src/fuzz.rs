//! `xtask fuzz`: runs the bodies of the fuzz targets on random and mutated input, with the stable
//! toolchain. They are in `fuzz/src/lib.rs`; cargo-fuzz runs the same ones for longer.

use anyhow::{Context, Result, bail};

use crate::sh;

/// Runs every body for `--seconds N` (1 by default) each.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let seconds = match args {
        [] => 1,
        [flag, value] if flag == "--seconds" => {
            value.parse::<u32>().context("--seconds wants a whole number")?
        }
        other => bail!("fuzz takes --seconds N, got {other:?}"),
    };
    // The whole workspace, so that features are the same as in `xtask test`.
    sh::run(
        sh::cargo()
            .args(["test", "--locked", "--workspace", "--test", "fuzz_smoke", "--"])
            .args(["--nocapture", "--test-threads=2"])
            .env("PACKTRAIN_FUZZ_SECONDS", seconds.to_string()),
    )
    .context("the fuzz bodies")
}
