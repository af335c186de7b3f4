//! Which options copies from web servers and S3 stores support.

use packtrain_service::{CpRequest, Location};

use super::extra;
use super::request::first_given;
use crate::args::variable;
use crate::exit::Exit;

/// Options that need a packtrain end at the other side.
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

/// Whether a location is on a web server or an S3 store.
pub(super) fn is_store(place: &Location) -> bool {
    matches!(place, Location::Http { .. } | Location::S3 { .. })
}

/// Refuses what a foreign server does not support.
pub(super) fn check(request: &CpRequest, given: &dyn Fn(&str) -> bool) -> Result<(), Exit> {
    let from = request.sources.iter().any(is_store);
    if request.options.verify {
        return Err(Exit::usage(
            "verify needs packtrain at both places: copy instead, which checks the data",
        ));
    }
    if from && !matches!(request.dest, Location::Local(_) | Location::Stdio) {
        return Err(Exit::usage(
            "from a web server or a store files can only come to this machine: name a path or -",
        ));
    }
    if matches!(request.dest, Location::Http { .. }) {
        return Err(Exit::usage(
            "http:// and https:// can only be read: packtrain does not upload to them",
        ));
    }
    if matches!(request.dest, Location::S3 { .. })
        && !request.sources.iter().all(|source| matches!(source, Location::Local(_)))
    {
        return Err(Exit::usage(
            "to s3:// files can only come from this machine: name paths on it",
        ));
    }
    let web = request.sources.iter().any(|source| matches!(source, Location::Http { .. }));
    for id in ["recursive", "delete"] {
        if web && given(id) {
            let text = format!(
                "--{id} needs a directory list, which web servers do not have: leave it out"
            );
            return Err(Exit::usage(text));
        }
    }
    let to = matches!(request.dest, Location::S3 { .. });
    for id in ["delete", "inplace"] {
        if to && given(id) {
            return Err(Exit::usage(format!("--{id} does not apply to S3 stores: leave it out")));
        }
    }
    if from && given("tcp_cc") {
        return Err(Exit::usage(
            "--tcp-cc is set by the sender, which is a foreign server here: leave it out",
        ));
    }
    if let Some(option) = first_given(NOT, given).or_else(|| first_given(extra::IDS, given)) {
        return Err(Exit::usage(format!(
            "{option} needs packtrain at the other end, which https:// and s3:// do not have: \
             leave it out"
        )));
    }
    // A fetch has a sink that knows these options.
    match extra::protecting(&request.options, &["dry-run", "update"]) {
        Some(option) if to => {
            let variable = variable(option);
            Err(Exit::usage(format!(
                "{option} is set by config.toml or {variable}, and copies to S3 stores do not \
                 support it: remove it, or set {variable}=false for this copy if it is a flag"
            )))
        }
        _ => Ok(()),
    }
}
