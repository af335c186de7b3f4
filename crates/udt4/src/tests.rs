//! Whole connections over a network in virtual time, strangers, and transcripts of the stock
//! library.

mod hostile;
mod life;
mod modes;
mod pair;
mod review;
mod transcript;
