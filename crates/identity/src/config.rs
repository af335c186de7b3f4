//! The directories of the user, the configuration files, and the site's ceilings.
//!
//! `$XDG_CONFIG_HOME/packtrain/config.toml` takes precedence over `/etc/packtrain/config.toml`.
//! Both set options of the command by their long names, at the top level for every command or in a
//! table for one command. `/etc/packtrain/policy.toml` has ceilings that nothing exceeds.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::statefile;

mod policy;

pub use policy::TRANSPORTS;
pub use policy::{Policy, PolicyError};

/// The site's directory.
pub const SITE: &str = "/etc/packtrain";

/// Directories of this user and this site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dirs {
    /// `$XDG_CONFIG_HOME/packtrain`: configuration, keys, `known_hosts`, `authorized_keys`.
    pub config: PathBuf,
    /// `$XDG_STATE_HOME/packtrain`: issued tickets.
    pub state: PathBuf,
    /// `/etc/packtrain`.
    pub site: PathBuf,
}

/// Why the configuration is invalid; a usage error.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Neither the XDG variable of the directory nor `HOME` is set.
    #[error("no home directory: set HOME, or XDG_CONFIG_HOME and XDG_STATE_HOME")]
    NoHome,
    /// An existing file cannot be read.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: std::io::Error,
    },
    /// A file is not TOML, or has an unexpected structure.
    #[error("{path}: {text}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The error and its position.
        text: String,
    },
}

impl Dirs {
    /// From the environment, according to the XDG base directory specification: a variable that is
    /// empty or not absolute counts as unset.
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::from_vars(|name| std::env::var_os(name))
    }

    fn from_vars(var: impl Fn(&str) -> Option<OsString>) -> Result<Self, ConfigError> {
        let absolute = |name: &str| var(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = absolute("HOME");
        let under = |name: &str, default: &str| {
            absolute(name)
                .or_else(|| home.as_ref().map(|home| home.join(default)))
                .map(|base| base.join("packtrain"))
                .ok_or(ConfigError::NoHome)
        };
        Ok(Self {
            config: under("XDG_CONFIG_HOME", ".config")?,
            state: under("XDG_STATE_HOME", ".local/state")?,
            site: PathBuf::from(SITE),
        })
    }

    /// The user's `known_hosts`.
    pub fn known_hosts(&self) -> PathBuf {
        self.config.join("known_hosts")
    }

    /// The user's `authorized_keys`.
    pub fn authorized_keys(&self) -> PathBuf {
        self.config.join("authorized_keys")
    }

    /// The file of issued tickets.
    pub fn tickets(&self) -> PathBuf {
        self.state.join("tickets")
    }
}

/// One configuration file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConfigFile {
    /// Its path.
    pub path: PathBuf,
    /// Its values, in the order of the keys.
    pub values: Vec<Setting>,
}

/// One value of a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The command; `None` for every command that has the option.
    pub command: Option<String>,
    /// The option's long name.
    pub option: String,
    /// The value, spelled as on the command line; several for options that may be repeated.
    pub values: Vec<String>,
}

impl ConfigFile {
    /// Reads the file at `path`; `None` if it does not exist.
    pub fn load(path: &Path) -> Result<Option<Self>, ConfigError> {
        let failed = |error| ConfigError::Io { path: path.to_owned(), error };
        match statefile::read(path).map_err(failed)? {
            Some(text) => Self::parse(path, &text).map(Some),
            None => Ok(None),
        }
    }

    /// Parses the text of a file; `path` is for messages.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let syntax = |text: String| ConfigError::Syntax { path: path.to_owned(), text };
        let table: toml::Table = toml::from_str(text)
            .map_err(|error| syntax(error.to_string().trim_end().to_owned()))?;
        let mut values = Vec::new();
        for (name, value) in table {
            match value {
                toml::Value::Table(inner) => {
                    for (option, value) in inner {
                        values.push(setting(Some(name.clone()), option, value).map_err(syntax)?);
                    }
                }
                value => values.push(setting(None, name, value).map_err(syntax)?),
            }
        }
        Ok(Self { path: path.to_owned(), values })
    }
}

fn setting(command: Option<String>, option: String, value: toml::Value) -> Result<Setting, String> {
    let values = match value {
        toml::Value::Array(values) => {
            values.into_iter().map(|value| scalar(&option, value)).collect::<Result<_, _>>()?
        }
        value => vec![scalar(&option, value)?],
    };
    Ok(Setting { command, option, values })
}

fn scalar(option: &str, value: toml::Value) -> Result<String, String> {
    match value {
        toml::Value::String(text) => Ok(text),
        toml::Value::Integer(number) => Ok(number.to_string()),
        toml::Value::Boolean(truth) => Ok(truth.to_string()),
        other => Err(format!(
            "`{option}` is a {}: write a text, a whole number, true or false, or a list of them",
            other.type_str()
        )),
    }
}

/// Reads a TOML file into `T`; `None` if it does not exist.
fn load_toml<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<Option<T>, ConfigError> {
    let failed = |error| ConfigError::Io { path: path.to_owned(), error };
    let Some(text) = statefile::read(path).map_err(failed)? else { return Ok(None) };
    toml::from_str(&text).map(Some).map_err(|error| ConfigError::Syntax {
        path: path.to_owned(),
        text: error.to_string().trim_end().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn dirs(vars: &[(&str, &str)]) -> Result<Dirs, ConfigError> {
        Dirs::from_vars(|name| {
            vars.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn directories_follow_xdg() {
        let home = dirs(&[("HOME", "/h"), ("XDG_CONFIG_HOME", "relative")]).expect("a home");
        assert_eq!(home.config, Path::new("/h/.config/packtrain"));
        assert_eq!(home.state, Path::new("/h/.local/state/packtrain"));
        let own = [("XDG_CONFIG_HOME", "/c"), ("XDG_STATE_HOME", "/s")];
        assert_eq!(dirs(&own).expect("both").known_hosts(), Path::new("/c/packtrain/known_hosts"));
        assert!(matches!(dirs(&[("HOME", "")]), Err(ConfigError::NoHome)));
    }

    #[test]
    fn values_are_for_one_command_or_for_all() {
        let text = "rate = '1gbit'\nretries = 3\n[cp]\nchecksum = true\nexclude = ['*.o', 'tmp']\n";
        let file = ConfigFile::parse(Path::new("c"), text).expect("good TOML");
        let value = |command: Option<&str>, option: &str, values: &[&str]| Setting {
            command: command.map(str::to_owned),
            option: option.to_owned(),
            values: values.iter().map(|&v| v.to_owned()).collect(),
        };
        let mut got = file.values;
        got.sort_by_key(|setting| setting.option.clone());
        let want = [
            value(Some("cp"), "checksum", &["true"]),
            value(Some("cp"), "exclude", &["*.o", "tmp"]),
            value(None, "rate", &["1gbit"]),
            value(None, "retries", &["3"]),
        ];
        assert_eq!(got, want);
        for bad in ["rate = ", "rate = 1.5", "[cp.deep]\nx = 1", "[[cp]]\nx = 1"] {
            let error = ConfigFile::parse(Path::new("c.toml"), bad).expect_err(bad);
            assert!(error.to_string().starts_with("c.toml: "), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_file_is_read(text in "([a-z]{1,3} ?= ?|'|\\[|\\]|[0-9.]|true|,|\n){0,20}") {
            let _ = ConfigFile::parse(Path::new("c"), &text);
        }
    }
}
