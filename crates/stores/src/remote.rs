//! One object on a server: its location, its metadata, and the requests for it.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use hyper::header::{self, HeaderValue};
use hyper::{Method, StatusCode};
use packtrain_object::EntryId;
use packtrain_os::clock;
use packtrain_transfer::FailureKind;
use packtrain_units::{ByteCount, Duration};

use super::answer::{self, Trouble, Version};
use super::body::Outgoing;
use super::checksums::Sum;
use super::http::{Client, Headers};
use super::s3::Bucket;
use packtrain_service::weburl::{WebUrl, redact};

/// Maximum consecutive redirections.
const MAX_REDIRECTS: u32 = 10;
/// Maximum pauses that a server may request while an object is probed.
const MAX_PAUSES: u32 = 4;

/// Location of an object.
#[derive(Debug)]
pub(super) enum Place {
    /// A web address, and the address that redirections led to.
    Web { asked: WebUrl, at: Mutex<WebUrl> },
    /// A bucket and a key in it.
    Bucket(Arc<Bucket>, String),
}

impl Place {
    /// Whether it is the same address, or the same key; the bucket is the same in one transfer.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Web { asked: one, .. }, Self::Web { asked: other, .. }) => one == other,
            (Self::Bucket(_, one), Self::Bucket(_, other)) => one == other,
            _ => false,
        }
    }
}

/// An object on a server.
#[derive(Debug)]
pub(super) struct Remote {
    /// Its name in texts to the user.
    pub(super) name: String,
    /// Its size, if the server gives it.
    pub(super) size: Option<ByteCount>,
    pub(super) version: Version,
    /// Whether the server serves ranges of it.
    pub(super) ranges: bool,
    pub(super) place: Place,
    /// Its checksum, if the server sent one.
    pub(super) sum: Option<Sum>,
}

/// The objects of a transfer by their entries.
pub(super) type Objects = Arc<Mutex<HashMap<EntryId, Arc<Remote>>>>;

impl Remote {
    /// The request for this range of the object, or for all of it.
    pub(super) fn request(&self, part: Option<&Range<u64>>) -> (WebUrl, Headers) {
        let mut headers = Headers::new();
        if let Some(part) = part {
            let range = format!("bytes={}-{}", part.start, part.end - 1);
            headers.extend(value(header::RANGE, &range));
            if let Some(condition) = self.version.condition() {
                headers.extend(value(header::IF_RANGE, condition));
            }
        }
        match &self.place {
            Place::Web { at, .. } => (at.lock().clone(), headers),
            Place::Bucket(bucket, key) => {
                let url = bucket.get(key);
                bucket.sign(&Method::GET, &url, &mut headers, &Outgoing::none());
                (url, headers)
            }
        }
    }

    /// Resolves the original address again, because the address that redirections led to may have
    /// expired (some are valid for minutes). False if there was no redirection.
    pub(super) async fn refresh_location(&self, client: &Client) -> Result<bool, Trouble> {
        let Place::Web { asked, at } = &self.place else { return Ok(false) };
        let before = at.lock().clone();
        if before == *asked {
            return Ok(false);
        }
        let again = probe(client, asked).await?;
        if !self.version.agrees(&again.version) || self.size != again.size {
            return Err(Trouble::never(FailureKind::Changed, answer::changed(&self.name)));
        }
        if let Place::Web { at: found, .. } = again.place {
            *at.lock() = found.into_inner();
        }
        Ok(true)
    }
}

/// A header; none if the value is not valid.
fn value(name: header::HeaderName, text: &str) -> Option<(header::HeaderName, HeaderValue)> {
    Some((name, HeaderValue::from_str(text).ok()?))
}

/// Requests the first byte of an address. The response shows whether ranges are served, the size
/// and the version.
pub(super) async fn probe(client: &Client, asked: &WebUrl) -> Result<Remote, Trouble> {
    let mut pauses = 0;
    loop {
        match probe_once(client, asked).await {
            Err(Trouble::Later(text, Some(pause))) if pauses < MAX_PAUSES => {
                pauses += 1;
                let _ = text;
                tokio::time::sleep(pause.max(Duration::from_millis(100)).to_std()).await;
            }
            other => return other,
        }
    }
}

