//! The program `packtrain`. Everything is in the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    packtrain_cli::main()
}
