//! Buckets of S3 and of compatible stores: credentials, requests and lists. `rusty-s3` builds
//! addresses and parses documents; `sign` signs requests in a header; requests use the connections
//! of `http`.

pub(super) mod profile;
mod sign;

use std::sync::Arc;
use std::time::{Duration as StdDuration, SystemTime};

use hyper::header::{HeaderMap, HeaderValue};
use hyper::{Method, StatusCode};
use packtrain_os::clock;
use packtrain_transfer::{Failure, FailureKind};
use packtrain_units::{Backoff, Duration};
use rusty_s3::actions::{ListObjectsV2, S3Action};
use rusty_s3::{Credentials, UrlStyle};
use url::Url;

use super::answer::{self, Trouble, Version};
use super::body::Outgoing;
use super::checksums::Sum;
use super::http::{self, Client, Connection, Headers};
use packtrain_service::weburl::{WebUrl, redact};
use profile::Settings;

/// The validity that `rusty-s3` expects for a signed address. It has no effect, because the address
/// is built without credentials.
const UNUSED: StdDuration = StdDuration::from_secs(1);
/// The waits before a busy store is asked again.
pub(super) const RETRY: Backoff =
    Backoff::new(Duration::from_millis(200), Duration::from_millis(3200));
/// Maximum length of all names in a list together, and of all paths that are made of them, in
/// bytes.
pub(super) const MAX_NAME_BYTES: usize = 512 << 20;
/// Maximum pages of a list without objects in a row. Stores send some where many objects were
/// removed.
const MAX_EMPTY_PAGES: u32 = 1000;
/// Maximum attempts at a request for a document.
const MAX_ATTEMPTS: u32 = 5;

/// A bucket and the credentials for it.
pub(super) struct Bucket {
    pub(super) place: rusty_s3::Bucket,
    /// None for anonymous access, which suffices for public objects.
    pub(super) credentials: Option<Credentials>,
}

impl std::fmt::Debug for Bucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Bucket({})", self.place.base_url())
    }
}

/// Metadata of an object.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) size: u64,
    pub(super) version: Version,
    pub(super) sum: Option<Sum>,
}

/// An item of a list.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    pub(super) key: String,
    pub(super) size: u64,
    pub(super) version: Version,
}

/// The pages of a list so far.
struct Pages {
    all: Vec<Listed>,
    /// Maximum number of objects.
    most: usize,
    /// How many bytes more the names and tags of all may have.
    bytes_left: usize,
    /// Number of pages without objects since the last one with any.
    empty: u32,
}

impl Pages {
    fn new(most: usize, bytes_left: usize) -> Self {
        Self { all: Vec::new(), most, bytes_left, empty: 0 }
    }

    /// Adds the objects of a page, or says what there is too much of.
    fn add(&mut self, contents: impl Iterator<Item = Listed>) -> Result<(), String> {
        let before = self.all.len();
        for one in contents {
            if self.all.len() >= self.most {
                return Err(format!("more than {} objects", self.most));
            }
            let bytes = one.key.len() + one.version.etag.as_ref().map_or(0, String::len);
            self.bytes_left = self
                .bytes_left
                .checked_sub(bytes)
                .ok_or_else(|| "the names and tags of its objects are too long".to_owned())?;
            self.all.push(one);
        }
        self.empty = if self.all.len() == before { self.empty + 1 } else { 0 };
        Ok(())
    }
}

