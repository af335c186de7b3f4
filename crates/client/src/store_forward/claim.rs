//! The receiver: a copy whose source is a kept session.

use std::cell::RefCell;
use std::sync::Arc;

use packtrain_session::Place;
use packtrain_transfer::FailureKind;
use packtrain_units::{ByteCount, Duration};

use super::fetch::Fetch;
use super::ticket::ClaimTicket;
use crate::cp;
use packtrain_hops::route::Routes;
use packtrain_runtime::pack::Unpacked;
use packtrain_runtime::source;
use packtrain_service::{
    CpRequest, Location, Notice, NoticeLevel, Outcome, Reporter, RequestError,
};

/// The request of `claim`.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    /// The ticket of the session.
    pub ticket: ClaimTicket,
    /// The depot to ask first; the last one if `None`.
    pub at: Option<Place>,
    /// How long to wait for data that the sender or earlier depots still have.
    pub wait: Duration,
    /// Let the depots remove the session after all data has arrived.
    pub release: bool,
    /// Size of TCP's buffers; `None` leaves them to the kernel.
    pub buffers: Option<ByteCount>,
    /// The copy: destination, options, retries. Its sources are ignored.
    pub copy: CpRequest,
}

/// Claims a session.
///
/// # Errors
/// A failure before there was a transfer; later failures are in the outcome.
pub fn claim(request: &ClaimRequest, reporter: &dyn Reporter) -> Result<Outcome, RequestError> {
    let ticket = &request.ticket;
    let known = ticket.plan.depots().iter().map(|one| &one.place);
    if let Some(at) = &request.at
        && !known.clone().any(|place| place == at)
    {
        let known: Vec<String> = known.map(ToString::to_string).collect();
        let text = format!("{at} is not a depot of this ticket: {}", known.join(", "));
        return Err(RequestError::new(FailureKind::Usage, text));
    }
    let usage = |text| RequestError::new(FailureKind::Usage, text);
    if request.release && request.copy.options.dry_run {
        let text = "a dry run copies nothing, so nothing is released: leave out one of them";
        return Err(usage(text));
    }
    request.copy.options.check_combination().map_err(usage)?;
    let mut copy = request.copy.clone();
    copy.sources = vec![Location::Local(format!("session {}", ticket.session()).into_bytes())];
    copy.via = Vec::new();
    copy.options.extra.origin = cp::origin(&copy);
    let fetch = || {
        let (at, wait) = (request.at.as_ref(), request.wait);
        Arc::new(Fetch::new(ticket, at, wait, request.buffers, copy.stop.clone()))
    };
    let last = RefCell::new(None::<Arc<Fetch>>);
    // Another try would wait as long again.
    let is_over = || last.borrow().as_ref().is_some_and(|fetch| fetch.has_waited());
    let outcome = cp::again(&copy, reporter, &Routes::default(), &is_over, || {
        let fetch = fetch();
        last.replace(Some(Arc::clone(&fetch)));
        let opened = Unpacked::open(Arc::clone(&fetch) as Arc<_>);
        for text in packed_said(&fetch) {
            reporter.notice(&Notice::new(NoticeLevel::Warning, text));
        }
        let unpacked = opened.map_err(RequestError::from)?;
        let sources = unpacked.sources();
        cp::claimed(&copy, source::SourceSpec::Kept(unpacked), sources, reporter)
    })?;
    if request.release && outcome.failure.is_none() && outcome.summary.failed == 0 {
        for text in fetch().release() {
            reporter.notice(&Notice::new(NoticeLevel::Warning, text));
        }
    }
    Ok(outcome)
}

fn packed_said(fetch: &Fetch) -> Vec<String> {
    use packtrain_runtime::pack::Stream as _;
    fetch.said()
}
