//! The vectors of the paper, the curves of the variants, and feedback of a hostile peer.

mod curves;
mod law;
mod vectors;

use proptest::prelude::*;

use crate::hostile;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn nothing_told_breaks_it(script in hostile::script(), which in 0..4usize) {
        let name = format!("udt:{}", super::Variant::ALL[which].name());
        hostile::run(&name, &script)?;
    }
}
