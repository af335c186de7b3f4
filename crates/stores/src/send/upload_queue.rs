//! What is to be done for an upload, and how far each file is. No I/O.
//!
//! A file is looked at first; then it is one request, or an upload in parts. Streams take jobs from
//! one queue, those of files that were begun before those of new ones, so that few uploads are open
//! at a time.

use std::collections::VecDeque;
use std::ops::Range;

use packtrain_units::ByteCount;

/// A file up to this size is one request.
pub(super) const WHOLE: u64 = 16 << 20;
/// The smallest part but the last: stores refuse less than 5 MiB.
const MIN_PART_BYTES: u64 = 8 << 20;
/// The largest part that stores take, and the most parts.
const MAX_PART_BYTES: u64 = 5 << 30;
const PARTS_MOST: u64 = 10_000;
/// Parts aimed at: many enough to share among streams, few enough for their list.
const PARTS: u64 = 1_000;

/// The part size for a file: it depends on its size alone, so that the next run cuts it in the
/// same way. None if it is too large for a store.
pub(super) fn part_size(size: ByteCount) -> Option<ByteCount> {
    let size = size.get();
    let mib = 1 << 20;
    let aimed = size.div_ceil(PARTS).div_ceil(mib) * mib;
    let part = aimed.clamp(MIN_PART_BYTES, MAX_PART_BYTES);
    (size.div_ceil(part) <= PARTS_MOST).then_some(ByteCount(part))
}

/// Where in its file part `n` lies, counted from 0.
pub(super) fn part_range(size: ByteCount, part: ByteCount, n: usize) -> Range<u64> {
    let start = n as u64 * part.get();
    start..(start + part.get()).min(size.get())
}

/// Something to do, for the file of this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Job {
    /// See whether it is there already; if not, begin.
    Look(usize),
    /// Send this part of it.
    Part(usize, usize),
    /// All parts are there: make it one.
    Complete(usize),
}

/// What a stream is to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Take {
    Job(Job),
    Wait,
    Over,
}

/// An upload in parts.
#[derive(Clone, Debug)]
pub(super) struct Upload {
    /// What the store calls it.
    pub(super) id: String,
    pub(super) part: ByteCount,
    /// The tag of each part that is there.
    pub(super) tags: Vec<Option<String>>,
}

/// How far all of it is.
#[derive(Debug, Default)]
pub(super) struct UploadQueue {
    queue: VecDeque<Job>,
    /// Jobs that streams have.
    out: usize,
    uploads: Vec<Option<Upload>>,
    closed: bool,
}

impl UploadQueue {
    /// So many files are to be looked at.
    pub(super) fn new(files: usize) -> Self {
        let queue = (0..files).map(Job::Look).collect();
        Self { queue, out: 0, uploads: vec![None; files], closed: false }
    }

    /// The next job.
    pub(super) fn take(&mut self) -> Take {
        if self.closed {
            return Take::Over;
        }
        match self.queue.pop_front() {
            Some(job) => {
                self.out += 1;
                Take::Job(job)
            }
            None if self.out == 0 => Take::Over,
            None => Take::Wait,
        }
    }

    /// A job is done, one way or the other.
    pub(super) fn done(&mut self) {
        self.out -= 1;
    }

    /// An upload in parts was begun, or found; what is missing of it is to be sent.
    pub(super) fn begun(&mut self, file: usize, upload: Upload) {
        let missing = upload.tags.iter().enumerate().filter(|(_, tag)| tag.is_none());
        let mut jobs: Vec<Job> = missing.map(|(n, _)| Job::Part(file, n)).collect();
        if jobs.is_empty() {
            jobs.push(Job::Complete(file));
        }
        for job in jobs.into_iter().rev() {
            self.queue.push_front(job);
        }
        self.uploads[file] = Some(upload);
    }

    /// A part is there.
    pub(super) fn sent(&mut self, file: usize, part: usize, tag: String) {
        let Some(upload) = self.uploads.get_mut(file).and_then(Option::as_mut) else { return };
        if let Some(slot) = upload.tags.get_mut(part) {
            *slot = Some(tag);
        }
        if upload.tags.iter().all(Option::is_some) {
            self.queue.push_front(Job::Complete(file));
        }
    }

    /// What is known of a file's upload.
    pub(super) fn upload(&self, file: usize) -> Option<Upload> {
        self.uploads.get(file)?.clone()
    }

    /// Nothing more is to be done for a file.
    pub(super) fn drop_file(&mut self, file: usize) -> Option<Upload> {
        self.queue.retain(|job| !matches!(job, Job::Part(f, _) | Job::Complete(f) if *f == file));
        self.uploads.get_mut(file)?.take()
    }

    /// Whether there is more to do than streams do.
    pub(super) fn is_busy(&self, streams: u64) -> bool {
        self.out as u64 >= streams && self.out > 0
    }

    /// Jobs that wait, as far as it matters.
    pub(super) fn waiting(&self, most: usize) -> usize {
        self.queue.len().min(most)
    }

    /// Whether all is done.
    pub(super) fn is_over(&self) -> bool {
        self.queue.is_empty() && self.out == 0
    }

    /// Nobody gets anything any more.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_cut_by_size() {
        let cut =
            |size: u64| part_size(ByteCount(size)).map(|p| (p.get() >> 20, size.div_ceil(p.get())));
        assert_eq!(cut(17 << 20), Some((8, 3)));
        assert_eq!(cut(8 << 30), Some((9, 911)));
        assert_eq!(cut(1 << 40), Some((1049, 1000)));
        assert_eq!(cut(48 << 40).map(|(part, _)| part), Some(5120));
        assert_eq!(cut(49 << 40), None);
        let size = ByteCount((16 << 20) + 5);
        assert_eq!(part_range(size, ByteCount(8 << 20), 2), 16 << 20..(16 << 20) + 5);
    }

    #[test]
    fn a_file_is_looked_at_sent_and_completed() {
        let mut upload_queue = UploadQueue::new(2);
        let job = |upload_queue: &mut UploadQueue| match upload_queue.take() {
            Take::Job(job) => job,
            other => panic!("{other:?}"),
        };
        assert_eq!(job(&mut upload_queue), Job::Look(0));
        let tags = vec![None, Some("b".to_owned()), None];
        let part = ByteCount(8 << 20);
        upload_queue.begun(0, Upload { id: "u".to_owned(), part, tags });
        upload_queue.done();
        // What was begun comes before what was not.
        assert_eq!(
            (job(&mut upload_queue), job(&mut upload_queue)),
            (Job::Part(0, 0), Job::Part(0, 2))
        );
        assert_eq!(job(&mut upload_queue), Job::Look(1));
        assert_eq!(upload_queue.take(), Take::Wait);
        upload_queue.done();
        upload_queue.sent(0, 2, "c".to_owned());
        upload_queue.done();
        assert_eq!(upload_queue.take(), Take::Wait);
        upload_queue.sent(0, 0, "a".to_owned());
        upload_queue.done();
        assert_eq!(job(&mut upload_queue), Job::Complete(0));
        let tags: Vec<_> = upload_queue.upload(0).unwrap().tags.into_iter().flatten().collect();
        assert_eq!(tags, ["a", "b", "c"]);
        upload_queue.done();
        assert!(upload_queue.is_over() && upload_queue.take() == Take::Over);
    }
}
