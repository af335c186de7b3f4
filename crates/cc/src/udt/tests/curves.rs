//! On the test link: curves as snapshots, utilisation of a clean link, and throughput under loss.

use packtrain_units::{DataRate, Duration};

use crate::bottleneck::{Bottleneck, Receiver, config};
use crate::udt::{Udt, Variant};

pub(super) fn path(mbps: u64, rtt_ms: u64, queue: u64) -> Bottleneck {
    let mut path = Bottleneck::new(DataRate::from_mbps(mbps), Duration::from_millis(rtt_ms), queue);
    path.paced = true;
    path.syn = Some(Receiver::new(true));
    path
}

fn curve(variant: Variant) -> String {
    let step = Duration::from_millis(250);
    path(100, 50, 430).curve(&mut Udt::new(&config(), variant), step * 80, step)
}

#[test]
fn the_curve_of_paper() {
    insta::assert_snapshot!(curve(Variant::Paper));
}

#[test]
fn the_curve_of_grid() {
    insta::assert_snapshot!(curve(Variant::Grid));
}

#[test]
fn the_curve_of_ns2_2003() {
    insta::assert_snapshot!(curve(Variant::Ns2));
}

#[test]
fn the_curve_of_udt4() {
    insta::assert_snapshot!(curve(Variant::Udt4));
}

#[test]
fn it_fills_a_clean_link() {
    for variant in Variant::ALL {
        for (mbps, rtt, queue) in [(10, 10, 20), (100, 100, 860), (1_000, 20, 1_700)] {
            let mut path = path(mbps, rtt, queue);
            let mut udt = Udt::new(&config(), variant);
            path.run(&mut udt, Duration::from_secs(5));
            let used = path.run(&mut udt, Duration::from_secs(20));
            assert!(used > 0.85, "{variant:?} at {mbps} Mbit/s {rtt} ms: {used} {udt:?}");
        }
    }
}
