//! The short code of a kept session: 18 letters that a person reads out or types, in place of a
//! ticket. The keys of the session are derived from it.
//!
//! A depot has the session's id and data, and can try codes for as long as it likes without anybody
//! noticing. The code therefore has 80 bits of randomness, and each try costs [`ITERATIONS`] steps
//! of PBKDF2.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use aws_lc_rs::pbkdf2::{self, PBKDF2_HMAC_SHA256};
use packtrain_os::entropy;

/// The letters, in Crockford's order: none is easily taken for another.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// Letters of the secret, five bits each.
const SECRET_LETTERS: usize = 16;
/// Letters of a code: those of the secret, and two that detect mistakes.
const LETTERS: usize = SECRET_LETTERS + 2;
/// Letters between two hyphens.
const GROUP: usize = 6;
/// The steps of PBKDF2-HMAC-SHA256, as OWASP recommends for passwords (2023).
const ITERATIONS: NonZeroU32 = NonZeroU32::new(600_000).expect("above zero");
/// The same for all codes: a depot may be known by several names, and 80 bits leave nothing for a
/// table to gain.
const SALT: &[u8] = b"packtrain claim code v1";

/// A code, which is a secret. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct ClaimCode([u8; 10]);

/// What a session needs of a code.
pub(super) struct Keys {
    pub(super) session: [u8; 16],
    /// The seed of the claim key.
    pub(super) capability: [u8; 32],
    /// The key that encrypts the data.
    pub(super) content: [u8; 32],
}

/// Why a text is not a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimCodeError {
    /// It has another length, or characters that no code has.
    #[error("not a code: a code has 18 letters and digits, such as 2k7xqa-m3c9v0-hj4tbe")]
    Shape,
    /// A letter is wrong, or two are exchanged.
    #[error("a letter of the code is wrong: compare it with the sender's")]
    Check,
}

impl ClaimCode {
    /// A new code.
    pub fn random() -> Self {
        Self(entropy::bytes())
    }

    /// The text for users, in three groups. It is not `Display`, because it is a secret.
    pub fn to_text(&self) -> String {
        let secret = self.letters();
        let letters = secret.into_iter().chain(checks(&secret));
        let mut text = String::with_capacity(LETTERS + 2);
        for (n, letter) in letters.enumerate() {
            if n > 0 && n.is_multiple_of(GROUP) {
                text.push('-');
            }
            text.push(char::from(ALPHABET[usize::from(letter)]));
        }
        text
    }

    /// The secret, five bits a letter.
    fn letters(&self) -> [u8; SECRET_LETTERS] {
        let mut bits = self.0.iter().fold(0u128, |bits, byte| bits << 8 | u128::from(*byte));
        let mut letters = [0; SECRET_LETTERS];
        for letter in letters.iter_mut().rev() {
            *letter = (bits & 31) as u8;
            bits >>= 5;
        }
        letters
    }

    /// The keys of the code's session. This takes some tenths of a second.
    pub(super) fn keys(&self) -> Keys {
        let mut stretched = [0; 32];
        pbkdf2::derive(PBKDF2_HMAC_SHA256, ITERATIONS, SALT, &self.0, &mut stretched);
        let derive = |context: &str| blake3::derive_key(context, &stretched);
        let [session @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] =
            derive("packtrain claim code v1 session");
        Keys {
            session,
            capability: derive("packtrain claim code v1 capability"),
            content: derive("packtrain claim code v1 content"),
        }
    }
}

/// Two letters that show a mistake in one letter, and two exchanged neighbours: the sum of all
/// letters in GF(32), and their sum weighted by powers of a generator.
fn checks(secret: &[u8; SECRET_LETTERS]) -> [u8; 2] {
    let sum = secret.iter().fold(0, |sum, letter| sum ^ letter);
    let weighted = secret.iter().fold(0, |sum, letter| double(sum) ^ letter);
    [sum, weighted]
}

