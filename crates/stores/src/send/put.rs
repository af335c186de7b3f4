//! The requests of an upload: check the object, create the upload, send parts, complete it, verify
//! it.

use std::sync::Arc;

use aws_lc_rs::digest::{Context, SHA256};
use hyper::Method;
use hyper::header::HeaderMap;
use md5::{Digest as _, Md5};
use packtrain_disk::SourceFile;
use packtrain_object::Mtime;
use packtrain_transfer::message::Resume;
use packtrain_transfer::{Failure, FailureKind, FileReport};
use packtrain_units::ByteCount;
use packtrain_units::escape::hex;
use rusty_s3::actions::{
    CompleteMultipartUploadResponse, CreateMultipartUpload, ListParts, S3Action,
};

use super::upload_queue::{self, Job, MAX_SINGLE_PUT, Upload};
use super::upload_state::{self, SavedUpload};
use super::{Item, StreamEvent, Work};
use crate::answer::{self, Trouble};
use crate::body::{Outgoing, Part};
use crate::http::{Connection, Headers};
use crate::s3::{Answer, RETRY, plain};
use packtrain_runtime::transports::StreamId;
use packtrain_service::weburl::WebUrl;

/// The metadata header of a file's mtime, as rclone writes it: seconds since 1970.
const MTIME: &str = "x-amz-meta-mtime";
/// Maximum attempts to abort an upload.
const MAX_ABORTS: u32 = 4;
/// Maximum length of the tag of a part, which is kept until all are sent.
const MAX_TAG_BYTES: usize = 1024;
/// What is read at once for a digest.
const STEP_BYTES: usize = 256 << 10;

/// A stream that works on an upload.
pub(super) struct Put<'a> {
    pub(super) work: &'a Work,
    pub(super) stream: StreamId,
    pub(super) held: &'a mut Option<Connection>,
}

