//! Serialisation and encryption: headers, frames, keys.
//!
//! Every datagram is one packet:
//!
//! ```text
//! data     kind|lane (1)  flow id (4)  packet number, low 32 bits (4)  offset (8)  sealed bytes  tag (16)
//! unit     kind|lane (1)  flow id (4)  packet number, low 32 bits (4)  offset (8)  sealed unit number (4) and bytes  tag (16)
//! control  kind|lane (1)  flow id (4)  packet number, low 32 bits (4)              sealed frames tag (16)
//! ```
//!
//! Numbers are big-endian. The clear header is authenticated as associated data; the nonce is
//! the full packet number exclusive-or the key's initialisation vector (RFC 9001 section 5.3).
//! The low four bits of the first byte are the kind (1 data, 2 control, 3 unit), the high four the lane.

mod bitmap;
pub(crate) mod frame;
pub(crate) mod header;
pub(crate) mod keys;
mod message;
pub(crate) mod reliable;
pub(crate) mod unit;
pub(crate) mod varint;
