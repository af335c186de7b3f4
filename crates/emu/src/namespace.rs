//! Namespaces without names: each lives as long as a descriptor or a program holds it.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};

use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use crate::error::{EmuError, Tried};
use crate::sys;

/// Where the caller is after [`leave`].
#[derive(Debug)]
pub(crate) struct Away {
    /// The user namespace, if one had to be made to be allowed the rest.
    pub(crate) user: Option<OwnedFd>,
    /// The network namespace of the emulator itself.
    pub(crate) net: OwnedFd,
}

/// Leaves the network namespace for a new one, if need be with a user namespace around it. The
/// caller has one thread.
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

/// A further network namespace; the caller is in it afterwards.
pub(crate) fn another() -> Result<OwnedFd, EmuError> {
    sys::unshare(UnshareFlags::NEWNET).map_err(|error| forbidden("network namespaces", &error))?;
    own("net").tried("/proc/self/ns/net")
}

/// Goes (back) to a network namespace.
pub(crate) fn enter(namespace: &impl AsFd) -> Result<(), EmuError> {
    let kind = Some(LinkNameSpaceType::Network);
    rustix::thread::move_into_link_name_space(namespace.as_fd(), kind).tried("setns")
}

/// A user namespace in which we are who we are outside, with every capability: programs that we
/// start see their own files as their own.
fn leave_user() -> io::Result<OwnedFd> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    sys::unshare(UnshareFlags::NEWUSER)?;
    // Without this nobody may map groups (user_namespaces(7)); old kernels do not know it.
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
