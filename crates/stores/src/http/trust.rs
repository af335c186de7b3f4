//! The certificates that are trusted, and what is said of those that are not.

use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use packtrain_net::tcp::describe;
use packtrain_service::weburl::WebUrl;
use packtrain_transfer::FailureKind;
use packtrain_units::escape;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, pem};
use rustls::{CertificateError, ClientConfig, RootCertStore};

use super::{Trouble, site};

/// Environment variables that name a file of certificates to trust in addition to those of the
/// system.
const CA_FILES: [&str; 2] = ["CURL_CA_BUNDLE", "AWS_CA_BUNDLE"];
/// Variables that name the certificates to trust instead of those of the system.
const INSTEAD: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];
/// Names of a certificate that a message has.
const MAX_NAMES: usize = 3;

/// TLS with the trusted certificates of the system and of [`CA_FILES`].
pub(super) fn tls_config() -> Result<Arc<ClientConfig>, Trouble> {
    let mut roots = RootCertStore::empty();
    // This reads the variables of `INSTEAD` first.
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    let variable = |name: &'static str| {
        let value = std::env::var_os(name).filter(|value| !value.is_empty())?;
        Some((name, value))
    };
    if roots.is_empty()
        && let Some((name, path)) = INSTEAD.into_iter().find_map(variable)
    {
        return Err(unusable(name, &path, NO_CERTIFICATE));
    }
    for (name, path) in CA_FILES.into_iter().filter_map(variable) {
        add(&mut roots, &path).map_err(|why| unusable(name, &path, &why))?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let broken = |e: rustls::Error| Trouble::never(FailureKind::Fatal, format!("TLS: {e}"));
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(broken)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

const NO_CERTIFICATE: &str =
    "no certificate can be read there: name a file of certificates in PEM (BEGIN CERTIFICATE)";

/// Trusts the certificates of a file.
fn add(roots: &mut RootCertStore, path: &OsStr) -> Result<(), String> {
    let text = std::fs::read(path).map_err(|error| error.to_string())?;
    let before = roots.len();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|error| match error {
            pem::Error::MissingSectionEnd { .. } => "a certificate in it is cut off".to_owned(),
            _ => "a certificate in it is damaged".to_owned(),
        })?;
        let unusable =
            |_| "a certificate in it is damaged or of a kind that is not known".to_owned();
        roots.add(certificate).map_err(unusable)?;
    }
    if roots.len() == before { Err(NO_CERTIFICATE.to_owned()) } else { Ok(()) }
}

fn unusable(name: &str, path: &OsString, why: &str) -> Trouble {
    let text = format!("{name}={}: {why}", escape::text(&path.to_string_lossy()));
    Trouble::never(FailureKind::Usage, text)
}

/// What a failed handshake means for the user.
pub(super) fn refused(url: &WebUrl, error: &std::io::Error) -> Trouble {
    use rustls::Error as Tls;
    let site = site(url);
    let never = |text: String| Trouble::never(FailureKind::NotAuthorised, text);
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Tls>()) {
        // A retry does not make a certificate valid.
        Some(Tls::InvalidCertificate(why)) => {
            never(format!("{site}: the certificate is not accepted: {}", certificate(why)))
        }
        Some(Tls::InvalidMessage(_)) => {
            let text = format!("{site} does not speak TLS: check the port, or write http://");
            Trouble::never(FailureKind::Protocol, text)
        }
        _ => Trouble::later(format!("{site}: TLS: {}", describe(error))),
    }
}

