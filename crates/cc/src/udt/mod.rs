//! UDT.

mod variant;

pub use variant::Variant;
