//! `packtrain route`.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::path::Path;

use packtrain_plan::forecast::Battery;
use packtrain_plan::route::{Epsilon, HostId, Matrix, NoSuchHost, tree, trees};
use packtrain_service::{FailureKind, Host, RequestError};
use packtrain_units::DataRate;

use super::input::Input;
use crate::args::{EpsilonArg, RouteArgs};
use crate::exit::{Code, Exit};
use crate::out;

/// Maximum size of a table, in bytes.
const MAX_TABLE_BYTES: u64 = 1 << 30;

/// `packtrain route`.
pub(super) fn run(args: &RouteArgs) -> Result<Code, Exit> {
    let mut tables =
        args.matrix.iter().map(|path| matrix(path)).collect::<Result<Vec<Matrix>, Exit>>()?;
    let several = tables.len() > 1;
    let matrix = if several { forecast(&tables) } else { tables.swap_remove(0) };
    let unknown = |error: NoSuchHost| {
        let some: Vec<&str> = matrix.hosts().take(8).map(|host| matrix.name(host)).collect();
        let more = if matrix.len() > some.len() { ", ..." } else { "" };
        Exit::usage(format!("{error} in the table; its hosts are {}{more}", some.join(", ")))
    };
    let to = args.to.as_deref().map(|name| matrix.host(name)).transpose().map_err(unknown)?;
    let epsilon = match args.epsilon {
        Some(EpsilonArg::Fixed(epsilon)) => Epsilon::Fixed(epsilon),
        None if !several => Epsilon::PAPER,
        Some(EpsilonArg::Auto) | None => Epsilon::AUTOMATIC,
    };
    if let Some(dir) = &args.tables {
        return write_tables(&matrix, epsilon, dir, args.port);
    }
    let from = args.from.as_deref().unwrap_or_default();
    let source = matrix.host(from).map_err(unknown)?;
    let found = tree(&matrix, source, epsilon);
    let shown: Vec<HostId> = matrix
        .hosts()
        .filter(|&host| host != source && to.is_none_or(|to| to == host || to == source))
        .collect();
    if args.dot {
        out::line(&out::route::dot(&matrix, &found, &shown));
    } else if args.json {
        for &host in &shown {
            out::json_line(&out::route::path(&matrix, &found, host));
        }
    } else {
        out::line(&out::route::table(&matrix, &found, &shown));
    }
    Ok(Code::DONE)
}

/// Writes the table of each host that forwards anything: for each destination the next depot, where
/// that is not the destination itself.
fn write_tables(matrix: &Matrix, epsilon: Epsilon, dir: &Path, port: u16) -> Result<Code, Exit> {
    for host in matrix.hosts() {
        let name = matrix.name(host);
        // The names are those of files and of hosts in the tables.
        if Host::parse(name).is_err() {
            let name: String = name.chars().take(60).collect();
            return Err(Exit::usage(format!("{name:?} is no host: write an address or a name")));
        }
    }
    let failed = |path: &Path, error: std::io::Error| {
        let text = format!("{}: {error}", path.display());
        Exit::from(RequestError::new(FailureKind::Fatal, text))
    };
    std::fs::create_dir_all(dir).map_err(|error| failed(dir, error))?;
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    for (host, tree) in matrix.hosts().zip(trees(matrix, epsilon, threads)) {
        let mut text = String::new();
        for hop in tree.table().into_iter().filter(|hop| hop.next != hop.destination) {
            let (to, next) = (matrix.name(hop.destination), matrix.name(hop.next));
            // `Host` writes an IPv6 address in brackets.
            let next = Host::parse(next).map_or_else(|_| next.to_owned(), |host| host.to_string());
            text.push_str(&format!("{to} {next}:{port}\n"));
        }
        let path = dir.join(format!("{}.routes", matrix.name(host)));
        std::fs::write(&path, text).map_err(|error| failed(&path, error))?;
    }
    Ok(Code::DONE)
}

/// One table of forecasts from tables of measurements, oldest first. The hosts are those of the
/// newest table.
fn forecast(tables: &[Matrix]) -> Matrix {
    let newest = &tables[tables.len() - 1];
    let mut made = newest.clone();
    let places: Vec<HashMap<&str, HostId>> = tables
        .iter()
        .map(|table| table.hosts().map(|host| (table.name(host), host)).collect())
        .collect();
    for from in newest.hosts() {
        for to in newest.hosts() {
            // An edge that the newest table lacks is not forecast.
            if from == to || !newest.edge(from, to).is_finite() {
                continue;
            }
            let mut battery = Battery::new();
            for (table, places) in tables.iter().zip(&places) {
                let place = |host| places.get(newest.name(host)).copied();
                let (Some(from), Some(to)) = (place(from), place(to)) else { continue };
                let edge = table.edge(from, to);
                if edge.is_finite() {
                    // Parsed bandwidths are finite numbers, so `learn` cannot refuse them.
                    let _ = battery.learn(edge.bandwidth().as_bps() as f64);
                }
            }
            if let Some(forecast) = battery.forecast() {
                made.set_edge(from, to, DataRate::from_bps(forecast.value.round() as u64));
                made.set_error(from, to, forecast.relative_error);
            }
        }
    }
    made
}

fn matrix(path: &Path) -> Result<Matrix, Exit> {
    let input = Input(path);
    Matrix::from_csv(&input.text(MAX_TABLE_BYTES)?).map_err(|error| input.refused(&error))
}
