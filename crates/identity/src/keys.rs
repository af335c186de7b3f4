//! This user's key. It is created at first use and stored like an ssh key.

use std::io;
use std::path::PathBuf;

use packtrain_net::tcp::Identity;
use packtrain_os::entropy;

use crate::config::{ConfigError, Dirs};
use crate::pubkey::PublicKey;

/// A key, for `key show`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyInfo {
    /// Its file.
    pub path: PathBuf,
    /// The line for another user's `authorized_keys`.
    pub public: String,
    /// Its fingerprint, as in errors and messages about `known_hosts`.
    pub fingerprint: String,
}

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The directory for it is unknown.
    #[error(transparent)]
    NoDirectory(#[from] ConfigError),
    /// Its file can be neither read nor created.
    #[error("the key: {0}")]
    File(String),
}

/// The user's key; it is created if there is none.
///
/// # Errors
/// The key can be neither read nor created.
pub fn identity() -> Result<Identity, KeyError> {
    let path = Dirs::from_env()?.config.join("key");
    if path.exists() {
        return Identity::load_file(&path).map_err(|e| fatal(&e));
    }
    if let Some(dir) = path.parent() {
        make_private(dir).map_err(|e| fatal(&format!("{}: {e}", dir.display())))?;
    }
    let identity = Identity::generate(entropy::bytes());
    match identity.save_file(&path) {
        Ok(()) => Ok(identity),
        // Another process created the key first, and it is used.
        Err(_) if path.exists() => Identity::load_file(&path).map_err(|e| fatal(&e)),
        Err(e) => Err(fatal(&e)),
    }
}

fn make_private(dir: &std::path::Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

fn fatal(error: &dyn std::fmt::Display) -> KeyError {
    KeyError::File(error.to_string())
}

/// The key in the type of this crate's files.
pub fn public(identity: &Identity) -> PublicKey {
    PublicKey(identity.public().0)
}

/// The key for `key show`; it is created at first use.
///
/// # Errors
/// The key can be neither read nor created.
pub fn show() -> Result<KeyInfo, KeyError> {
    let identity = identity()?;
    let key = public(&identity);
    Ok(KeyInfo {
        path: Dirs::from_env()?.config.join("key"),
        public: key.to_string(),
        fingerprint: key.fingerprint().to_string(),
    })
}
