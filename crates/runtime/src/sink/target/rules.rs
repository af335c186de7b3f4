//! The filter rules at the receiving end, with the files of rules of the source.

use std::sync::Arc;

use packtrain_object::TreeFilter;
use packtrain_transfer::message::Options;
use packtrain_transfer::{Failure, FailureKind};
use parking_lot::Mutex;

use super::Target;
use packtrain_service::paths::show;

/// The filter rules, or why they are invalid. A deletion uses those that are known when it begins.
#[derive(Debug)]
pub(super) struct Rules(Mutex<Result<Arc<TreeFilter>, Failure>>);

impl Rules {
    /// The rules of a request.
    pub(super) fn new(options: &Options) -> Self {
        let filters = packtrain_transfer::filters(options);
        Self(Mutex::new(filters.map(|filters| Arc::new(TreeFilter::new(filters)))))
    }
}

impl Target {
    /// Adds a file of rules of the source.
    ///
    /// # Errors
    /// A rule in it is invalid, or there are too many.
    pub(crate) fn add_rules(&self, number: u32, dir: &[u8], text: &[u8]) -> Result<(), Failure> {
        let mut rules = self.rules.0.lock();
        let rules = rules.as_mut().map_err(|failure| failure.clone())?;
        let added = Arc::make_mut(rules).add_file(number, dir, text);
        added.map(drop).map_err(|error| {
            let text = format!("the other end sent filter rules for {}: {error}", show(dir));
            Failure::new(FailureKind::Protocol, text).bounded()
        })
    }

    /// The rules of the request and the files that the source sent so far.
    ///
    /// # Errors
    /// A rule of the request is invalid.
    pub(in super::super) fn filters(&self) -> Result<Arc<TreeFilter>, Failure> {
        self.rules.0.lock().clone()
    }
}
