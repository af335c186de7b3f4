//! Transfers with servers that do not run Packtrain: web servers, from which files are fetched by
//! ranges over several connections, and stores with the S3 interface.
//!
//! A fetch is a transfer whose source is not a directory but a server: the sink, with its memory,
//! journal and digests, is the one of every transfer, and the source's state machine assigns its
//! ranges to one transport, whose streams ask the server for them (`docs/adr/0023`). `http` makes
//! connections, `answer` reads what comes back, `remote` is one object, `list` finds them, `run_scheduler`
//! shares the ranges out, `downloader` has the streams, `fetch` is the source's end.

mod answer;
mod body;
mod checksums;
mod comparison;
mod connection_pool;
mod downloader;
mod fetch;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod http;
mod list;
mod receiver;
mod remote;
mod run_scheduler;
mod s3;
mod send;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use packtrain_object::SourceName;
use packtrain_transfer::message::Options;
use packtrain_transfer::{Failure, FailureKind, Outcome};

use comparison::Comparisons;
use http::Client;
use list::Asked;
use packtrain_runtime::control;
use packtrain_runtime::session::{Observer, Stop};
use packtrain_runtime::sink::{self, Destination, SinkSetup};
use packtrain_runtime::transports::{
    Moved, SinkTransports, StreamCount, TcpSettings, TransportConfig,
};
use packtrain_service::weburl::WebUrl;
use packtrain_service::{CpRequest, Location, RequestError, history};

/// Fetches the request's sources into `destination`. `plan` is the configuration of the sink; its
/// transports are not used, only its number of streams and its rate limit.
pub fn fetch(
    request: &CpRequest,
    destination: Destination,
    observer: &dyn Observer,
    plan: TransportConfig,
) -> Result<(Outcome, Moved), RequestError> {
    let (asked, name) = asked(&request.sources)?;
    let kernel = TcpSettings { congestion: None, buffers: request.tcp_buffer };
    let client = Client::new(&kernel, request.background).map_err(|t| t.failure())?;
    let count = StreamCount::new(plan.streams, plan.most_streams, || {
        let host = request.sources.first().and_then(Location::host).unwrap_or_default();
        history::samples_from(&request.history, host)
    });
    let pace = body::Pace::new(&plan);
    let (near, far) = control::pair().map_err(|e| {
        RequestError::new(FailureKind::Fatal, format!("no pair of sockets to be had: {e}"))
    })?;
    let payload = Arc::clone(&far.payload);
    let place = sink::expand_home(&destination.path);
    // Standard output comes from a directory of this run, and a dry run changes nothing.
    let keeps = request.dest != Location::Stdio && !request.options.dry_run;
    let comparisons = Arc::new(Comparisons::new(PathBuf::from(OsStr::from_bytes(&place)), keeps));
    let mut options = request.options.clone();
    if !matches!(asked, Asked::Keys(..)) {
        options.recursive = false;
    }
    // The HTTP requests deliver the data, so the sink has no transports of its own.
    let transports = SinkTransports::of(plan.clone(), far.tx.clone(), Vec::new());
    let sink_stop = Stop::new(request.stop.clone());
    // Below the seconds a time has a fingerprint of the tag, which is neither earlier nor later.
    let sink_options = Options { whole_seconds: true, ..options.clone() };
    let ended = std::thread::scope(|scope| {
        let sink = scope.spawn(move || {
            let tx = far.tx.clone();
            let setup = SinkSetup {
                changed_pieces: false,
                control: far,
                options: sink_options,
                destination,
                observer,
                transports,
                stop: sink_stop,
            };
            let outcome = sink::run(setup).0;
            tx.close();
            outcome
        });
        let tx = near.tx.clone();
        let setup = fetch::Setup {
            control: near,
            options,
            asked,
            client,
            observer: &SourceObserver(observer),
            payload,
            config: plan,
            count,
            pace,
            stop: Stop::new(request.stop.clone()),
            name,
            comparisons: Arc::clone(&comparisons),
        };
        let (outcome, moved) = fetch::run(setup);
        tx.close();
        let sink = sink.join().unwrap_or_else(|_| {
            sink::ended(Failure::new(FailureKind::Fatal, "the receiving end failed: a bug"))
        });
        (comparisons.check(merge_outcomes(sink, outcome)), moved)
    });
    Ok(ended)
}

