//! Selects the depots of a session: the minimax path tree of the LSL paper.
//!
//! A session over depots is a pipeline: it is as fast as its slowest edge (section 4). The cost of
//! a path is therefore its worst edge, and the best path is the one whose worst edge is best.
//! [`tree`] finds it from one host to all others (appendix A). With an [`Epsilon`] an edge replaces
//! another only if it is clearly better, so that noise in the forecasts does not lengthen paths.
//!
//! Beyond the paper: the path *through* a host is an edge too (its future work), an epsilon can be
//! computed from the errors of the forecasts, and [`choose`] compares the path with the direct one
//! for a transfer of a given size. [`PathSelector`] repeats this comparison while the transfer
//! runs, with the measured rates.
//!
//! # Errata of the paper
//! Its running time "O(N log N)" cannot hold for a full mesh, which has N^2 edges to read; ours is
//! O(N^2). With an epsilon the tree is no longer optimal: a path of k edges costs at most (1 +
//! epsilon)^(k - 1) times the best one. Its pseudocode keeps relaxing hosts that are in the tree;
//! ours cannot change them (see `relax`).

mod candidate_paths;
mod chains;
mod choice;
mod csv;
mod gain;
mod matrix;
mod path_selector;
mod pipeline;
mod tree;

#[cfg(test)]
mod tests;

pub use candidate_paths::{PathQuery, candidate_paths};
pub use chains::{MAX_CHAINS, RoundTrips};
pub use choice::{Comparison, Decision, Forecasted, choose};
pub use csv::MatrixError;
pub use gain::{Limit, Response, Symptoms};
pub use matrix::{Cost, HostId, Matrix, NoSuchHost};
pub use path_selector::{PathId, PathReadings, PathSelector, Seen};
pub use pipeline::{Best, Leg, Pipeline, best_of, lasts};
pub use tree::{Epsilon, Hop, Tree, tree, trees};
