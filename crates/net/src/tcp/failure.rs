//! Errors of connections in words for users.
//!
//! TLS, HTTP and the runtime describe an error to programmers, with names of types and addresses of
//! documentation. Everything that prints an error of a connection uses [`describe`] instead.

use std::io::{self, ErrorKind};

use rustls::{AlertDescription as Alert, Error as Tls};

use super::tls::{is_corrupted, is_key_refused};

/// What happened to a connection, without a period, as the end of a message: `the connection broke`.
///
/// An error that another part of Packtrain made keeps its text.
pub fn describe(error: &io::Error) -> String {
    if let Some(inner) = error.get_ref() {
        if let Some(below) = inner.downcast_ref::<io::Error>() {
            return describe(below);
        }
        if let Some(tls) = inner.downcast_ref::<Tls>() {
            return describe_tls(error, tls);
        }
    }
    let text = match error.kind() {
        // TLS and `read_exact` have texts of their own for an end without a farewell.
        ErrorKind::UnexpectedEof | ErrorKind::WriteZero => "the connection broke",
        _ if error.get_ref().is_some() => return without_address(&error.to_string()),
        ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted => {
            "the other end or a firewall reset the connection"
        }
        ErrorKind::BrokenPipe | ErrorKind::NotConnected => "the other end closed the connection",
        ErrorKind::TimedOut => "the network did not answer for too long",
        ErrorKind::ConnectionRefused => "connection refused: nothing listens there",
        ErrorKind::HostUnreachable => "no way leads to that host",
        ErrorKind::NetworkUnreachable => "no way leads to that network",
        ErrorKind::NetworkDown => "the network of this machine is down",
        _ => return error.to_string(),
    };
    text.to_owned()
}

fn describe_tls(error: &io::Error, tls: &Tls) -> String {
    let text = match tls {
        _ if is_corrupted(error) => "what arrived is damaged or no TLS",
        Tls::AlertReceived(_) if is_key_refused(error) => "the other end refused the key",
        Tls::AlertReceived(Alert::CloseNotify) => "the other end closed the connection",
        Tls::AlertReceived(alert) => {
            return format!(
                "the other end ended the encryption (TLS alert {})",
                alert_name(*alert)
            );
        }
        Tls::NoCertificatesPresented => "the other end showed no key",
        Tls::InvalidCertificate(_) => "the key of the other end is not accepted",
        Tls::PeerIncompatible(_) | Tls::NoApplicationProtocol => {
            "the other end speaks no version or cipher of TLS that this end accepts"
        }
        Tls::InappropriateMessage { .. }
        | Tls::InappropriateHandshakeMessage { .. }
        | Tls::PeerMisbehaved(_) => "the other end broke the rules of TLS",
        other => return format!("TLS failed: {}", without_address(&other.to_string())),
    };
    text.to_owned()
}

/// The name of an alert: `HandshakeFailure`, or its number.
fn alert_name(alert: Alert) -> String {
    match alert {
        Alert::Unknown(number) => number.to_string(),
        named => format!("{named:?}"),
    }
}

/// A text without the address of documentation at its end.
fn without_address(text: &str) -> String {
    let words = text.split(' ').filter(|word| !word.contains("://docs.rs/"));
    words.collect::<Vec<_>>().join(" ").trim_end_matches([':', ' ']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::{CertificateError, InvalidMessage, PeerIncompatible};

    #[test]
    fn no_text_of_a_library_reaches_the_user() {
        let wrap = |tls: Tls| io::Error::new(ErrorKind::InvalidData, tls);
        let errors = [
            io::Error::new(
                ErrorKind::UnexpectedEof,
                "peer closed connection without sending TLS close_notify: \
                 https://docs.rs/rustls/latest/rustls/manual/_03_howto/index.html#unexpected-eof",
            ),
            io::Error::new(ErrorKind::UnexpectedEof, "early eof"),
            io::Error::from(ErrorKind::WriteZero),
            io::Error::from_raw_os_error(libc::ECONNRESET),
            io::Error::from_raw_os_error(libc::EPIPE),
            io::Error::from_raw_os_error(libc::ETIMEDOUT),
            io::Error::from_raw_os_error(libc::EHOSTUNREACH),
            wrap(Tls::DecryptError),
            wrap(Tls::InvalidMessage(InvalidMessage::InvalidContentType)),
            wrap(Tls::InvalidCertificate(CertificateError::ApplicationVerificationFailure)),
            wrap(Tls::NoCertificatesPresented),
            wrap(Tls::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon)),
            wrap(Tls::AlertReceived(Alert::AccessDenied)),
            wrap(Tls::AlertReceived(Alert::HandshakeFailure)),
            io::Error::other(wrap(Tls::DecryptError)),
        ];
        for error in errors {
            let text = describe(&error);
            for word in ["://", "rustls", "eof", "Eof", "(os error", "peer", "buffer", "::", "{"] {
                assert!(!text.contains(word), "{word}: {text}");
            }
            assert_ne!(text, error.to_string(), "the text of the library");
            assert!(!text.is_empty() && !text.ends_with(['.', ':']), "{text}");
        }
    }

    #[test]
    fn what_an_error_means_is_told_apart() {
        let reset = describe(&io::Error::from_raw_os_error(libc::ECONNRESET));
        assert_eq!(reset, "the other end or a firewall reset the connection");
        let alert = io::Error::new(ErrorKind::InvalidData, Tls::AlertReceived(Alert::Unknown(77)));
        assert_eq!(describe(&alert), "the other end ended the encryption (TLS alert 77)");
        let own = io::Error::new(ErrorKind::TimedOut, "the depot's pool is full: try later");
        assert_eq!(describe(&own), "the depot's pool is full: try later");
        let other =
            io::Error::new(ErrorKind::InvalidData, Tls::General("odd: https://docs.rs/x".into()));
        assert_eq!(describe(&other), "TLS failed: unexpected error: odd");
    }

    #[test]
    fn a_real_connection_that_ends_without_a_farewell_is_told_plainly() {
        use std::io::Read;
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("sockets");
        drop(theirs);
        let mut ours = ours;
        let error = ours.read_exact(&mut [0; 4]).expect_err("nothing comes");
        assert_eq!(describe(&error), "the connection broke");
    }
}
