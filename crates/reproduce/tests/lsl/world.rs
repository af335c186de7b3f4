//! Hosts on a map, the rates of their paths, and measurements of them.

use packtrain_plan::forecast::Battery;
use packtrain_plan::route::{Forecasted, HostId, Matrix};
use packtrain_units::{DataRate, Duration, Rng};

/// Payload bytes of a segment.
pub(crate) const MSS: f64 = 1_448.0;

/// The parameters of a kind of network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) hosts: usize,
    /// Number of hosts that are depots in the core: large buffers, no last mile, no cap.
    pub(crate) core: usize,
    /// Maximum hosts of a site.
    pub(crate) site: usize,
    /// Kilobytes that a host's socket buffers hold.
    pub(crate) buffer_kb: f64,
    /// Access rate of hosts in Mbit/s, minimum and maximum; the rate left for a path differs by
    /// this part.
    pub(crate) access: (f64, f64),
    pub(crate) uneven: f64,
    /// Loss rates: at each end, and per 1,000 km.
    pub(crate) loss_end: f64,
    pub(crate) loss_far: f64,
    /// The share of hosts with an administrative cap on their sending rate.
    pub(crate) capped: f64,
    /// Median of a host's forwarding rate, in Mbit/s.
    pub(crate) through: f64,
    /// Variation of paths from forecast to forecast, and of measurements from the path.
    pub(crate) drift: f64,
    pub(crate) noise: f64,
}

/// Nodes of PlanetLab in 2004: 64 KB buffers, caps, shared machines.
pub(crate) const PLANETLAB: Kind = Kind {
    name: "planetlab",
    hosts: 142,
    core: 0,
    site: 3,
    buffer_kb: 64.0,
    access: (1.0, 20.0),
    uneven: 0.1,
    loss_end: 2e-5,
    loss_far: 2e-5,
    capped: 0.3,
    through: 20.0,
    drift: 0.1,
    noise: 0.1,
};

/// Ten universities with such nodes, and eleven depots in the core of Abilene.
pub(crate) const TEN_SITES: Kind = Kind {
    name: "ten sites",
    hosts: 21,
    core: 11,
    site: 1,
    access: (20.0, 100.0),
    capped: 0.2,
    ..PLANETLAB
};

/// Tuned hosts, losses in the network.
pub(crate) const LOSSY: Kind = Kind {
    name: "lossy",
    hosts: 24,
    site: 2,
    buffer_kb: 16_384.0,
    access: (64.0, 800.0),
    uneven: 0.5,
    loss_end: 2e-4,
    loss_far: 5e-4,
    capped: 0.1,
    through: 400.0,
    drift: 0.1,
    noise: 0.1,
    ..PLANETLAB
};

/// Small buffers, good depots in the core.
pub(crate) const CORE: Kind =
    Kind { name: "core depots", core: 6, drift: 0.1, noise: 0.15, ..NOISY };

/// PlanetLab at a smaller size, with more noise.
pub(crate) const NOISY: Kind = Kind {
    name: "noisy",
    hosts: 24,
    access: (8.0, 100.0),
    uneven: 0.5,
    drift: 0.25,
    noise: 0.35,
    ..PLANETLAB
};

/// Few losses and high rates: depots hardly help.
pub(crate) const CLEAN: Kind = Kind {
    name: "clean",
    hosts: 24,
    buffer_kb: 16_384.0,
    access: (64.0, 800.0),
    uneven: 0.5,
    loss_end: 1e-8,
    loss_far: 1e-8,
    through: 900.0,
    drift: 0.05,
    noise: 0.05,
    ..PLANETLAB
};

/// A host.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    at: (f64, f64),
    pub(crate) site: usize,
    pub(crate) core: bool,
    /// Last mile in milliseconds, and its rate in Mbit/s.
    mile: f64,
    access: f64,
    /// Maximum sending rate in Mbit/s; infinite without a cap.
    pub(crate) cap: f64,
    pub(crate) buffer: f64,
    /// Maximum forwarding rate.
    pub(crate) through: f64,
}

/// A path between two hosts, with its mean properties.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Path {
    pub(crate) rtt: f64,
    pub(crate) loss: f64,
    /// The minimum link rate without the cap, in Mbit/s.
    pub(crate) link: f64,
    /// The minimum buffer in bytes.
    pub(crate) window: f64,
    /// Mean rate of one TCP in Mbit/s in total, and as seen by a probe that ends before a cap
    /// applies.
    pub(crate) rate: f64,
    pub(crate) probed: f64,
}

