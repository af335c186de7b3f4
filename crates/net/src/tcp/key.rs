//! Ed25519 keys that identify the ends of a connection. Their text form is defined by
//! `packtrain-identity`.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The bytes before the 32 key bytes in a `SubjectPublicKeyInfo` (RFC 8410 section 4).
const SPKI_PREFIX: [u8; 12] =
    [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
const PEM_BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const PEM_END: &str = "-----END PRIVATE KEY-----";
/// Maximum size of a key file, in bytes.
const MAX_FILE_BYTES: u64 = 16 << 10;

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The bytes are not an Ed25519 private key in PKCS#8 (RFC 8410).
    #[error("not an Ed25519 private key in PKCS#8")]
    NotPrivate,
    /// Other users may read the private key.
    #[error("{path} can be read by others (mode {mode:o}); run `chmod 600` on it")]
    TooOpen {
        /// The key's file.
        path: String,
        /// Its permission bits.
        mode: u32,
    },
    /// The key's file cannot be read or written.
    #[error("{path}: {error}")]
    File {
        /// The key's file.
        path: String,
        /// The I/O error.
        error: io::Error,
    },
}

/// A public key: 32 bytes (RFC 8032).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey(pub [u8; 32]);

/// A private key with its public key. `Debug` shows only the public key.
pub struct Identity {
    pkcs8: Vec<u8>,
    public: PublicKey,
}

impl Identity {
    /// Creates a key from 32 bytes of entropy ([`entropy::bytes`](packtrain_os::entropy::bytes)).
    ///
    /// # Panics
    /// Never: any 32 bytes are an Ed25519 seed.
    pub fn generate(entropy: [u8; 32]) -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(&entropy).expect("any seed makes a key");
        let pkcs8 = pair.to_pkcs8v1().expect("a key has an encoding").as_ref().to_vec();
        Self { pkcs8, public: public_of(&pair) }
    }

    /// Parses a private key: PKCS#8 as bytes or as PEM.
    ///
    /// # Errors
    /// `NotPrivate`.
    pub fn load(bytes: &[u8]) -> Result<Self, KeyError> {
        let pkcs8 = match std::str::from_utf8(bytes).ok().filter(|text| text.contains(PEM_BEGIN)) {
            Some(pem) => from_pem(pem).ok_or(KeyError::NotPrivate)?,
            None => bytes.to_vec(),
        };
        let pair =
            Ed25519KeyPair::from_pkcs8_maybe_unchecked(&pkcs8).map_err(|_| KeyError::NotPrivate)?;
        let public = public_of(&pair);
        Ok(Self { pkcs8, public })
    }

    /// The private key as PKCS#8, for [`Identity::load`]. Keep it secret.
    pub fn save(&self) -> Vec<u8> {
        self.pkcs8.clone()
    }

    /// Reads a private key from its file, which no other user may read.
    ///
    /// # Errors
    /// `TooOpen`, `NotPrivate`, or an I/O error.
    pub fn load_file(path: &Path) -> Result<Self, KeyError> {
        let shown = path.display().to_string();
        let failed = |error| KeyError::File { path: path.display().to_string(), error };
        let file = File::open(path).map_err(failed)?;
        let mode = file.metadata().map_err(failed)?.mode() & 0o7777;
        if mode & 0o077 != 0 {
            return Err(KeyError::TooOpen { path: shown, mode });
        }
        let mut bytes = Vec::new();
        file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).map_err(failed)?;
        Self::load(&bytes)
    }

    /// Writes the private key as PEM to a new file that only its owner may read.
    ///
    /// # Errors
    /// I/O errors, including `AlreadyExists`: a key is never overwritten.
    pub fn save_file(&self, path: &Path) -> Result<(), KeyError> {
        let write = || {
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
            file.write_all(to_pem(&self.pkcs8).as_bytes())?;
            file.sync_all()
        };
        write().map_err(|error| KeyError::File { path: path.display().to_string(), error })
    }

    /// The public key.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// Signs `text` (RFC 8032). The text begins with its purpose, so that a signature for one
    /// purpose is not valid for another.
    ///
    /// # Panics
    /// Never: the key was parsed when this value was created.
    pub fn sign(&self, text: &[u8]) -> [u8; 64] {
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&self.pkcs8).expect("it was read");
        let mut signature = [0; 64];
        signature.copy_from_slice(pair.sign(text).as_ref());
        signature
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("public", &self.public).finish_non_exhaustive()
    }
}

impl PublicKey {
    /// The key as `SubjectPublicKeyInfo` (RFC 8410), as used by TLS with raw public keys.
    pub fn to_spki(&self) -> Vec<u8> {
        [&SPKI_PREFIX[..], &self.0].concat()
    }

    /// The key in a `SubjectPublicKeyInfo`; `None` for another algorithm.
    pub(crate) fn from_spki(spki: &[u8]) -> Option<Self> {
        Some(Self(spki.strip_prefix(&SPKI_PREFIX)?.try_into().ok()?))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", STANDARD.encode(self.0))
    }
}

fn public_of(pair: &Ed25519KeyPair) -> PublicKey {
    let mut key = [0; 32];
    key.copy_from_slice(pair.public_key().as_ref());
    PublicKey(key)
}

fn to_pem(pkcs8: &[u8]) -> String {
    let body = STANDARD.encode(pkcs8);
    let mut out = format!("{PEM_BEGIN}\n");
    for start in (0..body.len()).step_by(64) {
        out.push_str(&body[start..body.len().min(start + 64)]);
        out.push('\n');
    }
    out + PEM_END + "\n"
}

fn from_pem(text: &str) -> Option<Vec<u8>> {
    let body = text.split_once(PEM_BEGIN)?.1.split_once(PEM_END)?.0;
    STANDARD.decode(body.split_whitespace().collect::<String>()).ok()
}

#[cfg(test)]
#[path = "key_tests.rs"]
mod tests;
