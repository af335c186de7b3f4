//! The caller's side: starts the emulation's process, passes signals on, hears how it went.

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::process::Command;

use crate::channel::{Channel, Reply, Request, wait};
use crate::error::{EmuError, Tried};
use crate::report::Report;
use crate::sys::{self, Signals};

/// Names the descriptor that joins the two processes.
pub(crate) const VARIABLE: &str = "PACKTRAIN_EMULATION_CHANNEL";

/// How a program in an emulation ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// Its exit code, 128 + n after signal n.
    pub code: i32,
    /// How the emulation went.
    pub report: Report,
}

/// Runs an emulation in a process of its own and waits for its end.
///
/// `command` starts the program that calls [`crate::child`] before it has a second thread:
/// usually the caller's own. `payload` is given back there. When this process dies, everything
/// of the emulation dies with it.
///
/// SIGTERM and SIGHUP, and SIGINT and SIGQUIT that a process sent, go to the program; those that
/// a terminal sent it has got anyway. The calling thread blocks them meanwhile.
///
/// # Errors
///
/// What kept the emulation from running: above all [`EmuError::Forbidden`].
pub fn supervise(mut command: Command, payload: &str) -> Result<Ended, EmuError> {
    let (ours, theirs) = UnixStream::pair().tried("a pair of sockets")?;
    let signals = Signals::block(&[libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGQUIT])
        .tried("signals")?;
    command.env(VARIABLE, theirs.as_raw_fd().to_string());
    sys::keep_open(&mut command, theirs.as_raw_fd());
    let mut child = command.spawn().map_err(|source| {
        let program = command.get_program().to_string_lossy().into_owned();
        EmuError::Start { program, source }
    })?;
    drop(theirs);
    let mut channel = Channel::new(ours);
    channel.send(&Request::Hello { pid: std::process::id(), payload: payload.to_owned() });
    let reply = loop {
        use std::os::fd::AsFd;
        let [told, signalled] = wait([channel.as_fd(), signals.fd.as_fd()], None);
        if told {
            break channel.receive::<Reply>();
        }
        while let Some(signal) = signalled.then(|| signals.next()).flatten() {
            let terminal = matches!(signal.number, libc::SIGINT | libc::SIGQUIT) && !signal.sent;
            if !terminal {
                channel.send(&Request::Signal(signal.number));
            }
        }
    };
    let status = child.wait().tried("the emulation's process")?;
    match reply {
        Some(Reply::Ended { code, report }) => Ok(Ended { code, report: *report }),
        Some(Reply::Failed(failure)) => Err(failure.into()),
        None => Err(EmuError::Died(status.to_string())),
    }
}
