//! `packtrain sim signatures`.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use packtrain_reproduce::signatures::{
    FAMILIES, Family, LossRates, Record, Region, find, generate_all,
};
use packtrain_sim::sweep::in_order_of;

use super::{jobs, unwritable, usage};
use crate::args::{self, SimSignaturesArgs};
use crate::exit::{Code, Exit};
use crate::out::sim;

/// `packtrain sim signatures`.
pub(super) fn run(args: &SimSignaturesArgs) -> Result<Code, Exit> {
    if args.list {
        FAMILIES.iter().for_each(sim::family);
        return Ok(Code::DONE);
    }
    let families = chosen(&args.families)?;
    let region = match args.region {
        args::SimRegion::Train => Region::Train,
        args::SimRegion::Test => Region::Test,
        args::SimRegion::PaperTrain => Region::PaperTrain,
        args::SimRegion::PaperTest => Region::PaperTest,
    };
    if let Some(family) = families.iter().find(|f| region.is_of_paper() && !f.is_of_paper()) {
        return Err(usage(format!(
            "{} has no window under the paper's conditions: give --families net-paper,cpu-paper",
            family.name
        )));
    }
    let windows = families.len() as u64 * args.per_family;
    let bar = sim::bar(windows, "signatures");
    let losses = args.loss.map_or(LossRates::ALL, |(low, high)| LossRates::within(low, high));
    let make = |i: u64| {
        let family = families[(i / args.per_family) as usize];
        let (number, packets) = (i % args.per_family, args.packets as usize);
        let mut all = generate_all(family, region, args.seed, number, packets, losses);
        all.truncate(if args.beside { all.len() } else { 1 });
        all
    };
    let mut out = open(args)?;
    let (mut made, mut missing, mut failed) = (0_u64, 0_u64, None);
    in_order_of(windows, jobs(args.jobs), &make, &mut |records: Vec<Record>| {
        bar.inc(1);
        missing += u64::from(records.is_empty());
        made += records.len() as u64;
        let written = records.iter().try_for_each(|record| write(&mut out, record));
        failed = written.err();
        failed.is_none()
    });
    bar.finish_and_clear();
    let finished = failed.map_or_else(|| out.finish(), Err);
    finished.map_err(|error| unwritable(format!("{}: {error}", name(args))))?;
    sim::generated(made, missing, args.packets);
    Ok(Code::DONE)
}

fn chosen(names: &[String]) -> Result<Vec<&'static Family>, Exit> {
    let mut families = Vec::new();
    for name in names {
        let wanted = |family: &&Family| match name.as_str() {
            "all" => true,
            "trained" => family.trains,
            "unseen" => !family.trains,
            cause => family.cause == cause,
        };
        let before = families.len();
        match find(name) {
            Some(family) => families.push(family),
            None => families.extend(FAMILIES.iter().filter(wanted)),
        }
        if families.len() == before {
            let known: Vec<_> = FAMILIES.iter().map(|family| family.name).collect();
            let known = known.join(", ");
            return Err(usage(format!("no model is called `{name}`: known are {known}")));
        }
    }
    Ok(families)
}

fn name(args: &SimSignaturesArgs) -> String {
    args.out.as_ref().map_or_else(|| "standard output".to_owned(), |p| p.display().to_string())
}

enum Out {
    Plain(Box<dyn Write>),
    Packed(Box<GzEncoder<BufWriter<File>>>),
}

impl Out {
    fn finish(self) -> io::Result<()> {
        match self {
            Self::Plain(mut out) => out.flush(),
            Self::Packed(out) => out.finish()?.flush(),
        }
    }
}

fn open(args: &SimSignaturesArgs) -> Result<Out, Exit> {
    let Some(path) = &args.out else { return Ok(Out::Plain(Box::new(io::stdout().lock()))) };
    let file = File::create(path).map_err(|e| unwritable(format!("{}: {e}", path.display())))?;
    let file = BufWriter::new(file);
    Ok(match path.extension().is_some_and(|end| end == "gz") {
        true => Out::Packed(Box::new(GzEncoder::new(file, Compression::best()))),
        false => Out::Plain(Box::new(file)),
    })
}

fn write(out: &mut Out, record: &Record) -> io::Result<()> {
    let out: &mut dyn Write = match out {
        Out::Plain(out) => out,
        Out::Packed(out) => out,
    };
    serde_json::to_writer(&mut *out, record)?;
    out.write_all(b"\n")
}
