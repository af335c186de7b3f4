//! Tries after temporary failures, and a word when a transfer that was interrupted goes on.

use std::collections::BTreeSet;

use packtrain_hops::route::Routes;
use packtrain_object::SourceName;
use packtrain_os::clock;
use packtrain_runtime::sink::IN_USE;
use packtrain_service::{
    CpRequest, Location, Notice, NoticeLevel, Outcome, ProgressSnapshot, Reporter, RequestError,
};
use packtrain_transfer::{FailureKind, FileReport};
use packtrain_units::{Backoff, ByteCount, Duration, Time};
use parking_lot::Mutex;

use super::stopped;
use crate::ssh;

/// The waits before another try.
pub(crate) const RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(32));

/// How long the end of an earlier try may hold the destination: the other machine notices a lost connection
/// after a minute.
const IN_USE_WAIT: Duration = Duration::from_secs(90);
/// The pause between tries meanwhile.
const IN_USE_PAUSE: Duration = Duration::from_secs(2);

/// Whether the same command may succeed after such a failure: the failure may end by itself, or its
/// message says how to end it.
pub(super) const fn may_pass(kind: FailureKind) -> bool {
    matches!(
        kind,
        FailureKind::Temporary
            | FailureKind::Cancelled
            | FailureKind::TargetFull
            | FailureKind::Integrity
            | FailureKind::Fatal
    )
}

/// Whether the next try continues from bytes that this one moved. Standard input is read only once.
fn has_progressed(request: &CpRequest, outcome: &Outcome) -> bool {
    let is_repeatable = !request.sources.iter().any(|source| matches!(source, Location::Stdio));
    outcome.resumable && outcome.summary.bytes_durable > 0 && is_repeatable
}

/// Does it again after temporary failures until `is_over`, and at most as often in a row as the
/// request allows without a durable byte moved; once if ssh was refused and nothing was ever reached.
pub(crate) fn again(
    request: &CpRequest,
    reporter: &dyn Reporter,
    routes: &Routes,
    is_over: &dyn Fn() -> bool,
    mut once: impl FnMut() -> Result<Outcome, RequestError>,
) -> Result<Outcome, RequestError> {
    let (mut backoff, mut begun, mut reached) = (RETRY, false, false);
    // When the last try ended that may hold the destination.
    let mut lost: Option<Time> = None;
    loop {
        let mut result = once();
        routes.said().iter().for_each(|notice| reporter.notice(notice));
        if let Some(depot) = routes.corrupter() {
            reporter.corrupted(&depot);
        }
        reached |= result.is_ok();
        match &mut result {
            Ok(outcome) => {
                begun |= outcome.resumable;
                if has_progressed(request, outcome) {
                    backoff.reset();
                }
            }
            // An earlier try left something to go on from.
            Err(error) => error.resumable |= begun && may_pass(error.kind),
        }
        let failure = match &result {
            Ok(outcome) => outcome.failure.as_ref().map(|f| (f.kind, f.text.clone())),
            Err(error) => Some((error.kind, error.text.clone())),
        };
        let Some((FailureKind::Temporary, text)) = failure else { return result };
        if request.stop.requested().is_some() {
            return as_stopped(request, result);
        }
        let is_in_use = text.contains(IN_USE);
        if result.is_ok() && !is_in_use {
            lost = Some(clock::now());
        }
        let is_own = is_in_use && lost.is_some_and(|at| clock::now().since(at) < IN_USE_WAIT);
        let is_wrong = !reached && ssh::is_refused(&text);
        let retries = if is_wrong { request.retries.min(1) } else { request.retries };
        if is_over() || !is_own && backoff.failures() >= retries {
            return result;
        }
        let mut pause = IN_USE_PAUSE;
        if !is_own {
            pause = backoff.next_wait();
            let tries = backoff.failures();
            let wait = pause.to_readable();
            let text = format!("{text}; trying again in {wait} ({tries} of {retries})");
            reporter.notice(&Notice::new(NoticeLevel::Warning, text));
        }
        reporter.interrupted();
        sleep(pause, request);
        if request.stop.requested().is_some() {
            return as_stopped(request, result);
        }
    }
}

/// The result of a try that failed while the user requested its end: another would have followed.
fn as_stopped(
    request: &CpRequest,
    result: Result<Outcome, RequestError>,
) -> Result<Outcome, RequestError> {
    let wish = stopped::wish(&request.stop);
    match result {
        Ok(outcome) => Ok(Outcome { failure: Some(wish), ..outcome }),
        Err(error) => Err(RequestError { kind: wish.kind, text: wish.text, ..error }),
    }
}