impl Bucket {
    /// The bucket of this name, with the settings from the environment and the AWS configuration
    /// files.
    pub(super) fn open(name: &str) -> Result<Self, Failure> {
        let settings = Settings::find()?;
        let bad = |why: String| Failure::new(FailureKind::Usage, format!("s3://{name}: {why}"));
        let region = settings.region.clone().unwrap_or_else(|| "us-east-1".to_owned());
        let (endpoint, style) = match &settings.endpoint {
            // Stores other than AWS rarely support virtual-host addressing.
            Some(endpoint) => (endpoint.clone(), UrlStyle::Path),
            None => {
                let plain =
                    name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-');
                let style = if plain { UrlStyle::VirtualHost } else { UrlStyle::Path };
                (format!("https://s3.{region}.amazonaws.com"), style)
            }
        };
        let url = Url::parse(&endpoint).map_err(|_| {
            let shown = redact(&endpoint);
            bad(format!("the endpoint {shown} is no URL: write https://host or https://host:port"))
        })?;
        let login = !url.username().is_empty() || url.password().is_some();
        if login || url.query().is_some() || url.fragment().is_some() {
            let text = format!("endpoint {}: a login or a query is not sent", redact(&endpoint));
            return Err(bad(text));
        }
        if let Some(credentials) = &settings.credentials {
            let odd = |text: &str| HeaderValue::from_str(text).is_err();
            if odd(credentials.key()) || credentials.token().is_some_and(odd) {
                return Err(bad("the access key or the session token has odd characters".into()));
            }
        }
        let place = rusty_s3::Bucket::new(url, style, name.to_owned(), region)
            .map_err(|e| bad(e.to_string()))?;
        Ok(Self { place, credentials: settings.credentials })
    }

    /// The key as an `s3://` location.
    pub(super) fn show(&self, key: &str) -> String {
        format!("s3://{}/{key}", self.place.name())
    }

    /// Rejects keys that an address cannot contain.
    pub(super) fn check(&self, key: &str) -> Result<(), Failure> {
        let odd = key.is_empty() || key.split('/').any(|part| part == "." || part == "..");
        if odd {
            let text = format!("{}: not a key that can be asked for", self.show(key));
            return Err(Failure::new(FailureKind::Usage, text));
        }
        Ok(())
    }

    /// The address of an object.
    pub(super) fn get(&self, key: &str) -> WebUrl {
        self.place.get_object(None, key).sign(UNUSED).into()
    }

    /// Adds the headers of a signature. Without credentials it adds none.
    pub(super) fn sign(
        &self,
        method: &Method,
        url: &WebUrl,
        headers: &mut Headers,
        body: &Outgoing,
    ) {
        let Some(credentials) = &self.credentials else { return };
        // TLS protects the body already; over plain HTTP only the signature does.
        let payload = match url.scheme() {
            "https" => None,
            _ => body.sha256().map(|digest| packtrain_units::escape::hex(&digest)),
        };
        let request = sign::Request {
            method,
            url: url.with_secrets(),
            region: self.place.region(),
            payload: payload.as_deref().unwrap_or(sign::UNSIGNED),
            at: clock::wall(),
        };
        // `open` checked that the credentials fit into headers.
        let _ = sign::sign(&request, credentials, headers);
    }

    /// Whether the signature must cover bodies because the connection does not protect them.
    pub(super) fn in_clear(&self) -> bool {
        self.credentials.is_some() && self.place.base_url().scheme() != "https"
    }

    /// The metadata of an object.
    pub(super) async fn head(&self, client: &Client, key: &str) -> Result<Head, Trouble> {
        self.check(key).map_err(Trouble::Never)?;
        let name = self.show(key);
        let mut action = self.place.head_object(None, key);
        action.headers_mut().insert("x-amz-checksum-mode", "ENABLED");
        let (url, headers) = plain(&action);
        let answer = self.ask(client, Method::HEAD, &url, &headers, &name).await?;
        let headers = answer.headers;
        let size = answer::length(&headers).ok_or_else(|| {
            let text = format!("{name}: the store does not tell its size");
            Trouble::never(FailureKind::Protocol, text)
        })?;
        Ok(Head { size, version: Version::of(&headers), sum: Sum::of_store(&headers) })
    }

