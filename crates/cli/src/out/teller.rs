//! Hears how a transfer goes and passes it on as the user asked.

use packtrain_node::api::{FileReport, Notice, NoticeLevel, ProgressSnapshot, Reporter};
use serde::Serialize;

use super::done::Cause;
use super::progress::Progress;
use super::summary::Work;
use super::{clean, json_line, line, shown};
use crate::args::OutputArgs;
use crate::exit::{complain, say};

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
}

#[derive(Serialize)]
struct FileEvent<'a> {
    event: &'static str,
    path: String,
    result: &'static str,
    error: Option<Cause<'a>>,
}

#[derive(Serialize)]
struct NoticeEvent<'a> {
    event: &'static str,
    level: &'static str,
    text: &'a str,
}

impl Teller {
    /// As `output` asks, for `work`.
    pub(crate) fn new(output: &OutputArgs, work: Work) -> Self {
        let data = work != Work::Copy;
        Self {
            quiet: output.quiet,
            json: output.json,
            files: output.verbose > 0 || data,
            files_are_data: data,
            dry: work == Work::DryRun,
            progress: Progress::new(output.progress, output.quiet),
        }
    }

    /// Whether each file should be told.
    pub(crate) const fn wants_files(&self) -> bool {
        self.files
    }

    /// Whether a person is there who likes a summary.
    pub(crate) const fn wants_summary(&self) -> bool {
        !self.quiet && (self.progress.is_bar() || self.files)
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
        if !self.files {
            return;
        }
        if self.json {
            let path = String::from_utf8_lossy(path).into_owned();
            json_line(&FileEvent { event: "file", path, result, error });
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

    fn notice(&self, notice: &Notice) {
        // It may say that all begins again.
        self.progress.restart();
        if self.json {
            let level = match notice.level {
                NoticeLevel::Explain => "explain",
                NoticeLevel::Info => "info",
                NoticeLevel::Warning => "warning",
            };
            json_line(&NoticeEvent { event: "notice", level, text: &notice.text });
        }
        // A program reads stdout; a person who set it up still sees warnings.
        let said = match notice.level {
            NoticeLevel::Explain => !self.json,
            NoticeLevel::Info => !self.json && !self.quiet,
            NoticeLevel::Warning => true,
        };
        if said {
            self.progress.around(|| complain(&clean(&notice.text)));
        }
    }
}
