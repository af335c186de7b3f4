//! Addresses of host names.
//!
//! A build with the feature `resolver` asks DNS itself, by `/etc/hosts` and `/etc/resolv.conf`. A
//! statically linked program needs that: the C library loads its name services (NSS) as shared
//! libraries, which a machine with another C library does not have.

#[cfg(feature = "resolver")]
mod resolver;

use std::io;
use std::net::{IpAddr, SocketAddr};

/// The addresses of `host`, a name or an address without brackets, with `port`. May block until a
/// name server answers or does not (by default 5 s for each server and attempt).
///
/// # Errors
/// The name has no address, or no name server answers.
pub fn lookup(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    by_name(host, port)
}

#[cfg(not(feature = "resolver"))]
fn by_name(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    use std::net::ToSocketAddrs as _;
    Ok((host, port).to_socket_addrs()?.collect())
}

#[cfg(feature = "resolver")]
fn by_name(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let found = resolver::addresses(host)?;
    Ok(found.into_iter().map(|ip| SocketAddr::new(ip, port)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_need_no_resolver() {
        for text in ["192.0.2.7", "2001:db8::7"] {
            let ip: IpAddr = text.parse().unwrap();
            assert_eq!(lookup(text, 7).unwrap(), [SocketAddr::new(ip, 7)]);
        }
    }

    #[test]
    fn the_local_host_is_known() {
        let found = lookup("localhost", 80).unwrap();
        assert!(!found.is_empty());
        assert!(found.iter().all(|at| at.ip().is_loopback() && at.port() == 80), "{found:?}");
    }

    #[test]
    fn what_is_no_name_is_an_error() {
        for name in ["", "a b", "a..b", &"x".repeat(300)] {
            assert!(lookup(name, 80).is_err(), "{name:?}");
        }
    }
}
