//! TLS with mutual raw public keys: which keys are accepted.

use parking_lot::Mutex;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use packtrain_net::tcp::tls::{self, Decide};
use packtrain_net::tcp::{ConnectOptions, Identity, PublicKey, connect_any, listen};
use rustls::{ClientConfig, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

fn key(n: u8) -> Identity {
    Identity::generate([n; 32])
}

fn only(key: PublicKey) -> Decide {
    Arc::new(move |shown| *shown == key)
}

async fn pair() -> (TcpStream, TcpStream) {
    let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let addrs = [listener.local_addr().unwrap()];
    let options = ConnectOptions::default();
    let (client, server) = tokio::join!(connect_any(&addrs, &options), listener.accept());
    (client.unwrap(), server.unwrap().0)
}

type Ends = (io::Result<client::TlsStream<TcpStream>>, io::Result<server::TlsStream<TcpStream>>);

/// Both ends of a handshake. A TLS 1.3 client finishes before the server has checked its key, so
/// the client also waits for a byte of the server. It sends none itself: a server that closes with
/// unread bytes resets the connection, and the reset may overtake its reason.
async fn shake(client: Arc<ClientConfig>, server: Arc<ServerConfig>) -> Ends {
    let (c, s) = pair().await;
    let client = async {
        let mut stream = TlsConnector::from(client).connect(tls::any_name(), c).await?;
        stream.read_exact(&mut [0]).await?;
        Ok(stream)
    };
    let server = async {
        let mut stream = TlsAcceptor::from(server).accept(s).await?;
        stream.write_all(b"s").await?;
        Ok(stream)
    };
    tokio::join!(client, server)
}

#[tokio::test]
async fn known_keys_meet_and_share_a_secret() {
    let (a, b) = (key(1), key(2));
    let client = tls::pinned_client_config(&a, b.public()).unwrap();
    let server = tls::server_config(&b, only(a.public())).unwrap();
    let (client, server) = shake(client, server).await;
    let (client, server) = (client.unwrap(), server.unwrap());
    assert_eq!(tls::peer_key(client.get_ref().1), Some(b.public()));
    assert_eq!(tls::peer_key(server.get_ref().1), Some(a.public()));
    assert_eq!(client.get_ref().1.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_3));
    assert_eq!(client.get_ref().1.alpn_protocol(), Some(tls::ALPN));
    let one = client.get_ref().1.export_keying_material([0; 32], b"EXPORTER-x", None).unwrap();
    let two = server.get_ref().1.export_keying_material([0; 32], b"EXPORTER-x", None).unwrap();
    assert_eq!(one, two);
}

#[tokio::test]
async fn a_way_is_told_only_by_those_who_take_one() {
    let (client, server) = (key(1), key(2));
    let theirs = tls::client_config(&client, only(server.public())).unwrap();
    let ours = tls::server_config(&server, only(client.public())).unwrap();
    for (config, told) in [(tls::telling(&theirs), Some(7)), (theirs, None)] {
        let (c, s) = pair().await;
        let connect = TlsConnector::from(config).connect(tls::way_name(7), c);
        let accept = TlsAcceptor::from(Arc::clone(&ours)).accept(s);
        let (near, far) = tokio::join!(connect, accept);
        near.unwrap();
        assert_eq!(far.unwrap().get_ref().1.server_name().and_then(tls::way_of), told);
    }
    for odd in ["packtrain.invalid", "way-256.packtrain.invalid", "way-.packtrain.invalid", "way-1"]
    {
        assert_eq!(tls::way_of(odd), None, "{odd}");
    }
}

#[tokio::test]
async fn a_server_with_another_key_is_refused() {
    let (a, b, c) = (key(1), key(2), key(3));
    let client = tls::pinned_client_config(&a, c.public()).unwrap();
    let server = tls::server_config(&b, only(a.public())).unwrap();
    let (client, server) = shake(client, server).await;
    let error = client.unwrap_err();
    assert!(tls::is_key_refused(&error), "{error}");
    assert!(tls::is_key_refused(&server.unwrap_err()), "the server is told");
}

#[tokio::test]
async fn a_client_that_is_not_known_is_refused() {
    let (a, b, c) = (key(1), key(2), key(3));
    let client = tls::pinned_client_config(&c, b.public()).unwrap();
    let server = tls::server_config(&b, only(a.public())).unwrap();
    let (client, server) = shake(client, server).await;
    assert!(tls::is_key_refused(&server.unwrap_err()));
    let error = client.unwrap_err();
    assert!(tls::is_key_refused(&error), "the client is told: {error}");
}