impl Put<'_> {
    /// Executes a job once.
    pub(super) async fn run(&mut self, job: Job) -> Result<(), Trouble> {
        match job {
            Job::Check(n) => self.check(n).await,
            Job::Part(n, part) => self.part(n, part).await,
            Job::Complete(n) => self.complete(n).await,
        }
    }

    async fn ask(
        &mut self,
        method: Method,
        (url, headers): (WebUrl, Headers),
        body: Outgoing,
        name: &str,
    ) -> Result<Answer, Trouble> {
        if !self.held.as_ref().is_some_and(|held| held.is_for(&url)) {
            *self.held = None;
            let made = self.work.client.connect(&url).await.map_err(|trouble| match trouble {
                // There is no such host. An object or an upload that is missing is another failure.
                Trouble::Never(f) if f.kind == FailureKind::SourceMissing => {
                    Trouble::never(FailureKind::TargetMissing, f.text)
                }
                other => other,
            })?;
            self.work.sockets.has(self.stream, &made);
            *self.held = Some(made);
        }
        let Some(held) = self.held.as_mut() else { return Err(Trouble::later("no connection")) };
        self.work.bucket.ask_over(held, method, &url, &headers, body, name).await
    }

    /// The headers of the object under this key; none if it does not exist.
    async fn head(&mut self, item: &Item) -> Result<Option<HeaderMap>, Trouble> {
        let bucket = &self.work.bucket;
        let mut action = bucket.place.head_object(None, &item.key);
        action.headers_mut().insert("x-amz-checksum-mode", "ENABLED");
        let request = plain(&action);
        match self.ask(Method::HEAD, request, Outgoing::none(), &item.name).await {
            Ok(answer) => Ok(Some(answer.headers)),
            // Without permission to list the bucket, a missing object gives 403.
            Err(Trouble::Never(f))
                if matches!(f.kind, FailureKind::SourceMissing | FailureKind::NotAuthorised) =>
            {
                Ok(None)
            }
            Err(trouble) => Err(trouble),
        }
    }

    async fn check(&mut self, n: usize) -> Result<(), Trouble> {
        let work = self.work;
        let item = &work.items[n];
        work.bucket.check(&item.key).map_err(Trouble::Never)?;
        let there = self.head(item).await?;
        if let Some(headers) = there
            && is_same(&headers, item, work.options.update)
        {
            work.send_event(StreamEvent::Done(n, FileReport::Unchanged));
            return Ok(());
        }
        if work.options.dry_run {
            work.send_event(StreamEvent::Done(n, FileReport::Moved));
            return Ok(());
        }
        if item.size <= ByteCount(MAX_SINGLE_PUT) {
            self.whole(item, n).await
        } else {
            self.begin(item, n).await
        }
    }

    /// Sends a small file in one request.
    async fn whole(&mut self, item: &Item, n: usize) -> Result<(), Trouble> {
        let file = self.work.open(item)?;
        let bucket = &self.work.bucket;
        let digest = digest(&file, item, 0..item.size.get(), bucket.in_clear())?;
        let mut action = bucket.place.put_object(None, &item.key);
        action.headers_mut().insert("content-md5", encoded(&digest.md5));
        if let Some(mtime) = self.work.mtime(item) {
            action.headers_mut().insert(MTIME, mtime);
        }
        let body = self.body(&file, 0..item.size.get(), digest.sha256);
        let answer = self.ask(Method::PUT, plain(&action), body, &item.name).await?;
        check_tag(&answer.headers, &hex(&digest.md5), &item.name)?;
        self.work.send_event(StreamEvent::Bytes(item.size));
        self.work.send_event(StreamEvent::Done(n, FileReport::Moved));
        Ok(())
    }

    fn body(
        &self,
        file: &Arc<SourceFile>,
        range: std::ops::Range<u64>,
        sha256: Option<[u8; 32]>,
    ) -> Outgoing {
        let (file, pace) = (Arc::clone(file), Arc::clone(&self.work.pace));
        let part = Part { file, at: range.start, left: range.end - range.start, pace };
        Outgoing::part(part, sha256)
    }

    /// Starts a large file: resumes the upload of an earlier run, or creates one.
    async fn begin(&mut self, item: &Item, n: usize) -> Result<(), Trouble> {
        let part = upload_queue::part_size(item.size).ok_or_else(|| {
            let text = format!("{}: larger than a store takes", item.name);
            Trouble::never(FailureKind::TargetRefused, text)
        })?;
        let parts = item.size.get().div_ceil(part.get()) as usize;
        let url = self.work.bucket.place.object_url(&item.key).to_string();
        if let Some(begun) = upload_state::load(&url) {
            let usable =
                self.work.options.resume != Resume::Off && begun.is_of(item.size, item.mtime, part);
            let found = match usable {
                true => self.found(item, &begun.upload, part, parts).await,
                false => Ok(None),
            };
            match found {
                Ok(Some(tags)) => {
                    let upload = Upload { id: begun.upload, part, tags };
                    self.work.upload_queue().begun(n, upload);
                    return Ok(());
                }
                Ok(None) => self.abort_or_count(item, &begun.upload).await,
                // Parts that the store does not list must not fail every run: a user may be allowed
                // to write parts and not to list them.
                Err(Trouble::Never(f)) if is_of_list(f.kind) => {
                    self.work.send_event(StreamEvent::BegunAnew);
                    self.abort_or_count(item, &begun.upload).await;
                }
                Err(trouble) => return Err(trouble),
            }
        }
        let bucket = &self.work.bucket;
        let mut action = bucket.place.create_multipart_upload(None, &item.key);
        if let Some(mtime) = self.work.mtime(item) {
            action.headers_mut().insert(MTIME, mtime);
        }
        let answer = self.ask(Method::POST, plain(&action), Outgoing::none(), &item.name).await?;
        let text = String::from_utf8_lossy(&answer.document);
        let created =
            CreateMultipartUpload::parse_response(&text).map_err(|e| invalid_answer(item, &e))?;
        let id = created.upload_id().to_owned();
        upload_state::save(&SavedUpload::new(&url, &id, item.size, item.mtime, part));
        self.work.upload_queue().begun(n, Upload { id, part, tags: vec![None; parts] });
        Ok(())
    }

    /// The tags of the valid parts of an earlier upload; none if the store does not have the upload
    /// any more.
    async fn found(
        &mut self,
        item: &Item,
        upload: &str,
        part: ByteCount,
        parts: usize,
    ) -> Result<Option<Vec<Option<String>>>, Trouble> {
        let mut tags = vec![None; parts];
        let (mut marker, mut resumed) = (None, 0);
        let file = self.work.open(item)?;
        loop {
            let bucket = &self.work.bucket;
            let mut action = bucket.place.list_parts(None, &item.key, upload);
            if let Some(marker) = marker {
                action.set_part_number_marker(marker);
            }
            let asked = self.ask(Method::GET, plain(&action), Outgoing::none(), &item.name).await;
            let answer = match asked {
                Err(Trouble::Never(f)) if f.kind == FailureKind::SourceMissing => return Ok(None),
                // For a file of this machine this kind means that it cannot be read.
                Err(Trouble::Never(f)) if f.kind == FailureKind::Unreadable => {
                    return Err(Trouble::never(FailureKind::Protocol, f.text));
                }
                other => other?,
            };
            let text = results(&answer.document);
            let page = ListParts::parse_response(&text).map_err(|e| invalid_answer(item, &e))?;
            for one in &page.parts {
                let n = usize::from(one.number).wrapping_sub(1);
                let Some(slot) = tags.get_mut(n) else { continue };
                let range = upload_queue::part_range(item.size, part, n);
                let trusted = self.work.options.resume == Resume::Trust;
                let right = one.size == range.end - range.start
                    && one.etag.len() <= MAX_TAG_BYTES
                    && (trusted
                        || unquoted(&one.etag) == hex(&digest(&file, item, range, false)?.md5));
                if right {
                    resumed += one.size;
                    *slot = Some(one.etag.clone());
                }
            }
            match page.next_part_number_marker {
                Some(next) if marker.is_none_or(|before| next > before) => marker = Some(next),
                _ => break,
            }
        }
        self.work.send_event(StreamEvent::Resumed(ByteCount(resumed)));
        Ok(Some(tags))
    }

    async fn part(&mut self, n: usize, part: usize) -> Result<(), Trouble> {
        let item = &self.work.items[n];
        let Some(upload) = self.work.upload_queue().upload(n) else { return Ok(()) };
        let sent = self.send_part(item, &upload, part).await;
        match sent {
            Ok((size, tag)) => {
                self.work.send_event(StreamEvent::Bytes(size));
                let is_current = self.work.upload_queue().sent(n, &upload.id, part, tag);
                if !is_current {
                    // A part that was under way during an abort can outlive it.
                    self.abort_or_count(item, &upload.id).await;
                }
                Ok(())
            }
            // Another stream gave the upload up, so that the store does not have it.
            Err(_) if !self.work.upload_queue().has(n, &upload.id) => Ok(()),
            Err(Trouble::Never(f)) if f.kind == FailureKind::SourceMissing => {
                if !self.work.upload_queue().begin_anew(n) {
                    let text = format!("{}; the same command begins anew", f.text);
                    let failure = Failure::new(FailureKind::Temporary, text);
                    self.work.send_event(StreamEvent::Failed(failure));
                }
                Ok(())
            }
            Err(trouble) => Err(trouble),
        }
    }

    /// Sends a part. Returns its size and tag.
    async fn send_part(
        &mut self,
        item: &Item,
        upload: &Upload,
        part: usize,
    ) -> Result<(ByteCount, String), Trouble> {
        let range = upload_queue::part_range(item.size, upload.part, part);
        let file = self.work.open(item)?;
        let bucket = &self.work.bucket;
        let digest = digest(&file, item, range.clone(), bucket.in_clear())?;
        let number = u16::try_from(part + 1).unwrap_or(u16::MAX);
        let mut action = bucket.place.upload_part(None, &item.key, number, &upload.id);
        action.headers_mut().insert("content-md5", encoded(&digest.md5));
        let size = ByteCount(range.end - range.start);
        let body = self.body(&file, range, digest.sha256);
        let answer = self.ask(Method::PUT, plain(&action), body, &item.name).await?;
        let tag = check_tag(&answer.headers, &hex(&digest.md5), &item.name)?;
        Ok((size, tag))
    }

    async fn complete(&mut self, n: usize) -> Result<(), Trouble> {
        let item = &self.work.items[n];
        let Some(upload) = self.work.upload_queue().upload(n) else { return Ok(()) };
        // A changed file must not be assembled from parts of two versions.
        self.work.open(item)?;
        let tags: Vec<String> = upload.tags.into_iter().flatten().collect();
        let bucket = &self.work.bucket;
        let all = tags.iter().map(String::as_str);
        let action = bucket.place.complete_multipart_upload(None, &item.key, &upload.id, all);
        let to = (action.sign(std::time::Duration::from_secs(1)).into(), Headers::new());
        let body = Outgoing::bytes(action.body());
        let acknowledged = match self.ask(Method::POST, to, body, &item.name).await {
            Ok(answer) if is_complete(&answer.document) => true,
            // A store may answer 200 and report an error in the document.
            Ok(_) => {
                let text = format!("{}: the store did not complete it", item.name);
                return Err(Trouble::later(text));
            }
            // The upload does not exist: a request whose response was lost completed it, or somebody
            // removed it.
            Err(Trouble::Never(f)) if f.kind == FailureKind::SourceMissing => false,
            Err(trouble) => return Err(trouble),
        };
        let mtime = self.work.options.preserve_times.then_some(item.mtime);
        // Without permission to read, the response of the store must suffice.
        let headers = match self.head(item).await? {
            Some(headers) => headers,
            None if acknowledged => return self.completed(item, n),
            None => {
                let text = format!("{}: the store does not have it", item.name);
                return Err(Trouble::later(text));
            }
        };
        if !acknowledged && !is_of_upload(&headers, item.size, &tags, mtime) {
            let text = format!(
                "{}: the store no longer has the upload, and what is there is not the file; the \
                 same command begins anew",
                item.name
            );
            return Err(Trouble::later(text));
        }
        if answer::length(&headers) != Some(item.size.get()) {
            return Err(integrity_error(&item.name, "it has another size"));
        }
        let etag = answer::text(&headers, "etag").map(|tag| unquoted(&tag)).unwrap_or_default();
        if let (Some(wanted), true) = (multipart_etag(&tags), etag.contains('-'))
            && wanted != etag
        {
            return Err(integrity_error(&item.name, "its tag is not that of its parts"));
        }
        self.completed(item, n)
    }

    fn completed(&self, item: &Item, n: usize) -> Result<(), Trouble> {
        let upload = self.work.upload_queue().drop_file(n);
        if let Some(upload) = upload {
            upload_state::remove(self.work.bucket.place.object_url(&item.key).as_str(), &upload.id);
        }
        self.work.send_event(StreamEvent::Done(n, FileReport::Moved));
        Ok(())
    }

    /// Aborts an upload, or lets the user know that it stays.
    pub(super) async fn abort_or_count(&mut self, item: &Item, upload: &str) {
        if !self.abort(item, upload).await {
            self.work.send_event(StreamEvent::NotAborted);
        }
    }

    /// Aborts an upload, so that the store does not bill its parts. False if the store may still
    /// have it; its name then stays in the state directory.
    pub(super) async fn abort(&mut self, item: &Item, upload: &str) -> bool {
        let place = &self.work.bucket.place;
        let action = place.abort_multipart_upload(None, &item.key, upload);
        let mut backoff = RETRY;
        loop {
            let none = Outgoing::none();
            match self.ask(Method::DELETE, plain(&action), none, &item.name).await {
                Ok(_) => break,
                Err(Trouble::Never(f)) if f.kind == FailureKind::SourceMissing => break,
                Err(Trouble::Later(_, pause)) if backoff.failures() + 1 < MAX_ABORTS => {
                    *self.held = None;
                    let wait = backoff.next_wait();
                    tokio::time::sleep(pause.unwrap_or(wait).to_std()).await;
                }
                Err(_) => return false,
            }
        }
        upload_state::remove(place.object_url(&item.key).as_str(), upload);
        true
    }
}

