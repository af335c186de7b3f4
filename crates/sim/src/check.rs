//! Checks of a scenario.

use std::collections::BTreeSet;

use packtrain_units::{ByteCount, DataRate, Time};

use crate::error::SimError;
use crate::route::Routes;
use crate::run::known_controller;
use crate::spec::{Arrivals, EngineSpec, FlowKind, FlowSpec, Scenario, ShortSpec, TcpSpec};

/// Maximum nodes: minimum delays and lookahead times are kept for every pair.
const MAX_NODES: usize = 1_024;
/// Maximum flows, and maximum links.
const MAX_ROWS: usize = 10_000;
/// Maximum points of all curves together.
const MAX_CURVE_SAMPLES: u64 = 10_000_000;
/// Maximum length of a train.
const MAX_TRAIN_PACKETS: u32 = 64;
/// Maximum bytes of a packet.
const MAX_PACKET_BYTES: u64 = 65_535;
/// Maximum short connections open at once.
const MAX_OPEN_CONNECTIONS: u32 = 100_000;

/// Error for a host model at a node where no engine receives.
pub(crate) const IDLE_HOST: &str = "no flow of kind \"engine\" ends here, and a host changes no other: \
                                    take it out, or give such a flow";

type Checked = Result<(), SimError>;

/// Whether an engine receives at this node.
pub(crate) fn received_by_engine(flows: &[FlowSpec], node: usize) -> bool {
    flows.iter().any(|flow| flow.to == node && matches!(flow.kind, FlowKind::Engine(_)))
}

fn refuse(when: bool, path: impl Fn() -> String, what: &str) -> Checked {
    if when { Err(SimError::invalid(path(), what)) } else { Ok(()) }
}

impl Scenario {
    /// Whether it can be run.
    ///
    /// # Errors
    /// The first invalid value with its correction and its path: names of fields of this structure,
    /// without the kind of a flow and the configuration of a link, as in `flows[2].cc` or
    /// `links[0].rate`.
    pub fn check(&self) -> Result<(), SimError> {
        self.check_whole()?;
        self.check_nodes()?;
        self.check_links()?;
        let routes = Routes::new(self);
        let mut names = BTreeSet::new();
        for (i, flow) in self.flows.iter().enumerate() {
            let at = |field: &str| format!("flows[{i}].{field}");
            refuse(flow.name.is_empty(), || at("name"), "a flow needs a name")?;
            refuse(!names.insert(&flow.name), || at("name"), "another flow has this name")?;
            self.check_flow(flow, &routes, &at)?;
            self.check_depot(i, &at)?;
        }
        for (i, node) in self.nodes.iter().enumerate() {
            let idle = node.host.is_some() && !received_by_engine(&self.flows, i);
            refuse(idle, || format!("nodes[{i}].host"), IDLE_HOST)?;
        }
        Ok(())
    }

    fn check_whole(&self) -> Checked {
        let top = |field: &'static str| move || field.to_owned();
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let named = !self.name.is_empty() && self.name.chars().all(plain);
        refuse(!named, top("name"), "a name consists of letters, digits and dashes")?;
        refuse(self.duration.is_zero(), top("duration"), "must be longer than zero")?;
        let warm = self.warm_up >= self.duration;
        refuse(warm, top("warm_up"), "must be shorter than `duration`")?;
        let train = (1..=MAX_TRAIN_PACKETS).contains(&self.train);
        refuse(!train, top("train"), "must be from 1 to 64 packets")?;
        refuse(self.nodes.is_empty(), top("nodes"), "a scenario needs nodes")?;
        refuse(self.nodes.len() > MAX_NODES, top("nodes"), "at most 1024 nodes")?;
        refuse(self.flows.is_empty(), top("flows"), "a scenario needs a flow")?;
        refuse(self.flows.len() > MAX_ROWS, top("flows"), "at most 10000 flows")?;
        refuse(self.links.len() > MAX_ROWS, top("links"), "at most 10000 links")?;
        let recorded = self.record.is_none_or(|link| link < self.links.len());
        refuse(!recorded, top("record"), "there is no such link")?;
        let Some(every) = self.sample else { return Ok(()) };
        refuse(every.is_zero(), top("sample"), "must be longer than zero")?;
        let points = self.duration.as_nanos() / every.as_nanos();
        let points = points.saturating_mul(self.flows.len() as u64);
        refuse(points > MAX_CURVE_SAMPLES, top("sample"), "more than ten million points: longer")
    }

