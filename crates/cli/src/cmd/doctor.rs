//! `doctor`: what to change before a transfer.

use std::path::PathBuf;

use packtrain_client::doctor::{self, Check, DataPath, State};
use packtrain_service::{
    FailureKind, FileReport, Location, Notice, ProgressSnapshot, Reporter, RequestError, StopHandle,
};
use packtrain_units::ByteCount;

use crate::args::{DoctorArgs, ProgressMode};
use crate::exit::{Code, Exit, print_failure, print_message};
use crate::out::object::Object;
use crate::out::progress::Progress;
use crate::out::{clean, json_line, line, terminal};
use crate::signals;

/// What was checked at one machine.
struct Machine {
    name: String,
    checks: Vec<Check>,
}

/// `packtrain doctor`.
pub(crate) fn run(args: &DoctorArgs) -> Result<Code, Exit> {
    if args.stdio {
        let (input, output) = (std::io::stdin(), std::io::stdout());
        return match doctor::answer(args.ports, input, output) {
            Ok(()) => Ok(Code::DONE),
            Err(error) => Err(RequestError::new(FailureKind::Fatal, error.to_string()).into()),
        };
    }
    let other = args.host.as_ref().map(place).transpose()?;
    let directory = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let here = Machine { name: "this machine".to_owned(), checks: doctor::check_here(&directory) };
    let mut machines = vec![here];
    if !args.json {
        print(&machines[0]);
    }
    let mut unreached = None;
    if let Some((user, host)) = other {
        let stop = StopHandle::new();
        signals::watch(&stop, false);
        let settings = args.ssh.settings();
        let sending = Sending(Progress::new(ProgressMode::Auto, args.json));
        let path = DataPath { ports: args.ports, address: args.data_addr.as_deref() };
        let user_there = user.as_deref();
        let checked = doctor::check_there(&settings, user_there, &host, path, &sending, &stop);
        sending.0.finish();
        match checked {
            Ok(checks) => {
                let name = user.map_or_else(|| host.clone(), |user| format!("{user}@{host}"));
                let there = Machine { name, checks };
                if !args.json {
                    print(&there);
                }
                machines.push(there);
            }
            Err(failure) => unreached = Some(RequestError::from(failure)),
        }
    }
    let worst = machines.iter().flat_map(|machine| &machine.checks).map(|check| check.state).max();
    let code = match &unreached {
        Some(error) => Code::of(error),
        None if worst == Some(State::Fault) => {
            Code(RequestError::new(FailureKind::Fatal, "").exit_code())
        }
        None => Code::DONE,
    };
    if args.json {
        let all: Vec<_> = machines.iter().map(json).collect();
        let error = unreached.as_ref().map(|error| &error.text);
        json_line(
            &Object::done(code == Code::DONE, code.0).with("machines", all).with("error", error),
        );
    }
    if let Some(error) = &unreached {
        print_failure(&error.text);
    } else if !args.json {
        summary(&machines);
    }
    Ok(code)
}

/// Shows that this program is sent to the other machine.
struct Sending(Progress);

impl Reporter for Sending {
    fn progress(&self, _: &ProgressSnapshot) {}

    fn file(&self, _: &[u8], _: &FileReport) {}

    fn sending_program(&self, host: &str, sent: ByteCount, of: ByteCount) {
        self.0.sending_program(host, sent, of);
    }

    fn notice(&self, notice: &Notice) {
        self.0.around(|| print_message(&notice.text));
    }
}

/// `user@host` as ssh gets it.
fn place(text: &std::ffi::OsString) -> Result<(Option<String>, String), Exit> {
    let wrong = || Exit::usage("doctor asks a host that ssh reaches: write user@host");
    let text = text.to_str().filter(|text| !text.contains("://") && !text.is_empty());
    let text = text.map(|text| text.strip_suffix(':').unwrap_or(text)).ok_or_else(wrong)?;
    match Location::parse(&std::ffi::OsString::from(format!("{text}:"))) {
        Ok(Location::Ssh { user, host, .. }) => Ok((user, host)),
        Ok(_) => Err(wrong()),
        Err(error) => Err(Exit::usage(error.to_string())),
    }
}

fn json(machine: &Machine) -> Object {
    Object::default().with("name", &machine.name).with("checks", &machine.checks)
}

/// One check a line, with its remedy below it.
fn print(machine: &Machine) {
    line(&clean(&machine.name));
    let width = terminal::width().unwrap_or(usize::MAX);
    for check in &machine.checks {
        let word = match check.state {
            State::Ok => "ok",
            State::Advice => "advice",
            State::Fault => "FAULT",
        };
        let head = format!("  {word:<6} {:<12} ", check.what);
        let used = head.chars().count();
        line(&format!("{head}{}", terminal::wrap(&check.says, width, used)));
        if let Some(remedy) = &check.remedy {
            line(&format!("         {}", terminal::wrap(&format!("-> {remedy}"), width, 9)));
        }
    }
}

/// The last line: how much there is to do.
fn summary(machines: &[Machine]) {
    let all = || machines.iter().flat_map(|machine| &machine.checks);
    let count = |state| all().filter(|check| check.state == state).count();
    let text = match (count(State::Fault), count(State::Advice)) {
        (0, 0) => "all is well".to_owned(),
        (0, n) => format!("transfers work; {n} advised"),
        (n, _) => format!("{n} to be changed first (FAULT)"),
    };
    line(&text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_those_of_ssh() {
        let read = |text: &str| place(&text.into()).ok();
        let wanted = |user: Option<&str>, host: &str| Some((user.map(str::to_owned), host.into()));
        assert_eq!(read("me@far"), wanted(Some("me"), "far"));
        assert_eq!(read("far"), wanted(None, "far"));
        assert_eq!(read("far:"), wanted(None, "far"));
        assert_eq!(read("me@[::1]"), wanted(Some("me"), "::1"));
        for bad in ["", "pt://far", "-oProxyCommand=x", "a/b"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
