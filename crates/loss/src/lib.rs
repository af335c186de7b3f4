//! Why packets were lost, read from which were lost.
//!
//! A protocol with selective acknowledgements knows of each packet of a window whether it
//! arrived: the window's [`Signature`]. A queue that overflows, a receiver that is off its
//! processor and a link that makes errors leave different ones. This crate measures them and
//! names the cause, for any protocol: collect acknowledgements in a [`Window`], hand the
//! signature to a [`Classifier`].
//!
//! Two classifiers stand side by side: that of FOBS (Dickens, "A Lightweight, High Performance
//! Communication Protocol for Grid Computing") exactly as its paper prints it, in [`paper`], and
//! one of our own that looks at several features together, knows when it has seen nothing like
//! this, and takes a host's own drop counter and delays where there are any.
//!
//! No clock, no sockets; files only through [`std::io::Read`] (feature `read`). Models are
//! fitted with the feature `train`.

mod cause;
mod complexity;
mod delay;
mod labelled;
mod signature;
mod success;
mod window;

pub use cause::Cause;
pub use complexity::{ComplexityMeter, WordLength, complexity, distinct_words};
pub use delay::{Delay, DelayAround};
pub use labelled::{Labelled, LabelledError, Lost, Split};
pub use signature::{Runs, Signature, SignatureError};
pub use success::{success_proportion, successes};
pub use window::{Window, WindowError};
