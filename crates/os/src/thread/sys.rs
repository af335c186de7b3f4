//! System calls without a safe wrapper.

use packtrain_units::Duration;

/// `struct sched_attr` of sched_setattr(2), in its first version.
#[repr(C)]
#[derive(Debug, Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

const SIZE: u32 = size_of::<SchedAttr>() as u32;

/// Requests time slices of this length for the calling thread. A thread with shorter slices runs
/// sooner after a wake-up (EEVDF, Linux 6.12), with the same share of the processor and without a
/// privilege. Other systems refuse or ignore the request, which is harmless.
pub(super) fn ask_for_slices_of(slice: Duration) {
    let Some(mut attr) = scheduling() else { return };
    if !matches!(attr.policy as i32, libc::SCHED_OTHER | libc::SCHED_BATCH) {
        return;
    }
    attr.runtime = slice.as_nanos();
    // SAFETY: the structure is live, has the layout that the kernel expects, and its size field
    // is true; thread 0 is the calling one; the kernel only reads.
    let _ = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
}

/// The scheduling attributes of the calling thread.
fn scheduling() -> Option<SchedAttr> {
    let mut attr = SchedAttr::default();
    // SAFETY: the structure is live and the kernel writes at most the stated size into it;
    // thread 0 is the calling one.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, SIZE, 0) };
    // Newer kernels return the size that they would have written.
    attr.size = SIZE;
    (got == 0).then_some(attr)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asking_changes_nothing_else() {
        let Some(before) = scheduling() else { return };
        ask_for_slices_of(Duration::from_micros(200));
        let after = scheduling().unwrap();
        assert_eq!((before.policy, before.nice), (after.policy, after.nice));
        // Kernels before 6.12 report no slice.
        assert!(after.runtime == before.runtime || after.runtime == 200_000, "{after:?}");
    }
}
