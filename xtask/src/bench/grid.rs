//! The grid: `native`, `auto` and `tcp` beside other programs on many paths through the product's
//! emulator. `grid/cells.rs` lists the paths, `grid/programs.rs` and `grid/files.rs` the programs.

mod cells;
mod files;
mod judge;
pub(super) mod parse;
mod programs;
mod results;

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::Value;

use super::Plan;
use super::emulation::{self, Failed};
use super::lab::Lab;
use super::machine::{RAISED, SocketLimits};
use super::noise::{Attempt, Idle, Noise};
use super::report::Report;
use super::streams::Place;
use crate::sh;
use cells::{CELLS, Cell, Form, Programs};
use files::Folders;
use programs::{Program, Role, Tools};

/// The short form starts no run that would end after this time.
const SHORT_LIMIT: Duration = Duration::from_secs(585);
/// A run from memory to memory that takes longer is cut off.
const TIMEOUT: Duration = Duration::from_secs(45);

/// What was measured in a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Memory,
    File,
}

/// One run of one program.
#[derive(Clone, Debug)]
struct Run {
    cell: usize,
    part: Part,
    program: String,
    role: Role,
    round: usize,
    /// 1 for the repetition of a doubtful run.
    attempt: usize,
    /// Goodput in bit/s.
    outcome: std::result::Result<f64, String>,
    noise: Option<Noise>,
    links: Value,
}

impl Attempt for Run {
    fn round(&self) -> usize {
        self.round
    }

    fn noise(&self) -> Option<&Noise> {
        self.noise.as_ref()
    }
}

/// Runs the grid in the form that the plan names.
pub(super) fn run(lab: &Lab, plan: &Plan, report: &mut Report) -> Result<()> {
    let form = match plan.form.as_str() {
        "short" => Form::Short,
        "full" => Form::Full,
        other => bail!("--form short or --form full, not {other}"),
    };
    let wanted = |cell: &Cell| plan.wants_case(&cell.name()) && cell.programs(form).is_some();
    let chosen: Vec<usize> = (0..CELLS.len()).filter(|&at| wanted(&CELLS[at])).collect();
    if chosen.is_empty() {
        bail!("no cell of this form has such a name");
    }
    let rounds = plan.grid_rounds.unwrap_or_else(|| cells::rounds(form));
    let place = Place::new(lab)?;
    let tools = Tools::new(lab, &place.0)?;
    let folders = Folders::new(lab, &place.0)?;
    let mut grid = Grid {
        lab,
        form,
        tools: &tools,
        folders: &folders,
        memory: programs::all(lab, &tools),
        copies: files::all(lab, &folders),
        runs: Vec::new(),
        idle: Vec::new(),
        began: Instant::now(),
        limit: (form == Form::Short && plan.cases.is_none()).then_some(SHORT_LIMIT),
    };
    grid.memory.retain(|program| plan.wants(&program.name));
    grid.copies.retain(|program| plan.wants(&program.name));
    eprintln!(
        "{} cells, {rounds} rounds, about {:.0} minutes",
        chosen.len(),
        rounds as f64 * chosen.iter().map(|&at| grid.seconds(at)).sum::<f64>() / 60.0
    );
    for round in plan.first..plan.first + rounds {
        grid.idle.push(Idle::measure());
        for &at in &chosen {
            grid.cell(at, round)?;
        }
        if plan.repeat {
            grid.repeat(round)?;
        }
        results::publish(&grid, &chosen, rounds, report);
        report.save(&sh::root().join("bench/results"))?;
    }
    Ok(())
}

/// A grid in progress.
struct Grid<'a> {
    lab: &'a Lab,
    form: Form,
    tools: &'a Tools,
    folders: &'a Folders,
    memory: Vec<Program>,
    copies: Vec<Program>,
    runs: Vec<Run>,
    /// The machine at the start of each round.
    idle: Vec<Idle>,
    began: Instant,
    limit: Option<Duration>,
}

