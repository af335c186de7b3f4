//! `serve`.

use std::path::Path;

use packtrain_server::{ClientLimits, ServeRequest};
use packtrain_service::{FailureKind, RequestError, StopHandle, TransportChoice};
use packtrain_udt4_service::Udt4ServeRequest;

use crate::args::ServeArgs;
use crate::exit::{Code, Exit};
use crate::out::perf::ServicePrinter;
use crate::signals;

/// `packtrain serve`.
pub(crate) fn run(args: &ServeArgs) -> Result<Code, Exit> {
    let stop = StopHandle::new();
    if args.stdio {
        // The caller gets the result over the pipe; text on stderr would disturb its output.
        signals::watch(&stop, true);
        packtrain_server::stdio(stop.clone())?;
        return Ok(stop.requested().map_or(Code::DONE, Code::signal));
    }
    if let Some(listen) = &args.udt4 {
        return in_clear(args, listen, stop);
    }
    let (Some(listen), Some(root)) = (&args.listen, &args.root) else {
        return Err(Exit::usage("serve needs --listen ADDR:PORT and --root DIR: add them"));
    };
    check_root(root)?;
    let policy = super::policy()?;
    let request = ServeRequest {
        listen: listen.clone(),
        root: root.clone(),
        authorized_keys: args.authorized_keys.clone(),
        ticket_file: args.ticket_file.clone(),
        ticket_lifetime: policy.ticket_lifetime(args.ticket_lifetime),
        ports: args.ports,
        read_only: args.read_only,
        allow_owner: args.allow_owner,
        rate: policy.rate(args.rate),
        limits: ClientLimits {
            all: args.max_clients,
            per_key: args.max_clients_per_key.unwrap_or(args.max_clients.div_ceil(2)),
        },
        drain: args.drain,
        dial_to: args.dial_to.clone(),
        history: args.keep.keep()?,
        stop: stop.clone(),
    };
    signals::watch_server(&stop);
    packtrain_server::run(request, &ServicePrinter { json: args.json, client: false })?;
    // A server that ends on request succeeds.
    Ok(Code::DONE)
}

/// Refuses a root that no client could use.
fn check_root(root: &Path) -> Result<(), Exit> {
    if root.is_dir() {
        return Ok(());
    }
    let text = format!("--root {}: there is no such directory", root.display());
    Err(RequestError::new(FailureKind::TargetMissing, text).into())
}

/// `packtrain serve --udt4`.
fn in_clear(args: &ServeArgs, listen: &str, stop: StopHandle) -> Result<Code, Exit> {
    let Some(root) = &args.root else {
        return Err(Exit::usage("serve --udt4 needs --root DIR: add it"));
    };
    check_root(root)?;
    let policy = super::policy()?;
    super::request::allow(&policy, TransportChoice::Udt4, false)?;
    let request = Udt4ServeRequest {
        listen: listen.to_owned(),
        root: root.clone(),
        cc: args.cc.clone(),
        rate: policy.rate(args.rate),
        history: args.keep.keep()?,
        stop: stop.clone(),
    };
    signals::watch(&stop, false);
    packtrain_udt4_service::serve(request, &ServicePrinter { json: args.json, client: false })?;
    Ok(Code::DONE)
}
