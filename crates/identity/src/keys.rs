//! This user's key: made at first use, kept like an ssh key.

use std::io;
use std::path::PathBuf;

use packtrain_net::tcp::Identity;
use packtrain_os::entropy;

use crate::config::{ConfigError, Dirs};
use crate::pubkey::PublicKey;

/// A key, as `key show` prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyInfo {
    /// Where it is kept.
    pub path: PathBuf,
    /// The line for another's `authorized_keys`.
    pub public: String,
    /// Its fingerprint, as errors and `known_hosts` messages show it.
    pub fingerprint: String,
}

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// There is no directory for it.
    #[error(transparent)]
    NoDirectory(#[from] ConfigError),
    /// Its file can be neither read nor made.
    #[error("the key: {0}")]
    File(String),
}

/// The user's key, made if there is none yet.
///
/// # Errors
/// The key can be neither read nor made.
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
        // Another process was faster: its key is the user's.
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

/// The key as the files of this crate hold it.
pub fn public(identity: &Identity) -> PublicKey {
    PublicKey(identity.public().0)
}

/// What `key show` prints; makes the key at first use.
///
/// # Errors
/// The key can be neither read nor made.
pub fn show() -> Result<KeyInfo, KeyError> {
    let identity = identity()?;
    let key = public(&identity);
    Ok(KeyInfo {
        path: Dirs::from_env()?.config.join("key"),
        public: key.to_string(),
        fingerprint: key.fingerprint().to_string(),
    })
}
