//! Options from the command line, variables, configuration files and defaults, in this order of
//! precedence.
//!
//! Every long option gets a variable `PACKTRAIN_LONG_OPTION`. If a configuration file sets the
//! option, that value becomes its default. clap then applies the precedence.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::builder::{BoolishValueParser, TypedValueParser as _};
use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use packtrain_identity::config::{ConfigFile, Dirs, Setting};

use crate::exit::Exit;

/// Options that variables do not set (`NEVER`) and options that files do not set (`NOT_IN_FILES`).
/// A ticket in a file is given by `--ticket @FILE`. An unencrypted server is started explicitly.
/// The others request something other than the command's work.
const NEVER: &[&str] = &["help", "version"];
const NOT_IN_FILES: &[&str] = &["ticket", "stdio", "udt4"];

/// The content of the configuration files.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    /// Files and variables are ignored.
    ignored: bool,
    /// The files that exist; the site's file comes before the user's.
    pub(crate) files: Vec<ConfigFile>,
}

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A variable of this name.
    Variable(String),
    /// A configuration file.
    File(PathBuf),
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Variable(name) => f.write_str(name),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

impl Settings {
    /// Reads the files. A process that ssh starts (`--stdio`) has the options of its caller, so the
    /// files and variables of its own account are ignored.
    pub(crate) fn load(line: &[OsString]) -> Result<Self, Exit> {
        let Ok(dirs) = Dirs::from_env() else { return Ok(Self::default()) };
        if line.iter().any(|word| word == "--stdio") {
            return Ok(Self { ignored: true, files: Vec::new() });
        }
        let paths = [&dirs.site, &dirs.config].map(|dir| dir.join("config.toml"));
        let mut files = Vec::new();
        for path in paths {
            files.extend(ConfigFile::load(&path)?);
        }
        Ok(Self { ignored: false, files })
    }

    /// Adds variables and configured defaults to the command.
    pub(crate) fn apply(&self, command: Command) -> Result<Command, Exit> {
        self.check(&command)?;
        Ok(command.mut_subcommands(|sub| {
            let name = sub.get_name().to_owned();
            let sub = sub.mut_args(|arg| self.equip(&name, arg));
            sub.mut_subcommands(|deep| deep.mut_args(|arg| self.equip(&name, arg)))
        }))
    }

    fn equip(&self, command: &str, arg: Arg) -> Arg {
        let Some(long) = arg.get_long().map(str::to_owned) else { return arg };
        if self.ignored || NEVER.contains(&long.as_str()) {
            return arg;
        }
        // An empty variable counts as not set.
        let name = variable(&long);
        let value = std::env::var_os(&name).filter(|value| !value.is_empty());
        let arg = if matches!(arg.get_action(), ArgAction::SetTrue) {
            // clap lets a flag that a variable sets to false exclude others.
            if value.as_deref().is_some_and(is_false) {
                return arg;
            }
            arg.value_parser(BoolishValueParser::new())
        } else {
            arg
        };
        let arg = if value.is_some() { arg.env(name).hide_env(true) } else { arg };
        match self.setting(command, &long) {
            Some((setting, _)) if matches!(arg.get_action(), ArgAction::Append) => {
                arg.default_values(setting.values.clone())
            }
            Some((setting, _)) => match setting.values.last() {
                Some(value) => arg.default_value(value.clone()),
                None => arg,
            },
            None => arg,
        }
    }

    /// The last file wins. Within a file the command's own table wins.
    fn setting(&self, command: &str, long: &str) -> Option<(&Setting, &ConfigFile)> {
        let own = |setting: &&Setting| setting.command.as_deref() == Some(command);
        self.files.iter().rev().find_map(|file| {
            let mut fitting = file.values.iter().filter(|setting| setting.option == long);
            let found = fitting.clone().find(own);
            found.or_else(|| fitting.find(|s| s.command.is_none())).map(|setting| (setting, file))
        })
    }

    /// Checks that every key of every file is an option of some command, so that typing errors are
    /// reported.
    fn check(&self, command: &Command) -> Result<(), Exit> {
        let known = options(command);
        for file in &self.files {
            for setting in &file.values {
                let long = setting.option.as_str();
                let fits = |name: &str| {
                    known.get(name).is_some_and(|options| options.iter().any(|o| o == long))
                };
                let good = match &setting.command {
                    Some(name) => fits(name),
                    None => known.keys().any(|name| fits(name)),
                };
                if !good {
                    let table = setting
                        .command
                        .as_ref()
                        .map(|name| format!("[{name}] "))
                        .unwrap_or_default();
                    return Err(Exit::usage(format!(
                        "{}: {table}`{long}` is not an option: remove the line or correct it",
                        file.path.display()
                    )));
                }
                if NOT_IN_FILES.contains(&long) {
                    return Err(Exit::usage(format!(
                        "{}: `{long}` does not belong in a configuration file: remove the line",
                        file.path.display()
                    )));
                }
            }
        }
        Ok(())
    }

    /// The source of a value that clap refused, if it is not the command line.
    pub(crate) fn origin_of(&self, error: &clap::Error, line: &[OsString]) -> Option<String> {
        let Some(ContextValue::String(arg)) = error.get(ContextKind::InvalidArg) else {
            return None;
        };
        let long = arg.strip_prefix("--")?.split([' ', '=', '[']).next()?;
        let written = format!("--{long}");
        let on_line = line.iter().filter_map(|word| word.to_str()).any(|word| {
            word == written || word.strip_prefix(&written).is_some_and(|rest| rest.starts_with('='))
        });
        if on_line {
            return None;
        }
        let command = line.get(1)?.to_str()?;
        self.origin(command, long).map(|origin| origin.to_string())
    }

    /// The source of an option that is not on the command line.
    pub(crate) fn origin(&self, command: &str, long: &str) -> Option<Origin> {
        let name = variable(long);
        if std::env::var_os(&name).is_some_and(|value| !value.is_empty()) {
            return Some(Origin::Variable(name));
        }
        self.setting(command, long).map(|(_, file)| Origin::File(file.path.clone()))
    }
}

/// Precedence of the source of an option: 3 command line, 2 environment, 1 file or default, 0 not
/// set.
pub(crate) fn precedence(matches: &ArgMatches, id: &str) -> u8 {
    match matches.value_source(id) {
        Some(ValueSource::CommandLine) => 3,
        Some(ValueSource::EnvVariable) => 2,
        Some(_) => 1,
        None => 0,
    }
}

/// Whether a flag's variable has one of clap's words for false.
fn is_false(value: &OsStr) -> bool {
    let parsed = BoolishValueParser::new().parse_ref(&Command::new(""), None, value);
    parsed.is_ok_and(|is_set| !is_set)
}

/// `PACKTRAIN_LONG_OPTION` for `long-option`.
pub(crate) fn variable(long: &str) -> String {
    format!("PACKTRAIN_{}", long.to_uppercase().replace('-', "_"))
}

/// The long options of each command of the first level, with those of its subcommands.
pub(crate) fn options(command: &Command) -> BTreeMap<String, Vec<String>> {
    let longs = |command: &Command| -> Vec<String> {
        let long = |arg: &Arg| arg.get_long().map(str::to_owned);
        command.get_arguments().filter_map(long).filter(|l| !NEVER.contains(&l.as_str())).collect()
    };
    let visible = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    visible
        .map(|sub| {
            let mut all = longs(sub);
            all.extend(sub.get_subcommands().flat_map(longs));
            all.sort();
            all.dedup();
            (sub.get_name().to_owned(), all)
        })
        .collect()
}
