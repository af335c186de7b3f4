//! Two network namespaces connected by a veth pair, MTU 1500.

use std::process::Command;

use anyhow::{Context, Result};

use crate::sh;

/// The pair; dropping it removes the namespaces and their processes.
pub(super) struct Pair {
    names: [String; 2],
}

impl Pair {
    /// The address of the second namespace, where servers listen.
    pub(super) const SERVER: &str = "10.99.0.2";

    /// Makes the namespaces; needs root.
    pub(super) fn new() -> Result<Self> {
        let id = std::process::id();
        let pair = Self { names: [format!("ptb{id}a"), format!("ptb{id}b")] };
        for name in &pair.names {
            ip(&["netns", "add", name]).context("making a namespace (root?)")?;
        }
        let [a, b] = &pair.names;
        ip(&[
            "link", "add", "ptb0", "netns", a, "mtu", "1500", "type", "veth", "peer", "name",
            "ptb1", "netns", b, "mtu", "1500",
        ])?;
        for (name, device, address) in [(a, "ptb0", "10.99.0.1/24"), (b, "ptb1", "10.99.0.2/24")] {
            ip(&["-n", name, "address", "add", address, "dev", device])?;
            ip(&["-n", name, "link", "set", device, "up"])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
        }
        Ok(pair)
    }

    /// A program in the first namespace.
    pub(super) fn client(&self, program: &str) -> Command {
        inside(&self.names[0], program)
    }

    /// A program in the second namespace.
    pub(super) fn server(&self, program: &str) -> Command {
        inside(&self.names[1], program)
    }
}

/// Three namespaces in a row, connected by two veth pairs.
pub(super) struct Chain {
    names: [String; 3],
}

impl Chain {
    /// The relay's address on the sender's side.
    pub(super) const RELAY: &str = "10.98.1.2";
    /// The receiver's address, which the sender cannot reach.
    pub(super) const RECEIVER: &str = "10.98.2.2";
    /// The network of receivers.
    pub(super) const RECEIVERS: &str = "10.98.2.0/24";

    /// Makes the namespaces; needs root.
    pub(super) fn new() -> Result<Self> {
        let id = std::process::id();
        let chain = Self { names: ["a", "b", "c"].map(|part| format!("ptb{id}{part}")) };
        for name in &chain.names {
            ip(&["netns", "add", name]).context("making a namespace (root?)")?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
        }
        for (hop, ends) in chain.names.windows(2).enumerate() {
            let net = format!("10.98.{}", hop + 1);
            let devices = [format!("ptb{hop}l"), format!("ptb{hop}r")];
            ip(&[
                "link",
                "add",
                &devices[0],
                "netns",
                &ends[0],
                "mtu",
                "1500",
                "type",
                "veth",
                "peer",
                "name",
                &devices[1],
                "netns",
                &ends[1],
                "mtu",
                "1500",
            ])?;
            for (at, (name, device)) in ends.iter().zip(&devices).enumerate() {
                let address = format!("{net}.{}/24", at + 1);
                ip(&["-n", name, "address", "add", &address, "dev", device])?;
                ip(&["-n", name, "link", "set", device, "up"])?;
            }
        }
        Ok(chain)
    }

    /// A program in the first namespace.
    pub(super) fn sender(&self, program: &str) -> Command {
        inside(&self.names[0], program)
    }

    /// A program in the second namespace.
    pub(super) fn relay(&self, program: &str) -> Command {
        inside(&self.names[1], program)
    }

    /// A program in the third namespace.
    pub(super) fn receiver(&self, program: &str) -> Command {
        inside(&self.names[2], program)
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = ip(&["netns", "delete", name]);
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = ip(&["netns", "delete", name]);
        }
    }
}

fn inside(name: &str, program: &str) -> Command {
    sh::command("ip", ["netns", "exec", name, program])
}

fn ip(args: &[&str]) -> Result<()> {
    sh::capture(&mut sh::command("ip", args)).map(drop)
}
