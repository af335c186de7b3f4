//! `doctor`: checks what makes transfers slow or impossible before one is started, at this machine
//! and at another one that ssh reaches, and says what to change.

mod here;
mod there;

use serde::{Deserialize, Serialize};

pub use here::check as check_here;
pub use there::{DataPath, answer, check as check_there};

/// One thing that was checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What it is about, in one or two words.
    pub what: String,
    /// How it is.
    pub state: State,
    /// What was found, without a full stop.
    pub says: String,
    /// What to do: a command where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Nothing is to be done.
    Ok,
    /// Transfers work; a change makes them faster or safer.
    Advice,
    /// Some transfers do not work.
    Fault,
}

impl Check {
    fn ok(what: &str, says: impl Into<String>) -> Self {
        Self { what: what.to_owned(), state: State::Ok, says: says.into(), remedy: None }
    }

    fn advice(what: &str, says: impl Into<String>, remedy: impl Into<String>) -> Self {
        let (state, remedy) = (State::Advice, Some(remedy.into()));
        Self { what: what.to_owned(), state, says: says.into(), remedy }
    }

    fn fault(what: &str, says: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { state: State::Fault, ..Self::advice(what, says, remedy) }
    }
}

/// The version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
