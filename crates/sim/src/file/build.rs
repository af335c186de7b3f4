//! Builds a scenario from the values of a file.

use std::collections::{BTreeMap, BTreeSet};

use packtrain_units::{ByteCount, Duration};

use super::error::{FileError, suggestion};
use super::field::{Field, Fields, Source};
use super::link::Draft;
use super::names::Names;
use super::routes::{Edge, Routes};
use super::sweep::named;
use super::tree::{Place, Table};
use super::{flow, host};
use crate::check::{IDLE_HOST, received_by_engine};
use crate::spec::{FlowKind, FlowSpec, LinkSpec, NodeSpec, Scenario};

/// Reads a scenario; `repetition` is added to its seed.
pub(super) fn scenario(
    source: &Source,
    top: &Table,
    repetition: u64,
) -> Result<Scenario, FileError> {
    let fields = Fields::new(source, top, "", Place::Text(0));
    let seed = fields.or("seed", 1, |field| field.integer(0, i64::MAX as u64))? + repetition;
    let mut names = Names::default();
    let drafts = drafts(&fields, &mut names)?;
    let flows = items(&fields, "flow")?;
    let ends: Result<Vec<_>, _> = flows.iter().map(|flow| flow::ends(flow, &names)).collect();
    let bdp_rtt = fields.map("bdp_rtt", Field::some_duration)?;
    let (edges, mtus) = edges(&drafts);
    let mut routes = Routes::new(names.list().len(), &edges);
    let rtts = round_trips(&mut routes, &edges, &ends?.concat(), bdp_rtt);
    let links = links(&drafts, &rtts, seed)?;
    let duration = match (fields.get("duration"), flows.is_empty()) {
        (Some(field), _) => field.some_duration()?,
        (None, true) => Duration::from_secs(1),
        (None, false) => fields.need("duration", "\"60s\"")?.some_duration()?,
    };
    let flows = read_flows(&flows, &names, duration, &mut routes, &mtus)?;
    let scenario = Scenario {
        name: fields.or("name", "scenario".to_owned(), Field::name)?,
        title: fields.or("title", String::new(), |f| Ok(f.text("a sentence")?.to_owned()))?,
        warm_up: fields.or("warm_up", Duration::ZERO, |field| {
            let warm_up = field.duration()?;
            if warm_up >= duration {
                return Err(field.error(format!("must be below the duration, {duration}")));
            }
            Ok(warm_up)
        })?,
        sample: fields.map("sample", |field| sample(field, duration))?,
        nodes: nodes(&fields, &names, &flows, seed)?,
        record: fields.map("record", |field| recorded(field, &links))?,
        train: fields.or("train", 64, |field| field.integer(1, 64))? as u32,
        duration,
        seed,
        links,
        flows,
    };
    fields.done()?;
    Ok(scenario)
}

/// The elements of `[[key]]`, with their paths.
fn items<'a>(fields: &Fields<'a>, key: &'static str) -> Result<Vec<Field<'a>>, FileError> {
    let Some(field) = fields.get(key) else { return Ok(Vec::new()) };
    let mut items = field.list(&format!("a list of tables: write [[{key}]]"))?;
    for (index, item) in items.iter_mut().enumerate() {
        let name = named(item.value, key, index);
        if !name.is_empty() && name.len() <= 64 {
            item.path = format!("{key}.{}", name.escape_debug());
        }
    }
    Ok(items)
}

fn drafts<'a>(fields: &Fields<'a>, names: &mut Names) -> Result<Vec<Draft<'a>>, FileError> {
    let items = items(fields, "link")?;
    if items.is_empty() {
        let what = "there is no link: write [[link]] with from, to, rate and delay";
        return Err(fields.error(what));
    }
    let mut drafts = Vec::with_capacity(items.len());
    let mut seen = BTreeSet::new();
    for item in &items {
        let draft = Draft::read(item, names)?;
        if !seen.insert(draft.name.clone()) {
            let what = format!("there is a link `{}` already: give one a `name`", draft.name);
            return Err(item.error(what));
        }
        drafts.push(draft);
    }
    Ok(drafts)
}

