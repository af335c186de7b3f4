//! The planner's experiments, shared by the test and the example `lsl_planner`.
#![allow(dead_code)]

pub(crate) mod fluid;
pub(crate) mod packets;
pub(crate) mod papers;
pub(crate) mod study;
pub(crate) mod world;
