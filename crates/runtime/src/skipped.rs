//! What the walk over the sources skipped.

use packtrain_service::paths::show;
use packtrain_service::{Notice, NoticeLevel};

/// The pipes, sockets and devices that a walk skipped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Their number.
    pub count: u64,
    /// The first of them.
    pub first: Vec<u8>,
}

impl Skipped {
    /// Counts the one at `path`.
    pub fn add(&mut self, path: Vec<u8>) {
        if self.count == 0 {
            self.first = path;
        }
        self.count += 1;
    }

    /// The notice for the user.
    pub fn notice(&self) -> Notice {
        let first = show(&self.first);
        let text = match self.count {
            // A peer may say 0.
            0 | 1 => format!("{first}: a pipe, socket or device is not copied"),
            n => format!("{first} and {} more: pipes, sockets and devices are not copied", n - 1),
        };
        Notice::new(NoticeLevel::Warning, text)
    }
}
