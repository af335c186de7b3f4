//! One HTTP request for a run of a file, and the processing of its response.

use hyper::body::Incoming;
use hyper::{Method, Response, StatusCode};
use packtrain_object::{BLOCK, CHUNK, ChunkIndex, Digest, EntryId, digest};
use packtrain_os::clock;
use packtrain_transfer::message::PieceDigest;
use packtrain_transfer::{FailureKind, TransportEvent};
use packtrain_units::{ByteCount, Offset};

use super::super::answer::{self, Trouble, Version};
use super::super::body::Outgoing;
use super::super::http::{self, Connection};
use super::super::remote::Remote;
use super::super::run_scheduler::Run;
use super::Shared;
use packtrain_runtime::transports::StreamId;

/// A run that is being fetched.
pub(super) struct Get<'a> {
    shared: &'a Shared,
    stream: StreamId,
    object: &'a Remote,
    run: &'a Run,
    /// The size of the file in bytes.
    size: u64,
    block: Vec<u8>,
    /// The offset of the block in the file.
    at: u64,
}

impl<'a> Get<'a> {
    pub(super) fn new(
        shared: &'a Shared,
        stream: StreamId,
        object: &'a Remote,
        run: &'a Run,
    ) -> Self {
        let size = object.size.unwrap_or_default().get();
        Self { shared, stream, object, run, size, block: Vec::new(), at: run.file_at }
    }

    /// Fetches the run up to its end, or until the rest was reassigned.
    pub(super) async fn go(mut self, held: &mut Option<Connection>) -> Result<(), Trouble> {
        let end = self.run.file_at + self.run.range.end.since(self.run.range.start).get();
        let part = self.object.ranges.then_some(self.run.file_at..end);
        let mut again = false;
        let (answer, end) = loop {
            let (url, headers) = self.object.request(part.as_ref());
            let connection = self.shared.connection(self.stream, held, &url).await?;
            let answer = connection.ask(Method::GET, &url, &headers, Outgoing::none()).await?;
            match self.check(&answer, part.as_ref()) {
                Ok(()) => break (answer, end),
                Err(trouble) if !again && is_stale(&answer) => {
                    *held = None;
                    if !self.object.refresh_location(&self.shared.client).await? {
                        return Err(trouble);
                    }
                    again = true;
                }
                Err(trouble) => return Err(trouble),
            }
        };
        if !http::keeps_connection(&answer) {
            self.shared.range_scheduler().note_closing();
        }
        let mut body = answer.into_body();
        let done = self.take(&mut body, end).await?;
        if !done {
            // The rest was reassigned, and the connection is in the middle of the response.
            *held = None;
        }
        Ok(())
    }

    /// Checks that the response has the requested range of the expected version.
    fn check(
        &self,
        answer: &Response<Incoming>,
        part: Option<&std::ops::Range<u64>>,
    ) -> Result<(), Trouble> {
        let (status, headers) = (answer.status(), answer.headers());
        let name = &self.object.name;
        let changed = || Trouble::never(FailureKind::Changed, answer::changed(name));
        match (status, part) {
            (StatusCode::PARTIAL_CONTENT, Some(part)) => {
                let range = answer::content_range(headers);
                let Some((first, last, total)) = range else {
                    return Err(self.odd("sends no single range"));
                };
                if total.is_some_and(|total| total != self.size) {
                    return Err(changed());
                }
                if (first, last + 1) != (part.start, part.end) {
                    return Err(self.odd("gives another range than was asked for"));
                }
                if answer::length(headers).is_some_and(|n| n != part.end - part.start) {
                    return Err(self.odd("gives a range of another length than it says"));
                }
            }
            // For a range that is the whole file this answer is allowed (RFC 9110, section 14.2).
            (StatusCode::OK, part) if part.is_none_or(|part| *part == (0..self.size)) => {
                if answer::length(headers).is_some_and(|length| length != self.size) {
                    return Err(changed());
                }
            }
            // The condition of `If-Range` failed, or the server no longer serves ranges. In both
            // cases the body does not start at the range.
            (StatusCode::OK, Some(_)) => {
                let same = self.object.version.agrees(&Version::of(headers))
                    && answer::length(headers).is_none_or(|length| length == self.size);
                if !same {
                    return Err(changed());
                }
                let text = format!("{name}: the server stopped giving ranges");
                return Err(Trouble::later(text));
            }
            (StatusCode::RANGE_NOT_SATISFIABLE, Some(_)) => return Err(changed()),
            _ => return Err(answer::refusal(name, status, headers, clock::wall())),
        }
        answer::check_encoding(headers, name)?;
        if self.object.version.agrees(&Version::of(headers)) { Ok(()) } else { Err(changed()) }
    }

