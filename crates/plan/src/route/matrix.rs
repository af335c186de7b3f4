//! What is known of a network: how fast each host reaches each other, and what it can pass on.

use packtrain_units::DataRate;

/// A host, by its place in its [`Matrix`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub(super) u32);

impl HostId {
    /// Its place in the order in which the hosts were named.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What an edge costs: seconds a megabit, the inverse of its bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Cost(pub(super) f64);

impl Cost {
    /// There is no way.
    pub const INFINITE: Self = Self(f64::INFINITY);
    /// It costs nothing: an edge without a limit.
    pub const ZERO: Self = Self(0.0);

    /// Of an edge with this bandwidth; none at all if the bandwidth is zero.
    pub fn of(rate: DataRate) -> Self {
        Self(1e6 / rate.as_bps() as f64)
    }

    /// In seconds a megabit.
    pub fn seconds_per_megabit(self) -> f64 {
        self.0
    }

    /// Whether there is a way.
    pub fn is_finite(self) -> bool {
        self.0.is_finite()
    }

    /// The bandwidth; zero if there is no way, the largest there is if it costs nothing.
    pub fn bandwidth(self) -> DataRate {
        DataRate::from_bps((1e6 / self.0) as u64)
    }
}

/// There is no host of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no host is called {0:?}")]
pub struct NoSuchHost(pub String);

/// Forecasts of all edges between some hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    names: Vec<String>,
    /// Row by row, from row to column.
    edges: Vec<f64>,
    /// Through each host, when it is a depot.
    through: Vec<f64>,
    /// Relative error of each edge's forecast, as `edges`; empty if none is known.
    errors: Vec<f64>,
}

impl Matrix {
    /// Hosts without edges, and without a limit to what they pass on.
    ///
    /// # Panics
    /// There are more hosts than 2^20.
    pub fn new(names: Vec<String>) -> Self {
        let hosts = names.len();
        assert!(hosts <= 1 << 20, "{hosts} hosts are too many");
        Self {
            names,
            edges: vec![f64::INFINITY; hosts * hosts],
            through: vec![0.0; hosts],
            errors: Vec::new(),
        }
    }

    /// How many hosts there are.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there is no host.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// All hosts, in their order.
    pub fn hosts(&self) -> impl ExactSizeIterator<Item = HostId> + use<> {
        (0..self.names.len() as u32).map(HostId)
    }

    /// What a host is called.
    pub fn name(&self, host: HostId) -> &str {
        &self.names[host.index()]
    }

    /// The host of a name.
    ///
    /// # Errors
    /// There is none.
    pub fn host(&self, name: &str) -> Result<HostId, NoSuchHost> {
        let found = self.names.iter().position(|known| known == name);
        found.map(|at| HostId(at as u32)).ok_or_else(|| NoSuchHost(name.to_owned()))
    }

    /// Says how fast `from` reaches `to`.
    pub fn set_edge(&mut self, from: HostId, to: HostId, rate: DataRate) {
        let at = self.at(from, to);
        self.edges[at] = Cost::of(rate).0;
    }

    /// Says how much `host` can pass on as a depot.
    pub fn set_through(&mut self, host: HostId, rate: DataRate) {
        self.through[host.index()] = Cost::of(rate).0;
    }

    /// Says how far off the forecast of an edge is likely to be, as a part of it (one standard
    /// deviation); what is negative or not a number counts as 0.
    pub fn set_error(&mut self, from: HostId, to: HostId, relative: f64) {
        if self.errors.is_empty() {
            self.errors = vec![0.0; self.edges.len()];
        }
        let at = self.at(from, to);
        self.errors[at] = if relative > 0.0 { relative } else { 0.0 };
    }

    /// What it costs from one host to another without a depot.
    pub fn edge(&self, from: HostId, to: HostId) -> Cost {
        Cost(self.edges[self.at(from, to)])
    }

    /// What it costs to be passed on by a host.
    pub fn through(&self, host: HostId) -> Cost {
        Cost(self.through[host.index()])
    }

    /// How far off the forecast of an edge is likely to be, as a part of it; 0 if unknown.
    pub fn error(&self, from: HostId, to: HostId) -> f64 {
        self.errors.get(self.at(from, to)).copied().unwrap_or(0.0)
    }

    /// What it costs from one host to each.
    pub(super) fn row(&self, from: HostId) -> &[f64] {
        let hosts = self.names.len();
        &self.edges[from.index() * hosts..][..hosts]
    }

    /// Errors of the edges from one host, if any are known.
    pub(super) fn error_row(&self, from: HostId) -> Option<&[f64]> {
        let hosts = self.names.len();
        (!self.errors.is_empty()).then(|| &self.errors[from.index() * hosts..][..hosts])
    }

    fn at(&self, from: HostId, to: HostId) -> usize {
        from.index() * self.names.len() + to.index()
    }
}
