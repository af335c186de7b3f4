//! The row of a `send` in the history.

use super::SendRequest;
use packtrain_service::history::{self, Kind, Role, Row, Side};
use packtrain_service::paths::show;

/// The first version of the row.
pub(super) fn row(request: &SendRequest) -> Row {
    let mut row = history::begin(Kind::Cp, Side::Caller);
    row.role = Role::Source;
    row.from_host.clone_from(&row.host);
    row.to_host = request.plan.depots.first().map(|d| d.place.to_string()).unwrap_or_default();
    row.source = match request.sources.as_slice() {
        [] => "-".to_owned(),
        [one] => show(one),
        [first, rest @ ..] => format!("{} and {} more", show(first), rest.len()),
    };
    row.target = format!("depots {}", request.plan);
    row
}
