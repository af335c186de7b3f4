//! Tests of routes.

use packtrain_units::{ByteCount, DataRate, Duration};
use proptest::prelude::*;

use super::*;

fn mbps(rate: f64) -> DataRate {
    DataRate::from_bps((rate * 1e6).round() as u64)
}

/// The paper's figure 7, as far as it is legible: three sites; costs as printed there are those of
/// the edges between sites, 5.1 for the dotted one.
#[test]
fn edges_within_epsilon_are_the_same() {
    let table = "host,ash,opus,bell\nash,,20,19.6\nopus,20,,200\nbell,19.6,200,\n";
    let matrix = Matrix::from_csv(table).unwrap();
    let [ash, opus, bell] = ["ash", "opus", "bell"].map(|name| matrix.host(name).unwrap());
    let strict = tree(&matrix, ash, Epsilon::Fixed(0.0));
    assert_eq!(strict.path(bell), [ash, opus, bell]);
    let simple = tree(&matrix, ash, Epsilon::PAPER);
    assert_eq!(simple.path(bell), [ash, bell]);
    assert_eq!(simple.next_hop(bell), Some(bell));
    assert_eq!(simple.next_hop(ash), None);
    assert_eq!(simple.parent(ash), Some(ash));
}

#[test]
fn what_a_host_can_pass_on_is_an_edge() {
    let table = ",a,b,c,host\na,,100,10,\nb,100,,100,5\nc,10,100,,\n";
    let matrix = Matrix::from_csv(table).unwrap();
    let [a, b, c] = ["a", "b", "c"].map(|name| matrix.host(name).unwrap());
    let found = tree(&matrix, a, Epsilon::PAPER);
    assert_eq!(found.path(c), [a, c]);
    assert_eq!(found.cost(b), Cost::of(mbps(100.0)), "b itself is reached at full speed");
    let free = Matrix::from_csv(&table.replace("100,5", "100,60")).unwrap();
    let found = tree(&free, a, Epsilon::PAPER);
    assert_eq!(found.path(c), [a, b, c]);
    assert_eq!(found.cost(c), Cost::of(mbps(60.0)));
    let closed = Matrix::from_csv(&table.replace("100,5", "100,0")).unwrap();
    assert_eq!(tree(&closed, a, Epsilon::PAPER).path(c), [a, c]);
}

#[test]
fn no_way_is_said() {
    let matrix = Matrix::from_csv(",a,b,c\na,,1,\nb,1,,\nc,1,1,\n").unwrap();
    let [a, b, c] = ["a", "b", "c"].map(|name| matrix.host(name).unwrap());
    let found = tree(&matrix, a, Epsilon::PAPER);
    assert_eq!((found.path(c), found.parent(c), found.next_hop(c)), (vec![], None, None));
    assert!(!found.cost(c).is_finite());
    assert_eq!(found.table(), [Hop { destination: b, next: b }]);
}

#[test]
fn a_table_with_a_slip_is_refused_by_its_line() {
    for (table, line, says) in [
        ("", 1, "empty"),
        (",a,a\n", 1, "two columns"),
        (",a,\n", 1, "no name"),
        ("x\n", 1, "no host"),
        (",a,b\na,,1\nc,1,\n", 3, "no column"),
        (",a,b\na,,1\na,,1\n", 3, "second row"),
        (",a,b\na,,1,2\n", 2, "more entries"),
        (",a,b\n\n# words\na,\n", 4, "fewer entries"),
        (",a,b\na,,fast\n", 2, "no bandwidth"),
        (",a,b\na,,-1\n", 2, "no bandwidth"),
        (",a,b\na,,NaN\n", 2, "no bandwidth"),
        (",a,b\na,,inf\n", 2, "no bandwidth"),
    ] {
        let error = Matrix::from_csv(table).unwrap_err();
        assert!(error.line == line && error.what.contains(says), "{table:?}: {error}");
    }
}

#[test]
fn a_noisy_forecast_needs_a_larger_gain() {
    let mut matrix = Matrix::from_csv(",a,b,c\na,,100,60\nb,,,100\nc,,,\n").unwrap();
    let [a, b, c] = ["a", "b", "c"].map(|name| matrix.host(name).unwrap());
    let automatic = |matrix: &Matrix| tree(matrix, a, Epsilon::AUTOMATIC).path(c);
    assert_eq!(automatic(&matrix), [a, b, c]);
    matrix.set_error(a, c, 0.3);
    assert_eq!(automatic(&matrix), [a, b, c], "0.3 of 60 is less than 40");
    matrix.set_error(b, c, 0.7);
    matrix.set_error(a, b, 0.7);
    assert_eq!(automatic(&matrix), [a, c]);
}

