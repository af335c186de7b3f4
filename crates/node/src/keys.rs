//! This user's key: made at first use, kept like an ssh key.

use std::io;

use packtrain_net::tcp::Identity;
use packtrain_os::entropy;
use packtrain_transfer::FailureKind;

use crate::api::{KeyInfo, NodeError};
use crate::config::Dirs;
use crate::pubkey::PublicKey;

/// The user's key, made if there is none yet.
pub(crate) fn identity() -> Result<Identity, NodeError> {
    let path = dirs()?.config.join("key");
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

pub(crate) fn dirs() -> Result<Dirs, NodeError> {
    Dirs::from_env().map_err(|e| NodeError::new(FailureKind::Usage, e.to_string()))
}

fn fatal(error: &dyn std::fmt::Display) -> NodeError {
    NodeError::new(FailureKind::Fatal, format!("the key: {error}"))
}

/// The key as the files of this crate hold it.
pub(crate) fn public(identity: &Identity) -> PublicKey {
    PublicKey(identity.public().0)
}

/// What `key show` prints; makes the key at first use.
///
/// # Errors
/// The key can be neither read nor made.
pub fn show() -> Result<KeyInfo, NodeError> {
    let identity = identity()?;
    let key = public(&identity);
    Ok(KeyInfo {
        path: dirs()?.config.join("key"),
        public: key.to_string(),
        fingerprint: key.fingerprint().to_string(),
    })
}