    /// All objects below a prefix, at most `most`.
    pub(super) async fn list(
        &self,
        client: &Client,
        prefix: &str,
        most: usize,
    ) -> Result<Vec<Listed>, Trouble> {
        let name = self.show(prefix);
        let odd = |why: String| {
            Trouble::never(FailureKind::Protocol, format!("{name}: the list of the store: {why}"))
        };
        let mut pages = Pages::new(most, MAX_NAME_BYTES);
        let mut token: Option<String> = None;
        loop {
            let mut action = self.place.list_objects_v2(None);
            action.with_prefix(prefix.to_owned());
            if let Some(token) = &token {
                action.with_continuation_token(token.clone());
            }
            let (url, headers) = plain(&action);
            let answer = self.ask(client, Method::GET, &url, &headers, &name).await?;
            let text = String::from_utf8(answer.document).map_err(|e| odd(e.to_string()))?;
            let page = ListObjectsV2::parse_response(&text).map_err(|e| odd(e.to_string()))?;
            let contents = page.contents.into_iter().map(|one| {
                // Lists format dates differently from the headers of objects, for the same times.
                let modified = one.last_modified.as_deref().and_then(http_date);
                let version = Version { etag: one.etag, modified };
                Listed { key: one.key, size: one.size.unwrap_or(0), version }
            });
            pages.add(contents).map_err(|why| {
                let text = format!("{name}: {why}: copy parts of them");
                Trouble::never(FailureKind::Usage, text)
            })?;
            match page.next_continuation_token {
                Some(next) if token.as_ref() != Some(&next) && pages.empty < MAX_EMPTY_PAGES => {
                    token = Some(next);
                }
                Some(_) => return Err(odd("it does not end".to_owned())),
                None => return Ok(pages.all),
            }
        }
    }

    /// Requests a document, with retries for temporary failures.
    pub(super) async fn ask(
        &self,
        client: &Client,
        method: Method,
        url: &WebUrl,
        headers: &Headers,
        name: &str,
    ) -> Result<Answer, Trouble> {
        let mut backoff = RETRY;
        loop {
            let once = self.ask_once(client, method.clone(), url, headers, name);
            match once.await {
                Err(Trouble::Later(_, pause)) if backoff.failures() + 1 < MAX_ATTEMPTS => {
                    let wait = backoff.next_wait();
                    tokio::time::sleep(pause.unwrap_or(wait).to_std()).await;
                }
                other => return other,
            }
        }
    }

    async fn ask_once(
        &self,
        client: &Client,
        method: Method,
        url: &WebUrl,
        headers: &Headers,
        name: &str,
    ) -> Result<Answer, Trouble> {
        let mut connection = client.connect(url).await?;
        self.ask_over(&mut connection, method, url, headers, Outgoing::none(), name).await
    }

    /// Makes one request over a connection.
    pub(super) async fn ask_over(
        &self,
        connection: &mut Connection,
        method: Method,
        url: &WebUrl,
        headers: &Headers,
        body: Outgoing,
        name: &str,
    ) -> Result<Answer, Trouble> {
        let mut headers = headers.clone();
        // Each attempt is signed with its own time, because signatures expire after minutes.
        self.sign(&method, url, &mut headers, &body);
        let answer = connection.ask(method, url, &headers, body).await?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        let mut body = answer.into_body();
        let document = http::document(&mut body, name).await?;
        self.check_status(status, &headers, &document, name)?;
        Ok(Answer { headers, document })
    }

    /// Turns an error response into a failure.
    pub(super) fn check_status(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        document: &[u8],
        name: &str,
    ) -> Result<(), Trouble> {
        if status.is_success() {
            return Ok(());
        }
        if status.is_redirection() {
            let region = answer::text(headers, "x-amz-bucket-region");
            let hint = region.map_or_else(String::new, |r| format!(": set AWS_REGION={r}"));
            let text = format!("{name}: the bucket is in another region{hint}");
            return Err(Trouble::never(FailureKind::Usage, text));
        }
        let refusal = answer::refusal(name, status, headers, clock::wall());
        let code = code(document);
        if code.as_deref() == Some("NoSuchBucket") {
            let text =
                format!("there is no bucket {} at this store: check the name", self.place.name());
            return Err(Trouble::never(FailureKind::SourceMissing, text));
        }
        if self.credentials.is_none() && matches!(status.as_u16(), 401 | 403) {
            let text = format!(
                "{name}: the store refuses a request without credentials: set AWS_ACCESS_KEY_ID and \
                 AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
            );
            return Err(Trouble::never(FailureKind::NotAuthorised, text));
        }
        Err(match (refusal, code) {
            (Trouble::Never(f), Some(code)) => {
                Trouble::never(f.kind, format!("{} ({code})", f.text))
            }
            (Trouble::Later(text, pause), Some(code)) => {
                Trouble::Later(format!("{text} ({code})"), pause)
            }
            (other, None) => other,
        })
    }
}

