//! `packtrain sim signatures`.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use packtrain_reproduce::signatures::{FAMILIES, Family, Record, Region, find, generate};
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
    };
    let windows = families.len() as u64 * args.per_family;
    let bar = sim::bar(windows, "signatures");
    let make = |i: u64| {
        let family = families[(i / args.per_family) as usize];
        generate(family, region, args.seed, i % args.per_family, args.packets as usize)
    };
    let mut out = open(args)?;
    let (mut missing, mut failed) = (0_u64, None);
    in_order_of(windows, jobs(args.jobs), &make, &mut |record| {
        bar.inc(1);
        match record.map(|record| write(&mut out, &record)) {
            None => missing += 1,
            Some(Ok(())) => {}
            Some(Err(error)) => failed = Some(error),
        }
        failed.is_none()
    });
    bar.finish_and_clear();
    let finished = failed.map_or_else(|| out.finish(), Err);
    finished.map_err(|error| unwritable(format!("{}: {error}", name(args))))?;
    sim::generated(windows - missing, missing, args.packets);
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
