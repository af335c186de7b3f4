//! What goes with places on other people's servers and what does not.

use packtrain_service::{CpRequest, Location};

use super::request::first_given;
use crate::exit::Exit;

/// Options that need an end of ours at the other side.
const NOT: &[&str] = &[
    "checksum",
    "files_from",
    "transport",
    "cc",
    "via",
    "depots",
    "hops",
    "ssh",
    "remote_path",
    "bootstrap",
    "ports",
    "data_addr",
    "ticket",
    "accept_new_host",
];

/// Whether a place is somebody else's server.
pub(super) fn is_store(place: &Location) -> bool {
    matches!(place, Location::Http { .. } | Location::S3 { .. })
}

/// Refuses what a server that is not ours cannot do.
pub(super) fn check(request: &CpRequest, given: &dyn Fn(&str) -> bool) -> Result<(), Exit> {
    let from = request.sources.iter().any(is_store);
    if request.options.verify {
        return Err(Exit::usage(
            "verify needs an end of ours at both places: copy, and it is checked",
        ));
    }
    if from && !matches!(request.dest, Location::Local(_) | Location::Stdio) {
        return Err(Exit::usage(
            "from a web server or a store files come to this machine: name a path or -",
        ));
    }
    if matches!(request.dest, Location::Http { .. }) {
        return Err(Exit::usage("http:// and https:// can only be read: nothing is put there"));
    }
    if matches!(request.dest, Location::S3 { .. })
        && !request.sources.iter().all(|source| matches!(source, Location::Local(_)))
    {
        return Err(Exit::usage("to s3:// files come from this machine: name paths on it"));
    }
    let web = request.sources.iter().any(|source| matches!(source, Location::Http { .. }));
    for id in ["recursive", "delete"] {
        if web && given(id) {
            let text = format!("--{id} needs a list, which a web server has none of: leave it out");
            return Err(Exit::usage(text));
        }
    }
    let to = matches!(request.dest, Location::S3 { .. });
    for id in ["delete", "inplace"] {
        if to && given(id) {
            return Err(Exit::usage(format!("--{id} does not act on a store: leave it out")));
        }
    }
    if from && given("tcp_cc") {
        return Err(Exit::usage("--tcp-cc is the sender's, which is not ours here: leave it out"));
    }
    match first_given(NOT, given) {
        None => Ok(()),
        Some(option) => Err(Exit::usage(format!(
            "{option} needs an end of ours at the other side, which https:// and s3:// have not: \
             leave it out"
        ))),
    }
}
