//! `completions` and `man`, from the definitions that read the command line.

use packtrain_service::{FailureKind, RequestError};

use crate::args::{self, CompletionArgs, ManArgs};
use crate::exit::{Code, Exit};

/// `packtrain completions`.
pub(crate) fn completions(args: &CompletionArgs) -> Code {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut args::bare(), "packtrain", &mut script);
    crate::out::bytes(&script);
    Code::DONE
}

/// `packtrain man`.
pub(crate) fn man(args: &ManArgs) -> Result<Code, Exit> {
    let failed = |error: std::io::Error| {
        RequestError::new(FailureKind::TargetRefused, format!("{}: {error}", args.out.display()))
    };
    std::fs::create_dir_all(&args.out).map_err(failed)?;
    // Pages say what the command does here, not what it does in somebody's environment.
    let command = args::bare().mut_subcommands(|sub| sub.disable_help_subcommand(true));
    clap_mangen::generate_to(command, &args.out).map_err(failed)?;
    Ok(Code::DONE)
}
