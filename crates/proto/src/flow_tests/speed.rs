//! Goodput in virtual time: coarse fractions of the link, no clocks.
use super::*;