#[tokio::test]
async fn a_public_key_without_its_private_half_is_refused() {
    // The peer presents the known key, and signs with another.
    let (a, b, thief) = (key(1), key(2), key(3));
    let client = tls::pinned_client_config(&thief, b.public()).unwrap();
    let mut stolen = (*client).clone();
    let signing = rustls::crypto::aws_lc_rs::sign::any_eddsa_type(
        &rustls::pki_types::PrivatePkcs8KeyDer::from(thief.save()),
    )
    .unwrap();
    let shown = rustls::pki_types::CertificateDer::from(a.public().to_spki());
    let forged = Arc::new(rustls::sign::CertifiedKey::new(vec![shown], signing));
    stolen.client_auth_cert_resolver =
        Arc::new(rustls::client::AlwaysResolvesClientRawPublicKeys::new(forged));
    let server = tls::server_config(&b, only(a.public())).unwrap();
    let (client, server) = shake(Arc::new(stolen), server).await;
    assert!(server.is_err() && client.is_err());
}

#[tokio::test]
async fn trust_on_first_use_sees_the_key() {
    let (a, b) = (key(1), key(2));
    let seen = Arc::new(Mutex::new(None));
    let lend_block = Arc::clone(&seen);
    let decide: Decide = Arc::new(move |shown| {
        *lend_block.lock() = Some(*shown);
        true
    });
    let client = tls::client_config(&a, decide).unwrap();
    let server = tls::server_config(&b, only(a.public())).unwrap();
    let (client, _server) = shake(client, server).await;
    client.unwrap();
    assert_eq!(*seen.lock(), Some(b.public()));
}

#[tokio::test]
async fn a_key_taken_out_is_out_at_the_next_connection() {
    let (a, b) = (key(1), key(2));
    let allowed = Arc::new(Mutex::new(true));
    let ask = Arc::clone(&allowed);
    let server = tls::server_config(&b, Arc::new(move |_| *ask.lock())).unwrap();
    let client = tls::pinned_client_config(&a, b.public()).unwrap();
    let (first, _) = shake(Arc::clone(&client), Arc::clone(&server)).await;
    first.unwrap();
    *allowed.lock() = false;
    let (second, _) = shake(client, server).await;
    assert!(second.is_err(), "no resumption brings it back");
}

/// A TLS 1.2 ClientHello, otherwise well formed: ECDHE with AES-GCM, Ed25519, X25519.
fn hello_of_tls12() -> Vec<u8> {
    let extensions: &[&[u8]] = &[
        &[0x00, 0x0a, 0x00, 0x04, 0x00, 0x02, 0x00, 0x1d], // supported groups: x25519
        &[0x00, 0x0d, 0x00, 0x04, 0x00, 0x02, 0x08, 0x07], // signature algorithms: ed25519
        &[0x00, 0x17, 0x00, 0x00],                         // extended master secret
        &[0x00, 0x0b, 0x00, 0x02, 0x01, 0x00],             // point formats
    ];
    let extensions = extensions.concat();
    let mut body = vec![3, 3];
    body.extend([9; 32]);
    body.push(0);
    body.extend([0x00, 0x02, 0xc0, 0x2b, 0x01, 0x00]);
    body.extend((extensions.len() as u16).to_be_bytes());
    body.extend(extensions);
    let mut handshake = vec![1, 0];
    handshake.extend((body.len() as u16).to_be_bytes());
    handshake.extend(body);
    let mut record = vec![22, 3, 1];
    record.extend((handshake.len() as u16).to_be_bytes());
    record.extend(handshake);
    record
}

#[tokio::test]
async fn tls12_is_refused() {
    let (a, b) = (key(1), key(2));
    let server = tls::server_config(&b, only(a.public())).unwrap();
    let (mut raw, stream) = pair().await;
    raw.write_all(&hello_of_tls12()).await.unwrap();
    let error = TlsAcceptor::from(server).accept(stream).await.unwrap_err();
    let inner = error.get_ref().unwrap().downcast_ref::<rustls::Error>().unwrap();
    assert!(matches!(inner, rustls::Error::PeerIncompatible(_)), "{inner}");
    let mut alert = [0; 7];
    raw.read_exact(&mut alert).await.unwrap();
    assert_eq!((alert[0], alert[5], alert[6]), (21, 2, 70), "fatal alert: protocol_version");
}

#[tokio::test]
async fn garbage_is_an_error() {
    let (a, b) = (key(1), key(2));
    let server = tls::server_config(&b, only(a.public())).unwrap();
    let (mut raw, stream) = pair().await;
    raw.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    assert!(TlsAcceptor::from(server).accept(stream).await.is_err());
}
