//! Public keys and fingerprints as text, for `known_hosts`, `authorized_keys`, tickets and error
//! messages.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

/// The word before a key.
const ALGORITHM: &str = "packtrain-ed25519";
/// The word before a fingerprint.
const FINGERPRINT: &str = "BLAKE3:";

/// An Ed25519 public key (RFC 8032 section 5.1.5). Its text is `packtrain-ed25519 BASE64`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey(pub [u8; 32]);

/// The BLAKE3 digest of the 32 bytes of a public key. Its text is `BLAKE3:` and base64url.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub [u8; 32]);

/// The text is not a key or fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Not `packtrain-ed25519` and base64 of 32 bytes.
    #[error("not a public key: expected `packtrain-ed25519` and 44 characters of base64")]
    Key,
    /// Not `BLAKE3:` and base64url of 32 bytes.
    #[error("not a fingerprint: expected `BLAKE3:` and 43 characters of base64url")]
    Fingerprint,
}

impl PublicKey {
    /// Its fingerprint.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint(*blake3::hash(&self.0).as_bytes())
    }

    /// Parses the two words of a key's text.
    pub fn from_words(algorithm: &str, base64: &str) -> Result<Self, KeyError> {
        if algorithm != ALGORITHM {
            return Err(KeyError::Key);
        }
        let bytes = STANDARD.decode(base64).map_err(|_| KeyError::Key)?;
        Ok(Self(bytes.try_into().map_err(|_| KeyError::Key)?))
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{ALGORITHM} {}", STANDARD.encode(self.0))
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    /// Parses the first two words; the rest is a comment.
    fn from_str(text: &str) -> Result<Self, KeyError> {
        let mut words = text.split_ascii_whitespace();
        match (words.next(), words.next()) {
            (Some(algorithm), Some(base64)) => Self::from_words(algorithm, base64),
            _ => Err(KeyError::Key),
        }
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{FINGERPRINT}{}", URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl FromStr for Fingerprint {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let base64 = text.strip_prefix(FINGERPRINT).ok_or(KeyError::Fingerprint)?;
        let bytes = URL_SAFE_NO_PAD.decode(base64).map_err(|_| KeyError::Fingerprint)?;
        Ok(Self(bytes.try_into().map_err(|_| KeyError::Fingerprint)?))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn keys_and_fingerprints_read_back(bytes: [u8; 32]) {
            let key = PublicKey(bytes);
            prop_assert_eq!(key.to_string().parse(), Ok(key));
            prop_assert_eq!(format!("{key} me@here").parse(), Ok(key));
            let print = key.fingerprint();
            prop_assert_eq!(print.to_string().parse(), Ok(print));
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,80}") {
            let _ = text.parse::<PublicKey>();
            let _ = text.parse::<Fingerprint>();
        }
    }
}
