//! `docs/fidelity.md`: a row for each numbered table and figure of the five papers, and for what their
//! text claims (`Section ...`), from the folders of `experiments/` and from
//! `experiments/not-played.toml`. `PACKTRAIN_WRITE_FIDELITY=1` writes
//! the page.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use packtrain_reproduce::{Basis, Experiment, Item, Row, find, kept, names};
use serde::Deserialize;

/// A paper: its name in `experiment.toml`, its title here, and its numbers of tables and figures.
const PAPERS: [(&str, &str, usize, usize); 5] = [
    ("udt", "Gu and Grossman 2003: UDT", 3, 20),
    ("sabul", "Mazzucco et al. 2001: SABUL", 2, 3),
    ("fobs", "Dickens: FOBS and the classifier of loss causes", 2, 7),
    ("lsl", "Swany: LSL, transfers over depots", 0, 11),
    ("streams", "Yildirim, Yin, Kosar: parallel streams", 0, 6),
];

/// One seed: its six runs, 1000 s at 1 Gbit/s, took 18 minutes on a busy machine.
const ONE_SEED: &str = "udt-2003-trend";

/// An item that no folder plays.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NotPlayed {
    paper: String,
    name: String,
    why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NotPlayedFile {
    item: Vec<NotPlayed>,
}

/// A row of the page.
struct Line {
    paper: String,
    name: String,
    folder: String,
    ours: String,
    verdict: String,
    says: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Whether `key` fits `pattern`, whose only `*` is its last letter.
fn fits(pattern: &str, key: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => key.starts_with(start),
        None => key == pattern,
    }
}

/// `agrees`, or how many of the rows differ.
fn verdict(rows: &[&Row], how: &str) -> String {
    let good = rows.iter().filter(|row| row.ok()).count();
    match rows.len() - good {
        0 => format!("agrees{how}"),
        bad => format!("differs in {bad} of {}{how}", rows.len()),
    }
}

/// How many rows agree by the median of all seeds, and how many keep their verdict from the least to
/// the greatest number.
fn spread(experiment: &Experiment, rows: &[&Row]) -> Option<String> {
    let (mut seeds, mut is_random, mut good) = (0, false, 0);
    let ends: Vec<bool> = rows
        .iter()
        .filter_map(|row| {
            let key = match &row.variant {
                Some(variant) => format!("{} @ {variant}", row.key),
                None => row.key.clone(),
            };
            let found = experiment.spread.iter().find(|spread| spread.key == key)?;
            seeds = seeds.max(found.seeds);
            is_random |= found.min < found.max;
            good += usize::from(row.fits(found.median));
            Some([found.min, found.median, found.max].iter().all(|n| row.fits(*n) == row.ok()))
        })
        .collect();
    if ends.is_empty() {
        return None;
    }
    if !is_random {
        return Some(format!("{seeds} seeds give the same: nothing is random"));
    }
    let same = ends.iter().filter(|same| **same).count();
    let all = ends.len();
    let by_median =
        if all < rows.len() { format!("{good} of these {all}") } else { good.to_string() };
    Some(format!("{seeds} seeds: {by_median} by the median, {same} keep their verdict"))
}

fn simulated(experiment: &Experiment, item: &Item) -> (String, String) {
    let result = kept(experiment);
    let rows: Vec<&Row> = result.rows.iter().filter(|row| fits(&item.keys, &row.key)).collect();
    assert!(!rows.is_empty(), "{}: {}: no key fits `{}`", experiment.name, item.name, item.keys);
    let of = |basis: Basis| rows.iter().filter(|r| r.basis == basis).copied().collect::<Vec<_>>();
    let scored = of(Basis::Paper);
    let (rows, how, what) = match (scored.is_empty(), of(Basis::OwnReading)) {
        (false, _) => (scored, "", "numbers"),
        (true, own) if !own.is_empty() => (own, " by our reading", "readings"),
        (true, _) => (rows, "; not scored, inferred or fitted", "numbers"),
    };
    let good = rows.iter().filter(|row| row.ok()).count();
    let variant = rows.iter().find_map(|row| row.variant.as_deref());
    let mut ours = variant.map_or_else(String::new, |variant| format!("`{variant}`, "));
    ours.push_str(&format!("{good} of {} {what}", rows.len()));
    let seed = experiment.expected.first().map_or(1, |row| row.seed);
    match spread(experiment, &rows) {
        Some(spread) => ours.push_str(&format!("; {spread}")),
        None => ours.push_str(&format!("; seed {seed}")),
    }
    (ours, verdict(&rows, how))
}

