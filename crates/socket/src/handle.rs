//! A handle of a port, which keeps its network thread running.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::shared::Shared;

/// Keeps a port's network thread running.
pub(crate) struct Handle {
    pub(crate) shared: Arc<Shared>,
    local: SocketAddr,
}

impl Handle {
    /// Creates a further handle.
    pub(crate) fn new(shared: Arc<Shared>, local: SocketAddr) -> Self {
        shared.lock().handles += 1;
        Self { shared, local }
    }

    /// The address that the port is bound to.
    pub(crate) fn local(&self) -> SocketAddr {
        self.local
    }
}

impl Clone for Handle {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.shared), self.local)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.lock().handles -= 1;
        self.shared.wake();
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle").field("local", &self.local).finish_non_exhaustive()
    }
}
