//! A sender and a receiver over a network that loses, reorders and duplicates datagrams, with a
//! reliable channel that only delays.

mod behaviour;
mod network;
mod whole;