/// Matrices of up to nine hosts, with missing edges and low relay limits.
fn matrices() -> impl Strategy<Value = Matrix> {
    (2_usize..9).prop_flat_map(|hosts| {
        let edges = proptest::collection::vec(0_u32..60, hosts * hosts);
        let through = proptest::collection::vec(0_u32..200, hosts);
        (edges, through).prop_map(move |(edges, through)| {
            let mut matrix = Matrix::new((0..hosts).map(|at| format!("h{at}")).collect());
            let ids: Vec<HostId> = matrix.hosts().collect();
            for &from in &ids {
                for &to in &ids {
                    let rate = edges[from.index() * hosts + to.index()];
                    matrix.set_edge(from, to, mbps(f64::from(rate.saturating_sub(5))));
                }
                if through[from.index()] < 100 {
                    matrix.set_through(from, mbps(f64::from(through[from.index()])));
                }
            }
            matrix
        })
    })
}

/// Cost and number of edges of the best path, by exhaustive search.
fn best(
    matrix: &Matrix,
    at: HostId,
    to: HostId,
    so_far: f64,
    left: &mut Vec<HostId>,
) -> Option<f64> {
    if at == to {
        return Some(so_far);
    }
    let mut min: Option<f64> = None;
    for next in 0..left.len() {
        let host = left.remove(next);
        let mut cost = so_far.max(matrix.edge(at, host).0);
        if host != to {
            cost = cost.max(matrix.through(host).0);
        }
        if cost.is_finite()
            && let Some(found) = best(matrix, host, to, cost, left)
            && min.is_none_or(|min| found < min)
        {
            min = Some(found);
        }
        left.insert(next, host);
    }
    min
}

/// The cost of a path.
fn cost_of(matrix: &Matrix, path: &[HostId]) -> f64 {
    let edges = path.windows(2).map(|pair| matrix.edge(pair[0], pair[1]).0);
    let inner = path.get(1..path.len().saturating_sub(1)).unwrap_or_default();
    let hosts = inner.iter().map(|&host| matrix.through(host).0);
    edges.chain(hosts).fold(0.0, f64::max)
}

/// The number of edges of the best path with the fewest edges, by breadth-first search over the
/// edges that are good enough.
fn fewest_edges(matrix: &Matrix, from: HostId, to: HostId, cost: f64) -> u32 {
    let mut reached = vec![from];
    for step in 1.. {
        let mut next = reached.clone();
        for &host in &reached {
            if host != from && matrix.through(host).0 > cost {
                continue;
            }
            next.extend(matrix.hosts().filter(|&to| matrix.edge(host, to).0 <= cost));
        }
        if next.contains(&to) {
            return step;
        }
        assert!(step < 100, "there is a best path");
        next.sort();
        next.dedup();
        reached = next;
    }
    unreachable!()
}

