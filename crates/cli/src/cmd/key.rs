//! `key`.

use packtrain_identity::config::Dirs;
use packtrain_identity::knownhosts::KnownHosts;
use packtrain_service::location::{DEFAULT_PORT, host_and_port};
use packtrain_service::{FailureKind, RequestError};

use crate::args::{KeyArgs, KeyCommand};
use crate::exit::{Code, Exit, print_message, print_stderr};
use crate::out::object::Object;
use crate::out::{json_line, line};

/// `packtrain key`.
pub(crate) fn run(args: &KeyArgs) -> Result<Code, Exit> {
    match &args.command {
        KeyCommand::Show { json } => show(*json),
        KeyCommand::Forget { server } => forget(server),
    }
}

fn show(json: bool) -> Result<Code, Exit> {
    let key = packtrain_identity::keys::show().map_err(packtrain_service::RequestError::from)?;
    if json {
        let path = key.path.display().to_string();
        let shown = Object::default().with("path", path).with("public", &key.public);
        json_line(&shown.with("fingerprint", &key.fingerprint));
    } else {
        // Only the line goes to stdout, so that users can append it to a file.
        line(&key.public);
        print_stderr(&format!("fingerprint {}\nkept in {}", key.fingerprint, key.path.display()));
    }
    Ok(Code::DONE)
}

fn forget(server: &str) -> Result<Code, Exit> {
    let (host, port) = host_and_port(server.strip_prefix("pt://").unwrap_or(server))
        .map_err(|error| Exit::usage(error.to_string()))?;
    let port = port.unwrap_or(DEFAULT_PORT);
    let hosts = KnownHosts::new(Dirs::from_env()?.known_hosts());
    let gone = hosts.forget(&host, port).map_err(|error| {
        let text = format!("{}: {error}", hosts.path().display());
        RequestError::new(FailureKind::Fatal, text)
    })?;
    if gone == 0 {
        let text =
            format!("no key of {host}, port {port}, is known: see {}", hosts.path().display());
        return Err(RequestError::new(FailureKind::SourceMissing, text).into());
    }
    print_message(&format!("removed the key of {host}, port {port}"));
    Ok(Code::DONE)
}
