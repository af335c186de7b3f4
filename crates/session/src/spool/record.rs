//! Records of a kept session: encrypted for the claimant, signed for every depot.
//!
//! Record `n` of a session, of 262,144 bytes (the last one may be shorter):
//!
//! ```text
//! 0..16     salt: random, of one try of sending
//! then      AES-256-GCM of up to 262,048 bytes of the stream, and the tag (16)
//! then 64   the sender's signature (Ed25519) over "packtrain record 1\0", the session (16), n (8),
//!           1 if it is the last else 0 (1), and SHA-256 of all before the signature
//! ```
//!
//! Key: HKDF-SHA256 of the content key with the salt and "packtrain record key 1\0", session.
//! Nonce: n (8 bytes), three zeros, 1 for the last record else 0. A number is sealed once per salt,
//! and every attempt has its own salt, so no nonce is used for two texts, even if files changed
//! between attempts. Records cannot be exchanged, truncated or added: number and end are part of
//! the nonce and of the signed data.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use packtrain_units::ByteCount;

use crate::id::SessionId;

/// Bytes of every record except the last, which has at most as many.
pub const RECORD: usize = 256 << 10;
/// Minimum bytes of a record.
pub const RECORD_MIN: usize = SALT + TAG + SIGNATURE;
/// Bytes of the stream in every record except the last, which has at most as many.
pub const RECORD_TEXT: usize = RECORD - RECORD_MIN;

const SALT: usize = 16;
const TAG: usize = 16;
const SIGNATURE: usize = 64;
const SIGNED_DOMAIN: &[u8] = b"packtrain record 1\0";
const KEY_DOMAIN: &[u8] = b"packtrain record key 1\0";

/// The bytes are not the expected record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The sender's signature is invalid.
    #[error("record {0} is not what the sender signed")]
    Forged(u64),
    /// The signature is valid, but the record was sealed with another key.
    #[error("record {0} cannot be opened with this ticket")]
    Sealed(u64),
}

/// Number of records for a stream of this length; the last may be empty.
pub fn records_for(text: ByteCount) -> u64 {
    text.get().div_ceil(RECORD_TEXT as u64).max(1)
}

/// The sealed length of such a stream; `None` if it overflows.
pub fn sealed_len(text: ByteCount) -> Option<ByteCount> {
    let over = records_for(text).checked_mul(RECORD_MIN as u64)?;
    text.get().checked_add(over).map(ByteCount)
}

/// The number and length of the last record of a sealed stream of this length; `None` if no stream
/// has it.
pub fn last_record(sealed: ByteCount) -> Option<(u64, usize)> {
    let last = sealed.get().checked_sub(1)? / RECORD as u64;
    let len = (sealed.get() - last * RECORD as u64) as usize;
    // The second of two records has at least one byte of the stream.
    let min = RECORD_MIN + usize::from(last > 0);
    (len >= min).then_some((last, len))
}

/// Seals the records of one send attempt.
pub struct Sealer<S> {
    session: SessionId,
    salt: [u8; SALT],
    key: LessSafeKey,
    sign: S,
}

impl<S: Fn(&[u8]) -> [u8; 64]> Sealer<S> {
    /// Seals records of `session` with `content`; `salt` is fresh entropy, `sign` signs with the
    /// sender's key.
    pub fn new(session: SessionId, content: &[u8; 32], salt: [u8; SALT], sign: S) -> Self {
        Self { session, salt, key: key(session, content, &salt), sign }
    }

    /// Record `number`, which contains `text`. Each number is sealed once.
    ///
    /// # Panics
    /// If `text` is longer than a record's text, or shorter and not the last.
    pub fn seal(&self, number: u64, last: bool, text: &[u8]) -> Vec<u8> {
        let fits = text.len() == RECORD_TEXT || (last && text.len() < RECORD_TEXT);
        assert!(fits, "a record has a whole text, the last one at most that");
        let mut out = Vec::with_capacity(text.len() + RECORD_MIN);
        out.extend(self.salt);
        out.extend(text);
        let (nonce, aad) = (nonce(number, last), Aad::empty());
        let tag = self.key.seal_in_place_separate_tag(nonce, aad, &mut out[SALT..]);
        out.extend(tag.expect("a record is no longer than the cipher takes").as_ref());
        let signature = (self.sign)(&signed(self.session, number, last, &out));
        out.extend(signature);
        out
    }
}