async fn probe_once(client: &Client, asked: &WebUrl) -> Result<Remote, Trouble> {
    let mut url = asked.clone();
    let mut first = Some("bytes=0-0");
    let mut redirects = 0;
    while redirects <= MAX_REDIRECTS {
        let mut connection = client.connect(&url).await?;
        let headers: Headers =
            first.and_then(|range| value(header::RANGE, range)).into_iter().collect();
        let answer = connection.ask(Method::GET, &url, &headers, Outgoing::none()).await?;
        let (status, headers) = (answer.status(), answer.headers());
        if status.is_redirection()
            && let Some(to) = answer::text(headers, header::LOCATION)
        {
            url = follow(&url, &to)?;
            redirects += 1;
            continue;
        }
        let name = asked.to_string();
        // The page of an error is no content of the file, and may be encoded.
        if status.is_success() {
            answer::check_encoding(headers, &name)?;
        }
        let version = Version::of(headers);
        let (size, ranges) = match status {
            StatusCode::PARTIAL_CONTENT => match answer::content_range(headers) {
                Some((0, 0, Some(total))) => (Some(total), true),
                Some((0, 0, None)) => (None, false),
                _ => {
                    let text = format!("{name}: the server gives another range than was asked for");
                    return Err(Trouble::never(FailureKind::Protocol, text));
                }
            },
            StatusCode::OK => (answer::length(headers), false),
            StatusCode::RANGE_NOT_SATISFIABLE if answer::unsatisfied_size(headers) == Some(0) => {
                (Some(0), true)
            }
            // The file may be empty, or the server may refuse ranges in this way.
            StatusCode::RANGE_NOT_SATISFIABLE if first.is_some() => {
                first = None;
                continue;
            }
            _ => return Err(answer::refusal(&name, status, headers, clock::wall())),
        };
        let place = Place::Web { asked: asked.clone(), at: Mutex::new(url) };
        // Without a validator, parts of two versions could not be distinguished.
        let ranges = ranges && version.is_known();
        let sum = Sum::of_web(headers);
        return Ok(Remote { name, size: size.map(ByteCount), version, ranges, place, sum });
    }
    let text = format!("{asked}: more than {MAX_REDIRECTS} redirections");
    Err(Trouble::never(FailureKind::Unreadable, text))
}

/// The target of a redirection.
fn follow(from: &WebUrl, to: &str) -> Result<WebUrl, Trouble> {
    let refuse = |why: &str| {
        let text = format!("{from}: the server sends us to {}, {why}", redact(to));
        Trouble::never(FailureKind::Unreadable, text)
    };
    let next = from.join(to).map_err(|_| refuse("which is no address"))?;
    match (from.scheme(), next.scheme()) {
        (_, "https") | ("http", "http") => Ok(next),
        ("https", "http") => {
            Err(refuse("which is not encrypted: name it yourself if you trust it"))
        }
        _ => Err(refuse("which is no address of the web")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirections_do_not_leave_encryption() {
        let from = |text: &str| WebUrl::parse(text).unwrap();
        let secure = from("https://a.example/x/y");
        assert_eq!(
            follow(&secure, "../z?q").unwrap().with_secrets().as_str(),
            "https://a.example/z?q"
        );
        assert_eq!(follow(&secure, "https://b.example/").unwrap().host(), "b.example");
        let refused = follow(&secure, "http://me:pw@a.example/x?sig=5ecre7").unwrap_err();
        let text = refused.failure().text;
        assert!(text.contains("http://a.example/x?[redacted]"), "{text}");
        assert!(!text.contains("pw") && !text.contains("5ecre7"), "{text}");
        assert!(follow(&from("http://a.example/"), "http://b.example/").is_ok());
        assert!(follow(&from("http://a.example/"), "file:///etc/passwd").is_err());
    }
}
