//! TLS 1.3 where both ends show an Ed25519 key instead of a certificate (RFC 7250), and each
//! decides about the other's by itself, as ssh does.
//!
//! There is no resumption and no early data: every connection proves both keys anew, so a key
//! taken out of `authorized_keys` is out at once.

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

/// The protocol both ends name in the handshake (ALPN): a client of another kind is refused.
pub const ALPN: &[u8] = b"packtrain/1";

pub use rustls::pki_types::ServerName;

/// Decides about the other end's key: `true` lets it in.
pub type Decide = Arc<dyn Fn(&PublicKey) -> bool + Send + Sync>;

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
#[error("TLS cannot be set up: {0}")]
pub struct TlsError(#[from] Error);

/// A server's side: shows `identity` and lets in the clients whose key `decide` accepts.
///
/// # Errors
/// When the cryptographic library refuses the key.
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

/// A client's side: shows `identity` and goes on only with a server whose key `decide` accepts,
/// to trust on first use for instance. The callback may block: it runs during the handshake.
///
/// # Errors
/// When the cryptographic library refuses the key.
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
    // The key says who the server is; its name would only tell others where we go.
    config.enable_sni = false;
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(Arc::new(config))
}

/// A client's side that goes on only with the server whose key is `expected`.
///
/// # Errors
/// When the cryptographic library refuses the key.
pub fn pinned_client_config(
    identity: &Identity,
    expected: PublicKey,
) -> Result<Arc<ClientConfig>, TlsError> {
    client_config(identity, Arc::new(move |key| *key == expected))
}

/// The name a client must give rustls: nothing depends on it.
///
/// # Panics
/// Never: it is a constant.
pub fn any_name() -> ServerName<'static> {
    ServerName::try_from("packtrain.invalid").expect("a valid name")
}

/// The same configuration, for connections that tell the other end the name they call it by.
pub fn telling(config: &ClientConfig) -> Arc<ClientConfig> {
    let mut config = config.clone();
    config.enable_sni = true;
    Arc::new(config)
}

/// The name where a connection takes the way of this number. Under [`telling`] both ends are sure
/// of it when the handshake is done.
pub fn way_name(way: u8) -> ServerName<'static> {
    ServerName::try_from(format!("{WAY}{way}.packtrain.invalid")).expect("a valid name")
}

/// The number of the way that the calling end named by [`way_name`], if it named one.
pub fn way_of(name: &str) -> Option<u8> {
    let text = name.strip_prefix(WAY)?.strip_suffix(".packtrain.invalid")?;
    let number: u8 = text.parse().ok()?;
    // One name a number: no sign, no zeros before it.
    (number.to_string() == text).then_some(number)
}

/// What the name of a way begins with.
const WAY: &str = "way-";

/// The other end's key, once the handshake is done. Works on both kinds of connection:
/// `peer_key(stream.get_ref().1)`.
pub fn peer_key(connection: &CommonState) -> Option<PublicKey> {
    PublicKey::from_spki(connection.peer_certificates()?.first()?.as_ref())
}

/// Whether an error of the handshake, or of a client's first read after it, means that a key was
/// refused, by us or by the other end. A client should read before it writes: a TLS 1.3 client ends
/// its handshake before the server has seen its key, and a write into a closed connection may lose
/// the server's reason.
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

/// Whether a connection failed because bytes arrived changed: a record whose authentication or form
/// is wrong, found by us or by the other end. A connection that was cut is not that.
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

/// Checks the other end's key, and that it signs with it.
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