/// Twice a value in GF(32), modulo x^5 + x^2 + 1.
const fn double(value: u8) -> u8 {
    let shifted = value << 1;
    if shifted & 32 == 0 { shifted } else { shifted ^ 0b10_0101 }
}

impl FromStr for ClaimCode {
    type Err = ClaimCodeError;

    /// Reads what a person types: either case, with or without hyphens and blanks, and `o`, `i` and
    /// `l` for the digits that they look like.
    fn from_str(text: &str) -> Result<Self, ClaimCodeError> {
        let mut letters = [0; LETTERS];
        let mut count = 0;
        for c in text.trim().bytes().filter(|c| !matches!(c, b'-' | b' ')) {
            let c = match c.to_ascii_lowercase() {
                b'o' => b'0',
                b'i' | b'l' => b'1',
                other => other,
            };
            let value = ALPHABET.iter().position(|letter| *letter == c);
            let value = value.ok_or(ClaimCodeError::Shape)? as u8;
            *letters.get_mut(count).ok_or(ClaimCodeError::Shape)? = value;
            count += 1;
        }
        if count != LETTERS {
            return Err(ClaimCodeError::Shape);
        }
        let (secret, sums) = letters.split_at(SECRET_LETTERS);
        let secret: &[u8; SECRET_LETTERS] = secret.try_into().map_err(|_| ClaimCodeError::Shape)?;
        if sums != checks(secret) {
            return Err(ClaimCodeError::Check);
        }
        let bits = secret.iter().fold(0u128, |bits, letter| bits << 5 | u128::from(*letter));
        let [_, _, _, _, _, _, bytes @ ..] = bits.to_be_bytes();
        Ok(Self(bytes))
    }
}

impl fmt::Debug for ClaimCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClaimCode(..)")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_code_has_18_letters_and_its_keys_differ() {
        let (one, two) = (ClaimCode([0; 10]), ClaimCode([1; 10]));
        assert_eq!(one.to_text(), "000000-000000-000000");
        assert_eq!(two.to_text().len(), 20);
        let (a, b) = (one.keys(), two.keys());
        assert_ne!(a.session, b.session);
        assert_ne!(a.capability, a.content);
        assert_ne!(a.content, b.content);
        assert_eq!(a.content, one.keys().content);
        assert_eq!(format!("{one:?}"), "ClaimCode(..)");
        assert_ne!(ClaimCode::random(), ClaimCode::random());
    }

    #[test]
    fn every_mistyped_letter_and_every_exchange_is_seen() {
        let text = ClaimCode([0x5a, 0x13, 0xff, 0, 7, 0x81, 0x2c, 0x99, 0xe0, 0x42]).to_text();
        let letters: Vec<u8> = text.bytes().filter(|c| *c != b'-').collect();
        let read =
            |letters: &[u8]| String::from_utf8(letters.to_vec()).unwrap().parse::<ClaimCode>();
        assert!(read(&letters).is_ok());
        for at in 0..letters.len() {
            for &other in ALPHABET.iter().filter(|other| **other != letters[at]) {
                let mut wrong = letters.clone();
                wrong[at] = other;
                assert_eq!(read(&wrong), Err(ClaimCodeError::Check));
            }
            if letters.get(at + 1).is_some_and(|next| *next != letters[at]) && at != 15 {
                let mut wrong = letters.clone();
                wrong.swap(at, at + 1);
                assert_eq!(read(&wrong), Err(ClaimCodeError::Check), "{at}");
            }
        }
    }

    proptest! {
        #[test]
        fn codes_are_read_as_people_type_them(secret: [u8; 10]) {
            let code = ClaimCode(secret);
            let text = code.to_text();
            prop_assert_eq!(text.parse(), Ok(code.clone()));
            let typed = text.to_uppercase().replace('0', "O").replace('1', "l").replace('-', " ");
            prop_assert_eq!(typed.parse(), Ok(code));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[ -~\u{e9}\n]{0,40}") {
            let _ = text.parse::<ClaimCode>();
        }
    }
}