/// The hosts, their paths and their current state.
pub(crate) struct World {
    pub(crate) kind: Kind,
    pub(crate) hosts: Vec<Host>,
    paths: Vec<Path>,
    /// Logarithm of the current value of each path, then of each host, relative to its mean.
    state: Vec<f64>,
    rng: Rng,
}

pub(crate) fn normal(rng: &mut Rng) -> f64 {
    let (a, b) = (rng.unit().max(1e-300), rng.unit());
    (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
}

fn between(rng: &mut Rng, low: f64, high: f64) -> f64 {
    low * (high / low).powf(rng.unit())
}

impl World {
    pub(crate) fn new(kind: Kind, seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x15_1a5e);
        let hosts = hosts(&kind, &mut rng);
        let n = hosts.len();
        let mut world =
            Self { kind, hosts, paths: vec![Path::default(); n * n], state: Vec::new(), rng };
        for i in 0..n {
            for j in 0..n {
                world.paths[i * n + j] = world.drawn(i, j);
            }
        }
        for i in 0..n {
            for j in 0..i {
                // Both directions have the same length.
                world.paths[i * n + j].rtt = world.paths[j * n + i].rtt;
                let path = world.rated(i, j, world.paths[i * n + j]);
                world.paths[i * n + j] = path;
            }
        }
        world.state = (0..n * n + n).map(|_| kind.drift * normal(&mut world.rng)).collect();
        world
    }

    pub(crate) fn len(&self) -> usize {
        self.hosts.len()
    }

    pub(crate) fn path(&self, from: usize, to: usize) -> &Path {
        &self.paths[from * self.len() + to]
    }

    /// The current rate of one TCP, in Mbit/s.
    pub(crate) fn rate(&self, from: usize, to: usize) -> f64 {
        let path = self.path(from, to);
        (path.rate * self.state[from * self.len() + to].exp()).min(self.hosts[from].cap)
    }

    /// The current forwarding rate of a host, in Mbit/s.
    pub(crate) fn through(&self, host: usize) -> f64 {
        self.hosts[host].through * self.state[self.len() * self.len() + host].exp()
    }

    /// Advances five minutes.
    pub(crate) fn step(&mut self) {
        let (keep, drift) = (0.9_f64, self.kind.drift);
        for state in &mut self.state {
            *state = keep * *state + drift * (1.0 - keep * keep).sqrt() * normal(&mut self.rng);
        }
    }

    /// A random factor for one transfer or measurement.
    pub(crate) fn noise(&mut self, deviation: f64) -> f64 {
        (deviation * normal(&mut self.rng)).exp()
    }

    fn drawn(&mut self, i: usize, j: usize) -> Path {
        let rng = &mut self.rng;
        let (a, b) = (&self.hosts[i], &self.hosts[j]);
        let far = (a.at.0 - b.at.0).hypot(a.at.1 - b.at.1) / 1_000.0;
        // Light in glass needs 5 us per kilometre; cables are not straight, and one path in sixteen
        // takes a detour.
        let core = a.core && b.core;
        let stretch = 1.2 + 0.5 * (0.5 * normal(rng)).exp() * if core { 0.3 } else { 1.0 };
        let detour = if !core && rng.unit() < 0.06 { 1.5 + rng.unit() } else { 1.0 };
        let same = a.site == b.site && !core;
        let rtt = if same { 0.3 } else { 10.0 * far * stretch * detour + a.mile + b.mile + 0.2 };
        let ends = f64::from(u8::from(!a.core) + u8::from(!b.core)) * self.kind.loss_end;
        let loss = (ends + self.kind.loss_far * far * (0.4 * normal(rng)).exp()).max(1e-9);
        let link = if same {
            90.0
        } else {
            a.access.min(b.access) * (1.0 - self.kind.uneven * rng.unit())
        };
        let loss = if same { 1e-8 } else { loss };
        let path = Path { rtt, loss, link, window: a.buffer.min(b.buffer), ..Path::default() };
        self.rated(i, j, path)
    }

    fn rated(&self, i: usize, _: usize, path: Path) -> Path {
        let seconds = path.rtt / 1e3;
        let window = path.window * 8.0 / seconds / 1e6;
        let mathis = MSS * 8.0 / seconds * (1.5 / path.loss).sqrt() / 1e6;
        let probed = path.link.min(window).min(mathis);
        Path { probed, rate: probed.min(self.hosts[i].cap), ..path }
    }
}

