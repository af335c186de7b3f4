//! The tokio runtime of the process, for control over TLS, TCP streams and listening. It is created
//! on first use.

use std::sync::OnceLock;

use tokio::runtime::{Builder, Handle, Runtime};

/// Maximum threads that wait for tasks. A session of a server has one, and up to one more while it
/// places payload of its control connection; a client that is not admitted has one.
const MAX_BLOCKING_THREADS: usize = 4096;

/// The runtime's handle.
///
/// # Panics
/// If the system gives no threads, because then the process cannot work.
pub fn handle() -> &'static Handle {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME
        .get_or_init(|| {
            Builder::new_multi_thread()
                .worker_threads(workers())
                .max_blocking_threads(MAX_BLOCKING_THREADS)
                .thread_name("async")
                .enable_all()
                .build()
                .expect("the system gives threads")
        })
        .handle()
}

/// Number of its threads. They mostly wait, except in a depot.
pub fn workers() -> usize {
    std::thread::available_parallelism().map_or(2, |cores| cores.get().clamp(2, 8))
}

/// Starts a named thread; the name is visible in `top -H` and in profiles.
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) {
    let name: String = name.chars().take(15).collect();
    // The system refuses a thread only if it has no memory or no process slots left. A transfer
    // cannot continue then.
    std::thread::Builder::new().name(name).spawn(body).expect("the system gives a thread");
}

/// Nice value of threads that read, write and hash.
const NICE: i32 = 5;

/// Lowers the priority of the calling thread below that of the network threads. A datagram that
/// waits too long in a small socket buffer is lost, while a disk can wait.
pub fn lower_priority() {
    // Without the permission everything works at the normal priority.
    let _ = rustix::process::nice(NICE);
}
