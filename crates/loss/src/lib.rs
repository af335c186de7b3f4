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

mod basis;
mod cause;
mod classifier;
mod complexity;
mod delay;
mod features;
mod gaussian;
mod hostdrops;
mod labelled;
mod model;
mod own;
pub mod paper;
#[cfg(feature = "read")]
pub mod read;
mod signature;
mod success;
#[cfg(feature = "train")]
pub mod train;
mod window;

pub use basis::Basis;
pub use cause::Cause;
pub use classifier::{Classifier, Evidence, Probabilities, Verdict};
pub use complexity::{ComplexityMeter, WordLength, complexity, distinct_words};
pub use delay::{Delay, DelayAround};
pub use features::{DELAY, Features, PATTERN};
pub use gaussian::{Mixture, Part};
pub use hostdrops::HostDrops;
pub use labelled::{Labelled, LabelledError, Lost, Split};
pub use model::{FORMAT, Model, ModelError, Provenance, SizeModel};
pub use own::{CauseModel, FamilyModel, Opinion, OwnModel, Posterior, Thresholds};
pub use paper::{PaperModel, PaperVerdict};
pub use signature::{Runs, Signature, SignatureError};
pub use success::{success_proportion, successes};
pub use window::{Window, WindowError};

/// The guide's example is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/reference/loss.md")]
struct Guide;
