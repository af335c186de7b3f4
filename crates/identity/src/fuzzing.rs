//! Bodies of fuzz targets for private parsers of this crate, and their seeds.
//!
//! Compiled only with the feature `fuzzing`. A body takes any bytes and must return: a panic,
//! a hang or unbounded memory is a finding.

use crate::knownhosts::{self, Known};
use crate::pubkey::PublicKey;
use crate::tickets;

/// A file of known hosts, before or after valid lines: a revocation and a match apply at any
/// position, and nothing else makes a key known.
pub fn known_hosts(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let name = "[host]:7876";
    let key = PublicKey([1; 32]);
    let known = knownhosts::check(&text, name, &key);
    if known == Known::Yes {
        assert!(text.contains(name) && text.contains(&key.to_string()[18..]));
    }
    for revoked in [format!("@revoked * {key}\n{text}"), format!("{text}\n@revoked {name} {key}\n")]
    {
        assert!(matches!(knownhosts::check(&revoked, name, &key), Known::Revoked { .. }));
    }
    let kept = format!("{text}\n{name} {key}\n");
    let wanted = match known {
        Known::Revoked { line } => Known::Revoked { line },
        _ => Known::Yes,
    };
    assert_eq!(knownhosts::check(&kept, name, &key), wanted);
}

/// Seeds: a match, another key, revocations, comments.
pub fn known_hosts_seeds() -> Vec<Vec<u8>> {
    let (ours, other) = (PublicKey([1; 32]), PublicKey([2; 32]));
    [
        format!("[host]:7876 {ours} me\n# a comment\n\n[other]:1 {other}\n"),
        format!("[host]:7876 {other}\n@revoked * {other}\n"),
        format!("@revoked [host]:7876 {ours}\n"),
    ]
    .map(String::into_bytes)
    .to_vec()
}

/// The file of issued tickets: what is parsed and written is parsed to the same again.
pub fn ticket_file(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let kept = tickets::rewrite(&text);
    assert!(kept.lines().count() <= text.lines().count());
    assert_eq!(tickets::rewrite(&kept), kept);
}

/// Seeds: lines of used and unused tickets.
pub fn ticket_file_seeds() -> Vec<Vec<u8>> {
    let id = blake3::hash(b"a ticket");
    let key = PublicKey([3; 32]);
    let used = format!("{id} {id} 4000000000 read-only,perf {key}\nx\n");
    [format!("{id} {id} 99 - unused\n{used}"), used].map(String::into_bytes).to_vec()
}
