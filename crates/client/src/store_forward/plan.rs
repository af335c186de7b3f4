//! The depots of a kept session, as a user writes them: the chain `D1,D2`, or a tree,
//! `D1(D2,D3(D4,D5))`.

use std::fmt;
use std::str::FromStr;

use packtrain_session::spool::Policy;
use packtrain_session::{Place, PlaceError};

/// Maximum number of depots in a chain.
const MAX_CHAIN: usize = 8;
/// Maximum number of depots in a tree.
const MAX_TREE: usize = 32;

/// A depot of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedDepot {
    /// The index of the depot that sends the records to it; `None` for the sender.
    pub parent: Option<u8>,
    /// The policy if it is slow.
    pub policy: Policy,
    /// Its address.
    pub place: Place,
}

/// Depots, each after its parent. The first one is the sender's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DepotPlan {
    pub(super) tree: bool,
    pub(super) depots: Vec<PlannedDepot>,
}

/// Why a text is not a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A malformed address.
    #[error("`{0}` is {1}")]
    Place(String, PlaceError),
    /// Unpaired brackets, or a missing depot.
    #[error(
        "write depots one behind the other, D1,D2, or as a tree with one root, D1(D2,D3(D4,D5)); \
         wait: or drop: before one of a tree says what becomes of it when it is slow"
    )]
    Shape,
    /// There are too many depots.
    #[error("at most {MAX_CHAIN} depots one behind the other and {MAX_TREE} in a tree")]
    Many,
    /// A depot occurs twice.
    #[error("{0} is there twice: name each depot once")]
    Twice(Place),
}

impl DepotPlan {
    /// Creates a chain of depots.
    ///
    /// # Errors
    /// No depot, too many, or one twice.
    pub fn chain(places: &[Place]) -> Result<Self, PlanError> {
        let depot = |(n, place): (usize, &Place)| PlannedDepot {
            parent: n.checked_sub(1).and_then(|n| u8::try_from(n).ok()),
            policy: Policy::Spool,
            place: place.clone(),
        };
        let depots = places.iter().enumerate().map(depot).collect();
        Self { tree: false, depots }.checked()
    }

    /// One depot.
    pub fn one(place: Place) -> Self {
        let only = PlannedDepot { parent: None, policy: Policy::Spool, place };
        Self { tree: false, depots: vec![only] }
    }

    fn checked(self) -> Result<Self, PlanError> {
        let depots = &self.depots;
        let most = if self.tree { MAX_TREE } else { MAX_CHAIN };
        if depots.len() > most {
            return Err(PlanError::Many);
        }
        let sound = |(n, one): (usize, &PlannedDepot)| match one.parent {
            None => n == 0,
            Some(parent) if self.tree => usize::from(parent) < n,
            Some(parent) => usize::from(parent) + 1 == n && one.policy == Policy::Spool,
        };
        if depots.is_empty() || !depots.iter().enumerate().all(sound) {
            return Err(PlanError::Shape);
        }
        let twice = |(n, one): &(usize, &PlannedDepot)| {
            depots[..*n].iter().any(|before| before.place == one.place)
        };
        if let Some((_, one)) = depots.iter().enumerate().find(twice) {
            return Err(PlanError::Twice(one.place.clone()));
        }
        Ok(self)
    }

    pub(super) fn from_parts(tree: bool, parts: Vec<(Option<u8>, u8, String)>) -> Option<Self> {
        let depot = |(parent, policy, place): (Option<u8>, u8, String)| {
            let (policy, place) = (Policy::of(policy)?, place.parse().ok()?);
            Some(PlannedDepot { parent, policy, place })
        };
        let depots = parts.into_iter().map(depot).collect::<Option<_>>()?;
        Self { tree, depots }.checked().ok()
    }

    /// The depots.
    pub fn depots(&self) -> &[PlannedDepot] {
        &self.depots
    }