    fn check_nodes(&self) -> Checked {
        let mut names = BTreeSet::new();
        for (i, node) in self.nodes.iter().enumerate() {
            let at = |field: &str| format!("nodes[{i}].{field}");
            refuse(node.name.is_empty(), || at("name"), "a node needs a name")?;
            refuse(!names.insert(&node.name), || at("name"), "another node has this name")?;
            if let Some(host) = &node.host {
                host.check().map_err(|e| SimError::invalid(at(e.field), e.what))?;
            }
        }
        Ok(())
    }

    fn check_links(&self) -> Checked {
        let mut names = BTreeSet::new();
        for (i, link) in self.links.iter().enumerate() {
            let at = |field: &str| format!("links[{i}].{field}");
            refuse(link.name.is_empty(), || at("name"), "a link needs a name")?;
            refuse(!names.insert(&link.name), || at("name"), "another link has this name")?;
            let nodes = self.nodes.len();
            refuse(link.from >= nodes, || at("from"), "there is no such node")?;
            refuse(link.to >= nodes, || at("to"), "there is no such node")?;
            refuse(link.from == link.to, || at("to"), "a link joins two nodes")?;
            link.config.check().map_err(|e| SimError::invalid(at(e.field), e.what))?;
        }
        Ok(())
    }

    fn check_flow(&self, flow: &FlowSpec, routes: &Routes, at: &dyn Fn(&str) -> String) -> Checked {
        let nodes = self.nodes.len();
        refuse(flow.from >= nodes, || at("from"), "there is no such node")?;
        refuse(flow.to >= nodes, || at("to"), "there is no such node")?;
        refuse(flow.from == flow.to, || at("to"), "a flow goes from one node to another")?;
        let late = flow.start >= Time::ZERO + self.duration;
        refuse(late, || at("start"), "it starts only when the simulation is over")?;
        let early = flow.stop.is_some_and(|stop| stop <= flow.start);
        refuse(early, || at("stop"), "must be later than `start`")?;
        refuse(!routes.reaches(flow.from, flow.to), || at("to"), "no links lead there")?;
        let back = routes.reaches(flow.to, flow.from) || matches!(flow.kind, FlowKind::Cross(_));
        refuse(!back, || at("to"), "no links lead back from there")?;
        match &flow.kind {
            FlowKind::Tcp(tcp) => {
                check_tcp(tcp, at)?;
                let endless = tcp.bytes.is_none() && tcp.window.is_none();
                self.check_limit(flow, routes, endless, at)?;
                self.check_size(flow, routes, tcp.mss + tcp.header, at, "mss")
            }
            FlowKind::Short(short) => {
                check_short(short, at)?;
                self.check_size(flow, routes, short.tcp.mss + short.tcp.header, at, "mss")
            }
            FlowKind::Engine(engine) => {
                check_engine(engine, at)?;
                let endless = engine.bytes.is_none() && engine.ceiling.is_none();
                self.check_limit(flow, routes, endless, at)
            }
            FlowKind::Cross(cross) => {
                cross.check().map_err(|e| SimError::invalid(at(e.field), e.what))?;
                self.check_size(flow, routes, cross.packet, at, "packet")
            }
        }
    }

    /// Checks that a depot joins two matching connections.
    fn check_depot(&self, i: usize, at: &dyn Fn(&str) -> String) -> Checked {
        let Some(depot) = &self.flows[i].from_depot else { return Ok(()) };
        let FlowKind::Tcp(own) = &self.flows[i].kind else {
            return Err(SimError::invalid(at("from_depot"), "depots join TCP connections"));
        };
        let of = || at("from_depot.of");
        refuse(depot.of >= i, of, "must be a flow before this one")?;
        let before = &self.flows[depot.of];
        refuse(before.to != self.flows[i].from, of, "must end where this flow starts")?;
        let same = match &before.kind {
            FlowKind::Tcp(tcp) => tcp.bytes == own.bytes && tcp.mss == own.mss,
            _ => false,
        };
        refuse(!same, of, "must be a TCP connection with the same `bytes` and `mss`")?;
        let twice = self.flows[..i].iter().filter_map(|flow| flow.from_depot.as_ref());
        let twice = twice.into_iter().any(|other| other.of == depot.of);
        refuse(twice, of, "goes on in another flow already")
    }

