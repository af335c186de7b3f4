//! The judgement of a cell: what `native` and `auto` must reach, and whether they do.

use serde_json::{Value, json};

use super::programs::Role;

/// `native` must reach this multiple of the best single connection of another program ...
pub(super) const OVER_PEER: f64 = 1.05;
/// ... or this share of the payload that the path can carry, whichever is less.
pub(super) const OF_CEILING: f64 = 0.985;
/// `auto` must reach this share of the better of `native` and `tcp`.
pub(super) const OF_BETTER: f64 = 0.95;

/// The median of a program in a cell, in bit/s; none if it has not ended.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) role: Role,
    pub(super) median: Option<f64>,
}

/// A requirement and what was measured, in bit/s.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Check {
    /// `native` or `auto`.
    pub(super) who: &'static str,
    pub(super) measured: Option<f64>,
    pub(super) target: f64,
    /// What the target was computed from.
    pub(super) from: String,
}

impl Check {
    pub(super) fn passed(&self) -> bool {
        self.measured.is_some_and(|measured| measured >= self.target)
    }

    fn json(&self) -> Value {
        json!({
            "who": self.who, "passed": self.passed(), "target_mbps": self.target / 1e6,
            "measured_mbps": self.measured.map(|bps| bps / 1e6), "target_from": self.from,
        })
    }
}

/// The judgement of one cell.
#[derive(Clone, Debug)]
pub(super) struct Verdict {
    pub(super) native: Option<f64>,
    /// The best single connection of another program.
    pub(super) best: Option<(String, f64)>,
    pub(super) ceiling: f64,
    /// What could be checked.
    pub(super) checks: Vec<Check>,
}

/// Judges the programs of a cell. `ceiling` is in bit/s. A program that was to run and has no
/// result misses its target; one that was not to run is not checked, and neither is `native` where
/// no other program ran.
pub(super) fn judge(entries: &[Entry], ceiling: f64) -> Verdict {
    let of = |role: Role| entries.iter().find(|entry| entry.role == role);
    let median = |role: Role| of(role).and_then(|entry| entry.median);
    let single = entries.iter().filter(|entry| entry.role == Role::Peer(1));
    let compared = single.clone().next().is_some();
    let best = single
        .filter_map(|entry| Some((entry.name.clone(), entry.median?)))
        .max_by(|a, b| a.1.total_cmp(&b.1));
    let mut checks = Vec::new();
    if compared && of(Role::Native).is_some() {
        let most = OF_CEILING * ceiling;
        let (target, from) = match &best {
            Some((name, bps)) if OVER_PEER * bps < most => {
                (OVER_PEER * bps, format!("{OVER_PEER} x {name}"))
            }
            _ => (most, format!("{OF_CEILING} x ceiling")),
        };
        checks.push(Check { who: "native", measured: median(Role::Native), target, from });
    }
    if of(Role::Auto).is_some() {
        let better = [Role::Native, Role::Tcp]
            .into_iter()
            .filter_map(|role| Some((median(role)?, of(role)?.name.clone())));
        if let Some((bps, name)) = better.max_by(|a, b| a.0.total_cmp(&b.0)) {
            checks.push(Check {
                who: "auto",
                measured: median(Role::Auto),
                target: OF_BETTER * bps,
                from: format!("{OF_BETTER} x {name}"),
            });
        }
    }
    Verdict { native: median(Role::Native), best, ceiling, checks }
}

impl Verdict {
    /// `native` as a multiple of the best peer.
    pub(super) fn over_peer(&self) -> Option<f64> {
        Some(self.native? / self.best.as_ref()?.1)
    }

    /// `native` as a share of the ceiling.
    pub(super) fn of_ceiling(&self) -> Option<f64> {
        Some(self.native? / self.ceiling)
    }

    pub(super) fn json(&self) -> Value {
        let checks: Vec<Value> = self.checks.iter().map(Check::json).collect();
        json!({
            "native_mbps": self.native.map(|bps| bps / 1e6),
            "best_single": self.best.as_ref().map(|(name, _)| name),
            "best_single_mbps": self.best.as_ref().map(|(_, bps)| bps / 1e6),
            "native_over_best_single": self.over_peer(),
            "native_of_ceiling": self.of_ceiling(),
            "ceiling_mbps": self.ceiling / 1e6,
            "checks": checks,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, role: Role, median: Option<f64>) -> Entry {
        Entry { name: name.to_owned(), role, median }
    }

    fn native_check(entries: &[Entry]) -> Check {
        judge(entries, 960.0).checks.into_iter().find(|check| check.who == "native").unwrap()
    }

    #[test]
    fn the_target_is_the_lesser_of_peer_and_ceiling() {
        let native = |bps| entry("packtrain native", Role::Native, bps);
        let bbr = |bps| entry("kernel bbr", Role::Peer(1), bps);
        let many = entry("kernel bbr x 16", Role::Peer(16), Some(955.0));
        let check = native_check(&[native(Some(900.0)), bbr(Some(800.0)), many.clone()]);
        assert_eq!(check.target, 1.05 * 800.0, "sixteen connections do not count");
        assert!(check.passed() && check.from.contains("kernel bbr"));
        let check = native_check(&[native(Some(945.0)), bbr(Some(940.0))]);
        assert_eq!(check.target, 0.985 * 960.0);
        assert!(!check.passed() && check.from.contains("ceiling"));
        let check = native_check(&[native(Some(945.7)), bbr(None)]);
        assert!(check.passed(), "a peer without a result is not the best");
        assert!(!native_check(&[native(None), bbr(Some(1.0))]).passed(), "no result is a miss");
    }

    #[test]
    fn auto_is_held_against_the_better_of_two() {
        let entries = |auto, native, tcp| {
            [
                entry("auto", Role::Auto, auto),
                entry("native", Role::Native, native),
                entry("tcp", Role::Tcp, tcp),
            ]
        };
        let check = |auto, native, tcp| {
            let verdict = judge(&entries(auto, native, tcp), 1000.0);
            verdict.checks.into_iter().find(|check| check.who == "auto")
        };
        let seen = check(Some(94.0), Some(80.0), Some(100.0)).unwrap();
        assert!((seen.target - 95.0).abs() < 1e-9 && !seen.passed());
        assert!(check(Some(95.0), Some(100.0), None).unwrap().passed());
        assert!(!check(None, Some(100.0), None).unwrap().passed());
        assert!(check(Some(1.0), None, None).is_none(), "nothing to compare with");
    }

    #[test]
    fn native_alone_is_not_checked() {
        let entries =
            [entry("native", Role::Native, Some(1.0)), entry("bbr x 4", Role::Peer(4), Some(2.0))];
        assert!(judge(&entries, 960.0).checks.is_empty());
    }

    #[test]
    fn ratios_are_of_the_best_peer_and_the_ceiling() {
        let entries = [
            entry("packtrain native", Role::Native, Some(480.0)),
            entry("quinn bbr", Role::Peer(1), Some(400.0)),
            entry("kernel cubic", Role::Peer(1), Some(240.0)),
        ];
        let verdict = judge(&entries, 960.0);
        assert_eq!(verdict.over_peer(), Some(1.2));
        assert_eq!(verdict.of_ceiling(), Some(0.5));
        assert_eq!(verdict.json()["best_single"], "quinn bbr");
    }
}