/// Appendix A step by step, with relay limits and forecast errors.
fn appendix(matrix: &Matrix, source: HostId, epsilon: Epsilon) -> (Vec<Option<HostId>>, Vec<f64>) {
    let hosts = matrix.len();
    let (mut parent, mut cost) = (vec![None; hosts], vec![f64::INFINITY; hosts]);
    let (mut doubtful, mut left) = (vec![0.0_f64; hosts], vec![true; hosts]);
    let part = |doubtful: f64, cost: f64| {
        let part = doubtful / cost - 1.0;
        if part.is_finite() { part.max(0.0) } else { 0.0 }
    };
    (parent[source.index()], cost[source.index()]) = (Some(source), 0.0);
    while let Some(node) = matrix
        .hosts()
        .filter(|host| left[host.index()] && cost[host.index()].is_finite())
        .min_by(|a, b| cost[a.index()].total_cmp(&cost[b.index()]))
    {
        left[node.index()] = false;
        let through = if node == source { 0.0 } else { matrix.through(node).0 };
        let so_far = cost[node.index()].max(through);
        for end in matrix.hosts().filter(|end| left[end.index()]) {
            let (at, edge) = (end.index(), matrix.edge(node, end).0);
            let (relaxed, mut worse) = (so_far.max(edge), 0.0);
            let factor = match epsilon {
                Epsilon::Fixed(epsilon) => 1.0 + epsilon,
                Epsilon::FromErrors { deviations, min_epsilon } => {
                    let error = matrix.error(node, end);
                    worse =
                        doubtful[node.index()].max(so_far).max(edge * (1.0 + error * deviations));
                    1.0 + libm::hypot(part(worse, relaxed), part(doubtful[at], cost[at]))
                        .max(min_epsilon)
                }
            };
            if relaxed * factor < cost[at] {
                (parent[at], cost[at], doubtful[at]) = (Some(node), relaxed, worse);
            }
        }
    }
    (parent, cost)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Without an epsilon the tree is optimal; with one it is within the bound of the checklist;
    /// its costs are those of its paths; its table agrees with its paths.
    #[test]
    fn paths_are_as_good_as_promised(matrix in matrices(), epsilon in 0.0..0.5_f64) {
        let source = HostId(0);
        let exact = tree(&matrix, source, Epsilon::Fixed(0.0));
        let loose = tree(&matrix, source, Epsilon::Fixed(epsilon));
        for to in matrix.hosts().skip(1) {
            let mut left: Vec<HostId> = matrix.hosts().skip(1).collect();
            let oracle = best(&matrix, source, to, 0.0, &mut left);
            prop_assert_eq!(exact.path(to).is_empty(), oracle.is_none());
            prop_assert_eq!(loose.path(to).is_empty(), oracle.is_none());
            let Some(oracle) = oracle else { continue };
            prop_assert_eq!(exact.cost(to).0, oracle);
            let edges = fewest_edges(&matrix, source, to, oracle) as i32;
            let bound = oracle * (1.0 + epsilon).powi(edges - 1);
            prop_assert!(loose.cost(to).0 <= bound * (1.0 + 1e-12));
            for tree in [&exact, &loose] {
                prop_assert_eq!(tree.cost(to).0, cost_of(&matrix, &tree.path(to)));
                let line = tree.table().into_iter().find(|hop| hop.destination == to);
                prop_assert_eq!(line.map(|hop| hop.next), tree.next_hop(to));
            }
        }
    }

    /// All trees, computed by any number of threads, are exactly those of appendix A.
    #[test]
    fn trees_are_those_of_the_paper(
        matrix in matrices(),
        epsilon in prop_oneof![Just(0.0), 0.0..0.5_f64],
        errors in proptest::collection::vec(0.0..0.6_f64, 81),
        unsure: bool,
        threads in 1..4_usize,
    ) {
        let mut matrix = matrix;
        let epsilon = match unsure {
            true => Epsilon::FromErrors { deviations: 1.0, min_epsilon: epsilon },
            false => Epsilon::Fixed(epsilon),
        };
        for from in matrix.hosts() {
            for to in matrix.hosts().filter(|_| unsure) {
                matrix.set_error(from, to, errors[from.index() * 9 + to.index()]);
            }
        }
        let threads = std::num::NonZeroUsize::new(threads).unwrap();
        let all = trees(&matrix, epsilon, threads);
        for (source, tree) in matrix.hosts().zip(&all) {
            prop_assert_eq!(tree.source(), source);
            let (parents, costs) = appendix(&matrix, source, epsilon);
            for host in matrix.hosts() {
                prop_assert_eq!(tree.parent(host), parents[host.index()]);
                prop_assert_eq!(tree.cost(host).0, costs[host.index()]);
            }
        }
    }

    /// Any text is parsed or refused, and a parsed matrix can be routed.
    #[test]
    fn any_text_is_read_or_refused(text in "[a-c,0-9.\n#-]{0,80}") {
        if let Ok(matrix) = Matrix::from_csv(&text) {
            for source in matrix.hosts() {
                let _ = tree(&matrix, source, Epsilon::AUTOMATIC).table();
            }
        }
    }

    /// The minimum of several edges is at most each of them, and its error is plausible.
    #[test]
    fn a_path_is_at_most_its_worst_edge(
        edges in proptest::collection::vec((1.0..1e4_f64, 0.0..0.8_f64), 1..5)
    ) {
        let edges: Vec<Forecasted> = edges
            .iter()
            .map(|&(rate, error)| Forecasted { rate: mbps(rate), error })
            .collect();
        let path = Forecasted::min_of(&edges).unwrap();
        let worst = edges.iter().map(|edge| edge.rate).min().unwrap();
        prop_assert!(path.rate <= worst.mul_f64(1.001));
        prop_assert!(path.error.is_finite());
    }
}

#[test]
fn the_least_of_two_alike_is_below_both() {
    let edge = Forecasted { rate: mbps(100.0), error: 0.2 };
    let path = Forecasted::min_of(&[edge, edge]).unwrap();
    // Both are above x with probability 1/2 where each is with 0.7071: 0.5450 deviations below.
    let wanted = 100.0 * (1.2_f64.ln() * -0.544_95).exp();
    let found = path.rate.as_bps() as f64 / 1e6;
    assert!((found - wanted).abs() < 0.01, "{found} {wanted}");
    assert!(path.error < 0.2);
}

#[test]
fn depots_must_be_likely_to_pay() {
    let sure = |rate: f64| Forecasted { rate: mbps(rate), error: 0.05 };
    let vague = |rate: f64| Forecasted { rate: mbps(rate), error: 0.5 };
    let way = |direct, depots, bytes: u64, more| {
        choose(direct, depots, ByteCount(bytes), Duration::from_millis(more)).decision
    };
    let large = 1 << 30;
    assert_eq!(way(sure(100.0), sure(200.0), large, 100), Decision::Depots);
    assert_eq!(way(sure(100.0), sure(102.0), large, 100), Decision::Direct, "too little");
    assert_eq!(way(sure(100.0), vague(120.0), large, 100), Decision::Direct, "too unsure");
    assert_eq!(way(sure(100.0), sure(200.0), 100_000, 100), Decision::Direct, "too short");
    assert_eq!(way(sure(0.0), vague(1.0), large, 100), Decision::Depots, "the only way");
    assert_eq!(way(sure(0.0), sure(0.0), large, 100), Decision::Direct, "no way at all");
    let choice = choose(sure(100.0), sure(200.0), ByteCount(large), Duration::from_millis(100));
    assert!(choice.faster > 0.99 && choice.harm < 0.01);
    assert!(choice.direct.is_sorted() && choice.depots.is_sorted());
    assert!((choice.direct[1].as_secs_f64() - 85.9).abs() < 0.1);
}
