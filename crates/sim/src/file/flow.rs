//! `[[flow]]`: flows between nodes.

use packtrain_cc::SavedPath;
use packtrain_link::{CrossConfig, CrossKind};
use packtrain_units::{ByteCount, DataRate, Duration, Time};

use super::error::{FileError, suggestion};
use super::field::{Field, Fields};
use super::names::Names;
use crate::spec::{
    Arrivals, DepotSpec, EngineSpec, FlowKind, FlowSpec, Recovery, ShortSpec, TcpSpec,
};

/// Maximum flows of a scenario.
pub(super) const MAX_FLOWS: usize = 100_000;

/// IPv4 and UDP headers, which links count in addition to an engine's datagram.
const UDP_HEADERS: u64 = 28;

/// One or several flows of a kind, with the position of its fields in the file.
pub(super) struct Read<'a> {
    /// The flows to run; a depot counts flows from the first of these.
    pub(super) flows: Vec<FlowSpec>,
    /// Number of flows of one session.
    pub(super) hops: usize,
    /// The largest packet.
    pub(super) packet: ByteCount,
    /// Its destination, for errors.
    pub(super) to: Field<'a>,
    /// Its name, for errors.
    pub(super) name: Option<Field<'a>>,
}

/// Source and destination, which routes need. A session has a pair for each connection.
pub(super) fn ends(flow: &Field<'_>, names: &Names) -> Result<Vec<(usize, usize)>, FileError> {
    let fields = flow.table("a table")?;
    let from = names.known(&fields.need("from", "\"a\"")?)?;
    let to = fields.need("to", "\"b\"")?;
    let end = names.known(&to)?;
    if from == end {
        return Err(to.error("is where the flow starts: write the name of another node"));
    }
    let mut stations = vec![from];
    if let Some(via) = fields.get("via") {
        stations.extend(depots(&via, names)?);
    }
    stations.push(end);
    for (at, station) in stations.iter().enumerate() {
        if stations[..at].contains(station) {
            let name = &names.list()[*station];
            let what = format!("leads twice over `{name}`: name other nodes as depots");
            return Err(fields.get("via").unwrap_or(to).error(what));
        }
    }
    Ok(stations.windows(2).map(|pair| (pair[0], pair[1])).collect())
}

/// The nodes of `via`, in order: names separated by commas, or `none`.
fn depots(field: &Field<'_>, names: &Names) -> Result<Vec<usize>, FileError> {
    let text = field.text("names of nodes with commas between, or \"none\"")?;
    if text == "none" {
        return Ok(Vec::new());
    }
    let node = |name: &str| {
        let known = names.list().iter().position(|known| known == name);
        known.ok_or_else(|| {
            let list: Vec<_> = names.list().iter().map(String::as_str).collect();
            let what = format!("no link has a node `{name}`: {}", suggestion(name, &list));
            field.error(what)
        })
    };
    text.split(',').map(|name| node(name.trim())).collect()
}

/// `depot`: the buffers of the depots of a session; the paper's by default.
fn depot(fields: &Fields<'_>) -> Result<DepotSpec, FileError> {
    let paper = DepotSpec::paper(0);
    let Some(field) = fields.get("depot") else { return Ok(paper) };
    let table = field.table("a table such as { receive = \"8MB\", user = \"16MB\" }")?;
    let read = DepotSpec {
        receive: table.or("receive", paper.receive, |f| f.size(64, 1 << 40))?,
        user: table.or("user", paper.user, |f| f.size(0, 1 << 40))?,
        send: table.or("send", paper.send, |f| f.size(64, 1 << 40))?,
        ..paper
    };
    table.done()?;
    Ok(read)
}

