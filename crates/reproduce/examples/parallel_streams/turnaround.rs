//! `experiments/parallel-streams-turnaround`: a table and a plot of the measured times.

use packtrain_reproduce::plot::{Axis, Figure, Panel, Series, Style};

use crate::Failure;

/// Name of the path in the data and in the table.
const PATHS: [(&str, &str); 2] = [
    ("losses", "200 Mbit/s, 100 ms, loss 1e-4"),
    ("buffers", "200 Mbit/s, 50 ms, 256 KiB buffers"),
];
/// Name of the method in the data and in the table.
const WAYS: [(&str, &str); 4] = [
    ("one", "one stream"),
    ("paper", "sampled first"),
    ("auto", "auto"),
    ("history", "auto, from history"),
];

/// One transfer.
struct Run {
    path: String,
    megabytes: f64,
    way: String,
    seconds: f64,
    streams: u32,
}

/// All transfers.
pub(crate) struct Runs(Vec<Run>);

impl Runs {
    pub(crate) fn read(text: &str) -> Result<Self, Failure> {
        let run = |line: &str| -> Result<Run, Failure> {
            let fields: Vec<_> = line.split(',').collect();
            let [path, megabytes, way, seconds, streams, ..] = fields[..] else {
                return Err(format!("not a run: {line}").into());
            };
            Ok(Run {
                path: path.to_owned(),
                megabytes: megabytes.parse()?,
                way: way.to_owned(),
                seconds: seconds.parse()?,
                streams: streams.parse()?,
            })
        };
        text.lines().skip(1).map(run).collect::<Result<_, _>>().map(Self)
    }

    fn of(&self, path: &str, way: &str) -> impl Iterator<Item = &Run> {
        self.0.iter().filter(move |run| run.path == path && run.way == way)
    }

    /// A row per size, a column per method, with the numbers of streams beside the seconds.
    pub(crate) fn table(&self) -> String {
        let mut text = String::new();
        for (path, shown) in PATHS {
            let names = WAYS.map(|(_, shown)| shown).join(" | ");
            text.push_str(&format!("| {shown}: MB | {names} |\n|---|---|---|---|---|\n"));
            for first in self.of(path, WAYS[0].0) {
                let cell = |(way, _): (&str, &str)| {
                    let own = self.of(path, way).find(|run| run.megabytes == first.megabytes);
                    own.map_or_else(String::new, |r| format!("{:.1} s ({})", r.seconds, r.streams))
                };
                text.push_str(&format!(
                    "| {} | {} |\n",
                    first.megabytes,
                    WAYS.map(cell).join(" | ")
                ));
            }
            text.push('\n');
        }
        text.trim_end().to_owned()
    }

    pub(crate) fn figure(&self) -> Figure {
        let panel = |(path, shown): (&str, &str)| Panel {
            x: Axis { label: format!("MB, {shown}"), log: true, zero: false },
            y: Axis { label: "seconds".to_owned(), log: true, zero: false },
            series: WAYS
                .iter()
                .enumerate()
                .map(|(colour, (way, shown))| Series {
                    name: (*shown).to_owned(),
                    style: Style::Marked,
                    points: self.of(path, way).map(|r| (r.megabytes, r.seconds)).collect(),
                    error: Vec::new(),
                    colour,
                })
                .collect(),
            categories: Vec::new(),
        };
        Figure {
            title: "How long a copy takes, the choice of streams included".to_owned(),
            subtitle: "two emulated paths, cubic, the whole command".to_owned(),
            panels: PATHS.into_iter().map(panel).collect(),
        }
    }
}
