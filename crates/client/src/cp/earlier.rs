//! What the earlier tries of one command did.

use std::borrow::Cow;
use std::collections::BTreeSet;

use packtrain_object::SourceName;
use packtrain_os::clock;
use packtrain_service::{CpRequest, Location, Outcome, RequestError};
use packtrain_transfer::FailureKind;
use packtrain_transfer::message::Summary;
use packtrain_units::Time;

use super::tries::cleaned;

/// The tries of a command so far.
pub(super) struct EarlierTries {
    begun: Time,
    /// The named sources that were there, if they are files of this machine that may be moved.
    there: Vec<Location>,
    /// The same of the names of `--files-from`, as paths at the target.
    listed: BTreeSet<Vec<u8>>,
    /// The names of sources of another machine that were moved.
    fetched: BTreeSet<Vec<u8>>,
    tries: u32,
    sum: Summary,
}

impl EarlierTries {
    pub(super) fn none(request: &CpRequest) -> Self {
        let moves = request.options.removes_source();
        let is_there = |place: &&Location| moves && exists(place) == Some(true);
        let names = request.options.files_from.iter().flatten().map(|name| cleaned(name));
        let is_listed = |name: &Vec<u8>| moves && is_there_in(request, name) == Some(true);
        Self {
            begun: clock::now(),
            there: request.sources.iter().filter(is_there).cloned().collect(),
            listed: names.filter(is_listed).collect(),
            fetched: BTreeSet::new(),
            tries: 0,
            sum: Summary::default(),
        }
    }

    /// The named sources that earlier tries moved: they are gone since the first one began, and no
    /// more than these tries removed.
    pub(super) fn moved(&self) -> Vec<Location> {
        let gone = self.there.iter().filter(|place| exists(place) == Some(false));
        let gone: Vec<Location> = gone.cloned().collect();
        if gone.len() as u64 <= self.sum.removed { gone } else { Vec::new() }
    }

    /// The request without the names of `--files-from` that earlier tries moved, which are those of
    /// [`Self::moved`] else; none if no name is left.
    pub(super) fn left<'a>(&self, request: &'a CpRequest) -> Option<Cow<'a, CpRequest>> {
        let is_gone = |name: &&Vec<u8>| is_there_in(request, name) == Some(false);
        let gone: BTreeSet<&Vec<u8>> = self.listed.iter().filter(is_gone).collect();
        if gone.is_empty() || gone.len() as u64 > self.sum.removed {
            return Some(Cow::Borrowed(request));
        }
        let mut left = request.clone();
        let names = left.options.files_from.get_or_insert_default();
        names.retain(|name| !gone.contains(&cleaned(name)));
        (!names.is_empty()).then_some(Cow::Owned(left))
    }

    /// [Forgives](forgive) a try what earlier ones moved. `again` has the names that this one moved.
    pub(super) fn forgive(
        &mut self,
        request: &CpRequest,
        again: BTreeSet<Vec<u8>>,
        result: &mut Result<Outcome, RequestError>,
    ) {
        forgive(request, &self.fetched, &again, result);
        self.fetched.extend(again);
    }

    /// Adds a try.
    pub(super) fn add(&mut self, result: &Result<Outcome, RequestError>) {
        let Ok(Outcome { summary, .. }) = result else { return };
        self.tries += 1;
        self.sum.bytes_moved += summary.bytes_moved;
        self.sum.files_moved += summary.files_moved;
        self.sum.changed += summary.changed;
        self.sum.deleted += summary.deleted;
        self.sum.removed += summary.removed;
    }

    /// Gives the outcome of the last try the counts of all, which are those of the command.
    pub(super) fn complete(&self, outcome: &mut Outcome) {
        // What did nothing did it in no try.
        if self.tries < 2 || outcome.dry_run {
            return;
        }
        let Summary { bytes_moved, files_moved, changed, deleted, removed, .. } = self.sum;
        outcome.summary =
            Summary { bytes_moved, files_moved, changed, deleted, removed, ..outcome.summary };
        outcome.elapsed = clock::now().since(self.begun);
    }
}

