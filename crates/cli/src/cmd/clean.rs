//! `clean`: removes the files that interrupted transfers left.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use packtrain_client::clean::CleanRequest;
use packtrain_service::{FailureKind, Location, RequestError};

use crate::args::CleanArgs;
use crate::exit::{Code, Exit};
use crate::out::{clean, quote};

/// The exit code if something could not be removed.
const SOME_FAILED: Code = Code(23);

/// `packtrain clean`.
pub(crate) fn run(args: &CleanArgs) -> Result<Code, Exit> {
    let place = match Location::parse(&args.place).map_err(|e| Exit::usage(e.to_string()))? {
        Location::Local(path) => PathBuf::from(OsString::from_vec(path)),
        Location::Ssh { user, host, path } => {
            let host = user.map_or_else(|| host.clone(), |user| format!("{user}@{host}"));
            let mut words: Vec<OsString> = vec!["packtrain".into(), "clean".into()];
            if args.dry_run {
                words.push("--dry-run".into());
            }
            words.push(OsString::from_vec(path));
            let there = quote::command(&words);
            let here = quote::command(&["ssh".into(), host.into(), there.into()]);
            return Err(Exit::usage(format!(
                "only directories of this machine are cleaned; type this instead: {here}"
            )));
        }
        _ => {
            return Err(Exit::usage(
                "only directories of this machine are cleaned: run it on the machine that has them",
            ));
        }
    };
    if !place.is_dir() {
        let text = format!("{}: no such directory", clean::path(place.as_os_str().as_bytes()));
        return Err(RequestError::new(FailureKind::TargetMissing, text).into());
    }
    let request = CleanRequest { place, dry_run: args.dry_run, all_owners: args.all_owners };
    let mut print = |left: &_| clean::leftover(left, args.dry_run, args.json);
    let summary = packtrain_client::clean::run(&request, &mut print)?;
    let code = if summary.failed > 0 { SOME_FAILED } else { Code::DONE };
    clean::summary(&summary, args.dry_run, args.json.then_some(code));
    Ok(code)
}
