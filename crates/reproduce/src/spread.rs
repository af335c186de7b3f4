//! The spread of an experiment's numbers over several seeds.

use packtrain_sim::results::RunRow;

use super::cells::{Part, shown};
use super::csv::{self, Spread};
use super::folder::{Experiment, ExperimentError};
use super::play::play;

/// The spread of all numbers of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Spreads(pub Vec<Spread>);

impl Spreads {
    /// The text of `spread.csv`.
    pub fn text(&self) -> String {
        csv::spread(&self.0)
    }
}

/// Plays the runs for `spread_of` (all, if it names none) `seeds` times, each time with other random
/// numbers; the first time with those of `expected.csv`. `on_run` is called for each run.
///
/// # Errors
/// A pattern of `spread_of` fits no number, a scenario is invalid or a run fails, or a row requires a number that no run has.
pub fn spread(
    experiment: &Experiment,
    seeds: u64,
    jobs: usize,
    on_run: &mut impl FnMut(&RunRow),
) -> Result<Spreads, ExperimentError> {
    let cells = experiment.cells(Part::Spread)?;
    let mut numbers: Vec<(String, Vec<f64>)> = Vec::new();
    for round in 0..seeds {
        let played = play(experiment, &cells, round, jobs, on_run)?;
        for (key, variant, sum, count) in played.sums {
            let is_listed = experiment.paper.iter().any(|paper| paper.key == key);
            if !is_listed || !experiment.is_spread(&key, variant.as_deref()) {
                continue;
            }
            let (name, value) = (shown(&key, variant.as_deref()), sum / f64::from(count));
            match numbers.iter_mut().find(|known| known.0 == name) {
                Some(known) => known.1.push(value),
                None => numbers.push((name, vec![value])),
            }
        }
    }
    Ok(Spreads(numbers.into_iter().filter_map(|(key, values)| over(key, values)).collect()))
}

