//! Whose files the journal at a destination lists: a copy of other sources to the same place keeps
//! what these have received.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use packtrain_service::{CpRequest, Location};
use packtrain_transfer::message::Options;

/// A digest of the sources and of the options that choose files of them. Sources of this machine count
/// by their resolved paths. A digest that differs without need costs a temporary that stays.
pub(crate) fn origin(request: &CpRequest) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    let mut add = |part: &[u8]| {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    };
    add(chosen(&request.options).as_bytes());
    for source in &request.sources {
        match source {
            Location::Local(path) => {
                add(rustix::system::uname().nodename().to_bytes());
                add(&resolved(path));
            }
            place => add(place.to_string().as_bytes()),
        }
    }
    let mut origin = [0; 16];
    origin.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    origin
}

/// The options that choose files.
fn chosen(options: &Options) -> String {
    let Options { recursive, update, filters, files_from, extra, .. } = options;
    let sizes = (extra.min_size, extra.max_size);
    let target = (update, extra.ignore_existing, extra.existing_only);
    let walk = (recursive, extra.copy_links, extra.one_file_system, extra.patterns);
    format!("{:?}", (walk, target, sizes, filters, files_from))
}

/// The path without links, with its trailing slash.
fn resolved(path: &[u8]) -> Vec<u8> {
    let name = Path::new(OsStr::from_bytes(path));
    let whole = std::fs::canonicalize(name).or_else(|_| std::path::absolute(name));
    let mut whole =
        whole.map_or_else(|_| path.to_vec(), |it| it.into_os_string().into_encoded_bytes());
    if path.ends_with(b"/") && !whole.ends_with(b"/") {
        whole.push(b'/');
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_what_is_copied_and_not_how() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::create_dir(dir.path().join("a")).expect("a directory");
        let place = |name: &str| Location::Local(format!("{}/{name}", dir.path().display()).into());
        let request = |sources: Vec<Location>, change: fn(&mut Options)| {
            let mut request = crate::cp::tries::tests::request();
            request.sources = sources;
            change(&mut request.options);
            origin(&request)
        };
        let same = |_: &mut Options| {};
        let first = request(vec![place("a/")], same);
        assert_eq!(request(vec![place("./a/")], same), first);
        assert_eq!(request(vec![place("a/")], |it| it.rate_bps = Some(1)), first);
        assert_ne!(request(vec![place("a")], same), first, "another name at the target");
        assert_ne!(request(vec![place("b/")], same), first);
        assert_ne!(request(vec![place("a/"), place("b/")], same), first);
        assert_ne!(request(vec![place("a/")], |it| it.filters = vec!["- x".into()]), first);
        let there = |path: &str| {
            let path = path.as_bytes().to_vec();
            vec![Location::Ssh { user: None, host: "h".to_owned(), path }]
        };
        assert_eq!(request(there("a"), same), request(there("a"), same));
        assert_ne!(request(there("a"), same), request(there("b"), same));
    }
}