/// Named sources of another machine, and names of `--files-from` there, that are missing because an
/// earlier try moved them are no failures, and count as removed. `moved` has their names at the target,
/// and `again` those that this try moved. Of more than 100 failures the rest is not known by name and
/// stays, unless it is a list and the rest has as many as are moved and not moved again.
fn forgive(
    request: &CpRequest,
    moved: &BTreeSet<Vec<u8>>,
    again: &BTreeSet<Vec<u8>>,
    result: &mut Result<Outcome, RequestError>,
) {
    let is_list = request.options.files_from.is_some();
    let is_moved = |path: &[u8]| match SourceName::of(path) {
        _ if is_list => is_listed(request, moved, path),
        SourceName::Named(name) => moved.contains(&name),
        SourceName::Contents => false,
    };
    let kind = match &*result {
        Ok(outcome) => outcome.failure.as_ref().map(|failure| failure.kind),
        Err(error) => Some(error.kind),
    };
    let missing = FailureKind::SourceMissing;
    if kind == Some(missing) && request.sources.iter().all(|place| is_moved(place.path())) {
        let removed = request.sources.len() as u64;
        let summary = Summary { removed, ..Summary::default() };
        *result = Ok(Outcome { summary, ..Outcome::default() });
    }
    let Ok(outcome) = result else { return };
    let before = outcome.failed.len() as u64;
    outcome.failed.retain(|(path, failure)| failure.kind != missing || !is_moved(path));
    let mut forgiven = before - outcome.failed.len() as u64;
    let gone = moved.difference(again).count() as u64;
    let unnamed = outcome.summary.failed.saturating_sub(before);
    // What this option leaves alone is neither missing nor moved again.
    let is_exact = !request.options.extra.ignore_existing && gone == forgiven + unnamed;
    if is_list && is_exact {
        forgiven = gone;
    }
    outcome.summary.failed -= forgiven.min(outcome.summary.failed);
    // A try that fails is followed by another that misses them.
    if outcome.failure.is_none() {
        outcome.summary.removed += forgiven;
    }
}

/// Whether a failure of the source is about one of these names below it. The other end may have
/// completed the path of the source, but not its end.
fn is_listed(request: &CpRequest, names: &BTreeSet<Vec<u8>>, path: &[u8]) -> bool {
    let source = request.sources.first().map(Location::path).unwrap_or_default();
    let end = source.strip_prefix(b"~").unwrap_or(source);
    let end = end.strip_suffix(b"/").unwrap_or(end);
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    let mut splits = slashes.map(|(at, _)| (&path[..at], &path[at + 1..]));
    splits.any(|(above, name)| above.ends_with(end) && names.contains(name))
}

/// Whether a name of `--files-from` exists in the one source, if that is a directory of this machine.
fn is_there_in(request: &CpRequest, name: &[u8]) -> Option<bool> {
    let [Location::Local(source)] = &request.sources[..] else { return None };
    exists(&Location::Local([source, &b"/"[..], name].concat()))
}

/// Whether a place of this machine exists; `None` if that is not known.
fn exists(place: &Location) -> Option<bool> {
    use std::os::unix::ffi::OsStrExt as _;
    let Location::Local(path) = place else { return None };
    match std::path::Path::new(std::ffi::OsStr::from_bytes(path)).symlink_metadata() {
        Ok(_) => Some(true),
        Err(error) => (error.kind() == std::io::ErrorKind::NotFound).then_some(false),
    }
}

#[cfg(test)]
mod tests {
    use packtrain_transfer::Failure;

    use super::*;

    #[test]
    fn what_an_earlier_try_fetched_and_had_removed_is_not_missing() {
        let place = |path: &str| Location::Ssh {
            user: None,
            host: "h".to_owned(),
            path: path.as_bytes().to_vec(),
        };
        let mut request = crate::cp::tries::tests::request();
        request.sources = vec![place("out/a"), place("out/b")];
        let missing = |path: &str| {
            let failure = Failure::new(FailureKind::SourceMissing, "no such file");
            (path.as_bytes().to_vec(), failure)
        };
        let moved = |names: &[&str]| names.iter().map(|name| name.as_bytes().to_vec()).collect();
        let partial = || {
            let summary = Summary { failed: 2, ..Summary::default() };
            let failed = vec![missing("out/a"), missing("out/typo")];
            Ok::<_, RequestError>(Outcome { summary, failed, ..Outcome::default() })
        };
        let none = BTreeSet::new();
        let mut result = partial();
        forgive(&request, &moved(&["a"]), &none, &mut result);
        let outcome = result.expect("an outcome");
        assert_eq!(outcome.failed, [missing("out/typo")]);
        assert_eq!((outcome.summary.failed, outcome.summary.removed), (1, 1));
        let all = || Err(RequestError::new(FailureKind::SourceMissing, "no such file"));
        let mut result = all();
        forgive(&request, &moved(&["a"]), &none, &mut result);
        assert!(result.is_err(), "one of them was never there");
        forgive(&request, &moved(&["a", "b"]), &none, &mut result);
        let outcome = result.expect("all are moved");
        assert_eq!((outcome.failure, outcome.summary.removed), (None, 2));
        let mut result = partial();
        forgive(&request, &moved(&[]), &none, &mut result);
        assert_eq!(result.map(|outcome| outcome.failed.len()).ok(), Some(2));
    }

