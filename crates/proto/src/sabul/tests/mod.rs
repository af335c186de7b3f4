//! A sender and a receiver over a network that loses, reorders and repeats datagrams, and a
//! channel beside it that is only late.

mod behaviour;
mod network;
mod whole;
