//! `diagnose`: what limits a transfer.

use std::ffi::OsStr;

use packtrain_node::diagnose::{Which, find, judge};

use crate::args::DiagnoseArgs;
use crate::exit::{Code, Exit};
use crate::out::diagnose;

/// `packtrain diagnose`.
pub(crate) fn run(args: &DiagnoseArgs) -> Result<Code, Exit> {
    let record = find(&which(&args.what)?)?;
    let diagnosis = judge(&record.evidence);
    if args.json {
        diagnose::json(&record, &diagnosis);
    } else {
        diagnose::words(&record, &diagnosis);
    }
    Ok(Code::DONE)
}

fn which(text: &OsStr) -> Result<Which, Exit> {
    let wrong = || {
        Exit::usage("name `last`, the id of a transfer (8 digits or letters a-f) or a process id")
    };
    let text = text.to_str().ok_or_else(wrong)?;
    if text == "last" {
        return Ok(Which::Last);
    }
    // Ids are eight hexadecimal digits; process ids are never so long.
    match text.parse::<u32>() {
        Ok(pid) if text.len() < 8 => Ok(Which::Pid(pid)),
        _ if text.len() <= 8 && !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit()) => {
            Ok(Which::Id(text.to_ascii_lowercase()))
        }
        _ => Err(wrong()),
    }
}
