//! Hostile input.
use super::*;