impl Grid<'_> {
    /// The programs of a cell in one of its parts.
    fn programs(&self, at: usize, part: Part) -> Vec<&Program> {
        selection(&CELLS[at], self.form, part, &self.memory, &self.copies)
    }

    /// What one round of a cell takes, in seconds.
    fn seconds(&self, at: usize) -> f64 {
        let of = |part| -> f64 {
            self.programs(at, part).iter().map(|one| seconds(&CELLS[at], part, one.role)).sum()
        };
        of(Part::Memory) + of(Part::File)
    }

    /// One round of a cell.
    fn cell(&mut self, at: usize, round: usize) -> Result<()> {
        for part in [Part::Memory, Part::File] {
            for index in 0..self.programs(at, part).len() {
                let run = self.measure(at, part, index, round, 0)?;
                self.runs.push(run);
            }
        }
        Ok(())
    }

    /// Repeats the doubtful runs of a round once, when all cells are measured: repetitions take no
    /// time from other cells.
    fn repeat(&mut self, round: usize) -> Result<()> {
        let of_round = self.runs.iter().filter(|run| run.round == round);
        let doubtful = of_round.filter(|run| !run.doubts().is_empty());
        for run in doubtful.cloned().collect::<Vec<_>>() {
            let programs = self.programs(run.cell, run.part);
            let index = programs.iter().position(|program| program.name == run.program);
            if let Some(index) = index.filter(|_| self.in_time(&run)) {
                let again = self.measure(run.cell, run.part, index, round, 1)?;
                self.runs.push(again);
            }
        }
        Ok(())
    }

    /// Whether another run like this one ends before the limit.
    fn in_time(&self, run: &Run) -> bool {
        let needed = Duration::from_secs_f64(seconds(&CELLS[run.cell], run.part, run.role));
        self.limit.is_none_or(|limit| self.began.elapsed() + needed < limit)
    }

    fn measure(
        &self,
        at: usize,
        part: Part,
        index: usize,
        round: usize,
        attempt: usize,
    ) -> Result<Run> {
        let program = self.programs(at, part)[index];
        let mut run = Run {
            cell: at,
            part,
            program: program.name.clone(),
            role: program.role,
            round,
            attempt,
            outcome: Err(String::new()),
            noise: None,
            links: Value::Null,
        };
        if let Some(why) = &program.missing {
            run.outcome = Err(format!("not measured: {why}"));
        } else if !self.in_time(&run) {
            run.outcome = Err("not measured: the time of the short form was over".to_owned());
        } else {
            self.emulate(&mut run, program)?;
        }
        show(&run);
        Ok(run)
    }

    fn emulate(&self, run: &mut Run, program: &Program) -> Result<()> {
        let cell = &CELLS[run.cell];
        let mut far = program.far.clone();
        let mut near = program.near.clone();
        if let Some((other, before)) = programs::reverse_traffic(cell) {
            far.push(other);
            near.insert_str(0, &before);
        }
        let timeout = match run.part {
            Part::Memory => TIMEOUT,
            Part::File => TIMEOUT + Duration::from_secs(files::TIMEOUT.into()),
        };
        match run.part {
            Part::Memory => self.tools.prepare_srt()?,
            Part::File => self.folders.prepare(cell.file)?,
        }
        let limits = program.raised.then(|| SocketLimits::set_quietly(RAISED)).transpose()?;
        let topology = cell.topology();
        let started: Vec<_> = far.into_iter().map(|command| ("far", command)).collect();
        let commands = emulation::Commands {
            topology: &topology,
            seed: run.round,
            started: &started,
            near: &near,
            variables: &[(programs::WINDOW, programs::quinn_window(cell).to_string())],
            timeout,
        };
        let ended = emulation::run(self.lab, "grid", &commands);
        drop(limits);
        match ended {
            Ok(ended) => {
                let value = ended.text().and_then(|text| (program.read)(&text));
                let value = value.and_then(|value| self.goodput(run.part, cell, value));
                run.outcome = value.map_err(|error| format!("{error:#}"));
                run.noise = Some(ended.noise);
                run.links = ended.links;
            }
            Err(Failed { error, noise }) => {
                run.outcome = Err(format!("{error:#}"));
                run.noise = noise;
            }
        }
        self.tools.clear_srt();
        self.folders.clear();
        Ok(())
    }

    /// Bit/s of what a program left: bit/s, or the seconds of a copy, which is checked.
    fn goodput(&self, part: Part, cell: &Cell, value: f64) -> Result<f64> {
        match part {
            Part::Memory => Ok(value),
            Part::File => {
                self.folders.check()?;
                Ok(f64::from(cell.file) * 8e6 / value)
            }
        }
    }
}

