//! `packtrain route`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

/// What `route` takes.
#[derive(Args, Debug)]
#[command(after_help = "FILE is a table of comma-separated values: the first row and the first \
                        column name the hosts, an entry is the bandwidth in Mbit/s from its row's \
                        host to its column's, empty where there is none. A last column `host` is \
                        what the row's host can pass on. Given several times, oldest first, each \
                        edge is forecast from its series, and its error widens the epsilon.")]
pub(crate) struct RouteArgs {
    /// Bandwidths between the hosts; - for standard input.
    #[arg(long, value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) matrix: Vec<PathBuf>,
    /// The host where sessions begin.
    #[arg(long, value_name = "HOST")]
    pub(crate) from: String,
    /// Only the path to this host.
    #[arg(long, value_name = "HOST")]
    pub(crate) to: Option<String>,
    /// How much better an edge must be to replace another, 0.1 being 10 %; `auto` takes the errors
    /// of the forecasts as well. Left out: 0.1, or `auto` with several matrices.
    #[arg(long, value_name = "E|auto", value_parser = epsilon, allow_negative_numbers = true)]
    pub(crate) epsilon: Option<EpsilonArg>,
    /// Print one JSON object a destination.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the tree for Graphviz.
    #[arg(long, conflicts_with = "json")]
    pub(crate) dot: bool,
}

/// How much better an edge must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum EpsilonArg {
    /// By what the forecasts' errors say.
    Auto,
    /// By this part.
    Fixed(f64),
}

fn epsilon(text: &str) -> Result<EpsilonArg, String> {
    if text == "auto" {
        return Ok(EpsilonArg::Auto);
    }
    match text.parse::<f64>() {
        Ok(value) if (0.0..=10.0).contains(&value) => Ok(EpsilonArg::Fixed(value)),
        _ => Err("a number from 0 to 10 (0.1 is 10 %), or auto".to_owned()),
    }
}
