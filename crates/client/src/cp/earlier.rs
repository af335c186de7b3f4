//! What the earlier tries of one command did.

use std::collections::BTreeSet;

use packtrain_object::SourceName;
use packtrain_os::clock;
use packtrain_service::{CpRequest, Location, Outcome, RequestError};
use packtrain_transfer::FailureKind;
use packtrain_transfer::message::Summary;
use packtrain_units::Time;

/// The tries of a command so far.
pub(super) struct EarlierTries {
    begun: Time,
    /// The named sources that were there, if they are files of this machine that may be moved.
    there: Vec<Location>,
    tries: u32,
    sum: Summary,
}

impl EarlierTries {
    pub(super) fn none(request: &CpRequest) -> Self {
        let moves = request.options.removes_source();
        let is_there = |place: &&Location| moves && exists(place) == Some(true);
        Self {
            begun: clock::now(),
            there: request.sources.iter().filter(is_there).cloned().collect(),
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

/// Named sources of another machine that are missing because an earlier try moved them are no failures,
/// and count as removed. `moved` has their names at the target. Of more than 100 failures the rest is
/// not known by name and stays.
pub(super) fn forgive(
    request: &CpRequest,
    moved: &BTreeSet<Vec<u8>>,
    result: &mut Result<Outcome, RequestError>,
) {
    let is_moved = |path: &[u8]| match SourceName::of(path) {
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
    let before = outcome.failed.len();
    outcome.failed.retain(|(path, failure)| failure.kind != missing || !is_moved(path));
    let forgiven = (before - outcome.failed.len()) as u64;
    outcome.summary.failed -= forgiven.min(outcome.summary.failed);
    outcome.summary.removed += forgiven;
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
        let mut result = partial();
        forgive(&request, &moved(&["a"]), &mut result);
        let outcome = result.expect("an outcome");
        assert_eq!(outcome.failed, [missing("out/typo")]);
        assert_eq!((outcome.summary.failed, outcome.summary.removed), (1, 1));
        let all = || Err(RequestError::new(FailureKind::SourceMissing, "no such file"));
        let mut result = all();
        forgive(&request, &moved(&["a"]), &mut result);
        assert!(result.is_err(), "one of them was never there");
        forgive(&request, &moved(&["a", "b"]), &mut result);
        let outcome = result.expect("all are moved");
        assert_eq!((outcome.failure, outcome.summary.removed), (None, 2));
        let mut result = partial();
        forgive(&request, &moved(&[]), &mut result);
        assert_eq!(result.map(|outcome| outcome.failed.len()).ok(), Some(2));
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
