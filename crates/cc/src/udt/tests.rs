//! The vectors of the paper, the curves of the variants, and feedback of a hostile peer.

mod curves;
mod law;
mod printed;
mod vectors;

use proptest::prelude::*;

use crate::hostile;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn nothing_told_breaks_it(script in hostile::script(), which in 0..5usize) {
        let variants = super::Variant::ALL.map(|variant| format!("udt:{}", variant.name()));
        let printed = super::AsPrinted::Everything.name().to_owned();
        let name = variants.get(which).cloned().unwrap_or(printed);
        hostile::run(&name, &script)?;
    }
}
