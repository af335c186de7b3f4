//! The jobs of an upload and the state of each file. No I/O.
//!
//! Each file is checked first. It is then sent in one request, or as an upload in parts. Streams
//! take jobs from one queue. Jobs of files that were started come before those of new files, so
//! that few uploads are open at a time.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use packtrain_units::ByteCount;

/// A file up to this size is one request.
pub(super) const MAX_SINGLE_PUT: u64 = 16 << 20;
/// The smallest part but the last: stores refuse less than 5 MiB.
const MIN_PART_BYTES: u64 = 8 << 20;
/// The largest part that stores take, and the most parts.
const MAX_PART_BYTES: u64 = 5 << 30;
const MAX_PARTS: u64 = 10_000;
/// Parts aimed at: many enough to share among streams, few enough for their list.
const TARGET_PARTS: u64 = 1_000;

/// The part size for a file. It depends only on the size of the file, so that the next run cuts the
/// file into the same parts. None if the file is too large for a store.
pub(super) fn part_size(size: ByteCount) -> Option<ByteCount> {
    let size = size.get();
    let mib = 1 << 20;
    let aimed = size.div_ceil(TARGET_PARTS).div_ceil(mib) * mib;
    let part = aimed.clamp(MIN_PART_BYTES, MAX_PART_BYTES);
    (size.div_ceil(part) <= MAX_PARTS).then_some(ByteCount(part))
}

/// The range of part `n`, counted from 0, in its file.
pub(super) fn part_range(size: ByteCount, part: ByteCount, n: usize) -> Range<u64> {
    let start = n as u64 * part.get();
    start..(start + part.get()).min(size.get())
}

/// A job for the file with this index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Job {
    /// Check whether the object exists; if not, start to send it.
    Check(usize),
    /// Send this part.
    Part(usize, usize),
    /// All parts are sent: complete the upload.
    Complete(usize),
}

/// The answer to a stream that asks for a job.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Take {
    Job(Job),
    Wait,
    Over,
}

/// An upload in parts.
#[derive(Clone, Debug)]
pub(super) struct Upload {
    /// The store's id of the upload.
    pub(super) id: String,
    pub(super) part: ByteCount,
    /// The tag of each part that was sent.
    pub(super) tags: Vec<Option<String>>,
}

/// Jobs and state of all files.
#[derive(Debug, Default)]
pub(super) struct UploadQueue {
    queue: VecDeque<Job>,
    /// Number of jobs that streams have taken.
    out: usize,
    uploads: Vec<Option<Upload>>,
    /// The files whose upload was begun anew.
    begun_anew: BTreeSet<usize>,
    closed: bool,
}

impl UploadQueue {
    /// A queue that checks `files` files.
    pub(super) fn new(files: usize) -> Self {
        let queue = (0..files).map(Job::Check).collect();
        Self { queue, uploads: vec![None; files], ..Self::default() }
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

    /// A job is complete or failed.
    pub(super) fn done(&mut self) {
        self.out -= 1;
    }

    /// An upload in parts was created or resumed. Queues its missing parts.
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

    /// A part was sent to the upload with this id. False if the file no longer has that upload.
    pub(super) fn sent(&mut self, file: usize, id: &str, part: usize, tag: String) -> bool {
        let upload = self.uploads.get_mut(file).and_then(Option::as_mut);
        let Some(upload) = upload.filter(|upload| upload.id == id) else { return false };
        if let Some(slot) = upload.tags.get_mut(part) {
            *slot = Some(tag);
        }
        if upload.tags.iter().all(Option::is_some) {
            self.queue.push_front(Job::Complete(file));
        }
        true
    }

    /// The store does not have the upload of a file any more: the file is checked and begun anew,
    /// once.
    pub(super) fn begin_anew(&mut self, file: usize) -> bool {
        self.drop_file(file);
        let is_first = self.begun_anew.insert(file);
        if is_first {
            self.queue.push_back(Job::Check(file));
        }
        is_first
    }

    /// Whether a file has the upload with this id.
    pub(super) fn has(&self, file: usize, id: &str) -> bool {
        self.uploads.get(file).and_then(Option::as_ref).is_some_and(|upload| upload.id == id)
    }

    /// The upload of a file, if it has one.
    pub(super) fn upload(&self, file: usize) -> Option<Upload> {
        self.uploads.get(file)?.clone()
    }

    /// Removes the jobs of a file. Returns its upload.
    pub(super) fn drop_file(&mut self, file: usize) -> Option<Upload> {
        self.queue.retain(|job| !matches!(job, Job::Part(f, _) | Job::Complete(f) if *f == file));
        self.uploads.get_mut(file)?.take()
    }

    /// Whether all streams have a job.
    pub(super) fn is_busy(&self, streams: u64) -> bool {
        self.out as u64 >= streams && self.out > 0
    }

    /// Number of waiting jobs, at most `most`.
    pub(super) fn waiting(&self, most: usize) -> usize {
        self.queue.len().min(most)
    }

    /// Whether all jobs are complete.
    pub(super) fn is_over(&self) -> bool {
        self.queue.is_empty() && self.out == 0
    }

    /// Hands out no more jobs.
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
        assert_eq!(job(&mut upload_queue), Job::Check(0));
        let tags = vec![None, Some("b".to_owned()), None];
        let part = ByteCount(8 << 20);
        upload_queue.begun(0, Upload { id: "u".to_owned(), part, tags });
        upload_queue.done();
        // Jobs of started files come before those of new files.
        assert_eq!(
            (job(&mut upload_queue), job(&mut upload_queue)),
            (Job::Part(0, 0), Job::Part(0, 2))
        );
        assert_eq!(job(&mut upload_queue), Job::Check(1));
        assert_eq!(upload_queue.take(), Take::Wait);
        upload_queue.done();
        assert!(!upload_queue.sent(0, "earlier", 0, "x".to_owned()), "of another upload");
        assert!(upload_queue.sent(0, "u", 2, "c".to_owned()));
        upload_queue.done();
        assert_eq!(upload_queue.take(), Take::Wait);
        assert!(upload_queue.sent(0, "u", 0, "a".to_owned()));
        upload_queue.done();
        assert_eq!(job(&mut upload_queue), Job::Complete(0));
        let tags: Vec<_> = upload_queue.upload(0).unwrap().tags.into_iter().flatten().collect();
        assert_eq!(tags, ["a", "b", "c"]);
        upload_queue.done();
        assert!(upload_queue.is_over() && upload_queue.take() == Take::Over);
    }

    #[test]
    fn an_upload_that_is_gone_is_begun_anew_once() {
        let mut upload_queue = UploadQueue::new(1);
        assert_eq!(upload_queue.take(), Take::Job(Job::Check(0)));
        for (id, anew) in [("1", true), ("2", false)] {
            let part = ByteCount(8 << 20);
            upload_queue.begun(0, Upload { id: id.to_owned(), part, tags: vec![None; 3] });
            assert!(upload_queue.has(0, id) && !upload_queue.has(0, "0"));
            assert_eq!(upload_queue.begin_anew(0), anew);
            assert!(!upload_queue.has(0, id));
            let next = upload_queue.take();
            assert_eq!(next, if anew { Take::Job(Job::Check(0)) } else { Take::Wait });
        }
    }
}
