//! The receiver: a copy whose source is a session that depots keep.

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

/// What `claim` is asked for.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    /// What is claimed.
    pub ticket: ClaimTicket,
    /// The depot to ask first; the last one if none.
    pub at: Option<Place>,
    /// How long to wait for what its sender or the depots before still have.
    pub wait: Duration,
    /// Let the depots forget it when all is here.
    pub release: bool,
    /// TCP's buffers, instead of the kernel's autotuning.
    pub buffers: Option<ByteCount>,
    /// The copy that it is: where to, which options, how often again. Its sources are not looked
    /// at.
    pub copy: CpRequest,
}

/// Claims a session.
///
/// # Errors
/// What failed before there was a transfer; later failures are in the outcome.
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
    if request.release && request.copy.options.dry_run {
        let text = "a dry run copies nothing, so nothing is released: leave out one of them";
        return Err(RequestError::new(FailureKind::Usage, text));
    }
    let mut copy = request.copy.clone();
    copy.sources = vec![Location::Local(format!("session {}", ticket.session()).into_bytes())];
    copy.via = Vec::new();
    let fetch = || {
        let (at, wait) = (request.at.as_ref(), request.wait);
        Arc::new(Fetch::new(ticket, at, wait, request.buffers, copy.stop.clone()))
    };
    let outcome = cp::again(&copy, reporter, &Routes::default(), || {
        let fetch = fetch();
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
