//! Determines why packets were lost from the pattern of lost packets.
//!
//! A protocol with selective acknowledgements knows for each packet of a window whether it arrived:
//! the window's [`Signature`]. An overflowing queue, a receiver that loses its processor and an
//! erroneous link leave different signatures. This crate measures them and determines the cause,
//! for any protocol: collect acknowledgements in a [`Window`], and pass the signature to a
//! [`Classifier`].
//!
//! There are two classifiers: that of FOBS (Dickens, "A Lightweight, High Performance Communication
//! Protocol for Grid Computing"), exactly as in its paper, in [`paper`]; and our own, which
//! combines several features, recognises windows unlike its training data, and uses a host's own
//! drop counter and delays where available.
//!
//! No clock, no sockets; files only through [`std::io::Read`] (feature `read`). The feature `train`
//! fits models.

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
pub use own::{Assessment, CauseModel, FamilyModel, OwnModel, Posterior, Thresholds};
pub use paper::{PaperModel, PaperVerdict};
pub use signature::{Runs, Signature, SignatureError};
pub use success::{success_proportion, successes};
pub use window::{Window, WindowError};

/// The guide's example is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/reference/loss.md")]
struct Guide;
