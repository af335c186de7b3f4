//! Section 3.2: one function up to the second sample, another after it.

use crate::streams::curve::Curve;
use crate::streams::point::Point;

use super::{Invalid, demand, dinda};

pub(super) fn raw(p: &Point, q: &Point, r: &Point) -> Curve {
    Curve::Broken { rise: dinda::solve(p, q), fall: dinda::solve(q, r), at: q.n }
}

/// The first piece must satisfy Dinda's conditions. The second needs only to have values: the
/// paper's own rule (section 5.1, iv) would require b' > 0 of it too, and so refuse every falling
/// curve, which is the purpose of the model.
#[inline]
pub(super) fn fit(p: &Point, q: &Point, r: &Point) -> Result<Curve, Invalid> {
    let rise = dinda::check(dinda::solve(p, q))?;
    let fall = dinda::solve(q, r);
    // At n2 the second piece has a value, because it passes through that sample.
    demand(fall.0 > 0.0, Invalid::NoValue)?;
    Ok(Curve::Broken { rise, fall, at: q.n })
}
