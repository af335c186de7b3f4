//! `perf`.

use packtrain_node::api::{
    FailureKind, PerfClientRequest, PerfOutcome, PerfServerRequest, StopHandle, TransportChoice,
};

use super::request;
use crate::args::{PerfArgs, PerfClientArgs, PerfCommand, PerfServerArgs};
use crate::exit::{Code, Exit};
use crate::out::perf::{Station, tell};
use crate::signals;

/// `packtrain perf`.
pub(crate) fn run(args: PerfArgs) -> Result<Code, Exit> {
    match args.command {
        PerfCommand::Server(args) => server(args),
        PerfCommand::Client(args) => Ok(client(args)),
    }
}

fn server(args: PerfServerArgs) -> Result<Code, Exit> {
    let stop = StopHandle::new();
    let request = PerfServerRequest {
        listen: args.listen,
        ticket_file: args.ticket_file,
        ticket_lifetime: super::policy()?.ticket_lifetime(args.ticket_lifetime),
        authorized_keys: args.authorized_keys,
        ports: args.ports,
        tests: args.tests,
        stop: stop.clone(),
    };
    signals::watch(&stop, false);
    packtrain_node::perf::server(request, &Station { json: args.json, client: false })?;
    Ok(super::serve::ended(&stop))
}

fn client(args: PerfClientArgs) -> Code {
    let (json, stop) = (args.json, StopHandle::new());
    let outcome = match client_request(args, stop.clone()) {
        Ok(request) => {
            signals::watch(&stop, false);
            let station = Station { json, client: true };
            packtrain_node::perf::client(request, &station).unwrap_or_else(PerfOutcome::from)
        }
        Err(exit) => PerfOutcome::from(exit.into_error()),
    };
    let cancelled = outcome.failure.as_ref().is_some_and(|f| f.kind == FailureKind::Cancelled);
    let code = match stop.requested() {
        Some(signal) if cancelled => Code::signal(signal),
        _ => Code(outcome.exit_code()),
    };
    tell(&outcome, code, json);
    code
}

fn client_request(args: PerfClientArgs, stop: StopHandle) -> Result<PerfClientRequest, Exit> {
    if args.transport == TransportChoice::Pipe {
        return Err(Exit::usage("perf has no pipe to measure: use --transport native or tcp"));
    }
    if args.cc.is_some() && args.transport == TransportChoice::Tcp {
        return Err(Exit::usage("--cc is about native; the kernel chooses for tcp: leave one out"));
    }
    let policy = super::policy()?;
    request::allow(&policy, args.transport, args.accept_new_host)?;
    Ok(PerfClientRequest {
        server: args.server,
        ticket: args.ticket.as_ref().map(request::ticket).transpose()?,
        accept_new_host: args.accept_new_host,
        duration: args.seconds,
        bytes: args.bytes,
        reverse: args.reverse,
        parallel: policy.streams(args.parallel),
        transport: args.transport,
        cc: args.cc,
        rate: policy.rate(args.rate),
        interval: args.interval,
        stop,
    })
}
