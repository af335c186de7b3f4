//! AWS Signature Version 4 in the `Authorization` header.
//!
//! See <https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html>. A signature
//! in the query would appear in the logs of every proxy and server on the path. A header does not,
//! and the store rejects the signature after 15 minutes.

use std::fmt::Write as _;

use aws_lc_rs::{digest, hmac};
use hyper::Method;
use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue, InvalidHeaderValue};
use packtrain_units::escape::hex;
use packtrain_units::{Duration, date};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use rusty_s3::Credentials;
use url::Url;

use crate::http::Headers;

/// Replaces the digest of a body that is not signed.
pub(super) const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
/// All characters except the unreserved ones of RFC 3986.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

const DATE: HeaderName = HeaderName::from_static("x-amz-date");
const CONTENT: HeaderName = HeaderName::from_static("x-amz-content-sha256");
const TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");

/// A request to sign.
pub(super) struct Request<'a> {
    pub(super) method: &'a Method,
    pub(super) url: &'a Url,
    pub(super) region: &'a str,
    /// The SHA-256 digest of the body in hexadecimal digits, or [`UNSIGNED`].
    pub(super) payload: &'a str,
    /// Time since 1970.
    pub(super) at: Duration,
}

/// Adds the time, the digest of the payload, the session token and the signature to `headers`. The
/// signature covers all of them and the host.
///
/// # Errors
/// The key or the token contains characters that a header cannot have.
pub(super) fn sign(
    request: &Request<'_>,
    credentials: &Credentials,
    headers: &mut Headers,
) -> Result<(), InvalidHeaderValue> {
    let at = date::iso8601_basic(request.at);
    let day = at.get(..8).unwrap_or_default();
    headers.push((CONTENT, HeaderValue::from_str(request.payload)?));
    headers.push((DATE, HeaderValue::from_str(&at)?));
    if let Some(token) = credentials.token().filter(|token| !token.is_empty()) {
        let mut token = HeaderValue::from_str(token)?;
        token.set_sensitive(true);
        headers.push((TOKEN, token));
    }
    let (canonical, signed) = canonical_request(request, headers);
    let scope = format!("{day}/{}/s3/aws4_request", request.region);
    let hashed = hex(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref());
    let text = format!("AWS4-HMAC-SHA256\n{at}\n{scope}\n{hashed}");
    let mut key = mac(format!("AWS4{}", credentials.secret()).as_bytes(), day);
    for part in [request.region, "s3", "aws4_request"] {
        key = mac(key.as_ref(), part);
    }
    let signature = hex(mac(key.as_ref(), &text).as_ref());
    let value = format!(
        "AWS4-HMAC-SHA256 Credential={}/{scope},SignedHeaders={signed},Signature={signature}",
        credentials.key()
    );
    let mut value = HeaderValue::from_str(&value)?;
    value.set_sensitive(true);
    headers.push((AUTHORIZATION, value));
    Ok(())
}

/// The text to sign, and the names of the signed headers.
fn canonical_request(request: &Request<'_>, headers: &Headers) -> (String, String) {
    let url = request.url;
    let host = url.host_str().unwrap_or_default();
    let host = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    let mut lines = vec![("host", host)];
    lines.extend(headers.iter().filter_map(|(name, value)| {
        let text = String::from_utf8_lossy(value.as_bytes());
        // Other headers are not signed, because a proxy may add or change them, `Range` too.
        let kept = name.as_str().starts_with("x-amz-") || name.as_str() == "content-md5";
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        kept.then(|| (name.as_str(), words.join(" ")))
    }));
    lines.sort();
    let signed: Vec<&str> = lines.iter().map(|(name, _)| *name).collect();
    let signed = signed.join(";");
    let mut text = format!("{}\n{}\n{}\n", request.method, url.path(), canonical_query(url));
    for (name, value) in &lines {
        let _ = writeln!(text, "{name}:{value}");
    }
    let _ = write!(text, "\n{signed}\n{}", request.payload);
    (text, signed)
}

/// The query with its parts encoded and sorted as the signature requires.
fn canonical_query(url: &Url) -> String {
    let encode = |text: &str| percent_encode(text.as_bytes(), QUERY).to_string();
    let mut parts: Vec<(String, String)> =
        url.query_pairs().map(|(name, value)| (encode(&name), encode(&value))).collect();
    parts.sort();
    let parts: Vec<String> = parts.iter().map(|(name, value)| format!("{name}={value}")).collect();
    parts.join("&")
}

fn mac(key: &[u8], text: &str) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of "Authenticating Requests: Using the Authorization Header" in the Amazon S3
    /// API Reference.
    fn example(method: Method, url: &str, extra: &[(&'static str, &str)], body: &[u8]) -> String {
        let credentials =
            Credentials::new("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY");
        let payload = hex(digest::digest(&digest::SHA256, body).as_ref());
        let request = Request {
            method: &method,
            url: &Url::parse(url).unwrap(),
            region: "us-east-1",
            payload: &payload,
            // Fri, 24 May 2013 00:00:00 GMT
            at: Duration::from_secs(1_369_353_600),
        };
        let named = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        let mut headers: Headers = extra.iter().map(named).collect();
        sign(&request, &credentials, &mut headers).unwrap();
        let (_, value) = headers.last().unwrap();
        assert!(value.is_sensitive());
        value.to_str().unwrap().to_owned()
    }

    #[test]
    fn signatures_are_those_of_the_published_examples() {
        let host = "https://examplebucket.s3.amazonaws.com";
        let credential = "AWS4-HMAC-SHA256 \
             Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,";
        for (query, signature) in [
            ("lifecycle", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
            (
                "max-keys=2&prefix=J",
                "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
            ),
        ] {
            let signed = example(Method::GET, &format!("{host}/?{query}"), &[], b"");
            let wanted = format!(
                "{credential}SignedHeaders=host;x-amz-content-sha256;x-amz-date,\
                 Signature={signature}"
            );
            assert_eq!(signed, wanted, "{query}");
        }
    }

    /// From the signature test suite "get-vanilla-query-order-key-case" and "get-space" come the
    /// rules of sorting and encoding.
    #[test]
    fn queries_are_sorted_and_encoded_once() {
        let query = |text: &str| canonical_query(&Url::parse(text).unwrap());
        assert_eq!(query("https://h/?Param2=value2&Param1=value1"), "Param1=value1&Param2=value2");
        assert_eq!(query("https://h/?p=a%20b%2Fc%2B"), "p=a%20b%2Fc%2B");
        assert_eq!(query("https://h/?uploads"), "uploads=");
        assert_eq!(query("https://h/"), "");
    }
}
