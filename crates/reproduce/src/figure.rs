//! The figure of an experiment, from its runs.

use packtrain_sim::outcome::Sample;

use super::expression;
use super::folder::{Experiment, ExperimentError, PlotSpec, filled, meant};
use super::group::{RunContext, matches};
use crate::plot::{Axis, Figure, Panel, Series, Style};

/// Maximum series in a panel.
const MAX_SERIES: usize = 16;

/// The plotted data of the runs so far.
pub(super) struct Sketch<'a> {
    experiment: &'a Experiment,
    /// By plot.
    series: Vec<Vec<Drawn>>,
}

struct Drawn {
    name: String,
    paper: bool,
    /// Points; values at the same place are averaged.
    points: Vec<(f64, f64, u32)>,
}

impl<'a> Sketch<'a> {
    pub(super) fn new(experiment: &'a Experiment) -> Self {
        let series = experiment.plots.iter().map(|_| Vec::new()).collect();
        Self { experiment, series }
    }

    /// Adds a finished run of a scenario.
    pub(super) fn add(
        &mut self,
        scenario: &str,
        context: &RunContext<'_>,
    ) -> Result<(), ExperimentError> {
        for (plot, series) in self.experiment.plots.iter().zip(&mut self.series) {
            if plot.scenario == scenario && meant(&plot.only, context.row) {
                let drawn = match plot.x.as_str() {
                    "time" => over_time(plot, context, series),
                    _ => point(plot, self.experiment, context, series),
                };
                drawn.map_err(|what| plot.error(context.row, what))?;
            }
        }
        Ok(())
    }

    pub(super) fn panels(self) -> Vec<Panel> {
        let mut names: Vec<String> = Vec::new();
        let plots = self.experiment.plots.iter().zip(self.series);
        plots.map(|(plot, series)| panel(plot, series, &mut names)).collect()
    }
}

fn add(series: &mut Vec<Drawn>, name: String, paper: bool, x: f64, y: f64) {
    let at = series.iter().position(|known| known.name == name).unwrap_or_else(|| {
        series.push(Drawn { name, paper, points: Vec::new() });
        series.len() - 1
    });
    let points = &mut series[at].points;
    match points.iter_mut().find(|point| point.0 == x) {
        Some(point) => (point.1, point.2) = (point.1 + y, point.2 + 1),
        None => points.push((x, y, 1)),
    }
}

fn point(
    plot: &PlotSpec,
    experiment: &Experiment,
    context: &RunContext<'_>,
    series: &mut Vec<Drawn>,
) -> Result<(), String> {
    let x = expression::value(&plot.x, context)?;
    let y = expression::value(&plot.y, context)? / plot.unit;
    add(series, filled(&plot.series, context.row)?, false, x, y);
    if let Some(key) = &plot.paper {
        let key = filled(key, context.row)?;
        if let Some(paper) = experiment.paper.iter().find(|paper| paper.key == key) {
            let name = if plot.series.starts_with('{') { "paper" } else { "" };
            let name = match name {
                "" => format!("paper {}", plot.series.split(['{', ',']).next().unwrap_or_default()),
                name => name.to_owned(),
            };
            add(series, name.trim().to_owned(), true, x, paper.value);
        }
    }
    Ok(())
}

fn over_time(
    plot: &PlotSpec,
    context: &RunContext<'_>,
    series: &mut Vec<Drawn>,
) -> Result<(), String> {
    // A sample without the value is a gap in the curve.
    let value: fn(&Sample) -> f64 = match plot.y.as_str() {
        "goodput" => |sample| sample.goodput.as_bps() as f64,
        "rate" => |sample| sample.pacing_rate.map_or(f64::NAN, |rate| rate.as_bps() as f64),
        "cwnd" => |sample| sample.cwnd.map_or(f64::NAN, |bytes| bytes.get() as f64),
        "acked" => |sample| sample.acked.map_or(f64::NAN, |bytes| bytes.get() as f64),
        "rtt" => |sample| sample.rtt.map_or(f64::NAN, packtrain_units::Duration::as_secs_f64),
        other => {
            return Err(format!(
                "over time there is goodput, rate, cwnd, acked, rtt, no `{other}`"
            ));
        }
    };
    for (index, flow) in context.row.flows.iter().enumerate() {
        if !matches(&flow.name, &plot.flows) {
            continue;
        }
        let name = filled(&plot.series.replace("{flow}", &flow.name), context.row)?;
        let own = context.outcome.samples.iter().filter(|sample| sample.flow == index);
        let points = own.map(|s| (s.at.as_nanos() as f64 / 1e9, value(s) / plot.unit, 1));
        let points: Vec<_> = points.collect();
        match series.iter_mut().find(|known| known.name == name) {
            Some(known) => known.average(points),
            None => series.push(Drawn { name, paper: false, points }),
        }
    }
    Ok(())
}

impl Drawn {
    /// Averages repetitions of a curve over time, which have their points at the same times.
    fn average(&mut self, points: Vec<(f64, f64, u32)>) {
        for (known, point) in self.points.iter_mut().zip(points) {
            (known.1, known.2) = (known.1 + point.1, known.2 + 1);
        }
    }
}

/// `names` are the series that have a colour; the same name has the same colour in every panel.
fn panel(plot: &PlotSpec, mut series: Vec<Drawn>, names: &mut Vec<String>) -> Panel {
    const COLOURS: [usize; 7] = [0, 1, 2, 3, 4, 5, 7];
    // The paper's series is first, so that others are drawn over it; it has the palette's grey.
    series.sort_by_key(|drawn| !drawn.paper);
    let series = series.into_iter().take(MAX_SERIES).map(|drawn| {
        let mut points: Vec<_> =
            drawn.points.iter().map(|(x, y, count)| (*x, y / f64::from(*count))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let style = match (drawn.paper, plot.x == "time") {
            (true, _) => Style::Marks,
            (false, true) => Style::Line,
            (false, false) => Style::Marked,
        };
        let colour = if drawn.paper {
            6
        } else {
            let known = names.iter().position(|name| *name == drawn.name);
            COLOURS[known.unwrap_or(names.len()) % COLOURS.len()]
        };
        if !drawn.paper && !names.contains(&drawn.name) {
            names.push(drawn.name.clone());
        }
        Series { name: drawn.name, style, points, error: Vec::new(), colour }
    });
    let zero = plot.x == "time";
    Panel {
        x: Axis { label: plot.x_label.clone(), log: plot.log_x, zero: zero && !plot.log_x },
        y: Axis { label: plot.y_label.clone(), log: plot.log_y, zero: !plot.log_y },
        series: series.collect(),
        categories: Vec::new(),
    }
}

/// The figure of these panels.
pub(super) fn of(experiment: &Experiment, panels: Vec<Panel>) -> Figure {
    let paper = panels.iter().flat_map(|panel| &panel.series).any(|s| s.style == Style::Marks);
    let subtitle = if paper { "marks alone are the paper's" } else { "" };
    Figure { title: experiment.title.clone(), subtitle: subtitle.to_owned(), panels }
}
