//! `config show`.

use packtrain_identity::config::{Dirs, Policy};
use serde::Serialize;

use crate::args::{self, ConfigArgs, ConfigCommand, Origin, Settings};
use crate::exit::{Code, Exit};
use crate::out::{json_line, line};

#[derive(Serialize)]
struct Shown {
    config_dir: String,
    state_dir: String,
    site_dir: String,
    settings: Vec<Value>,
    policy: Vec<String>,
}

#[derive(Serialize)]
struct Value {
    command: Option<String>,
    option: String,
    values: Vec<String>,
    origin: String,
    /// The origin of the value that applies instead, if another one does wherever this one would.
    overridden_by: Option<String>,
}

impl Value {
    fn of(command: Option<String>, option: String, origin: String) -> Self {
        Self { command, option, values: Vec::new(), origin, overridden_by: None }
    }

    /// Whether this value, of a source of higher precedence, applies wherever `other` would.
    fn covers(&self, other: &Self) -> bool {
        self.option == other.option && (self.command.is_none() || self.command == other.command)
    }
}

/// `packtrain config`.
pub(crate) fn run(args: &ConfigArgs, settings: &Settings) -> Result<Code, Exit> {
    let ConfigCommand::Show { json } = args.command;
    let dirs = Dirs::from_env()?;
    let shown = Shown {
        config_dir: dirs.config.display().to_string(),
        state_dir: dirs.state.display().to_string(),
        site_dir: dirs.site.display().to_string(),
        settings: values(settings),
        policy: ceilings(&Policy::load(&dirs)?),
    };
    if json {
        json_line(&shown);
    } else {
        print(&shown);
    }
    Ok(Code::DONE)
}

/// All values that are set: from the environment, which wins, then from the user's file, then from
/// the site's.
fn values(settings: &Settings) -> Vec<Value> {
    let mut values = Vec::new();
    let mut longs: Vec<String> = args::options(&args::bare()).into_values().flatten().collect();
    longs.sort();
    longs.dedup();
    for long in longs {
        let name = args::variable(&long);
        // An empty variable counts as not set.
        if let Some(value) = std::env::var_os(&name).filter(|value| !value.is_empty()) {
            // A ticket is a secret, and users paste this output into bug reports.
            let value = match long.as_str() {
                "ticket" => "(set)".to_owned(),
                "history" => args::without_password(&value.to_string_lossy()),
                _ => value.to_string_lossy().into_owned(),
            };
            let origin = Origin::Variable(name).to_string();
            let value = Value { values: vec![value], ..Value::of(None, long, origin) };
            values.push(value);
        }
    }
    for file in settings.files.iter().rev() {
        let origin = Origin::File(file.path.clone()).to_string();
        let own = file.values.iter().map(|setting| {
            let value = Value::of(setting.command.clone(), setting.option.clone(), origin.clone());
            let given = match setting.option.as_str() {
                "history" => setting.values.iter().map(|v| args::without_password(v)).collect(),
                _ => setting.values.clone(),
            };
            let winner = values.iter().find(|higher| higher.covers(&value));
            let overridden_by = winner.map(|higher| higher.origin.clone());
            Value { values: given, overridden_by, ..value }
        });
        let own: Vec<Value> = own.collect();
        values.extend(own);
    }
    values
}

fn ceilings(policy: &Policy) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(policy.max_rate.map(|rate| format!("no transfer sends faster than {rate}")));
    lines.extend(policy.max_streams.map(|n| format!("no transfer has more than {n} streams")));
    lines.extend(
        policy
            .max_ticket_lifetime
            .map(|t| format!("no ticket lives longer than {}", t.to_readable())),
    );
    let names = policy.transports.as_ref();
    lines.extend(names.map(|names| format!("only these transports: {}", names.join(", "))));
    if policy.accept_new_host == Some(false) {
        lines.push("--accept-new-host is not allowed".to_owned());
    }
    lines
}

fn print(shown: &Shown) {
    line(&format!("configuration, keys, known_hosts  {}", shown.config_dir));
    line(&format!("state                             {}", shown.state_dir));
    line(&format!("site                              {}", shown.site_dir));
    for value in &shown.settings {
        let table = value.command.as_ref().map(|name| format!("[{name}] ")).unwrap_or_default();
        let text = value.values.join(", ");
        let loses = value.overridden_by.as_ref().map(|by| format!("; overridden by {by}"));
        let from = format!("{}{}", value.origin, loses.unwrap_or_default());
        line(&format!("{table}{} = {text}  # {from}", value.option));
    }
    if shown.settings.is_empty() {
        line("no option is set: the defaults apply");
    }
    for ceiling in &shown.policy {
        line(&format!("policy: {ceiling}"));
    }
}