impl<S> fmt::Debug for Sealer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealer({})", self.session)
    }
}

/// Opens records of one session.
pub struct Opener {
    session: SessionId,
    content: [u8; 32],
    sender: Option<[u8; 32]>,
    last: Option<([u8; SALT], LessSafeKey)>,
}

impl Opener {
    /// Opens records that `sender` sealed with `content`.
    pub fn new(session: SessionId, content: [u8; 32], sender: [u8; 32]) -> Self {
        Self { session, content, sender: Some(sender), last: None }
    }

    /// Opens records that anybody who knows `content` sealed. Their signatures are not checked,
    /// because the sender's key is not known; the seal still binds each record to its session,
    /// number and end.
    pub fn of_any_sender(session: SessionId, content: [u8; 32]) -> Self {
        Self { session, content, sender: None, last: None }
    }

    /// The text of record `number`.
    ///
    /// # Errors
    /// It is another record, or invalid.
    pub fn open(
        &mut self,
        number: u64,
        last: bool,
        mut record: Vec<u8>,
    ) -> Result<Vec<u8>, OpenError> {
        let genuine = match &self.sender {
            Some(sender) => is_genuine(self.session, sender, number, last, &record),
            None => has_length(last, &record),
        };
        if !genuine {
            return Err(OpenError::Forged(number));
        }
        let sealed = OpenError::Sealed(number);
        let salt: [u8; SALT] = *record.first_chunk().ok_or(sealed)?;
        if self.last.as_ref().is_none_or(|(used, _)| *used != salt) {
            self.last = Some((salt, key(self.session, &self.content, &salt)));
        }
        let (_, key) = self.last.as_ref().ok_or(sealed)?;
        record.truncate(record.len().saturating_sub(SIGNATURE));
        let nonce = nonce(number, last);
        let text =
            key.open_in_place(nonce, Aad::empty(), &mut record[SALT..]).map_err(|_| sealed)?.len();
        record.copy_within(SALT..SALT + text, 0);
        record.truncate(text);
        Ok(record)
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opener({})", self.session)
    }
}

/// Whether `sender` signed this record: the check available to a depot.
pub fn is_genuine(
    session: SessionId,
    sender: &[u8; 32],
    number: u64,
    last: bool,
    record: &[u8],
) -> bool {
    if !has_length(last, record) {
        return false;
    }
    let Some((sealed, signature)) = record.split_last_chunk::<SIGNATURE>() else { return false };
    let text = signed(session, number, last, sealed);
    UnparsedPublicKey::new(&ED25519, sender).verify(&text, signature).is_ok()
}

/// Whether a record can be this long.
fn has_length(last: bool, record: &[u8]) -> bool {
    let whole = record.len() == RECORD || (last && record.len() < RECORD);
    whole && record.len() >= RECORD_MIN
}

fn key(session: SessionId, content: &[u8; 32], salt: &[u8; SALT]) -> LessSafeKey {
    let key = Salt::new(HKDF_SHA256, salt).extract(content);
    let info: [&[u8]; 2] = [KEY_DOMAIN, &session.0];
    let okm = key.expand(&info, &AES_256_GCM).expect("32 bytes are few enough");
    LessSafeKey::new(UnboundKey::from(okm))
}

fn nonce(number: u64, last: bool) -> Nonce {
    let mut nonce = [0; 12];
    nonce[..8].copy_from_slice(&number.to_be_bytes());
    nonce[11] = u8::from(last);
    Nonce::assume_unique_for_key(nonce)
}

fn signed(session: SessionId, number: u64, last: bool, sealed: &[u8]) -> Vec<u8> {
    let hash = digest(&SHA256, sealed);
    let (number, last) = (number.to_be_bytes(), [u8::from(last)]);
    [SIGNED_DOMAIN, &session.0, &number, &last, hash.as_ref()].concat()
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