    /// The order in which a receiver asks the depots: the given one, or the last one; then the
    /// depots from there towards the sender; then all others.
    pub(super) fn order(&self, at: Option<&Place>) -> Vec<Place> {
        let last = self.depots.len().saturating_sub(1);
        let first = at.and_then(|at| self.depots.iter().position(|one| one.place == *at));
        let mut next = Some(first.unwrap_or(last));
        let mut order: Vec<Place> = Vec::new();
        while let Some(one) = next.and_then(|n| self.depots.get(n)) {
            order.push(one.place.clone());
            next = one.parent.map(usize::from);
        }
        for one in self.depots.iter().rev() {
            if !order.contains(&one.place) {
                order.push(one.place.clone());
            }
        }
        order
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, parent: Option<u8>) -> fmt::Result {
        let children = self.depots.iter().enumerate().filter(|(_, one)| one.parent == parent);
        for (n, (at, one)) in children.enumerate() {
            let comma = if n > 0 { "," } else { "" };
            let policy = match one.policy {
                Policy::Wait => "wait:",
                Policy::Spool => "",
                Policy::Drop => "drop:",
            };
            write!(f, "{comma}{policy}{}", one.place)?;
            let own = u8::try_from(at).ok();
            if self.depots.iter().any(|one| one.parent.is_some() && one.parent == own) {
                f.write_str("(")?;
                self.write(f, own)?;
                f.write_str(")")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for DepotPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.tree {
            return self.write(f, None);
        }
        let places: Vec<String> = self.depots.iter().map(|one| one.place.to_string()).collect();
        f.write_str(&places.join(","))
    }
}

impl FromStr for DepotPlan {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        let place = |one: &str| {
            let one = one.trim();
            one.parse::<Place>().map_err(|error| PlanError::Place(one.to_owned(), error))
        };
        if !text.contains('(') {
            let places = text.split(',').map(place).collect::<Result<Vec<_>, _>>()?;
            return Self::chain(&places);
        }
        let mut depots: Vec<PlannedDepot> = Vec::new();
        let mut above: Vec<u8> = Vec::new();
        let mut rest = text;
        // Whether a depot may follow: at the beginning and after a bracket or comma.
        let mut open = true;
        while !rest.trim().is_empty() {
            let end = rest.find(['(', ')', ',']).unwrap_or(rest.len());
            let (name, behind) = rest.split_at(end);
            if !name.trim().is_empty() {
                if !open {
                    return Err(PlanError::Shape);
                }
                let name = name.trim();
                let (policy, name) = match (name.strip_prefix("wait:"), name.strip_prefix("drop:"))
                {
                    (Some(name), _) => (Policy::Wait, name),
                    (_, Some(name)) => (Policy::Drop, name),
                    _ => (Policy::Spool, name),
                };
                let parent = above.last().copied();
                depots.push(PlannedDepot { parent, policy, place: place(name)? });
                open = false;
            }
            let own = u8::try_from(depots.len()).ok().and_then(|n| n.checked_sub(1));
            let mark = behind.chars().next();
            match mark {
                Some('(') if !open => {
                    above.push(own.ok_or(PlanError::Many)?);
                    open = true;
                }
                Some(',') if !open => open = true,
                Some(')') if !open && above.pop().is_some() => {}
                None => {}
                _ => return Err(PlanError::Shape),
            }
            rest = behind.get(1..).unwrap_or_default();
            // The limit is checked here too, because the text may be long.
            if depots.len() > MAX_TREE {
                return Err(PlanError::Many);
            }
        }
        if open || !above.is_empty() {
            return Err(PlanError::Shape);
        }
        Self { tree: true, depots }.checked()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn chains_and_trees_as_people_write_them() {
        for text in
            ["a:1", "a:1,b:2,[::1]:3", "a:1(b:2)", "a:1(b:2,c:3(d:4,drop:e:5),wait:f:6(g:7))"]
        {
            let plan: DepotPlan = text.parse().expect(text);
            assert_eq!(plan.to_string(), text);
            let parts = plan.depots.iter();
            let parts = parts.map(|one| (one.parent, one.policy.code(), one.place.to_string()));
            assert_eq!(DepotPlan::from_parts(plan.tree, parts.collect()), Some(plan));
        }
        let spaced: DepotPlan = " a:1 ( b:2 , c:3 ( d:4 ) ) ".parse().expect("spaces are fine");
        assert_eq!(spaced.to_string(), "a:1(b:2,c:3(d:4))");
        for bad in [
            "",
            "a",
            "a:1,",
            ",a:1",
            "a:1(b:2",
            "a:1(b:2))",
            "a:1()",
            "(a:1)",
            "a:1(b:2)c:3",
            "a:1(b:2),c:3",
            "a:1,a:1",
            "a:1(b:2,b:2)",
            "a:1(b:2,,c:3)",
            "a:1((b:2))",
            "drop:a:1",
            "a:1,b:2,c:3,d:4,e:5,f:6,g:7,h:8,i:9",
        ] {
            assert!(bad.parse::<DepotPlan>().is_err(), "{bad}");
        }
        let many: Vec<String> = (1..40).map(|n| format!("a:{n}")).collect();
        assert_eq!(format!("b:1({})", many.join(",")).parse::<DepotPlan>(), Err(PlanError::Many));
    }

    #[test]
    fn receivers_ask_towards_the_sender() {
        let order = |text: &str, at: Option<&str>| {
            let plan: DepotPlan = text.parse().expect(text);
            let at = at.map(|at| at.parse().expect("a place"));
            let order = plan.order(at.as_ref());
            order.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(order("a:1,b:2,c:3", None), "c:3 b:2 a:1");
        assert_eq!(order("a:1,b:2,c:3", Some("b:2")), "b:2 a:1 c:3");
        assert_eq!(order("a:1(b:2(c:3),d:4)", Some("c:3")), "c:3 b:2 a:1 d:4");
        assert_eq!(order("a:1(b:2(c:3),d:4)", None), "d:4 a:1 c:3 b:2");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[a-c:1-9(), dropwait]{0,60}") {
            if let Ok(plan) = text.parse::<DepotPlan>() {
                prop_assert_eq!(plan.to_string().parse(), Ok(plan));
            }
        }
    }
}
