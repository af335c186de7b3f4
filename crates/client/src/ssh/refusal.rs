//! Why ssh ended: what another try cannot mend is told from a lost connection by ssh's own
//! messages, because its exit code is 255 for all of them.

use std::io::{self, Read, Write};
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use packtrain_service::executor::spawn;
use packtrain_transfer::{Failure, FailureKind};
use parking_lot::Mutex;

/// How much of ssh's messages is kept: the last ones say why it ended.
const KEPT: usize = 4096;
/// How long the last messages may take after the end of ssh.
const LAST_MESSAGES: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Passes on what ssh says on its standard error, and keeps the end of it.
#[derive(Clone, Default)]
pub(super) struct Messages(Arc<Kept>);

#[derive(Default)]
struct Kept {
    bytes: Mutex<Vec<u8>>,
    ended: AtomicBool,
}

impl Messages {
    /// Passes everything from `from` to the standard error of this process, in a thread that ends
    /// with `from`.
    pub(super) fn follow(&self, from: impl Read + Send + 'static) {
        let kept = self.clone();
        spawn("ssh-messages", move || {
            kept.pass(from, io::stderr());
            kept.0.ended.store(true, Ordering::Release);
        });
    }

    fn pass(&self, mut from: impl Read, mut to: impl Write) {
        let mut buffer = [0; 1024];
        loop {
            let n = match from.read(&mut buffer) {
                Ok(0) => return,
                Ok(n) => n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return,
            };
            let bytes = buffer.get(..n).unwrap_or_default();
            // ssh must not wait for a terminal that is gone.
            let _ = to.write_all(bytes);
            let mut kept = self.0.bytes.lock();
            kept.extend_from_slice(bytes);
            let surplus = kept.len().saturating_sub(KEPT);
            kept.drain(..surplus);
        }
    }

    /// Waits for the messages that are still in the pipe after the end of ssh: this process may end
    /// next, and what the other end said would be lost.
    fn wait_for_last(&self) {
        // A connection that ssh shares with later commands (ControlPersist) keeps the pipe open.
        let mut waited = Duration::ZERO;
        while !self.0.ended.load(Ordering::Acquire) && waited < LAST_MESSAGES {
            std::thread::sleep(POLL_INTERVAL);
            waited += POLL_INTERVAL;
        }
    }

    /// The failure that another try meets again, if ssh's end with `status` is one. `target` is
    /// ssh's destination.
    pub(super) fn refusal(&self, status: ExitStatus, target: &str) -> Option<Failure> {
        if status.success() {
            return None;
        }
        self.wait_for_last();
        if status.code() != Some(255) {
            return None;
        }
        let text = String::from_utf8_lossy(&self.0.bytes.lock()).into_owned();
        if text.trim().is_empty() {
            // OpenSSH says why it did not connect, and nothing of a shell that a signal ended.
            let text = format!(
                "ssh to {target} ended without a word: a signal ended the login shell there, or ssh is \
                 told to be quiet"
            );
            return Some(Failure::new(FailureKind::Temporary, text));
        }
        refusal(&text, target)
    }
}

/// Nothing listens at the port of ssh.
const REFUSED: &str = "refuses ssh connections: check the name and the port";

/// Whether the failure is that nothing listens at the port of ssh. Where nothing ever answered, this is
/// more likely a wrong port than a machine that starts at the moment.
pub(crate) fn is_refused(text: &str) -> bool {
    text.ends_with(REFUSED)
}

/// The failure that these messages of OpenSSH name.
fn refusal(text: &str, target: &str) -> Option<Failure> {
    let has = |words: &str| text.contains(words);
    let host = target.rsplit('@').next().unwrap_or(target);
    let (kind, text) = if has("Could not resolve hostname") && !has("Temporary failure") {
        (FailureKind::Fatal, format!("ssh knows no host {host}: check the name"))
    } else if has("REMOTE HOST IDENTIFICATION HAS CHANGED") {
        let text = format!(
            "ssh refuses {host}, because its host key has changed; if it was really set up anew, \
             run ssh-keygen -R {host}"
        );
        (FailureKind::NotAuthorised, text)
    } else if has("Host key verification failed") {
        let text = format!("ssh does not know the host key of {host}: run ssh {target} once");
        (FailureKind::NotAuthorised, text)
    } else if has("Permission denied (") || has("Too many authentication failures") {
        let text = format!("{target} does not accept this login: try ssh {target}");
        (FailureKind::NotAuthorised, text)
    } else if has("Cannot execute command-line and remote command") {
        let text = format!(
            "your ssh configuration sets RemoteCommand for {host}, so ssh runs nothing else there: \
             copy with -e \"ssh -o RemoteCommand=none\""
        );
        (FailureKind::Usage, text)
    } else if has("Bad configuration option") || has("Bad owner or permissions on") {
        let text = "ssh does not accept its configuration; its own message is above".to_owned();
        (FailureKind::Usage, text)
    } else if has("ssh: connect to host") && has("Connection refused") {
        (FailureKind::Temporary, format!("{host} {REFUSED}"))
    } else {
        return None;
    };
    Some(Failure::new(kind, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_mend_itself_is_told_from_a_lost_connection() {
        let kind = |text: &str| refusal(text, "me@far").map(|failure| failure.kind);
        let unknown = "ssh: Could not resolve hostname far: Name or service not known\r\n";
        assert_eq!(kind(unknown), Some(FailureKind::Fatal));
        let busy = "ssh: Could not resolve hostname far: Temporary failure in name resolution\r\n";
        assert_eq!(kind(busy), None);
        let denied = "me@far: Permission denied (publickey).\r\n";
        assert_eq!(kind(denied), Some(FailureKind::NotAuthorised));
        assert_eq!(kind("Host key verification failed.\r\n"), Some(FailureKind::NotAuthorised));
        for lost in [
            "",
            "Connection to far closed by remote host.\r\n",
            "client_loop: send disconnect: Broken pipe\r\n",
            "cp: /x: Permission denied\n",
        ] {
            assert_eq!(kind(lost), None, "{lost}");
        }
        let refused = refusal("ssh: connect to host far port 22: Connection refused\r\n", "me@far");
        let refused = refused.unwrap();
        assert_eq!(refused.kind, FailureKind::Temporary);
        assert!(is_refused(&refused.text), "{}", refused.text);
        let command = "Cannot execute command-line and remote command.\r\n";
        assert_eq!(kind(command), Some(FailureKind::Usage));
        let changed = "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\r\n\
                       Host key verification failed.\r\n";
        let failure = refusal(changed, "me@far").unwrap();
        assert!(failure.text.ends_with("ssh-keygen -R far"), "{}", failure.text);
    }

    #[test]
    fn messages_are_passed_on_and_their_end_is_kept() {
        let said = [vec![b'x'; 10_000], b"\xffPermission denied (publickey).\n".to_vec()].concat();
        let (messages, mut out) = (Messages::default(), Vec::new());
        messages.pass(&said[..], &mut out);
        assert_eq!(out, said);
        let kept = messages.0.bytes.lock().clone();
        assert_eq!(kept.len(), KEPT);
        assert!(refusal(&String::from_utf8_lossy(&kept), "far").is_some());
    }
}
