//! The folders of `experiments/`, as the build script found them.

include!(concat!(env!("OUT_DIR"), "/experiments.rs"));
