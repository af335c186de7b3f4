//! Name resolution without the C library.

use std::io;
use std::net::{IpAddr, UdpSocket};

use hickory_resolver::config::{NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::system_conf::read_system_conf;
use hickory_resolver::{Hosts, TokioResolver};

/// The addresses of a name, those that this machine has a route to first.
pub(super) fn addresses(name: &str) -> io::Result<Vec<IpAddr>> {
    let hosts = Hosts::from_system().unwrap_or_default();
    let mut found = listed(&hosts, name)?;
    if found.is_empty() {
        found = ask(name)?;
    }
    if found.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
    }
    found.sort_by_key(|ip| !has_route(*ip));
    Ok(found)
}

/// The addresses that `/etc/hosts` lists. As with the C library, DNS is not asked for more.
fn listed(hosts: &Hosts, name: &str) -> io::Result<Vec<IpAddr>> {
    let name = Name::from_str_relaxed(name.to_lowercase()).map_err(io::Error::other)?;
    if name.is_root() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "an empty name"));
    }
    let kinds = [RecordType::AAAA, RecordType::A];
    let queries = kinds.map(|kind| Query::query(name.clone(), kind));
    let lookups = queries.iter().filter_map(|query| hosts.lookup_static_host(query));
    Ok(lookups.flat_map(|found| ips(found.answers())).collect())
}

fn ips(records: &[hickory_resolver::proto::rr::Record]) -> Vec<IpAddr> {
    records.iter().filter_map(|record| record.data.ip_addr()).collect()
}

/// Asks the name servers. The caller may be a task, so this uses a thread of its own.
fn ask(name: &str) -> io::Result<Vec<IpAddr>> {
    // Without a configuration, the C library asks a server on this machine.
    let (config, mut options) = read_system_conf().unwrap_or_else(|_| {
        let local = NameServerConfig::udp_and_tcp(IpAddr::from([127, 0, 0, 1]));
        (ResolverConfig::from_parts(None, Vec::new(), vec![local]), ResolverOpts::default())
    });
    options.use_hosts_file = ResolveHosts::Never;
    let work = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut builder =
                TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
            *builder.options_mut() = options;
            let resolver = builder.build().map_err(io::Error::other)?;
            let found = resolver.lookup_ip(name).await.map_err(io::Error::other)?;
            Ok(found.iter().collect())
        })
    };
    std::thread::scope(|scope| {
        let asking = std::thread::Builder::new().name("names".to_owned());
        let asking = asking.spawn_scoped(scope, work)?;
        asking.join().unwrap_or_else(|_| Err(io::Error::other("the resolver panicked")))
    })
}

/// Whether this machine has a route. Nothing is sent.
fn has_route(ip: IpAddr) -> bool {
    let any: IpAddr = if ip.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    UdpSocket::bind((any, 0)).is_ok_and(|socket| socket.connect((ip, 53)).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_hosts_is_read_as_the_c_library_reads_it() {
        let mut hosts = Hosts::default();
        let text = "# a comment\n192.0.2.1 one.example.org One # first\n\n2001:db8::1 one\n\
                    192.0.2.2 one\nnonsense two\n";
        hosts.read_hosts_conf(text.as_bytes()).unwrap();
        let found = |name: &str| -> Vec<String> {
            listed(&hosts, name).unwrap().iter().map(IpAddr::to_string).collect()
        };
        assert_eq!(found("one.example.org"), ["192.0.2.1"]);
        assert_eq!(found("ONE"), ["2001:db8::1", "192.0.2.1", "192.0.2.2"]);
        assert!(found("two").is_empty());
    }
}
