//! The mode of a name.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::beneath;
use super::parents::Place;

/// Changes the mode of a name without following a link that may replace it. `fchmodat` cannot do
/// that before Linux 6.6, so an `O_PATH` handle is used.
pub(super) fn change_mode_at(place: &Place<'_>, mode: u32) -> Result<(), Errno> {
    let fd = beneath::open_no_follow(place.dir.as_fd(), place.name, OFlags::PATH)?;
    change_mode_of(&fd, place, mode)
}

/// Changes the mode of the file of this `O_PATH` handle, which was opened as `place`.
pub(super) fn change_mode_of(fd: &OwnedFd, place: &Place<'_>, mode: u32) -> Result<(), Errno> {
    let mode = Mode::from_raw_mode(mode & 0o7777);
    let by_handle = format!("/proc/self/fd/{}", fd.as_raw_fd());
    match rustix::fs::chmodat(CWD, by_handle.as_str(), mode, AtFlags::empty()) {
        // /proc is not mounted.
        Err(Errno::NOENT | Errno::NOTDIR) => {
            let flags = OFlags::RDONLY | OFlags::NONBLOCK;
            rustix::fs::fchmod(beneath::open_no_follow(place.dir.as_fd(), place.name, flags)?, mode)
        }
        changed => changed,
    }
}
