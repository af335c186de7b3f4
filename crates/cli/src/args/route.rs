//! `packtrain route`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

/// Arguments of `route`.
#[derive(Args, Debug)]
#[command(after_help = "FILE is a table of comma-separated values. The first row and the first \
                       column name the hosts. An entry is the bandwidth in Mbit/s from the host of \
                       its row to the host of its column; it is empty if there is no edge. An \
                       optional last column `host` is the bandwidth that the host of the row can \
                       relay. With several tables, oldest first, each edge is forecast from its \
                       series, and the error of the forecast widens epsilon.")]
pub(crate) struct RouteArgs {
    /// Bandwidths between the hosts; - is standard input. May be repeated.
    #[arg(long, value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) matrix: Vec<PathBuf>,
    /// The host at which sessions begin. Required without --tables.
    #[arg(long, value_name = "HOST", required_unless_present = "tables")]
    pub(crate) from: Option<String>,
    /// Write the table of each host for `depot --routes` into this directory, as HOST.routes. The
    /// hosts of the table are addresses or names.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["from", "to", "json", "dot"], value_hint = ValueHint::DirPath)]
    pub(crate) tables: Option<PathBuf>,
    /// For --tables: the port of the depots.
    #[arg(long, value_name = "PORT", default_value = "7879", requires = "tables", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: u16,
    /// Print only the path to this host.
    #[arg(long, value_name = "HOST")]
    pub(crate) to: Option<String>,
    /// How much better an edge must be to replace another: 0.1 is 10 %. `auto` adds the errors of
    /// the forecasts [default: 0.1; with several matrices auto].
    #[arg(long, value_name = "E|auto", value_parser = epsilon, allow_negative_numbers = true)]
    pub(crate) epsilon: Option<EpsilonArg>,
    /// Print one JSON object per destination.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the tree in the language of Graphviz.
    #[arg(long, conflicts_with = "json")]
    pub(crate) dot: bool,
}

/// How much better an edge must be to replace another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum EpsilonArg {
    /// Depends on the errors of the forecasts.
    Auto,
    /// This fraction.
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
