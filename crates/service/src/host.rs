//! Hosts and ports as users write them, and name resolution.

use std::net::{IpAddr, SocketAddr};

use packtrain_os::names;

/// Parses an address to listen at.
///
/// # Errors
/// A message that says what to write instead.
pub fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let with_host = if text.starts_with(':') { format!("[::]{text}") } else { text.to_owned() };
    // The standard form covers scopes of link-local addresses too.
    let found = with_host.parse().ok().or_else(|| {
        let (host, port) = split_host(&with_host)?;
        names::lookup(&host, port).ok()?.first().copied()
    });
    found.ok_or_else(|| {
        format!("`{text}` is not an address to listen at: write ADDRESS:PORT, such as [::]:7876")
    })
}

/// Splits `HOST:PORT`.
pub fn split_host(text: &str) -> Option<(String, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    (!host.is_empty()).then_some(())?;
    Some((host.to_owned(), port.parse().ok()?))
}

/// The addresses of a name; empty if it cannot be resolved.
pub fn lookup(name: &str) -> Vec<IpAddr> {
    let mut found: Vec<IpAddr> = Vec::new();
    for address in names::lookup(name, 0).into_iter().flatten() {
        if !found.contains(&address.ip()) {
            found.push(address.ip());
        }
    }
    found
}