fn hosts(kind: &Kind, rng: &mut Rng) -> Vec<Host> {
    let (mut hosts, mut site) = (Vec::new(), 0);
    // North America, Europe, Asia: positions in kilometres on a plane.
    let areas = [
        ((0.0, 4_200.0), (0.0, 2_000.0)),
        ((8_000.0, 9_800.0), (0.0, 1_800.0)),
        ((-9_500.0, -7_500.0), (-500.0, 2_500.0)),
    ];
    let core = kind.core;
    while hosts.len() < kind.hosts {
        let is_core = hosts.len() < core;
        let area = match rng.unit() {
            _ if core > 0 => 0,
            x if x < 0.65 => 0,
            x if x < 0.85 => 1,
            _ => 2,
        };
        let ((left, right), (low, high)) = areas[area];
        let at = (left + (right - left) * rng.unit(), low + (high - low) * rng.unit());
        let many = if is_core { 1 } else { 1 + (rng.unit() * kind.site as f64) as usize };
        let (mile, access) = match is_core {
            true => (0.2, 900.0),
            false => (between(rng, 0.5, 6.0), between(rng, kind.access.0, kind.access.1)),
        };
        for _ in 0..many.min(kind.hosts - hosts.len()) {
            let capped = !is_core && rng.unit() < kind.capped;
            let through = between(rng, kind.through / 3.0, kind.through * 3.0);
            hosts.push(Host {
                at,
                site,
                core: is_core,
                mile,
                access,
                cap: if capped { between(rng, 1.5, 10.0) } else { f64::INFINITY },
                buffer: if is_core { 8e6 } else { kind.buffer_kb * 1_000.0 },
                through: if is_core { 800.0 } else { through },
            });
        }
        site += 1;
    }
    hosts
}

pub(crate) fn mbps(rate: f64) -> DataRate {
    DataRate::from_bps((rate * 1e6) as u64)
}

/// Forecasts of all paths, by the battery.
pub(crate) struct Observer {
    n: usize,
    edges: Vec<Battery>,
    through: Vec<Battery>,
}

/// The source of the measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sensors {
    /// The paper's: short probes, which end before a cap applies, between one host of each site;
    /// the other hosts of a site are assumed equal.
    Probes,
    /// This project's: the rates of transfers between the hosts themselves, and the forwarding
    /// rates of hosts.
    Transfers,
}

impl Observer {
    pub(crate) fn new(world: &World) -> Self {
        let n = world.len();
        Self { n, edges: vec![Battery::new(); n * n], through: vec![Battery::new(); n] }
    }

    /// Measures every path once.
    pub(crate) fn measure(&mut self, world: &mut World, sensors: Sensors) {
        let noise = world.kind.noise;
        for from in 0..self.n {
            for to in (0..self.n).filter(|to| *to != from) {
                let first = |host: usize| {
                    let site = world.hosts[host].site;
                    world.hosts.iter().position(|h| h.site == site).unwrap_or(host)
                };
                let truth = match sensors {
                    Sensors::Transfers => world.rate(from, to),
                    Sensors::Probes => {
                        let (mut a, mut b) = (first(from), first(to));
                        if a == b {
                            (a, b) = (from, to);
                        }
                        let now = world.state[a * self.n + b];
                        world.path(a, b).probed * now.exp()
                    }
                };
                let measured = truth * world.noise(noise);
                self.edges[from * self.n + to].learn(measured).expect("a number");
            }
            let measured = world.through(from) * world.noise(noise);
            self.through[from].learn(measured).expect("a number");
        }
    }

    pub(crate) fn edge(&self, from: usize, to: usize) -> Forecasted {
        forecasted(&self.edges[from * self.n + to])
    }

    pub(crate) fn host(&self, host: usize) -> Forecasted {
        forecasted(&self.through[host])
    }

    /// The input of the route computation.
    pub(crate) fn matrix(&self, with_hosts: bool) -> Matrix {
        let mut matrix = Matrix::new((0..self.n).map(|at| format!("h{at}")).collect());
        let ids: Vec<HostId> = matrix.hosts().collect();
        for &from in &ids {
            for &to in ids.iter().filter(|to| **to != from) {
                let edge = self.edge(from.index(), to.index());
                matrix.set_edge(from, to, edge.rate);
                matrix.set_error(from, to, edge.error);
            }
            if with_hosts {
                matrix.set_through(from, self.host(from.index()).rate);
            }
        }
        matrix
    }
}

fn forecasted(battery: &Battery) -> Forecasted {
    let forecast = battery.forecast().expect("it was measured");
    Forecasted { rate: mbps(forecast.value), error: forecast.relative_error }
}

/// A round trip as a duration.
pub(crate) fn span(milliseconds: f64) -> Duration {
    Duration::from_secs_f64(milliseconds / 1e3)
}