fn over(key: String, mut values: Vec<f64>) -> Option<Spread> {
    values.sort_by(f64::total_cmp);
    let (min, max) = (*values.first()?, *values.last()?);
    let middle = values.len() / 2;
    let median = match values.len() % 2 {
        0 => (values[middle - 1] + values[middle]) / 2.0,
        _ => values[middle],
    };
    Some(Spread { key, seeds: values.len() as u64, median, min, max })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        let of = |values: &[f64]| over("k".into(), values.to_vec()).expect("there are numbers");
        let spread = of(&[3.0, 1.0, 2.0]);
        assert_eq!((spread.seeds, spread.min, spread.median, spread.max), (3, 1.0, 2.0, 3.0));
        assert_eq!(of(&[4.0, 1.0, 2.0, 3.0]).median, 2.5);
        assert_eq!(over("k".into(), Vec::new()), None);
    }

    #[test]
    fn seeds_change_random_losses_and_nothing_else() {
        let files = |name: &str| match name {
            "experiment.toml" => Ok("title = \"t\"\n[[row]]\nkey = \"lost {link.a-b.loss}\"\n\
                value = \"sum.dropped_packets\"\n"
                .to_owned()),
            "scenario.toml" => Ok("duration = \"2s\"\n[[link]]\nfrom = \"a\"\nto = \"b\"\n\
                rate = \"10mbit\"\ndelay = \"1ms\"\nloss = 0\n[[flow]]\nfrom = \"a\"\nto = \"b\"\n\
                bytes = \"1MB\"\n[sweep]\n\"link.a-b.loss\" = [0, 0.05]\n"
                .to_owned()),
            "paper.csv" => {
                Ok("key,value,tolerance,source\nlost 0,0,1,\nlost 0.05,1,1,\n".to_owned())
            }
            _ => Err("is missing".to_owned()),
        };
        let experiment = Experiment::read("new", &files).unwrap_or_else(|e| panic!("{e}"));
        let Spreads(rows) =
            spread(&experiment, 4, 1, &mut |_| {}).unwrap_or_else(|e| panic!("{e}"));
        let rows: Vec<_> = rows.iter().map(|row| (row.key.as_str(), row.min < row.max)).collect();
        assert_eq!(rows, [("lost 0", false), ("lost 0.05", true)]);
    }

    #[test]
    fn only_the_runs_for_spread_of_are_played() {
        let files = |of: &str| {
            let of = of.to_owned();
            move |name: &str| {
                match name {
                "experiment.toml" => Ok(format!(
                    "title = \"t\"\nscored = \"1mbit\"\nspread_of = [{of}]\n[[row]]\nkey = \"rate\"\n\
                     variant = \"{{link.a-b.rate}}\"\nvalue = \"{{link.a-b.rate}} / 1e6\"\n\
                     [[derived]]\nkey = \"twice\"\nvalue = \"2 * {{rate}}\"\n"
                )),
                "scenario.toml" => Ok("duration = \"100ms\"\n[[link]]\nfrom = \"a\"\nto = \"b\"\n\
                    rate = \"1mbit\"\ndelay = \"1ms\"\n[[flow]]\nfrom = \"a\"\nto = \"b\"\n[sweep]\n\
                    \"link.a-b.rate\" = [\"1mbit\", \"2mbit\", \"3mbit\"]\n"
                    .to_owned()),
                "paper.csv" => Ok("key,value,tolerance,source\nrate,1,1,\ntwice,2,1,\n".to_owned()),
                _ => Err("is missing".to_owned()),
            }
            }
        };
        let played = |of: &str| {
            let experiment = Experiment::read("new", &files(of)).unwrap_or_else(|e| panic!("{e}"));
            let mut runs = 0;
            let result = spread(&experiment, 3, 1, &mut |_| runs += 1);
            result.map(|Spreads(rows)| (runs, rows.into_iter().map(|row| row.key).collect()))
        };
        let keys = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
        let scored = played("\"* @ 2mbit\"").unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(scored, (3, keys(&["rate @ 2mbit", "twice @ 2mbit"])));
        let derived = played("\"twice @ 3mbit\"").unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(derived, (3, keys(&["twice @ 3mbit"])));
        let (runs, all) = played("").unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((runs, all.len()), (9, 6));
        let error = played("\"* @ 4mbit\"").expect_err("no such variant").to_string();
        assert!(error.contains("spread_of: `* @ 4mbit` fits no number"), "{error}");
    }

    #[test]
    fn later_rounds_start_their_flows_at_other_times() {
        let files = |jitter: &str| {
            let jitter = jitter.to_owned();
            move |name: &str| match name {
                "experiment.toml" => Ok("title = \"t\"\n[[row]]\nkey = \"share\"\n\
                    value = \"one.delivered_bytes\"\n"
                    .to_owned()),
                "scenario.toml" => Ok(format!(
                    "duration = \"2s\"\n[[link]]\nfrom = \"a\"\nto = \"b\"\nrate = \"10mbit\"\n\
                     delay = \"5ms\"\nqueue = \"10 packets\"\n[[flow]]\nname = \"one\"\nfrom = \"a\"\n\
                     to = \"b\"\n[[flow]]\nname = \"two\"\nfrom = \"a\"\nto = \"b\"\n[sweep]\n{jitter}"
                )),
                "paper.csv" => Ok("key,value,tolerance,source\nshare,1,1,\n".to_owned()),
                _ => Err("is missing".to_owned()),
            }
        };
        let varies = |jitter: &str| {
            let experiment =
                Experiment::read("new", &files(jitter)).unwrap_or_else(|e| panic!("{e}"));
            let Spreads(rows) =
                spread(&experiment, 4, 1, &mut |_| {}).unwrap_or_else(|e| panic!("{e}"));
            rows[0].min < rows[0].max
        };
        assert!(varies("start_jitter = \"100ms\"\n"));
        assert!(!varies("repeat = 1\n"), "nothing is random");
    }
}
