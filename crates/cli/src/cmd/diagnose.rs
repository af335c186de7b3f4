//! `diagnose`: what limits a transfer.

use std::ffi::{OsStr, OsString};

use packtrain_client::probe::probe;
use packtrain_diagnose::{Which, find, judge_record};
use packtrain_service::{FileReport, Notice, NoticeLevel, ProgressSnapshot, Reporter};

use super::request;
use crate::args::DiagnoseArgs;
use crate::exit::{Code, Exit, print_message};
use crate::out::diagnose;
use crate::signals;

/// `packtrain diagnose`.
pub(crate) fn run(args: &DiagnoseArgs) -> Result<Code, Exit> {
    let record = match host(&args.what) {
        Some(place) => {
            let request = request::probe(&place, &args.transport, &args.remote, &args.keep)?;
            let stop = request.stop.clone();
            signals::watch_measurement(&stop);
            probe(request, &Quiet)?
        }
        None => find(&which(&args.what)?, &args.keep.keep()?)?,
    };
    let diagnosis = judge_record(&record);
    if args.json {
        diagnose::json(&record, &diagnosis);
    } else {
        diagnose::text(&record, &diagnosis);
    }
    Ok(Code::DONE)
}

/// `user@host`, with or without a directory, as a location.
fn host(text: &OsStr) -> Option<OsString> {
    let words = text.to_str()?;
    if words.contains("://") || !(words.contains('@') || words.contains(':')) {
        return None;
    }
    let (user, rest) = words.split_once('@').unwrap_or(("", words));
    // A colon inside the brackets of an address does not separate a path.
    let after = rest.rfind(']').map_or(0, |at| at + 1);
    let colon = if rest[after..].contains(':') { "" } else { ":" };
    let at = if user.is_empty() { "" } else { "@" };
    Some(format!("{user}{at}{rest}{colon}").into())
}

/// Prints only warnings; the diagnosis is printed at the end.
struct Quiet;

impl Reporter for Quiet {
    fn progress(&self, _: &ProgressSnapshot) {}

    fn file(&self, _: &[u8], _: &FileReport) {}

    fn notice(&self, notice: &Notice) {
        if notice.level == NoticeLevel::Warning {
            print_message(&notice.text);
        }
    }
}

fn which(text: &OsStr) -> Result<Which, Exit> {
    let wrong = || {
        Exit::usage("name `last`, the id of a transfer (8 digits or letters a-f) or a process id")
    };
    let text = text.to_str().ok_or_else(wrong)?;
    if text == "last" {
        return Ok(Which::Last);
    }
    // Ids are eight hexadecimal digits; process ids are shorter.
    match text.parse::<u32>() {
        Ok(pid) if text.len() < 8 => Ok(Which::Pid(pid)),
        _ if text.len() <= 8 && !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit()) => {
            Ok(Which::Id(text.to_ascii_lowercase()))
        }
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_told_from_ids() {
        let place = |text: &str| host(OsStr::new(text)).map(|p| p.into_string().unwrap());
        assert_eq!(place("last"), None);
        assert_eq!(place("12345"), None);
        assert_eq!(place("a@b").as_deref(), Some("a@b:"));
        assert_eq!(place("a@b:dir").as_deref(), Some("a@b:dir"));
        assert_eq!(place("a@[::1]").as_deref(), Some("a@[::1]:"));
        assert_eq!(place("host:").as_deref(), Some("host:"));
        assert_eq!(which(OsStr::new("1234")).unwrap(), Which::Pid(1234));
        assert_eq!(which(OsStr::new("00001234")).unwrap(), Which::Id("00001234".into()));
        assert_eq!(which(OsStr::new("AB")).unwrap(), Which::Id("ab".into()));
    }
}