fn sleep(pause: Duration, request: &CpRequest) {
    let end = clock::now() + pause;
    while clock::now() < end && request.stop.requested().is_none() {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// Passes everything to a reporter, and one line more for each interruption that ends.
pub(super) struct Returns<'a> {
    reporter: &'a dyn Reporter,
    /// Since when the transfer is interrupted.
    since: Mutex<Option<Time>>,
    /// Whether results of files are passed on.
    reports_files: bool,
    /// Names at the target of the sources of another machine that are to be moved, or those of
    /// `--files-from`, and those of them that this try moved.
    named: BTreeSet<Vec<u8>>,
    moved: Mutex<BTreeSet<Vec<u8>>>,
}

impl<'a> Returns<'a> {
    pub(super) fn of(request: &CpRequest, reporter: &'a dyn Reporter) -> Self {
        let options = &request.options;
        let moves = options.removes_source();
        let named = request.sources.iter().filter(|place| moves && place.is_remote());
        let named = named.flat_map(|place| match &options.files_from {
            Some(list) => list.iter().map(|name| cleaned(name)).collect(),
            None => match SourceName::of(place.path()) {
                SourceName::Named(name) => vec![name],
                SourceName::Contents => Vec::new(),
            },
        });
        Self {
            reporter,
            since: Mutex::new(None),
            reports_files: options.report_files || options.dry_run || options.verify,
            named: named.collect(),
            moved: Mutex::default(),
        }
    }

    /// The names of the sources of another machine that this try moved; the next one begins.
    pub(super) fn take_moved(&self) -> BTreeSet<Vec<u8>> {
        std::mem::take(&mut *self.moved.lock())
    }

    /// What to say once there is progress again.
    fn over(&self) -> Option<Notice> {
        let since = self.since.lock().take()?;
        let after = clock::now().since(since).to_readable();
        Some(Notice::new(NoticeLevel::Info, format!("the transfer goes on, after {after}")))
    }
}

/// A name of `--files-from` as a path at the target.
pub(super) fn cleaned(name: &[u8]) -> Vec<u8> {
    let parts = name.split(|byte| *byte == b'/').filter(|part| !matches!(part, [] | [b'.']));
    parts.collect::<Vec<_>>().join(&b'/')
}

impl Reporter for Returns<'_> {
    fn progress(&self, snapshot: &ProgressSnapshot) {
        // What an earlier try moved is present: that is found again before anything moves.
        if snapshot.bytes_done > snapshot.bytes_present
            && let Some(notice) = self.over()
        {
            self.reporter.notice(&notice);
        }
        self.reporter.progress(snapshot);
    }

    fn file(&self, path: &[u8], report: &FileReport) {
        if *report == FileReport::Moved && self.named.contains(path) {
            self.moved.lock().insert(path.to_vec());
        }
        if self.reports_files {
            self.reporter.file(path, report);
        }
    }

    fn notice(&self, notice: &Notice) {
        self.reporter.notice(notice);
    }

    fn sending_program(&self, host: &str, sent: ByteCount, of: ByteCount) {
        self.reporter.sending_program(host, sent, of);
    }

    fn corrupted(&self, depot: &str) {
        self.reporter.corrupted(depot);
    }

    fn interrupted(&self) {
        self.since.lock().get_or_insert_with(clock::now);
        self.reporter.interrupted();
    }
}

#[cfg(test)]
pub(super) mod tests {
    use packtrain_service::Location;

    use super::*;

    #[derive(Default)]
    struct Said(Mutex<Vec<String>>);

    impl Reporter for Said {
        fn progress(&self, _: &ProgressSnapshot) {}
        fn file(&self, _: &[u8], _: &FileReport) {}
        fn notice(&self, notice: &Notice) {
            self.0.lock().push(notice.text.clone());
        }
        fn sending_program(&self, host: &str, sent: ByteCount, of: ByteCount) {
            self.0.lock().push(format!("{host}: {sent} of {of}"));
        }
    }

    #[test]
    fn the_program_that_is_sent_is_shown() {
        let said = Said::default();
        Returns::of(&request(), &said).sending_program("host", ByteCount(1), ByteCount(2));
        assert_eq!(*said.0.lock(), ["host: 1 B of 2 B"]);
    }

    pub(in crate::cp) fn request() -> CpRequest {
        CpRequest {
            sources: vec![Location::Local(b"a".to_vec())],
            dest: Location::Local(b"b".to_vec()),
            options: Default::default(),
            transport: Default::default(),
            cc: None,
            streams: None,
            tcp_cc: None,
            tcp_buffer: None,
            via: Vec::new(),
            depots: Vec::new(),
            hops: Vec::new(),
            by_destination: false,
            background: false,
            ssh: Default::default(),
            ports: None,
            data_addr: None,
            ticket: None,
            accept_new_host: false,
            retries: 3,
            explain: false,
            log_file: None,
            history: Default::default(),
            stop: Default::default(),
        }
    }

    #[test]
    fn each_try_tells_what_it_moved_of_the_named_sources() {
        let mut request = request();
        let path = b"out/".to_vec();
        request.sources = vec![Location::Ssh { user: None, host: "h".to_owned(), path }];
        request.options.files_from = Some(vec![b".//a".to_vec(), b"d/b/".to_vec()]);
        request.options.extra.remove_source_files = true;
        let said = Said::default();
        let reporter = Returns::of(&request, &said);
        for (path, report) in [
            ("a", FileReport::Moved),
            ("d/b", FileReport::Unchanged),
            ("d/b/not listed itself", FileReport::Moved),
        ] {
            reporter.file(path.as_bytes(), &report);
        }
        assert_eq!(reporter.take_moved(), BTreeSet::from([b"a".to_vec()]));
        assert_eq!(reporter.take_moved(), BTreeSet::new());
    }

