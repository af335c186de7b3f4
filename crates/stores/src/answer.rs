//! Parses HTTP responses, which are untrusted input.

use hyper::StatusCode;
use hyper::header::{self, HeaderMap};
use packtrain_object::Mtime;
use packtrain_transfer::{Failure, FailureKind};
use packtrain_units::Duration;

/// The longest pause that a server may request. A longer one is reported as a failure.
pub(super) const MAX_PAUSE: Duration = Duration::from_secs(120);

/// Why a request failed.
#[derive(Clone, Debug)]
pub(super) enum Trouble {
    /// A retry may succeed, after the pause if there is one.
    Later(String, Option<Duration>),
    /// A retry cannot succeed.
    Never(Failure),
}

impl Trouble {
    pub(super) fn later(text: impl Into<String>) -> Self {
        Self::Later(text.into(), None)
    }

    pub(super) fn never(kind: FailureKind, text: impl Into<String>) -> Self {
        Self::Never(Failure::new(kind, text))
    }

    /// The failure of the whole transfer.
    pub(super) fn failure(self) -> Failure {
        match self {
            Self::Later(text, _) => Failure::new(FailureKind::Temporary, text),
            Self::Never(failure) => failure,
        }
    }
}

/// The validators that identify a version of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Version {
    /// The entity tag with its quotes, and with its `W/` if it is weak.
    pub(super) etag: Option<String>,
    /// The text of `Last-Modified`.
    pub(super) modified: Option<String>,
}

impl Version {
    /// The validators in these headers.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        Self { etag: text(headers, header::ETAG), modified: text(headers, header::LAST_MODIFIED) }
    }

    /// Whether there is any validator.
    pub(super) fn is_known(&self) -> bool {
        self.etag.is_some() || self.modified.is_some()
    }

    /// Whether another response may be of the same version. Missing validators do not count as a
    /// difference.
    pub(super) fn agrees(&self, other: &Self) -> bool {
        match (&self.etag, &other.etag) {
            // Some servers omit the mark of weakness in some responses.
            (Some(a), Some(b)) => a.trim_start_matches("W/") == b.trim_start_matches("W/"),
            _ => match (&self.modified, &other.modified) {
                (Some(a), Some(b)) => a == b,
                _ => true,
            },
        }
    }

    /// The value for `If-Range`: a strong tag, or the time if it is a date (RFC 9110, section 13.1.5).
    pub(super) fn condition(&self) -> Option<&str> {
        let strong = self.etag.as_deref().filter(|tag| !tag.starts_with("W/"));
        // With a weak tag the time is not used either, because it may be weak too. The version of
        // the response is compared in any case.
        let date = self.modified.as_deref().filter(|date| seconds(date).is_some());
        strong.or(date.filter(|_| self.etag.is_none()))
    }

    /// The modification time for the journal and the target: the server's whole seconds, with a
    /// fingerprint of the tag as nanoseconds. A new version of the same size and second then
    /// differs in the journal and in the comparison with an existing target.
    pub(super) fn mtime(&self) -> Mtime {
        let secs = self.modified.as_deref().and_then(seconds).unwrap_or(0);
        let nanos = self.etag.as_deref().map_or(0, |tag| {
            let digest = packtrain_object::digest::root_of(tag.trim_start_matches("W/").as_bytes());
            let word = u32::from_le_bytes([digest.0[0], digest.0[1], digest.0[2], digest.0[3]]);
            word % 1_000_000_000
        });
        Mtime { secs, nanos }
    }
}

/// Seconds since 1970 of an HTTP date.
pub(super) fn seconds(date: &str) -> Option<i64> {
    let time = httpdate::parse_http_date(date).ok()?;
    let since = time.duration_since(std::time::UNIX_EPOCH).ok()?;
    i64::try_from(since.as_secs()).ok()
}

/// The text of a header, if it is present, valid text and not empty.
pub(super) fn text(headers: &HeaderMap, name: impl header::AsHeaderName) -> Option<String> {
    headers.get(name)?.to_str().ok().map(|text| text.trim().to_owned()).filter(|t| !t.is_empty())
}

/// The length of the body in bytes.
pub(super) fn length(headers: &HeaderMap) -> Option<u64> {
    text(headers, header::CONTENT_LENGTH)?.parse().ok()
}

/// The range of a 206 response: first byte, last byte, and the total size if it is given.
pub(super) fn content_range(headers: &HeaderMap) -> Option<(u64, u64, Option<u64>)> {
    let text = text(headers, header::CONTENT_RANGE)?;
    let (span, total) = text.strip_prefix("bytes ")?.trim().split_once('/')?;
    let (first, last) = span.split_once('-')?;
    let (first, last) = (first.trim().parse::<u64>().ok()?, last.trim().parse::<u64>().ok()?);
    let total = match total.trim() {
        "*" => None,
        number => Some(number.parse::<u64>().ok()?),
    };
    let fits = first <= last && last < u64::MAX && total.is_none_or(|total| last < total);
    fits.then_some((first, last, total))
}

/// The size that a 416 response gives.
pub(super) fn unsatisfied_size(headers: &HeaderMap) -> Option<u64> {
    text(headers, header::CONTENT_RANGE)?.strip_prefix("bytes */")?.trim().parse().ok()
}