    #[test]
    fn names_of_a_list_that_an_earlier_try_fetched_are_not_missing() {
        let mut request = crate::cp::tries::tests::request();
        let path = b"~/out/".to_vec();
        request.sources = vec![Location::Ssh { user: None, host: "h".to_owned(), path }];
        request.options.files_from = Some(vec![b"./a".to_vec(), b"d/b".to_vec(), b"x/a".to_vec()]);
        let numbered = |count: u32| (0..count).map(|n| n.to_string().into_bytes());
        let missing = |name: &str| {
            let failure = Failure::new(FailureKind::SourceMissing, "is not there");
            (format!("/users/me/out/{name}").into_bytes(), failure)
        };
        let failing = |names: &[&str], unnamed: u64, failure: Option<Failure>| {
            let failed: Vec<_> = names.iter().map(|name| missing(name)).collect();
            let summary =
                Summary { failed: failed.len() as u64 + unnamed, removed: 1, ..Default::default() };
            Ok::<_, RequestError>(Outcome { summary, failed, failure, ..Outcome::default() })
        };
        let after = |request: &CpRequest, moved, again, result| {
            let mut result: Result<Outcome, _> = result;
            forgive(request, &moved, &again, &mut result);
            let outcome = result.expect("an outcome");
            (outcome.failed.len(), outcome.summary.failed, outcome.summary.removed)
        };
        let set = |names: &[&str]| -> BTreeSet<Vec<u8>> {
            names.iter().map(|name| name.as_bytes().to_vec()).collect()
        };
        let (both, names) = (set(&["a", "d/b"]), &["a", "d/b", "x/a"][..]);
        assert_eq!(after(&request, both, set(&[]), failing(names, 0, None)), (1, 1, 3));
        let lost = || Some(Failure::new(FailureKind::Temporary, "it is lost"));
        // The next try counts them.
        let once = after(&request, set(&["a"]), set(&[]), failing(&["a"], 0, lost()));
        assert_eq!(once, (0, 0, 1));
        // One of 150 names was still there.
        let many = || numbered(150).collect::<BTreeSet<_>>();
        let again = set(&["7"]);
        let named = ["0"; 100];
        let all = after(&request, many(), again.clone(), failing(&named, 49, None));
        assert_eq!(all, (0, 0, 150));
        let one_more = after(&request, many(), again.clone(), failing(&named, 50, None));
        assert_eq!(one_more, (0, 50, 101));
        request.options.extra.ignore_existing = true;
        let unknown = after(&request, many(), again, failing(&named, 49, None));
        assert_eq!(unknown, (0, 49, 101));
    }

    #[test]
    fn names_of_a_list_that_earlier_tries_moved_are_left_out() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::create_dir(dir.path().join("d")).expect("a directory");
        for name in ["a", "d/b"] {
            std::fs::write(dir.path().join(name), name).expect("a file");
        }
        let mut request = crate::cp::tries::tests::request();
        let path = dir.path().as_os_str().as_encoded_bytes();
        request.sources = vec![Location::Local([path, b"/"].concat())];
        let names = ["./a", "d/b", "mistyped"].map(|name| name.as_bytes().to_vec());
        request.options.files_from = Some(names.to_vec());
        request.options.extra.remove_source_files = true;
        let mut earlier = EarlierTries::none(&request);
        let left = |earlier: &EarlierTries, request: &CpRequest| {
            earlier.left(request).map(|left| left.options.files_from.clone().unwrap_or_default())
        };
        std::fs::remove_file(dir.path().join("a")).expect("it is there");
        assert_eq!(left(&earlier, &request), Some(names.to_vec()), "nothing of ours removed it");
        let summary = Summary { removed: 1, ..Summary::default() };
        let one = Ok(Outcome { summary, ..Outcome::default() });
        earlier.add(&one);
        assert_eq!(left(&earlier, &request), Some(names[1..].to_vec()));
        request.options.files_from = Some(names[..2].to_vec());
        std::fs::remove_file(dir.path().join("d/b")).expect("it is there");
        earlier.add(&one);
        assert_eq!(left(&earlier, &request), None, "all is moved");
    }

    #[test]
    fn counts_are_those_of_all_tries_and_moved_files_are_no_sources() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let place = |name: &str| {
            Location::Local(dir.path().join(name).into_os_string().into_encoded_bytes())
        };
        std::fs::write(dir.path().join("a"), "a").expect("a file");
        std::fs::write(dir.path().join("b"), "b").expect("a file");
        let mut request = crate::cp::tries::tests::request();
        request.sources = vec![place("a"), place("b"), place("mistyped")];
        request.options.extra.remove_source_files = true;
        let mut earlier = EarlierTries::none(&request);
        std::fs::remove_file(dir.path().join("a")).expect("it is there");
        assert_eq!(earlier.moved(), [], "nothing of ours removed it");
        let summary = Summary {
            bytes_moved: 1,
            files_moved: 1,
            changed: 1,
            removed: 1,
            ..Summary::default()
        };
        let outcome = Outcome { summary, ..Outcome::default() };
        earlier.add(&Ok(outcome.clone()));
        assert_eq!(earlier.moved(), [place("a")]);
        let mut once = outcome.clone();
        earlier.complete(&mut once);
        assert_eq!(once, outcome);
        earlier.add(&Ok(outcome.clone()));
        let mut last = outcome;
        earlier.complete(&mut last);
        assert_eq!((last.summary.files_moved, last.summary.removed), (2, 2));
    }
}