/// Sends the request's files to a store.
pub fn send(
    request: &CpRequest,
    observer: &dyn Observer,
    plan: TransportConfig,
) -> Result<(Outcome, Moved), RequestError> {
    let Location::S3 { bucket, key } = &request.dest else {
        return Err(RequestError::new(FailureKind::Usage, "this place cannot be written to"));
    };
    let client = Client::new(&plan.kernel, request.background).map_err(|t| t.failure())?;
    let most = plan.most_streams;
    let count =
        StreamCount::new(plan.streams, most, || history::samples_to(&request.history, bucket));
    let setup = send::Setup {
        client,
        bucket: s3::open(bucket)?,
        key: key.clone(),
        paths: request.sources.iter().map(|source| source.path().to_vec()).collect(),
        options: request.options.clone(),
        observer,
        connection_pool: connection_pool::ConnectionPool::new(count, most, false),
        pace: body::Pace::new(&plan),
        stop: Stop::new(request.stop.clone()),
    };
    Ok(send::run(setup)?)
}

/// The outcome of the sink, with the source's failure if the sink's is only temporary.
fn merge_outcomes(sink: Outcome, source: Outcome) -> Outcome {
    match (&sink.failure, &source.failure) {
        (Some(_), None) | (None, _) => sink,
        (Some(ours), Some(_)) if ours.kind == FailureKind::Temporary => {
            Outcome { failure: source.failure, ..sink }
        }
        _ => sink,
    }
}

fn asked(sources: &[Location]) -> Result<(Asked, &'static str), RequestError> {
    let mixed = || RequestError::new(FailureKind::Usage, "the sources are at different places");
    match sources.first() {
        Some(Location::Http { url, .. }) => {
            let name = if url.scheme() == "https" { "https" } else { "http" };
            let urls = sources.iter().map(|source| match source {
                Location::Http { url, .. } => Ok(url.clone()),
                _ => Err(mixed()),
            });
            Ok((Asked::Web(urls.collect::<Result<_, _>>()?), name))
        }
        Some(Location::S3 { bucket, .. }) => {
            let keys = sources.iter().map(|source| match source {
                Location::S3 { key, .. } => Ok(key.clone()),
                _ => Err(mixed()),
            });
            Ok((Asked::Keys(s3::open(bucket)?, keys.collect::<Result<_, _>>()?), "s3"))
        }
        _ => Err(mixed()),
    }
}

/// The observer of the source. The sink in this process already reports files and progress, so only
/// names of transports and notices pass.
struct SourceObserver<'a>(&'a dyn Observer);

impl Observer for SourceObserver<'_> {
    fn file(&self, _: &[u8], _: &packtrain_transfer::FileReport) {}
    fn source(&self, _: &packtrain_transfer::SourceTotals) {}
    fn sink(&self, _: &packtrain_transfer::SinkTotals) {}
    fn transport(&self, name: &str) {
        self.0.transport(name);
    }
    fn notice(&self, notice: &packtrain_service::Notice) {
        self.0.notice(notice);
    }
    fn keeps(&self) -> bool {
        true
    }
}

/// The name at the destination for the file at this address.
pub fn name_of(url: &WebUrl) -> SourceName {
    SourceName::Named(list::web_name(url))
}

/// Whether the location is on a server that does not run Packtrain.
pub fn is_store(place: &Location) -> bool {
    matches!(place, Location::Http { .. } | Location::S3 { .. })
}
