//! Fuzz bodies and seed inputs for parsers that are private to this crate.
//!
//! Compiled only with the feature `fuzzing`. A body must accept any bytes: a panic, a hang or
//! unbounded memory is a finding.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use hyper::StatusCode;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use packtrain_object::Filters;
use packtrain_units::Duration;
use rusty_s3::actions::{CreateMultipartUpload, ListObjectsV2, ListParts};

use super::answer::{self, MAX_PAUSE, Trouble, Version};
use super::checksums::Sum;
use super::http;
use super::list::Found;
use super::s3::{self, Bucket, Listed, MAX_NAME_BYTES, profile};

/// The headers of a response, one `name: value` per line, after a byte for the status.
pub fn http_answer(data: &[u8]) {
    let Some((&status, text)) = data.split_first() else { return };
    let mut headers = HeaderMap::new();
    for line in text.split(|byte| *byte == b'\n') {
        let Some(at) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) = (&line[..at], line[at + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name), HeaderValue::from_bytes(value))
            && headers.len() < 64
        {
            headers.append(name, value);
        }
    }
    if let Some((first, last, total)) = answer::content_range(&headers) {
        assert!(first <= last && total.is_none_or(|total| last < total));
        assert!(last.checked_add(1).is_some());
        assert_eq!(answer::unsatisfied_size(&headers), None);
    }
    let _ = (answer::length(&headers), answer::check_encoding(&headers, "x").is_ok());
    let now = Duration::from_secs(1_763_800_000);
    let status = StatusCode::from_u16(300 + u16::from(status)).expect("three digits");
    if let Trouble::Later(_, Some(pause)) = answer::refusal("x", status, &headers, now) {
        assert!(pause <= MAX_PAUSE, "a pause of {pause}");
    }
    let version = Version::of(&headers);
    assert!(version.agrees(&version) && version.mtime().nanos < 1_000_000_000);
    if let Some(condition) = version.condition() {
        assert!(version.is_known() && !condition.starts_with("W/"));
    }
    for sum in [Sum::of_web(&headers), Sum::of_store(&headers)].into_iter().flatten() {
        assert!(sum.is_whole(), "a digest of {} that is cut", sum.name());
    }
}

/// Seed inputs: the headers that are parsed, one each.
pub fn http_answer_seeds() -> Vec<Vec<u8>> {
    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
    [
        "\x00content-range: bytes 5-9/20\ncontent-length: 5\netag: \"a\"".to_owned(),
        "\x74content-range: bytes */7\nretry-after: 7".to_owned(),
        format!("\x00content-range: bytes 0-{}/*", u64::MAX),
        format!("\x7fretry-after: {date}\nlast-modified: {date}\netag: W/\"b\""),
        format!("\x7flast-modified: W/ {date}"),
        "\x01repr-digest: sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:, md5=:AAAA:"
            .to_owned(),
        "\x02digest: sha=2jmj7l5rSw0yVb/vlWAYkK/YBwk=\ncontent-encoding: gzip".to_owned(),
        "\x03x-amz-checksum-crc64nvme: rosUhgp5mIg=\nx-amz-checksum-type: COMPOSITE".to_owned(),
        "\x04etag: \"d41d8cd98f00b204e9800998ecf8427e\"\nx-amz-server-side-encryption: AES256"
            .to_owned(),
    ]
    .map(String::into_bytes)
    .to_vec()
}

/// The response of a proxy to CONNECT. The parser must not read beyond its end, and its length is
/// limited.
pub fn proxy_answer(data: &[u8]) {
    let mut rest = data;
    let answered = {
        let mut reading = pin!(http::proxy_answer(&mut rest, "host:443"));
        match reading.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answered) => answered,
            Poll::Pending => panic!("memory is always ready"),
        }
    };
    let read = data.len() - rest.len();
    assert!(read <= http::MAX_ANSWER + 1);
    let end = data.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
    if answered.is_ok() {
        assert_eq!(Some(read), end);
    } else if let Err(Trouble::Later(text, _)) = answered {
        assert!(!text.chars().any(char::is_control), "{text:?}");
    }
}

/// Seed inputs: a success, a refusal, a request for a password.
pub fn proxy_answer_seeds() -> Vec<Vec<u8>> {
    let all: [&[u8]; 4] = [
        b"HTTP/1.1 200 Connection established\r\n\r\n\x16\x03\x01",
        b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n\r\n",
        b"HTTP/1.0 503 \x1b[31m busy\r\nServer: x\r\n\r\nbody",
        b"\r\n\r\n",
    ];
    all.map(<[u8]>::to_vec).to_vec()
}

