//! The system call that no safe library offers as we need it.

use packtrain_units::Duration;

/// `struct sched_attr` of sched_setattr(2), as its first version had it.
#[repr(C)]
#[derive(Default)]
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

/// Keep the policy and the priority: only the slice is to change (linux/sched.h).
const KEEP: u64 = 0x08 | 0x10;

/// Asks for time slices of this length for the calling thread: shorter ones come sooner after a
/// wake-up (EEVDF, Linux 6.12), at the same share of the processor and without any privilege.
/// Systems that do not know it ignore it or refuse, and nothing is lost.
pub(super) fn ask_for_slices_of(slice: Duration) {
    let attr = SchedAttr {
        size: size_of::<SchedAttr>() as u32,
        flags: KEEP,
        runtime: slice.as_nanos(),
        ..SchedAttr::default()
    };
    // SAFETY: the structure is live, has the layout that the kernel expects, and its size field
    // is true; thread 0 is the calling one; the kernel only reads.
    let _ = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
}