/// Reads a flow of a scenario that lasts `duration`.
pub(super) fn read<'a>(
    flow: &Field<'a>,
    index: usize,
    names: &Names,
    duration: Duration,
) -> Result<Read<'a>, FileError> {
    let hops = ends(flow, names)?;
    let fields = flow.table("a table")?;
    let _ = (fields.get("from"), fields.get("to"));
    let (via, buffers) = (fields.get("via"), depot(&fields)?);
    let name_field = fields.get("name");
    let name = name_field.as_ref().map(Field::name).transpose()?;
    let name = name.unwrap_or_else(|| format!("flow{}", index + 1));
    let kinds = [("tcp", 0), ("engine", 1), ("cross", 2), ("short", 3)];
    let kind = fields.or("kind", 0, |field| field.choice(&kinds))?;
    let (kind, packet) = match kind {
        0 => {
            let spec = tcp(&fields, false)?;
            let packet = spec.mss + spec.header;
            (FlowKind::Tcp(spec), packet)
        }
        1 => {
            let spec = engine(&fields)?;
            let packet = spec.mtu + ByteCount(UDP_HEADERS);
            (FlowKind::Engine(spec), packet)
        }
        2 => {
            let spec = cross(&fields)?;
            let packet = spec.packet;
            (FlowKind::Cross(spec), packet)
        }
        _ => {
            let spec = short(&fields)?;
            let packet = spec.tcp.mss + spec.tcp.header;
            (FlowKind::Short(spec), packet)
        }
    };
    if let Some(via) = via.filter(|_| !matches!(kind, FlowKind::Tcp(_))) {
        return Err(via.error("depots join connections of kind \"tcp\": take it out"));
    }
    let count = fields.or("count", 1, |field| field.integer(1, MAX_FLOWS as u64))?;
    let stagger = fields.or("stagger", Duration::ZERO, Field::duration)?;
    let (start, stop) = span(&fields, duration, stagger, count)?;
    fields.done()?;
    // The last connection has the session's own name: its delivered data is the session's.
    let one = |i: u64, hop: usize| {
        let name = if count == 1 { name.clone() } else { format!("{name}-{}", i + 1) };
        let before = i as usize * hops.len() + hop;
        FlowSpec {
            name: if hop + 1 == hops.len() { name } else { format!("{name}-hop{}", hop + 1) },
            from: hops[hop].0,
            to: hops[hop].1,
            start: start + stagger * i,
            stop,
            kind: kind.clone(),
            from_depot: (hop > 0).then(|| DepotSpec { of: before - 1, ..buffers }),
        }
    };
    let to = flow.table("a table")?.need("to", "\"b\"")?;
    let sessions = (0..count).flat_map(|i| (0..hops.len()).map(move |hop| (i, hop)));
    let flows = sessions.map(|(i, hop)| one(i, hop)).collect();
    Ok(Read { flows, hops: hops.len(), packet, to, name: name_field })
}

/// Start and stop times.
fn span(
    fields: &Fields<'_>,
    duration: Duration,
    stagger: Duration,
    count: u64,
) -> Result<(Time, Option<Time>), FileError> {
    let field = fields.get("start");
    let start = field.as_ref().map_or(Ok(Duration::ZERO), Field::duration)?;
    let last = stagger.as_nanos().saturating_mul(count - 1).saturating_add(start.as_nanos());
    if last >= duration.as_nanos() {
        let what = format!("the scenario ends at {duration}, before every flow started");
        return Err(field
            .or_else(|| fields.get("stagger"))
            .map_or_else(|| fields.error(what.clone()), |field| field.error(what.clone())));
    }
    let stop = fields.map("stop", |field| {
        let stop = field.duration()?;
        if stop.as_nanos() <= last {
            return Err(field.error("is not after the start"));
        }
        Ok(Time::ZERO + stop)
    })?;
    Ok((Time::ZERO + start, stop))
}

