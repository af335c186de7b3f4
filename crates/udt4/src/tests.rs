//! Whole connections over a network in virtual time, packets of unknown senders, and transcripts of
//! the stock library.

mod hostile;
mod life;
mod modes;
mod pair;
mod review;
mod transcript;
