//! The folders of `experiments/`, as embedded by the build script.

include!(concat!(env!("OUT_DIR"), "/experiments.rs"));
