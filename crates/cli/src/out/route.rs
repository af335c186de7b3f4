//! The output of `route`: paths as text, as JSON and for Graphviz.

use std::fmt::Write as _;

use packtrain_plan::route::{Cost, HostId, Matrix, Tree};
use serde::Serialize;

/// One destination, as JSON.
#[derive(Debug, Serialize)]
pub(crate) struct Line<'a> {
    destination: &'a str,
    /// The host before the destination; none if there is no path.
    parent: Option<&'a str>,
    /// Cost of the worst edge, in seconds per megabit.
    cost: Option<f64>,
    next_hop: Option<&'a str>,
    path: Vec<&'a str>,
}

impl<'a> Line<'a> {
    /// The path to `to`.
    pub(crate) fn new(matrix: &'a Matrix, tree: &Tree, to: HostId) -> Self {
        let named = |host: HostId| matrix.name(host);
        let cost = tree.cost(to);
        Self {
            destination: named(to),
            parent: tree.parent(to).map(named),
            cost: cost.is_finite().then(|| cost.seconds_per_megabit()),
            next_hop: tree.next_hop(to).map(named),
            path: tree.path(to).into_iter().map(named).collect(),
        }
    }
}

/// One line per destination: its bandwidth, the path, and the direct bandwidth.
pub(crate) fn table(matrix: &Matrix, tree: &Tree, shown: &[HostId]) -> String {
    let name = |host: HostId| super::clean(matrix.name(host));
    let wide = shown.iter().map(|&host| name(host).chars().count()).max().unwrap_or(0).max(11);
    let mut text = format!("{:wide$}  {:>12}  {:>12}  path", "destination", "bandwidth", "direct");
    for &host in shown {
        let path: Vec<String> = tree.path(host).into_iter().map(name).collect();
        let way = if path.is_empty() { "no way".to_owned() } else { path.join(" > ") };
        let direct = matrix.edge(tree.source(), host);
        let _ = write!(
            text,
            "\n{:wide$}  {:>12}  {:>12}  {way}",
            name(host),
            rate(tree.cost(host)),
            rate(direct)
        );
    }
    text
}

fn rate(cost: Cost) -> String {
    if cost.is_finite() { cost.bandwidth().to_string() } else { "-".to_owned() }
}

/// The tree for Graphviz: the edges of the paths to `shown`, with their bandwidths.
pub(crate) fn dot(matrix: &Matrix, tree: &Tree, shown: &[HostId]) -> String {
    let quoted = |host: HostId| {
        let name = super::clean(matrix.name(host));
        format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))
    };
    let mut text = String::from("digraph routes {\n  rankdir=LR;\n  node [shape=box];\n");
    let _ = writeln!(text, "  {} [style=bold];", quoted(tree.source()));
    let mut drawn = vec![false; matrix.len()];
    for &to in shown {
        let path = tree.path(to);
        if path.is_empty() {
            let _ = writeln!(text, "  {} [style=dotted];", quoted(to));
        }
        for pair in path.windows(2) {
            if std::mem::replace(&mut drawn[pair[1].index()], true) {
                continue;
            }
            let edge = rate(matrix.edge(pair[0], pair[1]));
            let _ =
                writeln!(text, "  {} -> {} [label=\"{edge}\"];", quoted(pair[0]), quoted(pair[1]));
        }
    }
    text.push('}');
    text
}