fn tcp(fields: &Fields<'_>, sized: bool) -> Result<TcpSpec, FileError> {
    let linux = fields.or("stack", true, |f| f.choice(&[("linux", true), ("ns2", false)]))?;
    let base = if linux { TcpSpec::linux("cubic") } else { TcpSpec::ns2("reno") };
    let recoveries =
        [("newreno", Recovery::NewReno), ("sack", Recovery::Sack), ("rack", Recovery::Rack)];
    if sized {
        fields.need("bytes", "\"100kB\"")?;
    }
    Ok(TcpSpec {
        cc: fields.or("cc", base.cc, controller)?,
        recovery: fields.or("recovery", base.recovery, |f| f.choice(&recoveries))?,
        bytes: fields.map("bytes", some_bytes)?,
        mss: fields.or("mss", base.mss, |f| f.size(64, 65_000))?,
        header: fields.or("header", base.header, |f| f.size(20, 256))?,
        ack_every: fields.or("ack_every", base.ack_every, |f| Ok(f.integer(1, 64)? as u32))?,
        ack_delay: fields.or("ack_delay", base.ack_delay, Field::duration)?,
        initial_window: fields
            .or("initial_window", base.initial_window, |f| Ok(f.integer(1, 100_000)? as u32))?,
        window: fields.map("window", |f| f.size(64, 1 << 50))?,
        min_rto: fields.or("min_rto", base.min_rto, Field::some_duration)?,
        paced: fields.or("paced", base.paced, Field::bool)?,
    })
}

fn engine(fields: &Fields<'_>) -> Result<EngineSpec, FileError> {
    Ok(EngineSpec {
        cc: fields.or("cc", "native".to_owned(), controller)?,
        bytes: fields.map("bytes", some_bytes)?,
        mtu: fields.or("mtu", ByteCount(1_472), |f| f.size(1_200, 65_507))?,
        codec: fields.or("codec", false, Field::bool)?,
        ceiling: fields.map("ceiling", Field::some_rate)?,
        coalesce: fields.or("coalesce", true, Field::bool)?,
        train: fields.or("train", packtrain_proto::TRAIN_PACKETS, |f| {
            Ok(f.integer(1, u64::from(packtrain_proto::TRAIN_PACKETS))? as u32)
        })?,
        warnings: fields.or("warnings", true, Field::bool)?,
        ecn: fields.or("ecn", true, Field::bool)?,
        probe_train: fields.map("probe_train", Field::duration)?,
        saved: fields.map("saved", saved)?,
    })
}

/// What an earlier flow measured of the path.
fn saved(field: &Field<'_>) -> Result<SavedPath, FileError> {
    let table = field.table("a table such as { rate = \"900mbit\", rtt = \"100ms\" }")?;
    let rate = table.need("rate", "\"900mbit\"")?.some_rate()?;
    let rtt = table.need("rtt", "\"100ms\"")?.some_duration()?;
    table.done()?;
    Ok(SavedPath { rate, rtt })
}

fn short(fields: &Fields<'_>) -> Result<ShortSpec, FileError> {
    let tcp = tcp(fields, true)?;
    let count = fields.need("connections", "1000")?.integer(1, 10_000_000)? as u32;
    let arrivals = match (fields.get("concurrent"), fields.get("per_second")) {
        (Some(some), None) => Arrivals::Concurrent(some.integer(1, 100_000)? as u32),
        (None, Some(rate)) => Arrivals::Poisson(rate.number(0.0, 1e7)?),
        (None, None) => {
            return Err(fields.error(
                "short connections need `concurrent = 10` (so many at a time) or \
                 `per_second = 50` (a Poisson process)",
            ));
        }
        (Some(_), Some(rate)) => {
            return Err(rate.error("`concurrent` or `per_second`: leave one out"));
        }
    };
    Ok(ShortSpec { tcp, count, arrivals })
}

