//! Forecasts of a network: the bandwidth between hosts, and what each host can relay.

use packtrain_units::DataRate;

/// A host, by its index in its [`Matrix`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub(super) u32);

impl HostId {
    /// Its index in the order in which the hosts were named.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The cost of an edge: seconds per megabit, the inverse of its bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Cost(pub(super) f64);

impl Cost {
    /// The cost of an edge without a limit.
    pub const ZERO: Self = Self(0.0);

    /// The cost of an edge with this bandwidth; infinite if the bandwidth is zero.
    pub fn of(rate: DataRate) -> Self {
        Self(1e6 / rate.as_bps() as f64)
    }

    /// In seconds per megabit.
    pub fn seconds_per_megabit(self) -> f64 {
        self.0
    }

    /// Whether there is a path.
    pub fn is_finite(self) -> bool {
        self.0.is_finite()
    }

    /// The bandwidth; zero if there is no path, the maximum if the cost is zero.
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
    /// Relay limit of each host as a depot.
    through: Vec<f64>,
    /// Relative error of each edge's forecast, in the order of `edges`; empty if none is known.
    errors: Vec<f64>,
}

impl Matrix {
    /// Hosts without edges, and without relay limits.
    ///
    /// # Panics
    /// If there are more than 2^20 hosts.
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

    /// Number of hosts.
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

    /// The name of a host.
    pub fn name(&self, host: HostId) -> &str {
        &self.names[host.index()]
    }

    /// The host with this name.
    ///
    /// # Errors
    /// There is none.
    pub fn host(&self, name: &str) -> Result<HostId, NoSuchHost> {
        let found = self.names.iter().position(|known| known == name);
        found.map(|at| HostId(at as u32)).ok_or_else(|| NoSuchHost(name.to_owned()))
    }

    /// Sets the bandwidth from `from` to `to`.
    pub fn set_edge(&mut self, from: HostId, to: HostId, rate: DataRate) {
        let at = self.at(from, to);
        self.edges[at] = Cost::of(rate).0;
    }

    /// Sets the bandwidth that `host` can relay as a depot.
    pub fn set_through(&mut self, host: HostId, rate: DataRate) {
        self.through[host.index()] = Cost::of(rate).0;
    }

    /// Sets the relative error of the forecast of an edge (one standard deviation); a negative
    /// value or NaN counts as 0.
    pub fn set_error(&mut self, from: HostId, to: HostId, relative: f64) {
        if self.errors.is_empty() {
            self.errors = vec![0.0; self.edges.len()];
        }
        let at = self.at(from, to);
        self.errors[at] = if relative > 0.0 { relative } else { 0.0 };
    }

    /// The cost of the direct edge from one host to another.
    pub fn edge(&self, from: HostId, to: HostId) -> Cost {
        Cost(self.edges[self.at(from, to)])
    }

    /// The cost of being relayed by a host.
    pub fn through(&self, host: HostId) -> Cost {
        Cost(self.through[host.index()])
    }

    /// The relative error of the forecast of an edge; 0 if unknown.
    pub fn error(&self, from: HostId, to: HostId) -> f64 {
        self.errors.get(self.at(from, to)).copied().unwrap_or(0.0)
    }

    /// The costs of the edges from one host.
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
