use super::*;
use std::os::unix::fs::PermissionsExt;

#[test]
fn a_key_survives_being_saved() {
    let key = Identity::generate([7; 32]);
    let again = Identity::load(&key.save()).unwrap();
    assert_eq!(key.public(), again.public());
    assert_eq!(key.public(), Identity::generate([7; 32]).public());
    assert_ne!(key.public(), Identity::generate([8; 32]).public());
    for garbage in [&b""[..], b"x", &key.save()[1..], b"-----BEGIN PRIVATE KEY-----\nxx"] {
        assert!(matches!(Identity::load(garbage), Err(KeyError::NotPrivate)));
    }
}

#[test]
fn a_key_of_rfc_8032_has_its_public_half() {
    // RFC 8032 section 7.1, test 1.
    let hex = |text: &str| -> Vec<u8> {
        (0..64).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
    };
    let seed = hex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60");
    let public = hex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
    assert_eq!(Identity::generate(seed.try_into().unwrap()).public().0[..], public);
}

#[test]
fn a_file_is_private_and_never_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("key");
    let key = Identity::generate([1; 32]);
    key.save_file(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    assert_eq!(Identity::load_file(&path).unwrap().public(), key.public());
    assert!(matches!(Identity::generate([2; 32]).save_file(&path), Err(KeyError::File { .. })));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    let error = Identity::load_file(&path).unwrap_err();
    assert!(error.to_string().contains("chmod 600"), "{error}");
}

#[test]
fn a_public_key_survives_its_encoding() {
    let key = Identity::generate([1; 32]).public();
    assert_eq!(PublicKey::from_spki(&key.to_spki()), Some(key));
    assert_eq!(PublicKey::from_spki(&key.to_spki()[1..]), None);
    assert_eq!(PublicKey::from_spki(&[&key.to_spki()[..], b"x"].concat()), None);
}

#[test]
fn printing_an_identity_shows_no_secret() {
    let key = Identity::generate([1; 32]);
    let shown = format!("{key:?}");
    assert!(!shown.contains("pkcs8") && shown.len() < 100, "{shown}");
}
