//! Hears how a transfer goes and passes it on as the user asked.

use std::path::PathBuf;

use packtrain_service::{FileReport, Location, Notice, NoticeLevel, ProgressSnapshot, Reporter};
use serde::Serialize;

use super::done::Cause;
use super::log::Log;
use super::progress::{Line, Progress};
use super::summary::Work;
use super::{JsonName, json_line, line, shown};
use crate::args::OutputArgs;
use crate::exit::{Exit, complain, say};

/// A reporter for people, programs or both.
pub(crate) struct Teller {
    quiet: bool,
    json: bool,
    /// Each file gets a line.
    files: bool,
    /// The lines of files are what the command was run for.
    files_are_data: bool,
    /// They tell what would be done.
    dry: bool,
    progress: Progress,
    log: Option<Log>,
}

#[derive(Serialize)]
struct FileEvent<'a> {
    event: &'static str,
    path: String,
    /// The name's bytes, where `path` cannot say them.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
    result: &'static str,
    error: Option<Cause<'a>>,
}

/// What is to be moved. Places are as people see them: without secrets.
#[derive(Serialize)]
struct StartedEvent<'a> {
    event: &'static str,
    sources: Vec<String>,
    target: &'a str,
}

/// A depot changed bytes.
#[derive(Serialize)]
struct CorruptedEvent<'a> {
    event: &'static str,
    depot: &'a str,
}

#[derive(Serialize)]
struct NoticeEvent<'a> {
    event: &'static str,
    level: &'static str,
    text: &'a str,
}

impl Teller {
    /// As `output` asks, for `work`.
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

    /// Whether each file should be told.
    pub(crate) const fn wants_files(&self) -> bool {
        self.files || self.log.is_some()
    }

    /// Whether a person is there who likes a summary.
    pub(crate) const fn wants_summary(&self) -> bool {
        !self.quiet && (self.progress.is_bar() || self.files)
    }

    /// Writes an event to the log, if there is one.
    pub(crate) fn record(&self, event: &impl Serialize) {
        if let Some(log) = &self.log {
            log.event(event);
        }
    }

    /// Tells the log what moves, from where to where, and which way.
    pub(crate) fn started(&self, sources: &[Location], target: &str, direction: &'static str) {
        if let Some(log) = &self.log {
            log.goes(direction);
            let sources = sources.iter().map(ToString::to_string).collect();
            log.event(&StartedEvent { event: "started", sources, target });
        }
    }

    /// Says why.
    pub(crate) fn explain(&self, lines: Vec<String>) {
        for line in lines {
            self.notice(&Notice::new(NoticeLevel::Explain, line));
        }
    }

    /// Nothing more comes.
    pub(crate) fn finish(&self) {
        self.progress.finish();
    }
}

impl Reporter for Teller {
    fn progress(&self, snapshot: &ProgressSnapshot) {
        self.progress.show(snapshot);
        self.record(&Line::new(snapshot));
    }

    fn file(&self, path: &[u8], report: &FileReport) {
        // What failed is told at the end, all together; here only to programs.
        let (result, error) = match report {
            FileReport::Moved if self.dry => ("to move", None),
            FileReport::Deleted if self.dry => ("to delete", None),
            FileReport::Moved => ("moved", None),
            FileReport::Unchanged => ("unchanged", None),
            FileReport::Differs => ("differs", None),
            FileReport::Missing => ("missing", None),
            FileReport::Deleted => ("deleted", None),
            FileReport::Failed(failure) => ("failed", Some(Cause::new(failure))),
        };
        if self.json || self.log.is_some() {
            let JsonName { text, bytes } = JsonName::new(path);
            let event = FileEvent { event: "file", path: text, path_bytes: bytes, result, error };
            self.record(&event);
            if self.json && self.files {
                json_line(&event);
            }
        }
        if !self.files || self.json {
            return;
        }
        // A verify that finds nothing has nothing to say.
        let dull = self.files_are_data && *report == FileReport::Unchanged;
        if dull || (self.quiet && !self.files_are_data) {
            return;
        }
        let text = format!("{result:<9} {}", shown(path));
        self.progress.around(|| {
            if self.files_are_data {
                line(&text);
            } else {
                say(&text);
            }
        });
    }

    fn corrupted(&self, depot: &str) {
        let event = CorruptedEvent { event: "corrupted", depot };
        self.record(&event);
        if self.json {
            json_line(&event);
        }
    }

    fn notice(&self, notice: &Notice) {
        // It may say that all begins again.
        self.progress.restart();
        let level = match notice.level {
            NoticeLevel::Explain => "explain",
            NoticeLevel::Info => "info",
            NoticeLevel::Warning => "warning",
        };
        let event = NoticeEvent { event: "notice", level, text: &notice.text };
        self.record(&event);
        if self.json {
            json_line(&event);
        }
        // A program reads stdout; a person who set it up still sees warnings.
        let said = match notice.level {
            NoticeLevel::Explain => !self.json,
            NoticeLevel::Info => !self.json && !self.quiet,
            NoticeLevel::Warning => true,
        };
        if said {
            self.progress.around(|| complain(&notice.text));
        }
    }
}
