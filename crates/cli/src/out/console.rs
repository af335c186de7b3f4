//! Receives the events of a transfer and prints them as the options request.

use std::path::PathBuf;

use packtrain_service::{FileReport, Location, Notice, NoticeLevel, ProgressSnapshot, Reporter};
use packtrain_units::ByteCount;
use serde::Serialize;

use super::done::cause;
use super::log::Log;
use super::object::Object;
use super::progress::{self, Progress};
use super::summary::Work;
use super::{JsonName, json_line, line, shown};
use crate::args::OutputArgs;
use crate::exit::{Exit, print_message, print_stderr, print_warning};

/// A reporter for people, programs or both.
pub(crate) struct ConsoleReporter {
    quiet: bool,
    json: bool,
    /// A line is printed for each file.
    files: bool,
    /// The lines of files are the command's result.
    files_are_data: bool,
    /// The lines of files say what would be done.
    dry: bool,
    progress: Progress,
    log: Option<Log>,
}

impl ConsoleReporter {
    /// A reporter for `output` and `work`.
    pub(crate) fn new(output: &OutputArgs, work: Work) -> Result<Self, Exit> {
        let data = work != Work::Copy;
        let open = |path: &PathBuf| {
            let failed = |error| format!("--log-file {}: {error}: choose another", path.display());
            Log::open(path).map_err(|error| Exit::usage(failed(error)))
        };
        Ok(Self {
            quiet: output.quiet,
            json: output.json,
            files: output.verbose > 0 || data,
            files_are_data: data,
            dry: work == Work::DryRun,
            progress: Progress::new(output.progress, output.quiet),
            log: output.log_file.as_ref().map(open).transpose()?,
        })
    }

    /// Whether the reporter uses events of single files.
    pub(crate) const fn wants_files(&self) -> bool {
        self.files || self.log.is_some()
    }

    /// Whether a summary is printed.
    pub(crate) const fn wants_summary(&self) -> bool {
        !self.quiet && (self.progress.is_shown() || self.files)
    }

    /// Appends an event to the log file, if there is one.
    pub(crate) fn record(&self, event: &impl Serialize) {
        if let Some(gap) = self.log.as_ref().and_then(|log| log.event(event)) {
            self.progress.around(|| print_warning(&gap));
        }
    }

    /// Logs sources, target and direction of the transfer.
    pub(crate) fn started(&self, sources: &[Location], target: &str, direction: &'static str) {
        if let Some(log) = &self.log {
            log.set_direction(direction);
            // Locations are shown without secrets.
            let sources: Vec<_> = sources.iter().map(ToString::to_string).collect();
            self.record(&Object::event("started").with("sources", sources).with("target", target));
        }
    }

    /// Prints explanations.
    pub(crate) fn explain(&self, lines: Vec<String>) {
        for line in lines {
            self.notice(&Notice::new(NoticeLevel::Explain, line));
        }
    }

    /// Ends the progress display.
    pub(crate) fn finish(&self) {
        self.progress.finish();
    }
}

impl Reporter for ConsoleReporter {
    fn progress(&self, snapshot: &ProgressSnapshot) {
        self.progress.show(snapshot);
        self.record(&progress::event(snapshot));
    }

    fn file(&self, path: &[u8], report: &FileReport) {
        // Failed files are printed together at the end; here only for programs.
        let (result, error) = match report {
            FileReport::Moved if self.dry => ("to move", None),
            FileReport::Deleted if self.dry => ("to delete", None),
            FileReport::Deleted if self.files_are_data => ("extra", None),
            FileReport::Metadata => ("to set", None),
            FileReport::Moved => ("moved", None),
            FileReport::Unchanged => ("unchanged", None),
            FileReport::Differs => ("differs", None),
            FileReport::Missing => ("missing", None),
            FileReport::Deleted => ("deleted", None),
            FileReport::Failed(failure) => ("failed", Some(cause(failure))),
        };
        if self.json || self.log.is_some() {
            let JsonName { text, bytes } = JsonName::new(path);
            let event = Object::event("file").with("path", text).with_some("path_bytes", bytes);
            let event = event.with("result", result).with("error", error);
            self.record(&event);
            if self.json && self.files {
                json_line(&event);
            }
        }
        if !self.files || self.json {
            return;
        }
        // `verify` prints only files that differ.
        let dull = self.files_are_data && *report == FileReport::Unchanged;
        if dull || (self.quiet && !self.files_are_data) {
            return;
        }
        let text = format!("{result:<9} {}", shown(path));
        self.progress.around(|| {
            if self.files_are_data {
                line(&text);
            } else {
                print_stderr(&text);
            }
        });
    }

    fn sending_program(&self, host: &str, sent: ByteCount, of: ByteCount) {
        self.progress.sending_program(host, sent, of);
    }

    fn corrupted(&self, depot: &str) {
        let event = Object::event("corrupted").with("depot", depot);
        self.record(&event);
        if self.json {
            json_line(&event);
        }
    }

    fn notice(&self, notice: &Notice) {
        // The notice may announce a new try, whose progress starts at zero.
        self.progress.restart();
        let level = match notice.level {
            NoticeLevel::Explain => "explain",
            NoticeLevel::Info => "info",
            NoticeLevel::Warning => "warning",
        };
        let event = Object::event("notice").with("level", level).with("text", &notice.text);
        self.record(&event);
        if self.json {
            json_line(&event);
        }
        // Programs read stdout; warnings go to stderr too. With `-q`, cron sends mail only about a
        // failure: not about a pipe that is left out, or an outage that the copy survived.
        let said = match notice.level {
            NoticeLevel::Explain => !self.json,
            NoticeLevel::Info => !self.json && !self.quiet,
            NoticeLevel::Warning => !self.quiet,
        };
        if said {
            self.progress.around(|| match notice.level {
                NoticeLevel::Warning => print_warning(&notice.text),
                NoticeLevel::Explain | NoticeLevel::Info => print_message(&notice.text),
            });
        }
    }
}
