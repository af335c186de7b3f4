//! Paths that change: outages, new addresses, smaller packets.
use super::*;