/// What one run takes, in seconds.
fn seconds(cell: &Cell, part: Part, role: Role) -> f64 {
    match part {
        Part::Memory => cells::memory_run(cell),
        Part::File => cells::copy_run(cell, !matches!(role, Role::Peer(_))),
    }
}

/// The programs of a cell in a form.
fn selection<'a>(
    cell: &Cell,
    form: Form,
    part: Part,
    memory: &'a [Program],
    copies: &'a [Program],
) -> Vec<&'a Program> {
    let most = match part {
        Part::Memory => cell.programs(form),
        Part::File => cell.file(form).map(|_| match (cell.file_peers, form) {
            (false, _) => Programs::Few,
            (true, Form::Short) => Programs::Single,
            (true, Form::Full) => Programs::All,
        }),
    };
    let all = if part == Part::Memory { memory } else { copies };
    all.iter().filter(|program| most.is_some_and(|most| program.set <= most)).collect()
}

fn show(run: &Run) {
    let again = if run.attempt > 0 { " again" } else { "" };
    let part = if run.part == Part::File { " (file)" } else { "" };
    let value = match &run.outcome {
        Ok(bps) => format!("{:.1} Mbit/s", bps / 1e6),
        Err(why) => why.clone(),
    };
    let doubts = run.doubts();
    let doubts = if doubts.is_empty() {
        String::new()
    } else {
        format!(" (doubtful: {})", doubts.join(", "))
    };
    eprintln!(
        "round {}{again}: {}{part}: {}: {value}{doubts}",
        run.round + 1,
        CELLS[run.cell].name(),
        run.program
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Programs with the names and sets of the real ones.
    fn real() -> (Vec<Program>, Vec<Program>) {
        let one = |role, set| Program {
            name: String::new(),
            role,
            set,
            raised: false,
            far: Vec::new(),
            near: String::new(),
            read: parse::goodput,
            missing: None,
        };
        use Programs::{All, Few, Many, Single};
        // native, cubic, bbr, quinn bbr; tcp, quinn cubic, UDT4, SRT; several streams; raised.
        let memory = [(Few, 4), (Single, 4), (Many, 4), (All, 4)];
        // native, auto, tcp; GridFTP twice, rsync; GridFTP with 16 streams, rclone, SRT.
        let copies = [(Few, 3), (Single, 3), (Many, 0), (All, 3)];
        let make = |sets: [(Programs, usize); 4]| {
            let each = sets.into_iter().flat_map(|(set, n)| std::iter::repeat_n(set, n));
            let role = |set| if set == Few { Role::Native } else { Role::Peer(1) };
            each.map(|set| one(role(set), set)).collect::<Vec<_>>()
        };
        (make(memory), make(copies))
    }

    fn total(form: Form) -> f64 {
        let (memory, copies) = real();
        let of = |cell: &Cell| -> f64 {
            let part = |part| -> f64 {
                let chosen = selection(cell, form, part, &memory, &copies);
                chosen.iter().map(|program| seconds(cell, part, program.role)).sum()
            };
            part(Part::Memory) + part(Part::File)
        };
        CELLS.iter().map(of).sum()
    }

    #[test]
    fn the_short_form_leaves_time_for_repetitions() {
        let seconds = total(Form::Short) * cells::rounds(Form::Short) as f64;
        assert!((420.0..490.0).contains(&seconds), "{seconds}");
    }

    #[test]
    fn the_full_form_is_a_night() {
        let hours = total(Form::Full) * cells::rounds(Form::Full) as f64 / 3600.0;
        assert!((10.0..13.0).contains(&hours), "{hours}");
    }

    #[test]
    fn every_cell_measures_native_and_a_peer() {
        let (memory, copies) = real();
        for cell in CELLS {
            let runs = |form, part| selection(cell, form, part, &memory, &copies).len();
            assert!(runs(Form::Full, Part::Memory) >= 8, "{}", cell.name());
            assert!(runs(Form::Full, Part::File) >= 3, "{}", cell.name());
            assert_eq!(runs(Form::Short, Part::Memory) > 0, cell.short.is_some());
        }
    }
}