    #[test]
    fn a_try_that_fails_after_the_wish_to_stop_is_stopped() {
        let request = request();
        let mut failed = RequestError::new(FailureKind::Temporary, "no connection");
        failed.resumable = true;
        let failure = packtrain_transfer::Failure::new(FailureKind::Temporary, "it is lost");
        let lost = Outcome { failure: Some(failure), ..Outcome::default() };
        for result in [Err(failed), Ok(lost)] {
            let mut tries = 0;
            let ended = again(&request, &Said::default(), &Routes::default(), &|| false, || {
                tries += 1;
                request.stop.request(15);
                result.clone()
            });
            assert_eq!(tries, 1);
            let (kind, resumable) = match ended {
                Ok(outcome) => (outcome.failure.map(|failure| failure.kind), true),
                Err(error) => (Some(error.kind), error.resumable),
            };
            assert_eq!((kind, resumable), (Some(FailureKind::Cancelled), true));
        }
    }

    #[test]
    fn the_end_of_an_interrupted_try_is_waited_for_and_no_other_transfer() {
        let mut request = request();
        request.retries = 1;
        let failed = |text: &str| {
            let failure = packtrain_transfer::Failure::new(FailureKind::Temporary, text);
            Ok(Outcome { failure: Some(failure), ..Outcome::default() })
        };
        let in_use = format!("{IN_USE} process 7 of packtrain: wait for it or stop it");
        let ends = |results: &[&str]| {
            let mut results = results.iter();
            let ended = again(&request, &Said::default(), &Routes::default(), &|| false, || {
                let text = results.next().expect("no more tries than that");
                if text.is_empty() { Ok(Outcome::default()) } else { failed(text) }
            });
            (ended.expect("it was reached").failure.map(|failure| failure.text), results.len())
        };
        assert_eq!(ends(&["the connection is lost", &in_use, &in_use, ""]), (None, 0));
        assert_eq!(ends(&[&in_use, &in_use, ""]), (Some(in_use.clone()), 1));
    }

    #[test]
    fn only_tries_in_a_row_without_a_durable_byte_count() {
        // `moved[n]`: durable bytes of try n. All of them lose the connection.
        let tries = |request: &CpRequest, resumable: bool, moved: &[u64]| {
            let (said, mut tries) = (Said::default(), 0);
            let ended = again(request, &said, &Routes::default(), &|| false, || {
                let failure =
                    packtrain_transfer::Failure::new(FailureKind::Temporary, "it is lost");
                let mut outcome =
                    Outcome { failure: Some(failure), resumable, ..Outcome::default() };
                outcome.summary.bytes_durable = moved.get(tries).copied().unwrap_or_default();
                tries += 1;
                Ok(outcome)
            });
            assert!(ended.is_ok_and(|outcome| outcome.failure.is_some()));
            (tries, said.0.into_inner())
        };
        let mut request = request();
        request.retries = 1;
        let (count, said) = tries(&request, true, &[1, 1]);
        assert_eq!(count, 3, "two moved something, and the one after them did not");
        assert!(
            said.iter().all(|text| text.ends_with("; trying again in 1.0 s (1 of 1)")),
            "{said:?}"
        );
        assert_eq!(tries(&request, true, &[]).0, 2);
        assert_eq!(tries(&request, false, &[1, 1, 1]).0, 2, "nothing is kept");
        request.sources = vec![Location::Stdio];
        assert_eq!(tries(&request, true, &[1, 1, 1]).0, 2, "standard input is read once");
    }

    #[test]
    fn waits_between_tries_double_up_to_32_s() {
        let waits = (0..7).map(|n| RETRY.after(n).as_secs_f64());
        assert!(waits.eq([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 32.0]));
    }

    #[test]
    fn each_return_is_told_once_and_only_when_data_moves() {
        let said = Said::default();
        let reporter = Returns::of(&request(), &said);
        let at = |done, present| ProgressSnapshot {
            bytes_done: ByteCount(done),
            bytes_present: ByteCount(present),
            ..ProgressSnapshot::default()
        };
        reporter.progress(&at(5, 0));
        assert!(said.0.lock().is_empty(), "nothing was interrupted");
        for interruption in 1..3 {
            reporter.interrupted();
            reporter.interrupted();
            reporter.progress(&at(5, 5));
            assert_eq!(said.0.lock().len(), interruption - 1, "only what was there is found");
            reporter.progress(&at(6, 5));
            reporter.progress(&at(7, 5));
            assert_eq!(said.0.lock().len(), interruption);
        }
        assert!(said.0.lock()[0].starts_with("the transfer goes on, after "));
    }
}