fn cross(fields: &Fields<'_>) -> Result<CrossConfig, FileError> {
    let packet = fields.or("packet", ByteCount(1_500), |f| f.size(20, 65_535))?;
    let traffic = fields.need("traffic", "\"poisson\"")?;
    let kinds = [("cbr", 0), ("poisson", 1), ("pareto", 2), ("bursts", 3)];
    let rate = |key| fields.need(key, "\"100mbit\"")?.some_rate();
    let kind = match traffic.choice(&kinds)? {
        0 => CrossKind::Cbr(cbr(fields)?),
        1 => CrossKind::Poisson(rate("rate")?),
        2 => CrossKind::ParetoOnOff {
            rate: rate("rate")?,
            on: fields.need("on", "\"100ms\"")?.some_duration()?,
            off: fields.need("off", "\"200ms\"")?.some_duration()?,
            shape: fields.or("shape", 1.5, |f| f.number(1.0, 1e3))?,
        },
        _ => bursts(fields)?,
    };
    Ok(CrossConfig { packet, kind })
}

/// `rate`, or `steps` of times and rates.
fn cbr(fields: &Fields<'_>) -> Result<Vec<(Time, DataRate)>, FileError> {
    let Some(field) = fields.get("steps") else {
        let rate = fields.need("rate", "\"100mbit\"` or `steps = [[\"0s\", \"100mbit\"]]")?;
        return Ok(vec![(Time::ZERO, rate.some_rate()?)]);
    };
    if let Some(rate) = fields.get("rate") {
        return Err(rate.error("`rate` or `steps`: leave one out"));
    }
    let mut steps: Vec<(Time, DataRate)> = Vec::new();
    for (at, rate) in pairs(&field, "[\"10s\", \"100mbit\"]")? {
        let time = Time::ZERO + at.duration()?;
        if steps.last().is_some_and(|(before, _)| *before >= time) {
            return Err(at.error("is not after the step before it"));
        }
        steps.push((time, rate.rate()?));
    }
    if steps.is_empty() {
        return Err(field.error("has no step: write [[\"0s\", \"100mbit\"]]"));
    }
    Ok(steps)
}

fn bursts(fields: &Fields<'_>) -> Result<CrossKind, FileError> {
    let line = fields.need("line", "\"10gbit\"")?;
    let rate = fields.need("rate", "\"100mbit\"")?;
    let (line_rate, mean) = (line.some_rate()?, rate.some_rate()?);
    if mean >= line_rate {
        return Err(rate.error(format!("the mean must be below the `line` rate, {line_rate}")));
    }
    let packets = fields.or("packets", 44, |f| f.integer(1, 1_000))? as u32;
    Ok(CrossKind::Bursts { packets, line: line_rate, mean })
}

fn some_bytes(field: &Field<'_>) -> Result<ByteCount, FileError> {
    field.size(1, 1 << 60)
}

/// The name of a known controller.
fn controller(field: &Field<'_>) -> Result<String, FileError> {
    let name = field.text("the name of a controller, such as \"cubic\"")?;
    let config = packtrain_cc::ControllerConfig {
        mtu: ByteCount(1_500),
        seed: 1,
        now: Time::ZERO,
        ceiling: None,
        rtt: None,
    };
    match packtrain_cc::build(name, &config) {
        Ok(_) => Ok(name.to_owned()),
        Err(packtrain_cc::BuildError::Unknown(_)) => {
            let known = packtrain_cc::names();
            let name: String = name.chars().take(60).collect();
            let what = format!("there is no controller `{name}`: {}", suggestion(&name, &known));
            Err(field.error(what))
        }
        Err(error) => Err(field.error(error.to_string())),
    }
}

/// A list of pairs.
pub(super) fn pairs<'a>(
    field: &Field<'a>,
    example: &str,
) -> Result<Vec<(Field<'a>, Field<'a>)>, FileError> {
    let wanted = format!("a list of pairs such as {example}");
    let pair = |item: &Field<'a>| {
        let parts = item.list(&format!("a pair such as {example}"))?;
        match <[Field<'a>; 2]>::try_from(parts) {
            Ok([first, second]) => Ok((first, second)),
            Err(_) => Err(item.error(format!("is not a pair such as {example}"))),
        }
    };
    field.list(&wanted)?.iter().map(pair).collect()
}