    /// Checks that something limits an endless flow.
    fn check_limit(
        &self,
        flow: &FlowSpec,
        routes: &Routes,
        endless: bool,
        at: &dyn Fn(&str) -> String,
    ) -> Checked {
        let (mut node, mut limited) = (flow.from, !endless);
        while node != flow.to {
            let link = &self.links[routes.next(node, flow.to as u32) as usize];
            limited |= link.config.rate.steps.iter().all(|(_, rate)| *rate != DataRate::MAX);
            node = link.to;
        }
        refuse(
            !limited,
            || at("bytes"),
            "no link of the way has a rate, so a flow without end would grow for ever: give a link a \
             rate, or the flow `bytes`",
        )
    }

    /// Checks that full packets fit through every link of the path.
    fn check_size(
        &self,
        flow: &FlowSpec,
        routes: &Routes,
        size: ByteCount,
        at: &dyn Fn(&str) -> String,
        field: &str,
    ) -> Checked {
        let mut node = flow.from;
        while node != flow.to {
            let link = &self.links[routes.next(node, flow.to as u32) as usize];
            if size > link.config.mtu {
                let (name, mtu) = (&link.name, link.config.mtu.get());
                let packet = size.get();
                let what = format!("packets of {packet} bytes exceed the {mtu} of link `{name}`");
                return Err(SimError::invalid(at(field), what));
            }
            node = link.to;
        }
        Ok(())
    }
}

fn check_cc(cc: &str, at: &dyn Fn(&str) -> String) -> Checked {
    known_controller(cc).map_err(|error| SimError::invalid(at("cc"), error.to_string()))
}

fn check_tcp(tcp: &TcpSpec, at: &dyn Fn(&str) -> String) -> Checked {
    check_cc(&tcp.cc, at)?;
    let (mss, header) = (tcp.mss.get(), tcp.header.get());
    refuse(mss == 0, || at("mss"), "a segment has at least a byte")?;
    refuse(header == 0, || at("header"), "a packet has a header")?;
    let fits = mss.saturating_add(header) <= MAX_PACKET_BYTES;
    refuse(!fits, || at("mss"), "with its header a packet has at most 65535 bytes")?;
    refuse(
        tcp.bytes == Some(ByteCount::ZERO),
        || at("bytes"),
        "at least a byte, or none for ever",
    )?;
    let every = (1..=MAX_TRAIN_PACKETS).contains(&tcp.ack_every);
    refuse(!every, || at("ack_every"), "must be from 1 to 64 segments")?;
    let initial = (1..=1 << 20).contains(&tcp.initial_window);
    refuse(!initial, || at("initial_window"), "must be from 1 to 1048576 segments")?;
    let window = tcp.window.is_some_and(|window| window < tcp.mss);
    refuse(window, || at("window"), "must hold a segment")?;
    refuse(tcp.min_rto.is_zero(), || at("min_rto"), "must be longer than zero")
}

fn check_short(short: &ShortSpec, at: &dyn Fn(&str) -> String) -> Checked {
    check_tcp(&short.tcp, at)?;
    refuse(short.tcp.bytes.is_none(), || at("bytes"), "short connections need an end")?;
    refuse(short.count == 0, || at("count"), "at least one connection")?;
    match short.arrivals {
        Arrivals::Concurrent(n) => {
            let open = (1..=MAX_OPEN_CONNECTIONS).contains(&n);
            refuse(!open, || at("arrivals"), "from 1 to 100000 connections at a time")
        }
        Arrivals::Poisson(rate) => {
            let rate = rate.is_finite() && rate > 0.0;
            refuse(!rate, || at("arrivals"), "must be more than zero a second")
        }
    }
}

fn check_engine(engine: &EngineSpec, at: &dyn Fn(&str) -> String) -> Checked {
    check_cc(&engine.cc, at)?;
    let mtu = (512..=MAX_PACKET_BYTES).contains(&engine.mtu.get());
    refuse(!mtu, || at("mtu"), "must be from 512 to 65535 bytes")?;
    refuse(
        engine.bytes == Some(ByteCount::ZERO),
        || at("bytes"),
        "at least a byte, or none for ever",
    )
}
