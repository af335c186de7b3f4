//! `packtrain demo`.

use packtrain_node::demo;
use packtrain_node::demo::to::{self, ToRequest};
use packtrain_node::demo::wan::{self, EndRequest, NearRequest};

use crate::args::{DemoArgs, DemoEnd};
use crate::exit::{Code, Exit};

/// The demo that was asked for.
pub(super) fn run(args: DemoArgs) -> Result<Code, Exit> {
    if let Some(end) = args.end {
        return Ok(Code(wan::run_end(&request(end))?));
    }
    if let Some(host) = args.to {
        to::run(&ToRequest { host, ssh: args.ssh.0, remote_path: args.remote_path })?;
    } else if args.wan {
        wan::run(args.seed)?;
    } else {
        demo::run()?;
    }
    Ok(Code::DONE)
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
