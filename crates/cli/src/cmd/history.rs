//! `history`: lists transfers.

use packtrain_os::clock;
use packtrain_service::history::{Row, Wanted, find};
use packtrain_service::{FailureKind, RequestError};

use crate::args::{Export, HistoryArgs, When};
use crate::exit::{Code, Exit, print_stderr};
use crate::out::history;

/// Default number of rows of a list.
const DEFAULT_ROWS: u32 = 20;

/// In place of an id: the transfer that began last.
const LAST: &str = "last";

/// `packtrain history`.
pub(crate) fn run(args: &HistoryArgs) -> Result<Code, Exit> {
    let keep = args.keep.keep()?;
    let export = if args.json { Some(Export::Jsonl) } else { args.export };
    let wanted = wanted(args, export.is_some())?;
    let failed = |text: String| RequestError::new(FailureKind::Fatal, text);
    let rows = find(&keep, &wanted).map_err(|error| failed(error.to_string()))?;
    if let Some(id) = args.id.as_ref().filter(|id| *id != LAST || rows.is_empty()) {
        only(id, &rows)?;
    }
    match export {
        Some(Export::Csv) => history::csv(&rows),
        Some(Export::Jsonl) => history::json_lines(&rows),
        None if args.id.is_some() => rows.iter().for_each(history::whole),
        None if rows.is_empty() => {
            let place = keep.place().map_or_else(|| "none".to_owned(), |place| place.to_string());
            print_stderr(&format!("no transfer to show: the history is {place}"));
        }
        None => history::list(&rows),
    }
    Ok(Code::DONE)
}

fn wanted(args: &HistoryArgs, export: bool) -> Result<Wanted, Exit> {
    let is_last = args.id.as_deref() == Some(LAST);
    let id = args.id.as_ref().filter(|_| !is_last).map(|id| id.to_ascii_lowercase());
    if id.as_ref().is_some_and(|id| !id.bytes().all(|b| b.is_ascii_hexdigit())) {
        return Err(Exit::usage(
            "write last, or an id, of digits and the letters a to f: `packtrain history` lists them",
        ));
    }
    let most = match args.limit {
        _ if is_last => Some(1),
        Some(0) => None,
        Some(n) => Some(n),
        None if export || id.is_some() => None,
        None => Some(DEFAULT_ROWS),
    };
    let since = args.since.map(|when| match when {
        When::At(at) => at,
        When::Ago(span) => clock::wall().saturating_sub(span),
    });
    Ok(Wanted {
        id,
        host: args.host.clone(),
        transport: args.transport.clone(),
        since,
        failed: args.failed,
        most,
        ..Wanted::default()
    })
}

/// Checks that the beginning of an id identifies one transfer.
fn only(id: &str, rows: &[Row]) -> Result<(), Exit> {
    let exact = |row: &&Row| row.id == id.to_ascii_lowercase();
    if rows.is_empty() {
        let text = format!("no transfer has the id {id}: `packtrain history` lists them");
        return Err(RequestError::new(FailureKind::SourceMissing, text).into());
    }
    if rows.len() > 1 && !rows.iter().any(|row| exact(&row)) {
        let some: Vec<&str> = rows.iter().take(5).map(|row| row.id.as_str()).collect();
        let text = format!("{} transfers have ids that begin so: {}", rows.len(), some.join(", "));
        return Err(Exit::usage(text));
    }
    Ok(())
}
