//! Web addresses, which may contain secrets: the query of a signed URL is a password.

use std::fmt;

use url::Url;

/// Replaces a query in messages.
pub const REDACTED: &str = "[redacted]";

/// The address of a file on a web server.
///
/// `Display` and `Debug` omit the query, the user name and the password, so no message, event, row
/// or log line can show them. Only [`WebUrl::with_secrets`] returns the whole address, for the
/// request itself.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct WebUrl(Url);

impl WebUrl {
    /// Parses an address. A fragment is dropped, because it is not sent to servers.
    ///
    /// # Errors
    /// It is not an absolute URL.
    pub fn parse(text: &str) -> Result<Self, url::ParseError> {
        Url::parse(text).map(Self::from)
    }

    /// The whole address with its secrets. Use it only to send a request.
    pub fn with_secrets(&self) -> &Url {
        &self.0
    }

    /// Resolves a reference found at this address.
    ///
    /// # Errors
    /// The reference is malformed.
    pub fn join(&self, reference: &str) -> Result<Self, url::ParseError> {
        self.0.join(reference).map(Self::from)
    }

    /// `https` or `http`.
    pub fn scheme(&self) -> &str {
        self.0.scheme()
    }

    /// The path; it begins with a slash.
    pub fn path(&self) -> &str {
        self.0.path()
    }

    /// The host without brackets; empty if there is none.
    pub fn host(&self) -> &str {
        self.0.host_str().unwrap_or_default().trim_matches(['[', ']'])
    }

    /// Whether it contains a user name or a password.
    pub(crate) fn has_login(&self) -> bool {
        !self.0.username().is_empty() || self.0.password().is_some()
    }
}

impl From<Url> for WebUrl {
    fn from(mut url: Url) -> Self {
        url.set_fragment(None);
        Self(url)
    }
}

impl fmt::Display for WebUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.0.scheme(), self.0.host_str().unwrap_or_default())?;
        if let Some(port) = self.0.port() {
            write!(f, ":{port}")?;
        }
        f.write_str(self.0.path())?;
        if self.0.query().is_some() { write!(f, "?{REDACTED}") } else { Ok(()) }
    }
}

impl fmt::Debug for WebUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

/// A text that is meant as an address, without its query, fragment and login. In a malformed
/// address everything up to the last `@` counts as the login, since a password may contain any
/// character. If a `?` or `#` precedes it, only the scheme remains. Text without `://` is returned
/// unchanged.
pub fn redact(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    if matches!(scheme, "http" | "https")
        && let Ok(url) = WebUrl::parse(text)
    {
        return url.to_string();
    }
    let query = rest.find(['?', '#']);
    if query.is_some_and(|at| rest[at..].contains('@')) {
        return format!("{scheme}://{REDACTED}");
    }
    let (login, rest) = match rest.rsplit_once('@') {
        Some((_, rest)) => (format!("{REDACTED}@"), rest),
        None => (String::new(), rest),
    };
    match rest.find(['?', '#']) {
        Some(at) => format!("{scheme}://{login}{}?{REDACTED}", &rest[..at]),
        None => format!("{scheme}://{login}{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_with_secrets_shows_a_secret() {
        let text = "https://me:hunter2@h.example:8443/a%20b/c?X-Amz-Signature=5ecre7&x=y#z";
        let url = WebUrl::parse(text).unwrap();
        for shown in [url.to_string(), format!("{url:?}"), redact(text)] {
            assert!(shown.contains("h.example:8443/a%20b/c?[redacted]"), "{shown}");
            for secret in ["hunter2", "me:", "5ecre7", "x=y"] {
                assert!(!shown.contains(secret), "{shown}");
            }
        }
        assert!(url.with_secrets().as_str().ends_with("?X-Amz-Signature=5ecre7&x=y"));
        assert!(url.has_login());
        assert_eq!(WebUrl::parse("https://h/a").unwrap().to_string(), "https://h/a");
    }

    #[test]
    fn what_is_no_address_is_redacted_too() {
        assert_eq!(redact("http://[::1/x?secret"), "http://[::1/x?[redacted]");
        assert_eq!(redact("https://me:p/w?x@h:1/a"), "https://[redacted]");
        assert_eq!(redact("https://me:p/w@h h/a"), "https://[redacted]@h h/a");
        assert_eq!(redact("https://h:1/f?user=a@b&sig=5ecre7"), "https://h:1/f?[redacted]");
        assert_eq!(redact("https://h h/x?e=a@b&sig=5ecre7"), "https://[redacted]");
        assert_eq!(redact("s3://buck et/x?e=a@b&sig=5ecre7"), "s3://[redacted]");
        assert_eq!(redact("pt://me:pw@h/a?b"), "pt://[redacted]@h/a?[redacted]");
        assert_eq!(redact("a/file?name"), "a/file?name");
    }
}
