//! Namespaces without names: each lives as long as a descriptor or a program holds it.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};

use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use crate::error::{EmuError, Tried};
use crate::sys;

/// The caller's namespaces after [`leave`].
#[derive(Debug)]
pub(crate) struct Away {
    /// The user namespace, if one was needed for the privileges.
    pub(crate) user: Option<OwnedFd>,
    /// The network namespace of the emulator.
    pub(crate) net: OwnedFd,
}

/// Moves the caller, which has one thread, to a new network namespace, if necessary within a new
/// user namespace.
pub(crate) fn leave() -> Result<Away, EmuError> {
    let user = match sys::unshare(UnshareFlags::NEWNET) {
        Ok(()) => None,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            Some(leave_user().map_err(|error| forbidden("user namespaces", &error))?)
        }
        Err(error) => return Err(forbidden("network namespaces", &error)),
    };
    if user.is_some() {
        sys::unshare(UnshareFlags::NEWNET)
            .map_err(|error| forbidden("network namespaces", &error))?;
    }
    Ok(Away { user, net: own("net").tried("/proc/self/ns/net")? })
}

/// Creates a further network namespace and moves the caller there.
pub(crate) fn another() -> Result<OwnedFd, EmuError> {
    sys::unshare(UnshareFlags::NEWNET).map_err(|error| forbidden("network namespaces", &error))?;
    own("net").tried("/proc/self/ns/net")
}

/// Moves the caller to a network namespace.
pub(crate) fn enter(namespace: &impl AsFd) -> Result<(), EmuError> {
    let kind = Some(LinkNameSpaceType::Network);
    rustix::thread::move_into_link_name_space(namespace.as_fd(), kind).tried("setns")
}

/// Creates a user namespace in which this process keeps its user id and has every capability:
/// programs started in it own the user's files.
fn leave_user() -> io::Result<OwnedFd> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    sys::unshare(UnshareFlags::NEWUSER)?;
    // Unprivileged processes may map groups only after this (user_namespaces(7)); old kernels lack
    // it.
    let _ = fs::write("/proc/self/setgroups", "deny");
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))?;
    own("user")
}

fn own(kind: &str) -> io::Result<OwnedFd> {
    Ok(File::open(format!("/proc/self/ns/{kind}"))?.into())
}

fn forbidden(what: &str, error: &io::Error) -> EmuError {
    EmuError::Forbidden(format!("{what}: {error}"))
}