/// Documents of a store: lists of objects and of parts, a created upload, an error.
pub fn s3_document(data: &[u8]) {
    if let Some(code) = s3::code(data) {
        assert!(code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Some(date) = s3::http_date(text) {
        assert!(answer::seconds(&date).is_some(), "{date}");
    }
    if let Ok(page) = ListObjectsV2::parse_response(text) {
        assert!(page.contents.len() <= data.len());
        let mut all = Vec::new();
        for one in page.contents {
            if let Some(date) = one.last_modified.as_deref().and_then(s3::http_date) {
                assert!(answer::seconds(&date).is_some(), "{date}");
            }
            let version = Version { etag: one.etag, modified: None };
            assert!(version.mtime().nanos < 1_000_000_000);
            all.push(Listed { key: one.key, size: one.size.unwrap_or(0), version });
        }
        add_listed(all);
    }
    if let Ok(page) = ListParts::parse_response(text) {
        assert!(page.parts.len() <= data.len());
    }
    if let Ok(created) = CreateMultipartUpload::parse_response(text) {
        assert!(created.upload_id().len() <= data.len());
    }
}

/// Makes entries of a list. Each comes after its directory, and there are no more than limits
/// allow.
fn add_listed(all: Vec<Listed>) {
    let url = "http://h".parse().expect("a URL");
    let place = rusty_s3::Bucket::new(url, rusty_s3::UrlStyle::Path, "b", "us-east-1");
    let bucket = Arc::new(Bucket { place: place.expect("a bucket"), credentials: None });
    let mut found = Found::default();
    let _ = found.add_listed(&bucket, "p/", "p", all, &Filters::default());
    let mut seen = HashSet::new();
    let mut bytes = 0;
    for (entry, _) in &found.entries {
        let above = entry.path.parent().filter(|dir| !dir.is_root());
        assert!(above.is_none_or(|dir| seen.contains(&dir)), "{:?}", entry.path);
        bytes += entry.path.as_bytes().len();
        assert!(seen.insert(entry.path.clone()), "{:?}", entry.path);
    }
    assert!(bytes <= MAX_NAME_BYTES);
}

/// Seed inputs: one document of each kind.
pub fn s3_document_seeds() -> Vec<Vec<u8>> {
    let ns = "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"";
    [
        format!(
            "<?xml version=\"1.0\"?><ListBucketResult {ns}><Name>b</Name><Prefix>p/</Prefix>\
             <KeyCount>1</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>true</IsTruncated>\
             <NextContinuationToken>t</NextContinuationToken><Contents><Key>p/a&amp;b</Key>\
             <LastModified>2024-02-29T23:59:59.000Z</LastModified><ETag>\"x\"</ETag>\
             <Size>5</Size><StorageClass>STANDARD</StorageClass></Contents></ListBucketResult>"
        ),
        format!(
            "<ListPartsResult {ns}><Bucket>b</Bucket><Key>k</Key><UploadId>u</UploadId>\
             <PartNumberMarker>0</PartNumberMarker><NextPartNumberMarker>2</NextPartNumberMarker>\
             <MaxParts>2</MaxParts><IsTruncated>true</IsTruncated><Part><PartNumber>1</PartNumber>\
             <LastModified>2024-02-29T23:59:59Z</LastModified><ETag>\"x\"</ETag><Size>5</Size>\
             </Part></ListPartsResult>"
        ),
        format!(
            "<InitiateMultipartUploadResult {ns}><Bucket>b</Bucket><Key>k</Key>\
             <UploadId>u</UploadId></InitiateMultipartUploadResult>"
        ),
        "<?xml version=\"1.0\"?><Error><Code>NoSuchKey</Code></Error>".to_owned(),
        "2024-02-29T23:59:59Z".to_owned(),
        "9999-12-31T23:59:59Z".to_owned(),
        "9999-12-31T99:99:99Z".to_owned(),
    ]
    .map(String::into_bytes)
    .to_vec()
}

/// The two AWS configuration files, separated by a zero byte, and the variables to look up in them.
pub fn s3_profile(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (secrets, config) = text.split_once('\0').unwrap_or((&text, ""));
    for named in [None, Some("other")] {
        let env = |name: &str| named.filter(|_| name == "AWS_PROFILE").map(str::to_owned);
        let Ok(found) = profile::Settings::from_all(&env, secrets, config) else { continue };
        let lines = |value: &Option<String>| value.as_ref().is_none_or(|v| !v.contains('\n'));
        assert!(lines(&found.region) && lines(&found.endpoint));
        if let Some(credentials) = found.credentials {
            assert!(secrets.contains(credentials.key()) || config.contains(credentials.key()));
        }
    }
}

/// Seed inputs: both files, with a default section and a named one.
pub fn s3_profile_seeds() -> Vec<Vec<u8>> {
    [
        "[default]\naws_access_key_id = A\naws_secret_access_key=a=b\n\n[ other ]\n\
         aws_access_key_id=B\naws_secret_access_key=b\naws_session_token=t\n\0# c\n[default]\n\
         region = eu-1\n[profile other]\nendpoint_url = http://here:9000\ns3 =\n  x = y\n",
        "[other]\naws_access_key_id=B\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}
