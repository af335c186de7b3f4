//! The one tokio runtime: control over TLS, TCP streams, listening. Made when first needed.

use std::sync::OnceLock;

use tokio::runtime::{Builder, Handle, Runtime};

/// The runtime's handle.
///
/// # Panics
/// When the system gives no threads, which leaves nothing to do.
pub fn handle() -> &'static Handle {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME
        .get_or_init(|| {
            Builder::new_multi_thread()
                .worker_threads(workers())
                .thread_name("async")
                .enable_all()
                .build()
                .expect("the system gives threads")
        })
        .handle()
}

/// Its threads: they only wait mostly, but for those of a depot.
pub fn workers() -> usize {
    std::thread::available_parallelism().map_or(2, |cores| cores.get().clamp(2, 8))
}

/// A named thread; the name shows in `top -H` and in profiles.
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) {
    let name: String = name.chars().take(15).collect();
    // The system refuses a thread only when it is out of memory or of process slots; a transfer
    // cannot go on then.
    std::thread::Builder::new().name(name).spawn(body).expect("the system gives a thread");
}

/// How far threads that read, write and hash step back.
const NICE: i32 = 5;

/// Makes the calling thread step back for the network's: a datagram that waits too long at a
/// small socket buffer is lost, while a disk can wait.
pub fn step_back() {
    // Where it is refused everything works as before.
    let _ = rustix::process::nice(NICE);
}