/// Whether the answer to a list of parts fails the list alone.
fn is_of_list(kind: FailureKind) -> bool {
    matches!(kind, FailureKind::Protocol | FailureKind::NotAuthorised)
}

/// The text of a document. S3 names documents `...Result`, some stores `...Response`.
fn results(document: &[u8]) -> String {
    let text = String::from_utf8_lossy(document);
    text.replace("CompleteMultipartUploadResponse", "CompleteMultipartUploadResult")
        .replace("ListPartsResponse", "ListPartsResult")
}

/// Whether the document states that the upload was completed.
fn is_complete(document: &[u8]) -> bool {
    let text = results(document);
    // Some stores omit the namespace.
    CompleteMultipartUploadResponse::parse(&text).is_ok()
        || (text.contains("<CompleteMultipartUploadResult") && !text.contains("<Error>"))
}

fn invalid_answer(item: &Item, error: &dyn std::fmt::Display) -> Trouble {
    let text = format!("{}: the store's answer: {error}", item.name);
    Trouble::never(FailureKind::Protocol, text)
}

fn integrity_error(name: &str, why: &str) -> Trouble {
    let text = format!("{name}: what the store has is not what was sent: {why}");
    Trouble::never(FailureKind::Integrity, text)
}

/// Whether the store has the same file; with `update` also if it has a newer one.
fn is_same(headers: &HeaderMap, item: &Item, update: bool) -> bool {
    let kept = answer::text(headers, MTIME).as_deref().and_then(read_mtime);
    let modified = answer::text(headers, "last-modified").and_then(|d| answer::seconds(&d));
    if update && kept.map_or(modified, |m| Some(m.secs)).is_some_and(|secs| secs > item.mtime.secs)
    {
        return true;
    }
    answer::length(headers) == Some(item.size.get()) && kept == Some(item.mtime)
}

