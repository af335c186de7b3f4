//! `demo`.

use crate::api::NodeError;

/// Runs the demo.
///
/// # Errors
/// Anything that differs at the end.
pub fn run() -> Result<(), NodeError> {
    Err(NodeError::new(packtrain_transfer::FailureKind::Usage, "under construction"))
}
