//! Over which depots a session should go: the minimax path tree of the LSL paper.
//!
//! A session over depots is a pipeline: it is as fast as its slowest edge (section 4). So the cost
//! of a path is its worst edge, and the best path is the one whose worst edge is best. [`tree`]
//! finds it from one host to all others (appendix A); with an [`Epsilon`] an edge replaces another
//! only if it is clearly better, so that noise in the forecasts does not lengthen paths.
//!
//! Beside the paper: the way *through* a host is an edge too (its future work), an epsilon can
//! come from the errors of the forecasts, and [`choose`] weighs the path found against the direct
//! one for a transfer of a given size. [`PathSelector`] does so again and again while the transfer runs, with
//! what it sees of it.
//!
//! # Errata of the paper
//! Its running time "O(N log N)" cannot hold where every host reaches every other, since that is
//! N^2 edges to read; ours is O(N^2). With an epsilon the tree is no longer optimal: a path of it
//! costs at most (1 + epsilon)^(k - 1) times the best one, of k edges. Its pseudocode goes on
//! relaxing hosts that are in the tree; ours cannot change them (see `relax`).

mod choice;
mod csv;
mod gain;
mod matrix;
mod path_selector;
mod pipeline;
mod tree;
mod ways;

#[cfg(test)]
mod tests;

pub use choice::{Choice, Forecasted, Way, choose};
pub use csv::MatrixError;
pub use gain::{Limit, Response, Symptoms};
pub use matrix::{Cost, HostId, Matrix, NoSuchHost};
pub use path_selector::{Look, PathId, PathSelector, Seen};
pub use pipeline::{Best, Leg, Pipeline, best_of, lasts};
pub use tree::{Epsilon, Hop, Tree, tree, trees};
pub use ways::{Task, ways};