/// Whether the object is what this upload made: its tag is that of the parts. If their tags are not
/// digests, the time stored with it decides, which no object here had before the upload.
fn is_of_upload(
    headers: &HeaderMap,
    size: ByteCount,
    parts: &[String],
    mtime: Option<Mtime>,
) -> bool {
    let etag = answer::text(headers, "etag").map(|tag| unquoted(&tag)).unwrap_or_default();
    let is_made = match multipart_etag(parts) {
        Some(wanted) if etag.contains('-') => wanted == etag,
        _ => {
            let kept = answer::text(headers, MTIME).as_deref().and_then(read_mtime);
            mtime.is_some() && kept == mtime
        }
    };
    is_made && answer::length(headers) == Some(size.get())
}

/// The tag in the response, unless it is a digest of other data.
fn check_tag(headers: &HeaderMap, digest: &str, name: &str) -> Result<String, Trouble> {
    let Some(tag) = answer::text(headers, "etag") else {
        let text = format!("{name}: the store tells no tag");
        return Err(Trouble::never(FailureKind::Protocol, text));
    };
    // With KMS or customer keys the tag is not the digest of the data.
    let coded = answer::text(headers, "x-amz-server-side-encryption")
        .is_some_and(|how| how.starts_with("aws:"))
        || headers.contains_key("x-amz-server-side-encryption-customer-algorithm");
    let etag = unquoted(&tag);
    let is_digest = etag.len() == 32 && etag.bytes().all(|c| c.is_ascii_hexdigit());
    if is_digest && !coded && etag != digest {
        return Err(integrity_error(name, "its digest is another"));
    }
    Ok(tag)
}

