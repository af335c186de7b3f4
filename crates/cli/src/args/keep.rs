//! Where the history is kept.

use std::ffi::OsString;

use clap::Args;
use packtrain_service::history::{Place, Retention};
use packtrain_service::{HistoryConfig, HistoryPlace};
use packtrain_units::Duration;

use super::values;
use crate::exit::Exit;

/// Whether, where and how long the history is kept.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "History")]
pub(crate) struct KeepArgs {
    /// Where the history is kept: an absolute file path, postgresql://user@host/database, or none
    /// [default: $XDG_STATE_HOME/packtrain/history.db].
    #[arg(long, value_name = "PLACE", hide_default_value = true)]
    pub(crate) history: Option<PlaceArg>,
    /// Maximum number of rows of this user's transfers at this machine; older rows are removed.
    #[arg(
        long,
        value_name = "N",
        default_value = "10000",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    pub(crate) history_rows: u32,
    /// Age after which a row is removed.
    #[arg(long, value_name = "TIME", default_value = "365d", value_parser = values::duration)]
    pub(crate) history_age: Duration,
}

/// A place as given. It may hold a password. Therefore it is parsed late, so that no message of
/// clap quotes it, and `Debug` does not show it.
#[derive(Clone)]
pub(crate) struct PlaceArg(String);

impl From<String> for PlaceArg {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl std::fmt::Debug for PlaceArg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PlaceArg(..)")
    }
}

impl KeepArgs {
    /// The configuration of the history that the options describe.
    pub(crate) fn keep(&self) -> Result<HistoryConfig, Exit> {
        let place = match self.history.as_ref().map(|place| place.0.as_str()) {
            None | Some("") => HistoryPlace::State,
            Some("none") => HistoryPlace::Nowhere,
            Some(text) => HistoryPlace::At(parse(text)?),
        };
        let retention = Retention { rows: self.history_rows, age: self.history_age };
        Ok(HistoryConfig { place, retention })
    }
}

fn parse(text: &str) -> Result<Place, Exit> {
    Place::parse(text).map_err(|error| Exit::usage(format!("--history: {error}")))
}

/// Refuses a password on the command line, because every user of this machine can read the command
/// line of a process.
pub(crate) fn refuse_password(line: &[OsString]) -> Result<(), Exit> {
    let words: Vec<&str> = line.iter().map(|word| word.to_str().unwrap_or_default()).collect();
    let given = words.iter().enumerate().filter_map(|(at, word)| match *word {
        "--history" => words.get(at + 1).copied(),
        word => word.strip_prefix("--history="),
    });
    for text in given {
        if Place::parse(text).is_ok_and(|place| place.has_password()) {
            return Err(Exit::usage(
                "--history: a password does not belong on a command line: write the URL in \
                 config.toml, or leave the password to PGPASSWORD or ~/.pgpass",
            ));
        }
    }
    Ok(())
}

/// A value from `config.toml` or the environment, without its password.
pub(crate) fn without_password(text: &str) -> String {
    match Place::parse(text) {
        Ok(place) if place.has_password() => format!("{place} (with a password)"),
        // A malformed URL may hold a password too.
        Err(_) if text.contains("://") => "(a URL with a mistake)".to_owned(),
        _ => text.to_owned(),
    }
}
