//! The planner's experiments: what the test and the example `lsl_planner` share.
#![allow(dead_code)]

pub(crate) mod fluid;
pub(crate) mod packets;
pub(crate) mod papers;
pub(crate) mod study;
pub(crate) mod world;
