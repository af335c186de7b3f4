//! `depot`.

use std::path::PathBuf;

use packtrain_depot::{DepotClique, DepotLimits, DepotRequest, DepotSpool, RouteTable};
use packtrain_service::StopHandle;

use crate::args::DepotArgs;
use crate::exit::{Code, Exit};
use crate::out::depot::DepotPrinter;
use crate::signals;

/// `packtrain depot`.
pub(crate) fn run(args: &DepotArgs) -> Result<Code, Exit> {
    let stop = StopHandle::new();
    let table = |path: &PathBuf| {
        let wrong = |error| Exit::usage(format!("--routes {}: {error}", path.display()));
        RouteTable::load(path).map_err(wrong)
    };
    let request = DepotRequest {
        listen: args.listen.clone(),
        authorized_keys: args.authorized_keys.clone(),
        allow: args.allow.clone(),
        routes: args.routes.as_ref().map(table).transpose()?.unwrap_or_default(),
        limits: DepotLimits {
            sessions: args.sessions,
            key_sessions: args.key_sessions,
            key_bytes: args.key_bytes,
            pool: args.pool,
            kernel: args.socket_memory,
            rate: args.full_rate,
            load: args.full_load,
        },
        hop_limit: args.hop_limit,
        idle: args.idle,
        drain: args.drain,
        buffers: args.tcp_buffer.and_then(|buffer| buffer.0),
        tcp_cc: args.tcp_cc.clone(),
        ports: args.ports,
        flows: args.flows,
        copy: args.copy,
        metrics: args.metrics.clone(),
        interval: args.interval,
        spool: args.spool.spool.clone().map(|dir| DepotSpool {
            dir,
            quota: args.spool.spool_quota,
            key_quota: args.spool.spool_key_quota,
            keep: args.spool.spool_ttl,
            free: args.spool.spool_free,
        }),
        clique: args.name.clone().map(|name| DepotClique {
            name,
            peers: args.peer.clone(),
            budget: args.probe_budget,
        }),
        stop: stop.clone(),
    };
    signals::watch_server(&stop);
    packtrain_depot::run(request, &DepotPrinter { json: args.json })?;
    Ok(Code::DONE)
}