    fn odd(&self, what: &str) -> Trouble {
        let text = format!("{}: the server {what}", self.object.name);
        Trouble::never(FailureKind::Protocol, text)
    }

    /// Reads the body up to `end` of the file; false if the run ended before.
    async fn take(&mut self, body: &mut Incoming, end: u64) -> Result<bool, Trouble> {
        while let Some(bytes) = http::next(body, &self.object.name).await? {
            self.shared.pace(bytes.len()).await;
            let mut bytes = &bytes[..];
            while !bytes.is_empty() {
                let block_end = (self.at + BLOCK.get()).min(end);
                let missing = (block_end - self.at) as usize - self.block.len();
                if missing == 0 {
                    return Err(self.odd("sends more than it said"));
                }
                let now = bytes.len().min(missing);
                self.block.extend_from_slice(&bytes[..now]);
                bytes = &bytes[now..];
                if now == missing && !self.full(block_end).await {
                    return Ok(self.at == end);
                }
            }
        }
        if self.at == end {
            return Ok(true);
        }
        Err(Trouble::later(format!("{}: the connection ended too early", self.object.name)))
    }

    /// Processes a complete block. Returns whether the run continues after it.
    async fn full(&mut self, block_end: u64) -> bool {
        let start = self.run.range.start + ByteCount(self.at - self.run.file_at);
        let range = start..start + ByteCount(block_end - self.at);
        let wanted = loop {
            let wants = self.shared.range_scheduler().wants(&range);
            match wants {
                Some(wanted) => break wanted,
                // The sink does not expect this range yet.
                None => self.shared.wait().await,
            }
        };
        if wanted {
            self.shared.place(start, &self.block);
        }
        let digest = self.digest();
        let done = self.shared.range_scheduler().block(clock::now(), self.stream, &range, digest);
        if done.is_new {
            // The digest must be sent first, because the chunk is verified when its last bytes are
            // placed.
            if let Some((chunk, piece)) = done.piece {
                self.shared.fetched(chunk, piece);
            }
            self.shared.report(TransportEvent::Placed(range));
        }
        self.block.clear();
        self.at = block_end;
        done.goes_on
    }

    fn digest(&self) -> Digest {
        if self.size <= BLOCK.get() {
            digest::only_block(&self.block)
        } else {
            digest::block(self.at, &self.block)
        }
    }
}

/// Whether the address may have expired.
fn is_stale(answer: &Response<Incoming>) -> bool {
    let status = answer.status();
    status.is_redirection() || matches!(status.as_u16(), 401 | 403 | 404 | 410)
}

/// Fetches an object of unknown length from its first byte to its end.
pub(super) async fn stream(
    shared: &Shared,
    entry: EntryId,
    object: &Remote,
    start: Offset,
) -> Result<(), Trouble> {
    let (url, headers) = object.request(None);
    let mut connection = shared.client.connect(&url).await?;
    let answer = connection.ask(Method::GET, &url, &headers, Outgoing::none()).await?;
    let name = &object.name;
    if answer.status() != StatusCode::OK {
        return Err(answer::refusal(name, answer.status(), answer.headers(), clock::wall()));
    }
    answer::check_encoding(answer.headers(), name)?;
    let mut body = answer.into_body();
    let (mut size, mut chunk) = (0u64, Vec::with_capacity(CHUNK.get() as usize));
    loop {
        let next = http::next(&mut body, name).await?;
        let over = next.is_none();
        let bytes = next.unwrap_or_default();
        shared.pace(bytes.len()).await;
        let mut bytes = &bytes[..];
        loop {
            let now = bytes.len().min(CHUNK.get() as usize - chunk.len());
            chunk.extend_from_slice(&bytes[..now]);
            bytes = &bytes[now..];
            let full = chunk.len() as u64 == CHUNK.get();
            if full || (over && !chunk.is_empty()) {
                let range = start + ByteCount(size)..start + ByteCount(size + chunk.len() as u64);
                while shared.range_scheduler().wants(&range).is_none() {
                    shared.wait().await;
                }
                let digest = digest::piece(size, false, &chunk);
                size += chunk.len() as u64;
                if !full {
                    // The end must be reported first, so that the last digest belongs to a piece of
                    // the right length.
                    shared.stream_end(entry, size);
                }
                shared.place(range.start, &chunk);
                let index = ChunkIndex::of(range.start);
                shared.fetched(index, PieceDigest { entry, digest });
                shared.report(TransportEvent::Placed(range));
                chunk.clear();
                if over && !full {
                    return Ok(());
                }
            }
            if bytes.is_empty() {
                break;
            }
        }
        if over {
            shared.stream_end(entry, size);
            return Ok(());
        }
    }
}