/// The pause that the server requests with `Retry-After`; `now` is the time since 1970.
pub(super) fn retry_after(headers: &HeaderMap, now: Duration) -> Option<Duration> {
    let text = text(headers, header::RETRY_AFTER)?;
    if let Ok(seconds) = text.parse::<u32>() {
        return Some(Duration::from_secs(seconds.into()));
    }
    let at = u64::try_from(seconds(&text)?).ok()?;
    Some(Duration::from_secs(at).saturating_sub(now))
}

/// Rejects a response with a content encoding, whose bytes are not those of the object.
pub(super) fn check_encoding(headers: &HeaderMap, what: &str) -> Result<(), Trouble> {
    match text(headers, header::CONTENT_ENCODING) {
        Some(coding) if !coding.eq_ignore_ascii_case("identity") => Err(Trouble::never(
            FailureKind::Protocol,
            format!("{what}: the server sends it as {coding} although it was told not to"),
        )),
        _ => Ok(()),
    }
}

/// The failure for a status that is not a success; `now` is the time since 1970.
pub(super) fn refusal(
    what: &str,
    status: StatusCode,
    headers: &HeaderMap,
    now: Duration,
) -> Trouble {
    let said = format!("{what}: the server answers {status}");
    match status.as_u16() {
        404 | 410 => {
            let text = format!("{what}: no such file ({})", status.as_u16());
            Trouble::never(FailureKind::SourceMissing, text)
        }
        401 | 403 | 407 => Trouble::never(FailureKind::NotAuthorised, said),
        412 => Trouble::never(FailureKind::Changed, changed(what)),
        408 | 425 | 429 | 500 | 502 | 503 | 504 | 509 => match retry_after(headers, now) {
            Some(pause) if pause > MAX_PAUSE => Trouble::never(
                FailureKind::Temporary,
                format!(
                    "{said} and wants to be left alone for {}: try again then",
                    pause.to_readable()
                ),
            ),
            pause => Trouble::Later(said, pause),
        },
        _ => Trouble::never(FailureKind::Unreadable, said),
    }
}

/// The text for an object that changed.
pub(super) fn changed(what: &str) -> String {
    format!("{what}: changed while it was fetched; run the same command again")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(n, v)| (n.parse().unwrap(), v.parse().unwrap())).collect()
    }

    #[test]
    fn ranges_are_read_and_nonsense_is_not() {
        let read = |text| content_range(&headers(&[("content-range", text)]));
        assert_eq!(read("bytes 0-0/1"), Some((0, 0, Some(1))));
        assert_eq!(read("bytes 5-9/*"), Some((5, 9, None)));
        for bad in ["bytes 9-5/20", "bytes 0-20/20", "items 0-1/2", "bytes */7", "bytes -1-2/3"] {
            assert_eq!(read(bad), None, "{bad}");
        }
        assert_eq!(read("bytes 0-18446744073709551615/*"), None, "it has no end");
        assert_eq!(unsatisfied_size(&headers(&[("content-range", "bytes */0")])), Some(0));
    }

    #[test]
    fn versions_are_told_apart() {
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        let a = Version::of(&headers(&[("etag", "\"a\""), ("last-modified", date)]));
        let b = Version::of(&headers(&[("etag", "\"b\""), ("last-modified", date)]));
        let weak = Version::of(&headers(&[("etag", "W/\"a\"")]));
        let timed = Version::of(&headers(&[("last-modified", date)]));
        assert!(!a.agrees(&b) && a.agrees(&weak) && a.agrees(&timed));
        assert_eq!(a.mtime().secs, 784_111_777);
        assert_ne!(a.mtime().nanos, b.mtime().nanos);
        assert_eq!(timed.mtime().nanos, 0);
        assert_eq!(a.condition(), Some("\"a\""));
        assert_eq!((weak.condition(), timed.condition()), (None, Some(date)));
        assert!(!Version::default().is_known());
    }

    #[test]
    fn a_status_becomes_a_kind_of_failure() {
        let none = HeaderMap::new();
        let now = Duration::from_secs(784_111_777);
        let kind = |status: u16, headers: &HeaderMap| {
            refusal("x", StatusCode::from_u16(status).unwrap(), headers, now)
        };
        for (status, wanted) in [
            (404, FailureKind::SourceMissing),
            (401, FailureKind::NotAuthorised),
            (403, FailureKind::NotAuthorised),
            (412, FailureKind::Changed),
            (405, FailureKind::Unreadable),
            (503, FailureKind::Temporary),
        ] {
            assert_eq!(kind(status, &none).failure().kind, wanted, "{status}");
        }
        let pause = |text| match kind(503, &headers(&[("retry-after", text)])) {
            Trouble::Later(_, pause) => pause,
            Trouble::Never(_) => Some(Duration::from_secs(u64::MAX / 2_000_000_000)),
        };
        assert_eq!(pause("7"), Some(Duration::from_secs(7)));
        assert_eq!(pause("Sun, 06 Nov 1994 08:49:47 GMT"), Some(Duration::from_secs(10)));
        assert_eq!(pause("soon"), None);
        assert!(pause("86400") > Some(MAX_PAUSE));
    }
}
