//! TLS 1.3 with Ed25519 raw public keys instead of certificates (RFC 7250). Each end decides about
//! the other's key itself, as ssh does.
//!
//! There is no resumption and no early data: every connection proves both keys again, so a key that
//! is removed from `authorized_keys` is refused at once.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, ClientConfig, CommonState, DigitallySignedStruct, DistinguishedName, Error,
    ServerConfig, SignatureScheme,
};

use super::key::{Identity, PublicKey};

/// The protocol that both ends name in the handshake (ALPN). Clients of another protocol are
/// refused.
pub const ALPN: &[u8] = b"packtrain/1";

pub use rustls::pki_types::ServerName;

/// Decides about the other end's key: `true` accepts it.
pub type Decide = Arc<dyn Fn(&PublicKey) -> bool + Send + Sync>;

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
#[error("TLS cannot be set up: {0}")]
pub struct TlsError(#[from] Error);

/// The server's configuration: presents `identity` and accepts the clients whose key `decide`
/// accepts.
///
/// # Errors
/// The cryptographic library refuses the key.
pub fn server_config(identity: &Identity, decide: Decide) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = provider();
    let key = certified(identity)?;
    let verifier =
        Arc::new(Verifier { decide, algorithms: provider.signature_verification_algorithms });
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(key)));
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(Arc::new(config))
}

/// The client's configuration: presents `identity` and accepts only a server whose key `decide`
/// accepts, for example to trust on first use. The callback may block; it runs during the
/// handshake.
///
/// # Errors
/// The cryptographic library refuses the key.
pub fn client_config(identity: &Identity, decide: Decide) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = provider();
    let key = certified(identity)?;
    let verifier =
        Arc::new(Verifier { decide, algorithms: provider.signature_verification_algorithms });
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(key)));
    config.resumption = Resumption::disabled();
    // The key identifies the server. Its name would only reveal the destination to others.
    config.enable_sni = false;
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(Arc::new(config))
}

/// A client's configuration that accepts only the server with the key `expected`.
///
/// # Errors
/// The cryptographic library refuses the key.
pub fn pinned_client_config(
    identity: &Identity,
    expected: PublicKey,
) -> Result<Arc<ClientConfig>, TlsError> {
    client_config(identity, Arc::new(move |key| *key == expected))
}

/// A placeholder for the server name that rustls requires; it has no effect.
///
/// # Panics
/// Never: it is a constant.
pub fn any_name() -> ServerName<'static> {
    ServerName::try_from("packtrain.invalid").expect("a valid name")
}

/// The same configuration, with the server name in the handshake (SNI).
pub fn telling(config: &ClientConfig) -> Arc<ClientConfig> {
    let mut config = config.clone();
    config.enable_sni = true;
    Arc::new(config)
}

/// The server name that gives the number of the connection's path. With [`telling`], the handshake
/// authenticates it to both ends.
pub fn way_name(way: u8) -> ServerName<'static> {
    ServerName::try_from(format!("{WAY}{way}.packtrain.invalid")).expect("a valid name")
}

/// The number of the path in a server name of [`way_name`]; `None` for other names.
pub fn way_of(name: &str) -> Option<u8> {
    let text = name.strip_prefix(WAY)?.strip_suffix(".packtrain.invalid")?;
    let number: u8 = text.parse().ok()?;
    // Each number has one spelling: no sign and no leading zeros.
    (number.to_string() == text).then_some(number)
}

/// The beginning of the name of a path.
const WAY: &str = "way-";

/// The other end's key, after the handshake. It works with both kinds of connections:
/// `peer_key(stream.get_ref().1)`.
pub fn peer_key(connection: &CommonState) -> Option<PublicKey> {
    PublicKey::from_spki(connection.peer_certificates()?.first()?.as_ref())
}

/// Whether an error of the handshake, or of a client's first read after it, means that this or the
/// other end refused a key. A client should read before it writes: a TLS 1.3 client finishes its
/// handshake before the server has checked its key, and a write to a closed connection may lose the
/// server's reason.
pub fn is_key_refused(error: &std::io::Error) -> bool {
    use rustls::AlertDescription as Alert;
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    matches!(
        inner,
        Some(
            Error::InvalidCertificate(_)
                | Error::NoCertificatesPresented
                | Error::AlertReceived(
                    Alert::BadCertificate
                        | Alert::AccessDenied
                        | Alert::CertificateUnknown
                        | Alert::UnknownCA
                        | Alert::CertificateRequired
                )
        )
    )
}

/// Whether a connection failed because it received corrupted bytes: this or the other end found a
/// record with wrong authentication or format. A closed connection does not count.
pub fn is_corrupted(error: &std::io::Error) -> bool {
    use rustls::AlertDescription as Alert;
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    matches!(
        inner,
        Some(
            Error::DecryptError
                | Error::InvalidMessage(_)
                | Error::PeerSentOversizedRecord
                | Error::AlertReceived(
                    Alert::BadRecordMac
                        | Alert::DecryptError
                        | Alert::DecodeError
                        | Alert::RecordOverflow
                )
        )
    )
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn certified(identity: &Identity) -> Result<Arc<CertifiedKey>, TlsError> {
    let key = aws_lc_rs::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(identity.save()))?;
    let public = CertificateDer::from(identity.public().to_spki());
    Ok(Arc::new(CertifiedKey::new(vec![public], key)))
}

/// Checks the other end's key, and its signature.
struct Verifier {
    decide: Decide,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    fn check(&self, spki: &CertificateDer<'_>, more: &[CertificateDer<'_>]) -> Result<(), Error> {
        let key = PublicKey::from_spki(spki).filter(|_| more.is_empty());
        let key = key.ok_or(Error::InvalidCertificate(CertificateError::BadEncoding))?;
        if (self.decide)(&key) {
            Ok(())
        } else {
            Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
        }
    }

    fn check_signature(
        &self,
        message: &[u8],
        spki: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(spki.as_ref());
        rustls::crypto::verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms)
    }
}

fn no_tls12() -> Error {
    Error::PeerIncompatible(rustls::PeerIncompatible::Tls13RequiredForQuic)
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(end_entity, intermediates).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _key: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, key, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(end_entity, intermediates).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _key: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, key, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").finish_non_exhaustive()
    }
}
