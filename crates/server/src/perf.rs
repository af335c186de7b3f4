//! A server for measurements only.

use std::sync::Arc;

use packtrain_units::Duration;

use super::reports::Reports;
use super::{AccessRules, ClientLimits, Listening, Served, run_server};
use packtrain_identity::config::Dirs;
use packtrain_identity::keys;
use packtrain_identity::tickets::TicketBook;
use packtrain_runtime::permissions::Permissions;
use packtrain_service::{
    Notice, NoticeLevel, PerfOutcome, PerfReporter, PerfServerRequest, RequestError, history,
};

/// Listens for tests.
///
/// # Errors
/// The server cannot listen.
pub fn perf(request: PerfServerRequest, reporter: &dyn PerfReporter) -> Result<(), RequestError> {
    let dirs = Dirs::from_env()?;
    let rules = AccessRules {
        kind: "perf",
        root: None,
        authorized: request.authorized_keys.unwrap_or_else(|| dirs.authorized_keys()),
        tickets: TicketBook::new(dirs.tickets()),
        base: Permissions { perf_only: true, ports: request.ports, ..Permissions::by_policy()? },
    };
    let identity = keys::identity()?;
    let (history, keep) = (request.history.clone(), request.history);
    let (reports, queued) = Reports::new();
    let (last, warnings) = (reports.clone(), reports.clone());
    let done = Arc::new(move |served| reports.add(served));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let on_served = |(peer, elapsed, result, row): Served| {
                let outcome = match result {
                    Ok((_, moved)) => PerfOutcome {
                        transport: moved.shares.first().map_or_else(String::new, |s| s.0.clone()),
                        bytes: moved.shares.iter().map(|s| s.1).sum(),
                        elapsed,
                        retransmitted: moved.retransmitted,
                        rtt: moved.rtt,
                        held_by: moved.held.map(|by| by.word().to_owned()),
                        ..PerfOutcome::default()
                    },
                    Err(failure) => {
                        PerfOutcome { elapsed, failure: Some(failure), ..PerfOutcome::default() }
                    }
                };
                reporter.finished(&peer, &outcome);
                if let Some(text) = row.and_then(|row| history::keep(&keep, &row)) {
                    reporter.notice(&Notice::new(NoticeLevel::Warning, text));
                }
            };
            queued.deliver(on_served, |notice| reporter.notice(notice));
        });
        let ended = run_server(
            &identity,
            rules,
            &Listening {
                address: &request.listen,
                ticket: request.ticket_file.map(|path| (path, request.ticket_lifetime)),
                stop: request.stop,
                clients: request.tests,
                limits: ClientLimits::default(),
                drain: Duration::ZERO,
                ready: &|address, print| reporter.listening(address, Some(print)),
                notice: &|notice| reporter.notice(&notice),
                done,
                warn: Arc::new(move |text| warnings.warn(text)),
                history,
            },
        );
        last.end();
        ended
    })
}
