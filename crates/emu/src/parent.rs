//! The caller's side: starts the emulator's process, forwards signals, receives the result.

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::process::Command;

use crate::channel::{Channel, Reply, Request, wait};
use crate::error::{EmuError, Tried};
use crate::report::Report;
use crate::sys::{self, Signals};

/// The environment variable with the descriptor of the channel between the processes.
pub(crate) const VARIABLE: &str = "PACKTRAIN_EMULATION_CHANNEL";

/// How a program in an emulation ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// Its exit code, 128 + n after signal n.
    pub code: i32,
    /// The report of the emulation.
    pub report: Report,
}

/// Runs an emulation in a separate process and waits for its end.
///
/// `command` starts the program that calls [`crate::child`] before it has a second thread, usually
/// the caller's own. `payload` is returned there. When this process ends, everything in the
/// emulation ends with it.
///
/// SIGTERM and SIGHUP, and SIGINT and SIGQUIT from a process, are forwarded to the program; those
/// from a terminal have reached it already. The calling thread blocks them meanwhile.
///
/// # Errors
///
/// The reason why the emulation failed, above all [`EmuError::Forbidden`].
pub fn supervise(mut command: Command, payload: &str) -> Result<Ended, EmuError> {
    let (own_end, child_end) = UnixStream::pair().tried("a pair of sockets")?;
    let signals = Signals::block(&[libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGQUIT])
        .tried("signals")?;
    command.env(VARIABLE, child_end.as_raw_fd().to_string());
    sys::keep_open(&mut command, child_end.as_raw_fd());
    let mut child = command.spawn().map_err(|source| {
        let program = command.get_program().to_string_lossy().into_owned();
        EmuError::Start { program, source }
    })?;
    drop(child_end);
    let mut channel = Channel::new(own_end);
    channel.send(&Request::Hello { pid: std::process::id(), payload: payload.to_owned() });
    let reply = loop {
        use std::os::fd::AsFd;
        let [reply_ready, signal_ready] = wait([channel.as_fd(), signals.fd.as_fd()], None);
        if reply_ready {
            break channel.receive::<Reply>();
        }
        while let Some(signal) = signal_ready.then(|| signals.next()).flatten() {
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
