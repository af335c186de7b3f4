//! `packtrain forecast`.

use std::path::Path;

use packtrain_client::forecast::{
    Measurement, PathQuery, depot_forecasts, depot_measurements, from_history, known_paths,
    path_forecast, perfsonar,
};
use packtrain_os::clock;
use packtrain_service::history::HistoryError;
use packtrain_service::{FailureKind, HistoryConfig, Place, RequestError};

use super::input::Input;
use crate::args::{ForecastArgs, When};
use crate::exit::{Code, Exit, print_stderr};
use crate::out;

/// Maximum size of an archive, in bytes.
const MAX_ARCHIVE_BYTES: u64 = 64 << 20;
/// Number of pairs of machines that the error for an unknown name lists.
const MAX_NAMED_PAIRS: usize = 5;

/// `packtrain forecast`.
pub(super) fn run(args: &ForecastArgs) -> Result<Code, Exit> {
    let each = args.export || args.explain || args.since.is_some() || !args.perfsonar.is_empty();
    if args.depot && !each {
        return ask(args);
    }
    let keep = args.keep.keep()?;
    let asked = PathQuery {
        from: args.from.clone(),
        to: args.to.clone(),
        transport: args.transport.clone(),
        since: args.since.map(|when| match when {
            When::At(at) => at,
            When::Ago(span) => clock::wall().saturating_sub(span),
        }),
        least: args.at_least,
    };
    let mut measurements = if args.depot {
        let mut found = depot_measurements(&depot(args)?, &args.to)?;
        found.retain(|one| asked.since.is_none_or(|since| one.at >= since));
        found
    } else {
        from_history(&keep, &asked).map_err(|error| unreadable(&error))?
    };
    for path in &args.perfsonar {
        measurements.extend(archive(path, &asked)?);
    }
    measurements.sort_by_key(|one| one.at);
    let Some(path_forecast) = path_forecast(&measurements) else {
        return Err(if args.depot { unmeasured(args) } else { nothing(&keep, args)? });
    };
    if args.export {
        out::json_line(&perfsonar::write(&measurements));
    } else if args.json {
        let (from, to) = (&args.from, &args.to);
        out::json_line(&out::forecast::path_event(from, to, &path_forecast, args.explain));
    } else {
        out::line(&out::forecast::text(&args.from, &args.to, &path_forecast, args.explain));
    }
    Ok(Code::DONE)
}

/// Prints the measurements of a depot's hop.
fn ask(args: &ForecastArgs) -> Result<Code, Exit> {
    let found = depot_forecasts(&depot(args)?, &args.to)?;
    for series in &found {
        if args.json {
            out::json_line(&out::forecast::hop_event(&args.from, series));
        } else {
            out::line(&out::forecast::hop(&args.from, series));
        }
    }
    if found.is_empty() { Err(unmeasured(args)) } else { Ok(Code::DONE) }
}

/// The depot to ask.
fn depot(args: &ForecastArgs) -> Result<Place, Exit> {
    let no = |error| Exit::usage(format!("--depot: {} is {error}", out::clean(&args.from)));
    args.from.parse().map_err(no)
}

fn unmeasured(args: &ForecastArgs) -> Exit {
    let (from, to) = (out::clean(&args.from), out::clean(&args.to));
    let text = format!("{from} has no measurement of its hop to {to} yet");
    RequestError::new(FailureKind::SourceMissing, text).into()
}

fn unreadable(error: &HistoryError) -> Exit {
    RequestError::new(FailureKind::Fatal, error.to_string()).into()
}

/// The error if no measurement of the path exists; it lists the pairs that have some.
fn nothing(keep: &HistoryConfig, args: &ForecastArgs) -> Result<Exit, Exit> {
    let known = known_paths(keep).map_err(|error| unreadable(&error))?;
    let some: Vec<String> = known
        .iter()
        .take(MAX_NAMED_PAIRS)
        .map(|(from, to, count)| out::clean(&format!("{from} -> {to} ({count})")))
        .collect();
    let instead = if some.is_empty() {
        "it has no transfer at all".to_owned()
    } else {
        format!("it has {}", some.join(", "))
    };
    let text = format!(
        "the history has no usable transfer from {} to {}; {instead}. Copy something there, \
         or give measurements with --perfsonar FILE",
        out::clean(&args.from),
        out::clean(&args.to)
    );
    Ok(RequestError::new(FailureKind::SourceMissing, text).into())
}

fn archive(path: &Path, asked: &PathQuery) -> Result<Vec<Measurement>, Exit> {
    let input = Input(path);
    let text = input.text(MAX_ARCHIVE_BYTES)?;
    let found =
        perfsonar::read(&text, &asked.from, &asked.to).map_err(|error| input.refused(&error))?;
    if found.of_others + found.failed > 0 {
        print_stderr(&format!(
            "{}: {} results between other machines and {} failed ones left out",
            input.name(),
            found.of_others,
            found.failed
        ));
    }
    let recent = |one: &Measurement| asked.since.is_none_or(|since| one.at >= since);
    Ok(found.measurements.into_iter().filter(recent).collect())
}
