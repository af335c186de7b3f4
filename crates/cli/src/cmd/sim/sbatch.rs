//! The Slurm job array of a sweep.

use std::ffi::OsString;

use super::unwritable;
use crate::args::SimRunArgs;
use crate::exit::Exit;
use crate::out::{self, quote};

/// Prints a script for `sbatch`. If a sweep has more runs than an array may have tasks, each task
/// plays several runs.
pub(super) fn print(args: &SimRunArgs, runs: u64) -> Result<(), Exit> {
    let file = std::path::absolute(&args.file)
        .map_err(|error| unwritable(format!("{}: {error}", args.file.display())))?;
    let name = file.file_stem().map_or_else(|| "sweep".into(), |stem| stem.to_string_lossy());
    let good = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' };
    let name: String = name.chars().map(good).take(40).collect();
    let tasks = runs.min(args.array_max);
    let jobs = args.jobs.unwrap_or(1);
    let program = std::env::current_exe().map_or_else(|_| "packtrain".into(), OsString::from);
    let mut words = vec![program, "sim".into(), "run".into(), file.into_os_string()];
    for set in &args.set {
        words.extend(["--set".into(), set.into()]);
    }
    if let Some(seed) = args.seed {
        words.extend(["--seed".into(), seed.to_string().into()]);
    }
    words.extend(["--jobs".into(), jobs.to_string().into(), "--json".into()]);
    let (command, last) = (quote::command(&words), tasks - 1);
    let each = runs.div_ceil(tasks);
    let plural = |n: u64| if n == 1 { "" } else { "s" };
    out::line(&format!(
        "#!/bin/bash\n\
         #SBATCH --job-name=packtrain-{name}\n\
         #SBATCH --array=0-{last}\n\
         #SBATCH --ntasks=1\n\
         #SBATCH --cpus-per-task={jobs}\n\
         #SBATCH --output={name}-%A_%a.log\n\
         # {runs} run{}, at most {each} for each of {tasks} task{}. Afterwards:\n\
         #   cat {name}-results/*.jsonl | grep '\"event\":\"run\"' > {name}.jsonl\n\
         set -eu\n\
         mkdir -p {name}-results\n\
         out={name}-results/$(printf %09d \"$SLURM_ARRAY_TASK_ID\").jsonl\n\
         {command} \\\n    --task \"$SLURM_ARRAY_TASK_ID\" --tasks {tasks} > \"$out.part\"\n\
         mv \"$out.part\" \"$out\"",
        plural(runs),
        plural(tasks),
    ));
    Ok(())
}
