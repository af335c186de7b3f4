//! The question to the kernel that no safe library offers.

/// Whether a time service keeps the clock right; `None` if the kernel does not tell.
#[cfg(target_os = "linux")]
pub(super) fn is_kept() -> Option<bool> {
    // SAFETY: `timex` holds integers alone, for which zeros are valid. No mode bit is set, so the
    // call below changes nothing.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is live and is the one that adjtimex(2) fills.
    let answer = unsafe { libc::adjtimex(&raw mut state) };
    (answer >= 0).then_some(answer != libc::TIME_ERROR && state.status & libc::STA_UNSYNC == 0)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn is_kept() -> Option<bool> {
    None
}