fn lines() -> Vec<Line> {
    let mut lines = Vec::new();
    for folder in names() {
        let experiment = find(folder).unwrap_or_else(|error| panic!("{error}"));
        for item in &experiment.items {
            let (ours, verdict) = match (&item.ours, item.agrees) {
                (Some(ours), Some(agrees)) => {
                    assert!(experiment.not_simulated.is_some(), "{folder}: its rows say it");
                    (ours.clone(), if agrees { "agrees" } else { "differs" }.to_owned())
                }
                _ => simulated(&experiment, item),
            };
            lines.push(Line {
                paper: item.paper.clone(),
                name: item.name.clone(),
                folder: format!("[{folder}](../experiments/{folder}/README.md)"),
                ours,
                verdict,
                says: item.says.clone(),
            });
        }
    }
    let file: NotPlayedFile = toml::from_str(&read("experiments/not-played.toml"))
        .unwrap_or_else(|error| panic!("not-played.toml: {error}"));
    lines.extend(file.item.into_iter().map(|item| Line {
        paper: item.paper,
        name: item.name,
        folder: "none".to_owned(),
        ours: "none".to_owned(),
        verdict: "not played".to_owned(),
        says: item.why,
    }));
    lines
}

fn page() -> String {
    let lines = lines();
    let mut text = read("crates/reproduce/tests/fidelity/head.txt");
    for (paper, title, tables, figures) in PAPERS {
        text.push_str(&format!("\n## {title}\n\n"));
        text.push_str("| item | experiment | ours | verdict | |\n|---|---|---|---|---|\n");
        let tables = (1..=tables).map(|n| format!("Table {n}"));
        let mut items: Vec<String> =
            tables.chain((1..=figures).map(|n| format!("Figure {n}"))).collect();
        let own: Vec<&Line> = lines.iter().filter(|line| line.paper == paper).collect();
        let claims: BTreeSet<_> = own.iter().map(|line| &line.name).collect();
        items.extend(claims.into_iter().filter(|name| name.starts_with("Section ")).cloned());
        for line in &own {
            let known = items.contains(&line.name);
            assert!(known, "{}: {paper} has no {}", line.folder, line.name);
        }
        for name in items {
            let rows: Vec<_> = own.iter().filter(|line| line.name == name).collect();
            assert!(
                !rows.is_empty(),
                "{paper}, {name}: neither a folder nor not-played.toml has it"
            );
            for Line { folder, ours, verdict, says, .. } in rows {
                let cells = [name.as_str(), folder, ours, verdict, says];
                let whole = cells.iter().all(|cell| !cell.trim().is_empty() && !cell.contains('|'));
                assert!(whole, "{paper}, {name}: a cell is empty or has a `|`");
                text.push_str(&format!("| {} |\n", cells.join(" | ")));
            }
        }
    }
    assert!(lines.iter().all(|line| PAPERS.iter().any(|paper| paper.0 == line.paper)));
    text
}

#[test]
fn the_page_is_that_of_the_folders() {
    let page = page();
    let path = root().join("docs/fidelity.md");
    if std::env::var_os("PACKTRAIN_WRITE_FIDELITY").is_some() {
        std::fs::write(&path, &page).unwrap_or_else(|error| panic!("{error}"));
    }
    assert!(
        read("docs/fidelity.md") == page,
        "docs/fidelity.md is not that of the folders: PACKTRAIN_WRITE_FIDELITY=1 cargo test -p \
         packtrain-reproduce --test fidelity"
    );
}

/// A row that is a draw is shown over several seeds; the first of them is that of `expected.csv`, so
/// a file that was not played again after a change of the program is found.
#[test]
fn the_spreads_are_of_ten_seeds_and_contain_the_expected_numbers() {
    for folder in names() {
        let experiment = find(folder).unwrap_or_else(|error| panic!("{error}"));
        for spread in &experiment.spread {
            let key = &spread.key;
            assert!(spread.seeds >= 10, "{folder}, {key}: {} seeds", spread.seeds);
            let kept = experiment.expected.iter().find(|row| row.key == *key);
            let Some(kept) = kept else { panic!("{folder}, {key}: not in expected.csv") };
            let slack = 1e-9 * kept.ours.abs();
            let (min, max) = (spread.min - slack, spread.max + slack);
            assert!((min..=max).contains(&kept.ours), "{folder}, {key}: {} {spread:?}", kept.ours);
        }
        let is_of_a_paper = experiment.items.iter().any(|item| item.ours.is_none());
        let is_played = experiment.not_simulated.is_none() && is_of_a_paper;
        let is_known = !experiment.spread.is_empty() || folder == ONE_SEED;
        assert!(!is_played || is_known, "{folder} has no spread.csv");
    }
}
