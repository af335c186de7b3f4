//! `perf`.

use clap::ArgMatches;
use packtrain_service::{
    FailureKind, PerfClientRequest, PerfOutcome, PerfServerRequest, StopHandle, TransportChoice,
};

use super::request;
use crate::args::{PerfArgs, PerfClientArgs, PerfCommand, PerfServerArgs, precedence};
use crate::exit::{Code, Exit};
use crate::out::perf::{ServicePrinter, print_outcome};
use crate::signals;

/// `packtrain perf`.
pub(crate) fn run(args: PerfArgs, matches: &ArgMatches) -> Result<Code, Exit> {
    match args.command {
        PerfCommand::Server(args) => server(args, matches),
        PerfCommand::Client(args) => Ok(client(args)),
    }
}

fn server(args: PerfServerArgs, matches: &ArgMatches) -> Result<Code, Exit> {
    check_server(&args, matches)?;
    let stop = StopHandle::new();
    let request = PerfServerRequest {
        listen: args.listen,
        ticket_file: args.ticket_file,
        ticket_lifetime: super::policy()?.ticket_lifetime(args.ticket_lifetime),
        authorized_keys: args.authorized_keys,
        ports: args.ports,
        transport: args.transport,
        cc: args.cc,
        tests: args.tests,
        history: args.keep.keep()?,
        stop: stop.clone(),
    };
    signals::watch_measurement(&stop);
    let printer = ServicePrinter { json: args.json, client: false };
    match request.transport {
        TransportChoice::Udt4 => packtrain_udt4_service::perf_server(&request, &printer)?,
        _ => packtrain_server::perf(request, &printer)?,
    }
    Ok(Code::DONE)
}

/// Refuses options that have no effect on the server.
fn check_server(args: &PerfServerArgs, matches: &ArgMatches) -> Result<(), Exit> {
    let own = matches.subcommand().map(|(_, own)| own);
    // A value from a file may be meant for other commands.
    let given = |id: &str| own.is_some_and(|own| precedence(own, id) > 1);
    let clear = args.transport == TransportChoice::Udt4;
    if !clear && given("transport") && args.transport != TransportChoice::Auto {
        return Err(Exit::usage("the client chooses: give --transport to perf client"));
    }
    if !clear && given("cc") {
        return Err(Exit::usage(
            "--cc applies to udt4 here; otherwise the client chooses: give it to perf client",
        ));
    }
    let keys = [
        ("ticket_file", "--ticket-file"),
        ("authorized_keys", "--authorized-keys"),
        ("ports", "--ports"),
    ];
    if let Some((_, name)) = keys.into_iter().find(|(id, _)| clear && given(id)) {
        let text =
            format!("{name} does not apply to udt4, which is open to every client: leave it out");
        return Err(Exit::usage(text));
    }
    if clear {
        request::allow(&super::policy()?, TransportChoice::Udt4, false)?;
    }
    Ok(())
}

fn client(args: PerfClientArgs) -> Code {
    let (json, stop) = (args.json, StopHandle::new());
    let outcome = match client_request(args, stop.clone()) {
        Ok(request) => {
            signals::watch_measurement(&stop);
            let printer = ServicePrinter { json, client: true };
            let outcome = match request.transport {
                TransportChoice::Udt4 => packtrain_udt4_service::perf_client(request, &printer),
                _ => packtrain_perf::client(request, &printer),
            };
            outcome.unwrap_or_else(PerfOutcome::from)
        }
        Err(exit) => PerfOutcome::from(exit.into_error()),
    };
    let cancelled = outcome.failure.as_ref().is_some_and(|f| f.kind == FailureKind::Cancelled);
    let code = match stop.requested() {
        Some(signal) if cancelled => Code::signal(signal),
        _ => Code(outcome.exit_code()),
    };
    print_outcome(&outcome, code, json);
    code
}

fn client_request(args: PerfClientArgs, stop: StopHandle) -> Result<PerfClientRequest, Exit> {
    if args.transport == TransportChoice::Pipe {
        return Err(Exit::usage(
            "perf has no pipe to measure: use --transport native, udt, tcp or udt4",
        ));
    }
    if args.cc.is_some() && args.transport == TransportChoice::Tcp {
        return Err(Exit::usage("--cc applies to datagram transports, not to tcp: leave one out"));
    }
    let kernel = [(args.tcp_cc.is_some(), "tcp-cc"), (args.tcp_buffer.is_some(), "tcp-buffer")];
    if let Some((_, option)) = kernel.into_iter().find(|(given, _)| *given)
        && args.transport != TransportChoice::Tcp
    {
        let text = format!("--{option} applies to TCP: add --transport tcp, or leave it out");
        return Err(Exit::usage(text));
    }
    if args.transport == TransportChoice::Udt4 && (args.ticket.is_some() || args.accept_new_host) {
        return Err(Exit::usage(
            "udt4 has neither keys nor tickets: leave --ticket and --accept-new-host out",
        ));
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
        tcp_cc: args.tcp_cc,
        tcp_buffer: args.tcp_buffer.and_then(|buffer| buffer.0),
        rate: policy.rate(args.rate),
        interval: args.interval,
        history: args.keep.keep()?,
        stop,
    })
}
