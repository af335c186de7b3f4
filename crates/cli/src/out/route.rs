//! The output of `route`: paths as text, as JSON and for Graphviz.

use std::fmt::Write as _;

use packtrain_plan::route::{Cost, HostId, Matrix, Tree};

use super::object::Object;

/// The path to `to` as JSON. `parent` is the host before the destination, and `cost` that of the
/// worst edge, in seconds per megabit; both are null if there is no path.
pub(crate) fn path(matrix: &Matrix, tree: &Tree, to: HostId) -> Object {
    let named = |host: HostId| matrix.name(host);
    let cost = tree.cost(to);
    Object::default()
        .with("destination", named(to))
        .with("parent", tree.parent(to).map(named))
        .with("cost", cost.is_finite().then(|| cost.seconds_per_megabit()))
        .with("next_hop", tree.next_hop(to).map(named))
        .with("path", tree.path(to).into_iter().map(named).collect::<Vec<_>>())
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
