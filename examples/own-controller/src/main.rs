//! `packtrain` with one more congestion controller, `aimd`. Every command works as in `packtrain`;
//! `--cc aimd`, and `cc = "aimd"` in a scenario, choose the controller.

mod aimd;

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Err(error) = packtrain_cc::register("aimd", aimd::build) {
        eprintln!("own-controller: {error}");
        return ExitCode::FAILURE;
    }
    packtrain_cli::main()
}