/// Every direction of every link, and the largest packet of each.
fn edges(drafts: &[Draft<'_>]) -> (Vec<Edge>, Vec<(String, ByteCount)>) {
    let mut edges = Vec::new();
    let mut mtus = Vec::new();
    for draft in drafts {
        for way in 0..draft.directions() {
            let (from, to) = draft.ends_of(way);
            edges.push(Edge { from, to, delay: draft.delays[way] });
            mtus.push((draft.name_of(way), draft.mtus[way]));
        }
    }
    (edges, mtus)
}

/// The round trip that `bdp` refers to at each direction of each link: the given one, or the
/// longest of a flow that passes it in either direction, or that of the link alone.
fn round_trips(
    routes: &mut Routes<'_>,
    edges: &[Edge],
    ends: &[(usize, usize)],
    given: Option<Duration>,
) -> Vec<Duration> {
    if let Some(rtt) = given {
        return vec![rtt; edges.len()];
    }
    let mut rtts: Vec<Option<Duration>> = vec![None; edges.len()];
    for (from, to) in ends.iter().copied().collect::<BTreeSet<_>>() {
        let Some(there) = routes.path(from, to) else { continue };
        let back = routes.path(to, from).unwrap_or_default();
        let (one, other) = (routes.delay(&there), routes.delay(&back));
        let rtt = Duration::from_nanos(one.as_nanos().saturating_add(other.as_nanos()));
        for &edge in there.iter().chain(&back) {
            rtts[edge] = rtts[edge].max(Some(rtt));
        }
    }
    let alone = |edge: &Edge| Duration::from_nanos(edge.delay.as_nanos().saturating_mul(2));
    rtts.into_iter().zip(edges).map(|(rtt, edge)| rtt.unwrap_or_else(|| alone(edge))).collect()
}

fn links(drafts: &[Draft<'_>], rtts: &[Duration], seed: u64) -> Result<Vec<LinkSpec>, FileError> {
    let mut links = Vec::with_capacity(rtts.len());
    for draft in drafts {
        for way in 0..draft.directions() {
            let (from, to) = draft.ends_of(way);
            let index = links.len();
            let config = draft.config(way, rtts[index], derived(seed, index as u64))?;
            links.push(LinkSpec { name: draft.name_of(way), from, to, config });
        }
        draft.done()?;
    }
    Ok(links)
}

/// A separate seed for each element (splitmix64, Steele et al. 2014).
fn derived(seed: u64, index: u64) -> u64 {
    let mut z = seed.wrapping_add((index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Host models by the name of their node. A file without flows is for the emulator, which ignores
/// them.
fn nodes(
    fields: &Fields<'_>,
    names: &Names,
    flows: &[FlowSpec],
    seed: u64,
) -> Result<Vec<NodeSpec>, FileError> {
    let mut hosts = BTreeMap::new();
    for (index, item) in items(fields, "node")?.iter().enumerate() {
        let node = item.table("a table")?;
        let name = node.need("name", "\"a\"")?;
        let at = names.known(&name)?;
        let seed = derived(!seed, index as u64);
        let config = node.map("host", |field| {
            if !flows.is_empty() && !received_by_engine(flows, at) {
                return Err(field.error(IDLE_HOST));
            }
            host::read(field, seed)
        })?;
        node.done()?;
        if hosts.insert(at, config).is_some() {
            return Err(name.error("is a node that was described before: put both into one"));
        }
    }
    let node = |(index, name): (usize, &String)| NodeSpec {
        name: name.clone(),
        host: hosts.remove(&index).flatten(),
    };
    Ok(names.list().iter().enumerate().map(node).collect())
}

fn read_flows(
    items: &[Field<'_>],
    names: &Names,
    duration: Duration,
    routes: &mut Routes<'_>,
    mtus: &[(String, ByteCount)],
) -> Result<Vec<FlowSpec>, FileError> {
    let mut flows = Vec::new();
    let mut seen = BTreeSet::new();
    for (index, item) in items.iter().enumerate() {
        let read = flow::read(item, index, names, duration)?;
        reachable(&read, routes, names, mtus)?;
        let base = flows.len();
        for mut flow in read.flows {
            if let Some(depot) = &mut flow.from_depot {
                depot.of += base;
            }
            if !seen.insert(flow.name.clone()) {
                let what = format!("there is a flow `{}` already: choose another", flow.name);
                return Err(read.name.as_ref().unwrap_or(item).error(what));
            }
            flows.push(flow);
        }
        if flows.len() > flow::MAX_FLOWS {
            return Err(item.error(format!("more than {} flows", flow::MAX_FLOWS)));
        }
    }
    Ok(flows)
}

/// Checks that there is a path, and that the packets fit.
fn reachable(
    read: &flow::Read<'_>,
    routes: &mut Routes<'_>,
    names: &Names,
    mtus: &[(String, ByteCount)],
) -> Result<(), FileError> {
    for flow in read.flows.iter().take(read.hops) {
        reached(read, flow, routes, names, mtus)?;
    }
    Ok(())
}

fn reached(
    read: &flow::Read<'_>,
    flow: &FlowSpec,
    routes: &mut Routes<'_>,
    names: &Names,
    mtus: &[(String, ByteCount)],
) -> Result<(), FileError> {
    let name = |node: usize| &names.list()[node];
    let none = |from: usize, to: usize| {
        let (from, to) = (name(from), name(to));
        read.to.error(format!("no links lead from `{from}` to `{to}`: add a [[link]]"))
    };
    let path = routes.path(flow.from, flow.to).ok_or_else(|| none(flow.from, flow.to))?;
    if !matches!(flow.kind, FlowKind::Cross(_)) && routes.path(flow.to, flow.from).is_none() {
        return Err(none(flow.to, flow.from));
    }
    match path.iter().rev().map(|&edge| &mtus[edge]).find(|(_, mtu)| *mtu < read.packet) {
        None => Ok(()),
        Some((link, mtu)) => Err(read.to.error(format!(
            "its packets of {} bytes do not fit link `{link}`, whose mtu is {}: change one",
            read.packet.get(),
            mtu.get()
        ))),
    }
}

fn sample(field: &Field<'_>, duration: Duration) -> Result<Duration, FileError> {
    let sample = field.some_duration()?;
    if duration.as_nanos() / sample.as_nanos() > 10_000_000 {
        return Err(field.error("gives more than 10 million points: write a longer time"));
    }
    Ok(sample)
}

fn recorded(field: &Field<'_>, links: &[LinkSpec]) -> Result<usize, FileError> {
    let name = field.text("the name of a link")?;
    links.iter().position(|link| link.name == name).ok_or_else(|| {
        let known: Vec<_> = links.iter().map(|link| link.name.as_str()).collect();
        let shown = name.escape_debug();
        field.error(format!("there is no link `{shown}`: {}", suggestion(name, &known)))
    })
}