/// A response of a store.
pub(super) struct Answer {
    pub(super) headers: HeaderMap,
    pub(super) document: Vec<u8>,
}

/// The address and the headers of an action, without a signature.
pub(super) fn plain<'a>(action: &(impl S3Action<'a> + Clone)) -> (WebUrl, Headers) {
    let url = action.sign(UNUSED).into();
    let mut action = action.clone();
    let headers = action
        .headers_mut()
        .iter()
        .filter_map(|(name, value)| Some((name.parse().ok()?, value.parse().ok()?)));
    (url, headers.collect())
}

/// The error code of a store's document (`<Code>`), for the user.
pub(super) fn code(document: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(document.get(..document.len().min(4096))?).ok()?;
    let (_, rest) = text.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    let plain = code.len() <= 64 && code.bytes().all(|c| c.is_ascii_alphanumeric());
    plain.then(|| code.to_owned())
}

/// Converts the time of a list (`2026-01-31T12:00:00.000Z`) to the format of headers.
pub(super) fn http_date(text: &str) -> Option<String> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let (day_fits, time_fits) = ((1..=31).contains(&day), hour < 24 && minute < 60 && second < 61);
    // A date after the year 9998 makes `httpdate` panic.
    if !((1970..9999).contains(&year) && (1..=12).contains(&month) && day_fits && time_fits) {
        return None;
    }
    // Days since 1970, with years that start in March so that a leap day comes last.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 719_469;
    let seconds = days * 86_400 + hour * 3_600 + minute * 60 + second;
    let time = SystemTime::UNIX_EPOCH.checked_add(StdDuration::from_secs(seconds))?;
    Some(httpdate::fmt_http_date(time))
}

/// The bucket, for shared use.
pub(super) fn open(name: &str) -> Result<Arc<Bucket>, Failure> {
    Bucket::open(name).map(Arc::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_lists_are_dates_of_headers() {
        for (list, header) in [
            ("1994-11-06T08:49:37.000Z", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("2024-02-29T23:59:59Z", "Thu, 29 Feb 2024 23:59:59 GMT"),
            ("2026-01-01T00:00:00.123Z", "Thu, 01 Jan 2026 00:00:00 GMT"),
        ] {
            assert_eq!(http_date(list).as_deref(), Some(header));
        }
        for bad in [
            "",
            "yesterday",
            "2024-13-01T00:00:00Z",
            "1024-01-01T00:00:00Z",
            "9999-12-31T99:99:99Z",
        ] {
            assert_eq!(http_date(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_list_is_limited_in_number_and_length() {
        let object = |key: &str, etag: &str| Listed {
            key: key.to_owned(),
            size: 0,
            version: Version { etag: Some(etag.to_owned()), modified: None },
        };
        let mut pages = Pages::new(3, 100);
        assert!(pages.add([object("a", "t"), object("b", "t")].into_iter()).is_ok());
        assert!(pages.add(std::iter::empty()).is_ok() && pages.empty == 1);
        // An endless page is read no further than the limit.
        assert!(pages.add(std::iter::repeat_with(|| object("c", "t"))).is_err());
        assert_eq!(pages.all.len(), 3);
        for (key, etag) in [("long".repeat(30), "t".to_owned()), ("k".to_owned(), "t".repeat(99))] {
            let mut pages = Pages::new(usize::MAX, 100);
            assert!(pages.add(std::iter::repeat_with(|| object(&key, &etag))).is_err());
            assert!(pages.all.len() < 2);
        }
    }

    #[test]
    fn waits_for_a_busy_store_double() {
        let waits = (0..MAX_ATTEMPTS + 1).map(|n| RETRY.after(n).as_millis());
        assert!(waits.eq([200, 400, 800, 1600, 3200, 3200]));
    }

    #[test]
    fn an_error_has_a_name() {
        let document = b"<?xml version=\"1.0\"?><Error><Code>NoSuchKey</Code></Error>";
        assert_eq!(code(document).as_deref(), Some("NoSuchKey"));
        assert_eq!(code(b"<Code>x\ny</Code>"), None);
    }
}