fn unquoted(tag: &str) -> String {
    tag.trim_matches('"').to_ascii_lowercase()
}

/// The tag of an object made of these parts; none if their tags are not digests.
fn multipart_etag(tags: &[String]) -> Option<String> {
    let mut all = Md5::new();
    for tag in tags {
        let tag = unquoted(tag);
        let bytes: Option<Vec<u8>> = (0..tag.len() / 2)
            .map(|n| u8::from_str_radix(tag.get(2 * n..2 * n + 2)?, 16).ok())
            .collect();
        all.update(bytes.filter(|bytes| bytes.len() == 16)?);
    }
    Some(format!("{}-{}", hex(&all.finalize()), tags.len()))
}

/// The digests that stores verify, of part of a file.
struct Digests {
    md5: Vec<u8>,
    /// Only if the signature must cover the data.
    sha256: Option<[u8; 32]>,
}

fn digest(
    file: &SourceFile,
    item: &Item,
    range: std::ops::Range<u64>,
    sha256: bool,
) -> Result<Digests, Trouble> {
    let unread = |e: &dyn std::fmt::Display| {
        Trouble::never(FailureKind::Unreadable, format!("{}: {e}", item.shown()))
    };
    tokio::task::block_in_place(|| {
        let mut all = Md5::new();
        let mut sha = sha256.then(|| Context::new(&SHA256));
        let mut buffer = vec![0; STEP_BYTES];
        let mut at = range.start;
        while at < range.end {
            let step = (range.end - at).min(STEP_BYTES as u64) as usize;
            file.read_exact_at(at, &mut buffer[..step]).map_err(|e| unread(&e))?;
            all.update(&buffer[..step]);
            if let Some(sha) = &mut sha {
                sha.update(&buffer[..step]);
            }
            at += step as u64;
        }
        file.check_unchanged().map_err(|_| item.changed())?;
        let sha256 = sha.and_then(|sha| sha.finish().as_ref().try_into().ok());
        Ok(Digests { md5: all.finalize().to_vec(), sha256 })
    })
}

