//! A connection that is lost because the user wished the end is not a temporary failure.
//!
//! Ctrl-C goes to all processes of the terminal's foreground group, and `timeout`, batch systems
//! and service managers send SIGTERM to whole groups: ssh may end before this process has noticed
//! the signal itself.

use std::time::Duration;

use packtrain_transfer::{Failure, FailureKind};

use super::Ended;
use packtrain_runtime::session::Stop;
use packtrain_service::{CpRequest, Location, RequestError, STOPPED, StopHandle};

/// How long a signal to the whole process group may take to be noticed here. A lost connection is
/// followed by a pause of a second before the next try, so nobody waits longer for this.
const NOTICE: Duration = Duration::from_millis(300);
const POLL: Duration = Duration::from_millis(10);

/// The failure of a request whose user wished its end.
pub(super) fn wish(stop: &StopHandle) -> Failure {
    let asked = Stop::new(stop.clone()).asked();
    asked.unwrap_or_else(|| Failure::new(FailureKind::Cancelled, STOPPED))
}

/// Says that a try was stopped where the loss of its connection is what the wish to stop did.
pub(super) fn classify(
    request: &CpRequest,
    ended: Result<Ended, RequestError>,
) -> Result<Ended, RequestError> {
    let kind = match &ended {
        Ok((outcome, _)) => outcome.failure.as_ref().map(|failure| failure.kind),
        Err(error) => Some(error.kind),
    };
    if kind != Some(FailureKind::Temporary) || !noticed(request) {
        return ended;
    }
    let wish = wish(&request.stop);
    match ended {
        Ok((mut outcome, moved)) => {
            outcome.failure = Some(wish);
            Ok((outcome, moved))
        }
        Err(error) => Err(RequestError { kind: wish.kind, text: wish.text, ..error }),
    }
}

/// Whether the user wished the end, or does so in the next moment where ssh could hear it first.
fn noticed(request: &CpRequest) -> bool {
    let mut places = request.sources.iter().chain([&request.dest]);
    let by_ssh = places.any(|place| matches!(place, Location::Ssh { .. }));
    let mut waited = Duration::ZERO;
    while request.stop.requested().is_none() {
        if !by_ssh || waited >= NOTICE {
            return false;
        }
        std::thread::sleep(POLL);
        waited += POLL;
    }
    true
}