/// What is wrong with a certificate, and what to do.
fn certificate(why: &CertificateError) -> String {
    use CertificateError as Why;
    let text = match why {
        // A signature by a key of another kind: an issuer of the same name that is another one.
        Why::UnknownIssuer
        | Why::BadSignature
        | Why::UnsupportedSignatureAlgorithmContext { .. }
        | Why::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "its issuer is not known here; name the CA's certificate, or the server's own if it \
             signed itself, by AWS_CA_BUNDLE or SSL_CERT_FILE"
        }
        Why::Expired | Why::ExpiredContext { .. } => {
            "it has expired; the server needs a new one, unless the clock of this machine is wrong"
        }
        Why::NotValidYet | Why::NotValidYetContext { .. } => {
            "it is not valid yet; check the clock of this machine"
        }
        Why::NotValidForNameContext { presented, .. } if !presented.is_empty() => {
            let names = presented.iter().take(MAX_NAMES).map(|name| plain_name(name));
            let names = names.collect::<Vec<_>>().join(", ");
            return format!("it is for {names}; use a name that it has");
        }
        Why::NotValidForName | Why::NotValidForNameContext { .. } => {
            "it is for another name; use the name that it has"
        }
        Why::Revoked => "its issuer has revoked it; the server needs a new one",
        Why::InvalidPurpose | Why::InvalidPurposeContext { .. } => {
            "it is not one for servers; the server needs another one"
        }
        // webpki reports a certificate that is its own CA so.
        Why::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "it is a CA's own certificate, which no server may show; have the CA sign one for the \
             server"
        }
        _ => "it is damaged or of a kind that is not known here; the server needs another one",
    };
    text.to_owned()
}

/// A name of a certificate as people write it; the library writes `DnsName("host")`. The server chose
/// it.
fn plain_name(name: &str) -> String {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    let inner = inner.unwrap_or(name).trim_matches('"');
    escape::text(&inner.chars().take(100).collect::<String>())
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::{ServerName, UnixTime};

    use super::*;

    #[test]
    fn each_fault_of_a_certificate_says_what_to_do() {
        let expected = ServerName::try_from("host.example").expect("a name");
        let presented = vec![
            "DnsName(\"other.example\")".to_owned(),
            "IpAddress(192.0.2.1)".to_owned(),
            "DnsName(\"x\u{1b}[2J\")".to_owned(),
            "DnsName(\"fourth.example\")".to_owned(),
        ];
        let time = UnixTime::since_unix_epoch(std::time::Duration::ZERO);
        for (why, wanted) in [
            (CertificateError::UnknownIssuer, "AWS_CA_BUNDLE"),
            (CertificateError::BadSignature, "AWS_CA_BUNDLE"),
            (
                CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext {
                    signature_algorithm_id: vec![6, 8],
                    public_key_algorithm_id: vec![6, 9],
                },
                "AWS_CA_BUNDLE",
            ),
            (CertificateError::Expired, "needs a new one"),
            (CertificateError::ExpiredContext { time, not_after: time }, "needs a new one"),
            (CertificateError::NotValidYet, "clock"),
            (
                CertificateError::NotValidForNameContext { expected, presented },
                "it is for other.example, 192.0.2.1, x\\u{1b}[2J; use",
            ),
            (CertificateError::NotValidForName, "use the name"),
            (CertificateError::Revoked, "revoked"),
            (CertificateError::BadEncoding, "needs another one"),
            (CertificateError::UnhandledCriticalExtension, "needs another one"),
        ] {
            let text = certificate(&why);
            assert!(text.contains(wanted), "{text}");
            assert!(!text.contains(['[', '"']) || text.contains("x\\u"), "{text}");
            assert!(!text.contains("Context") && !text.contains("_id"), "{text}");
        }
    }

    #[test]
    fn a_file_without_certificates_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("ca.pem");
        let added = |text: &str| {
            std::fs::write(&path, text).expect("fine");
            add(&mut RootCertStore::empty(), path.as_os_str())
        };
        let why = add(&mut RootCertStore::empty(), dir.path().join("none").as_os_str());
        assert!(why.expect_err("it is not there").contains("No such file"));
        for (text, why) in [
            ("", "no certificate"),
            ("text\n", "no certificate"),
            ("-----BEGIN CERTIFICATE-----\nAAAA\n", "cut off"),
            ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "damaged"),
            ("-----BEGIN CERTIFICATE-----\n*\n-----END CERTIFICATE-----\n", "damaged"),
        ] {
            let said = added(text).expect_err(text);
            assert!(said.contains(why), "{text}: {said}");
        }
    }
}