fn encoded(digest: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(digest)
}

/// The text of an mtime in the metadata.
pub(super) fn write_mtime(mtime: Mtime) -> String {
    format!("{}.{:09}", mtime.secs, mtime.nanos)
}

fn read_mtime(text: &str) -> Option<Mtime> {
    let (secs, part) = text.split_once('.').unwrap_or((text, ""));
    let digits: String = part.chars().chain(std::iter::repeat('0')).take(9).collect();
    Some(Mtime { secs: secs.parse().ok()?, nanos: digits.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_tags_are_those_of_other_programs() {
        let mtime = Mtime { secs: 1_700_000_000, nanos: 5_000_000 };
        assert_eq!(write_mtime(mtime), "1700000000.005000000");
        assert_eq!(read_mtime("1700000000.005"), Some(mtime));
        assert_eq!(read_mtime("7"), Some(Mtime { secs: 7, nanos: 0 }));
        assert_eq!(read_mtime("yesterday"), None);
        // Two empty parts.
        let empty = "\"d41d8cd98f00b204e9800998ecf8427e\"".to_owned();
        let wanted =
            format!("{}-2", hex(&Md5::digest([Md5::digest(b""), Md5::digest(b"")].concat())));
        assert_eq!(multipart_etag(&[empty.clone(), empty.clone()]), Some(wanted));
        assert_eq!(multipart_etag(&[empty, "\"encrypted\"".to_owned()]), None);
    }

    #[test]
    fn an_object_of_before_is_not_that_of_an_upload() {
        let part = |data: &[u8]| format!("\"{}\"", hex(&Md5::digest(data)));
        let digests = [part(b"a"), part(b"b")];
        let opaque = ["\"a\"".to_owned(), "\"b\"".to_owned()];
        let made = multipart_etag(&digests).unwrap();
        let mtime = Mtime { secs: 7, nanos: 0 };
        let is_of = |parts: &[String], etag: &str, kept: Option<&str>, mtime: Option<Mtime>| {
            let mut headers = HeaderMap::new();
            headers.insert("content-length", "2".parse().unwrap());
            headers.insert("etag", etag.parse().unwrap());
            if let Some(kept) = kept {
                headers.insert(MTIME, kept.parse().unwrap());
            }
            assert!(!is_of_upload(&headers, ByteCount(3), parts, mtime));
            is_of_upload(&headers, ByteCount(2), parts, mtime)
        };
        let (plain, other) = (part(b"ab"), "\"0123-2\"");
        assert!(is_of(&digests, &format!("\"{made}\""), None, None));
        assert!(!is_of(&digests, other, Some("7"), Some(mtime)), "its tag is another");
        for parts in [&digests, &opaque] {
            assert!(is_of(parts, &plain, Some("7"), Some(mtime)));
            assert!(!is_of(parts, &plain, Some("6"), Some(mtime)));
            assert!(!is_of(parts, &plain, None, Some(mtime)));
            assert!(!is_of(parts, &plain, None, None), "nothing tells");
        }
        assert!(is_of(&opaque, other, Some("7"), Some(mtime)));
        assert!(!is_of(&opaque, other, None, None));
    }
}
