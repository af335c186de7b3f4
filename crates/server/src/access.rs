//! Access control of a listening server.

use std::io;
use std::path::PathBuf;

use packtrain_transfer::{Failure, FailureKind};

use packtrain_identity::authorized::{AuthorizedError, AuthorizedKeys, Grant};
use packtrain_identity::pubkey::PublicKey;
use packtrain_identity::tickets::{ServerInstance, TicketBook};
use packtrain_runtime::confinement::Confinement;
use packtrain_runtime::handshake::SessionRequest;
use packtrain_runtime::permissions::Permissions;
use rustix::io::Errno;

/// The access settings of a server.
pub(crate) struct AccessRules {
    /// `serve` or `perf`.
    pub(crate) kind: &'static str,
    /// The directory that clients see as `/`, with links resolved; `None` for a server without
    /// files.
    pub(crate) root: Option<PathBuf>,
    pub(crate) authorized: PathBuf,
    pub(crate) tickets: TicketBook,
    /// The permissions of a client without further restrictions.
    pub(crate) base: Permissions,
}

/// Decides about the permissions of clients.
pub(super) struct AccessPolicy {
    pub(super) rules: AccessRules,
    /// The identity of this server for tickets.
    pub(super) instance: ServerInstance,
}

impl AccessPolicy {
    /// The permissions of a client with this key, and perhaps a ticket. What is wrong with the files
    /// of the server is for its owner, whom `warn` tells.
    pub(super) fn admit(
        &self,
        key: &PublicKey,
        ask: &SessionRequest,
        warn: &dyn Fn(String),
    ) -> Result<Permissions, Failure> {
        let keys = AuthorizedKeys::load(&self.rules.authorized).map_err(|e| {
            let text = "the server's authorized_keys cannot be used".to_owned();
            let failure = match &e {
                AuthorizedError::Io { error, .. } => unreadable(error, text),
                _ => denied(text),
            };
            warn(e.to_string());
            failure
        })?;
        let mut allowed = self.rules.base.clone();
        if let Some(grant) = keys.grant(key) {
            allowed.read_only |= grant.read_only;
            allowed.root = self.root_of(grant)?;
            return Ok(allowed);
        }
        let Some(token) = &ask.ticket else {
            return Err(denied(format!(
                "this user's key ({}) is not in the server's authorized_keys: have it added \
                 (packtrain key show prints it), or use a ticket",
                key.fingerprint()
            )));
        };
        let wall = std::time::UNIX_EPOCH + packtrain_os::clock::wall().to_std();
        match self.rules.tickets.redeem(token, self.instance, key, wall) {
            Ok(Ok(rights)) => {
                allowed.restrict_to(&rights);
                allowed.root = self.root_of(&Grant::default())?;
                Ok(allowed)
            }
            Ok(Err(refused)) => Err(denied(refused.to_string())),
            Err(e) => {
                warn(format!("the tickets: {e}"));
                Err(Failure::new(FailureKind::Temporary, "the server's tickets cannot be used"))
            }
        }
    }

    /// Opens a client's directory, because its name may refer to another directory later.
    fn root_of(&self, grant: &Grant) -> Result<Option<Confinement>, Failure> {
        let Some(base) = &self.rules.root else { return Ok(None) };
        let opened = match &grant.root {
            // An absolute directory replaces the base, as the owner of the file wrote it. A
            // relative one is resolved beneath it, whatever links clients have created there.
            Some(own) if own.is_absolute() => Confinement::open(own),
            Some(own) => Confinement::open(base).and_then(|base| base.beneath(own)),
            None => Confinement::open(base),
        };
        opened.map(Some).map_err(|error| {
            if error.kind() == std::io::ErrorKind::CrossesDevices {
                return denied("this key's directory leads out of the served one".to_owned());
            }
            unreadable(&error, format!("this key's directory: {error}"))
        })
    }
}

/// The failure of a file or directory of the server. A want of file descriptors or memory, and a disk
/// that fails, say nothing about the client.
fn unreadable(error: &io::Error, text: String) -> Failure {
    let own = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::IO, Errno::STALE];
    match Errno::from_io_error(error).is_some_and(|errno| own.contains(&errno)) {
        true => Failure::new(FailureKind::Temporary, text),
        false => denied(text),
    }
}

fn denied(text: String) -> Failure {
    Failure::new(FailureKind::NotAuthorised, text)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_relative_root_of_a_key_never_leads_out() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let base = dir.path().join("base");
        fs::create_dir_all(base.join("alice")).expect("fine");
        symlink("..", base.join("up")).expect("fine");
        symlink("alice", base.join("link")).expect("fine");
        symlink(dir.path(), base.join("absolute")).expect("fine");
        let instance = ServerInstance::new(
            "serve",
            PublicKey([1; 32]).fingerprint(),
            "127.0.0.1:1".parse().expect("an address"),
            Some(&base),
        );
        let policy = AccessPolicy {
            rules: AccessRules {
                kind: "serve",
                root: Some(base),
                authorized: dir.path().join("none"),
                tickets: TicketBook::new(dir.path().join("tickets")),
                base: Permissions::default(),
            },
            instance,
        };
        let root =
            |own: &str| policy.root_of(&Grant { root: Some(own.into()), ..Grant::default() });
        for good in ["alice", "link", "alice/../alice", "."] {
            assert!(root(good).is_ok(), "{good}");
        }
        for bad in ["..", "up", "alice/../..", "absolute"] {
            let failure = root(bad).expect_err(bad);
            assert_eq!(failure.kind, FailureKind::NotAuthorised);
            assert!(failure.text.contains("leads out"), "{bad}: {}", failure.text);
        }
        assert!(root("none").expect_err("not there").text.contains("directory"));
        let elsewhere = dir.path().to_str().expect("text");
        assert!(root(elsewhere).is_ok(), "an absolute one is as its owner wrote it");
    }

    #[test]
    fn a_client_without_a_key_learns_nothing_of_the_servers_files() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let authorized = dir.path().join("authorized_keys");
        fs::write(&authorized, "").expect("fine");
        fs::set_permissions(&authorized, fs::Permissions::from_mode(0o666)).expect("fine");
        let print = PublicKey([1; 32]).fingerprint();
        let address = "127.0.0.1:1".parse().expect("an address");
        let policy = AccessPolicy {
            rules: AccessRules {
                kind: "serve",
                root: None,
                authorized,
                tickets: TicketBook::new(dir.path().join("tickets")),
                base: Permissions::default(),
            },
            instance: ServerInstance::new("serve", print, address, None),
        };
        let told = std::cell::RefCell::new(Vec::new());
        let warn = |text| told.borrow_mut().push(text);
        let ask = SessionRequest::default();
        let failure = policy.admit(&PublicKey([2; 32]), &ask, &warn).expect_err("no key");
        assert_eq!(failure.kind, FailureKind::NotAuthorised);
        let place = dir.path().to_str().expect("text");
        assert!(!failure.text.contains(place), "{failure}");
        let told = told.into_inner();
        assert!(told.len() == 1 && told[0].contains(place), "{told:?}");
    }
}
