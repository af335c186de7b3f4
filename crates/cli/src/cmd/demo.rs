//! `packtrain demo`.

use clap::ArgMatches;
use packtrain_demo as demo;
use packtrain_demo::to::{self, ToRequest};
use packtrain_demo::wan::{self, EndRequest, NearRequest};
use packtrain_service::StopHandle;

use crate::args::{DemoArgs, DemoEnd};
use crate::exit::{Code, Exit};
use crate::signals;

/// Runs the requested demo.
pub(super) fn run(args: DemoArgs, matches: &ArgMatches) -> Result<Code, Exit> {
    args.check(matches)?;
    if let Some(end) = args.end {
        return Ok(Code(wan::run_end(&request(end))?));
    }
    let stop = StopHandle::new();
    if args.to.is_some() || args.wan {
        signals::watch(&stop, true);
    }
    let ended = play(args, &stop);
    match stop.requested() {
        Some(signal) => {
            ended.err().map(Exit::report);
            Ok(Code(128 + u8::try_from(signal).unwrap_or(0)))
        }
        None => ended.map(|()| Code::DONE),
    }
}

fn play(args: DemoArgs, stop: &StopHandle) -> Result<(), Exit> {
    if let Some(host) = args.to {
        let (ssh, remote_path) = (args.ssh.0, args.remote_path);
        to::run(&ToRequest { host, ssh, remote_path, stop: stop.clone() })?;
    } else if args.wan {
        wan::run(args.seed, stop)?;
    } else {
        demo::run()?;
    }
    Ok(())
}

fn request(end: DemoEnd) -> EndRequest {
    match end {
        DemoEnd::Near(near) => EndRequest::Near(NearRequest {
            address: near.address,
            file: near.file,
            out: near.out,
            command: near.command,
        }),
        DemoEnd::PlainSend(plain) => {
            EndRequest::PlainSend { address: plain.address, cc: plain.cc, dir: plain.dir }
        }
        DemoEnd::PlainReceive(plain) => {
            EndRequest::PlainReceive { address: plain.address, cc: plain.cc, dir: plain.dir }
        }
    }
}
