//! `serve`.

use packtrain_node::api::{ServeRequest, StopHandle};

use crate::args::ServeArgs;
use crate::exit::{Code, Exit};
use crate::out::perf::Station;
use crate::signals;

/// `packtrain serve`.
pub(crate) fn run(args: &ServeArgs) -> Result<Code, Exit> {
    let stop = StopHandle::new();
    if args.stdio {
        // The caller hears of the end over the pipe; words on stderr would only disturb it.
        signals::watch(&stop, true);
        packtrain_node::serve::stdio(stop.clone())?;
        return Ok(ended(&stop));
    }
    let (Some(listen), Some(root)) = (&args.listen, &args.root) else {
        return Err(Exit::usage("serve needs --listen ADDR:PORT and --root DIR: add them"));
    };
    let policy = super::policy()?;
    let request = ServeRequest {
        listen: listen.clone(),
        root: root.clone(),
        authorized_keys: args.authorized_keys.clone(),
        ticket_file: args.ticket_file.clone(),
        ticket_lifetime: policy.ticket_lifetime(args.ticket_lifetime),
        ports: args.ports,
        read_only: args.read_only,
        rate: policy.rate(args.rate),
        stop: stop.clone(),
    };
    signals::watch(&stop, false);
    packtrain_node::serve::run(request, &Station { json: args.json, client: false })?;
    Ok(ended(&stop))
}

/// A server ends when it is told to: by a signal, which its exit code says.
pub(super) fn ended(stop: &StopHandle) -> Code {
    stop.requested().map_or(Code::DONE, Code::signal)
}
