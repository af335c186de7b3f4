//! The answer that precedes the stream: the session is accepted, or refused with a reason.
//!
//! ```text
//! 0..4    "PKTA"
//! 4..6    version, 1
//! 6       0 accepted, else the reason
//! 7       index of the answering depot in the route, from 0
//! 8..12   milliseconds after which to try again; 0 if that does not help
//! 12..14  length of the text, at most 512
//! 14..    the text, UTF-8, for people
//! ```

use packtrain_units::Duration;

/// Bytes of the fixed part of an answer.
pub const ANSWER_HEAD: usize = 14;

const MAGIC: [u8; 4] = *b"PKTA";
const VERSION: u16 = 1;
/// Maximum length of the text in bytes.
const TEXT_MAX: usize = 512;

/// The answer of a depot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// All hops up to the destination are connected.
    Accepted,
    /// The session is refused.
    Refused(Refusal),
}

/// Why a session is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Refusal {
    /// The reason, for programs.
    pub reason: Reason,
    /// Index of the refusing depot in the route, from 0.
    pub depot: u8,
    /// When to try again; none if that does not help.
    pub retry_after: Option<Duration>,
    /// The reason, for people.
    pub text: String,
}

/// Reasons of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The header is malformed.
    Malformed,
    /// The sender's key is not authorised, or its signature is wrong.
    NotAuthorised,
    /// The depot does not connect to the next hop.
    Forbidden,
    /// The route contains this depot twice.
    Loop,
    /// The route has more depots than are allowed.
    TooLong,
    /// The limit of sessions, pool, rate or load is reached.
    Busy,
    /// The quota of this key is used up.
    Quota,
    /// A replayed session, or a time stamp too far off.
    Stale,
    /// An unknown version, type, option or transport.
    Unsupported,
    /// The next hop does not answer.
    Unreachable,
    /// The depot is shutting down.
    Draining,
    /// The depot does not, or no longer, keep such a session.
    Absent,
    /// A reason of a later version.
    Other(u8),
}

impl Reason {
    const CODES: [(Self, u8); 12] = [
        (Self::Malformed, 1),
        (Self::NotAuthorised, 2),
        (Self::Forbidden, 3),
        (Self::Loop, 4),
        (Self::TooLong, 5),
        (Self::Busy, 6),
        (Self::Quota, 7),
        (Self::Stale, 8),
        (Self::Unsupported, 9),
        (Self::Unreachable, 10),
        (Self::Draining, 11),
        (Self::Absent, 12),
    ];

    fn code(self) -> u8 {
        match self {
            Self::Other(code) => code,
            one => Self::CODES.iter().find(|(reason, _)| *reason == one).map_or(1, |(_, c)| *c),
        }
    }

    fn of(code: u8) -> Self {
        Self::CODES.iter().find(|(_, c)| *c == code).map_or(Self::Other(code), |(r, _)| *r)
    }

    /// The name for counters and JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::NotAuthorised => "not-authorised",
            Self::Forbidden => "forbidden",
            Self::Loop => "loop",
            Self::TooLong => "too-long",
            Self::Busy => "busy",
            Self::Quota => "quota",
            Self::Stale => "stale",
            Self::Unsupported => "unsupported",
            Self::Unreachable => "unreachable",
            Self::Draining => "draining",
            Self::Absent => "absent",
            Self::Other(_) => "other",
        }
    }

    /// Whether a later repetition of the request may succeed.
    pub const fn passes(self) -> bool {
        matches!(self, Self::Busy | Self::Quota | Self::Unreachable | Self::Draining | Self::Stale)
    }
}

/// The bytes are not an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// The other side is not a depot.
    #[error("what answers is no depot")]
    NoDepot,
    /// A later version.
    #[error("the depot answers in version {0}, this end reads version 1")]
    Version(u16),
    /// The length differs from the announced one, or exceeds the maximum.
    #[error("the depot's answer is broken")]
    Broken,
}

impl Answer {
    /// Number of bytes of text after the fixed part.
    ///
    /// # Errors
    /// The bytes are not the beginning of an answer.
    pub fn text_len(head: &[u8; ANSWER_HEAD]) -> Result<usize, AnswerError> {
        if head[..4] != MAGIC {
            return Err(AnswerError::NoDepot);
        }
        let version = u16::from_be_bytes([head[4], head[5]]);
        if version != VERSION {
            return Err(AnswerError::Version(version));
        }
        let len = usize::from(u16::from_be_bytes([head[12], head[13]]));
        if len > TEXT_MAX { Err(AnswerError::Broken) } else { Ok(len) }
    }

    /// Parses a whole answer.
    ///
    /// # Errors
    /// The bytes are not an answer.
    pub fn read(bytes: &[u8]) -> Result<Self, AnswerError> {
        let (head, text) = bytes.split_first_chunk().ok_or(AnswerError::Broken)?;
        if Self::text_len(head)? != text.len() {
            return Err(AnswerError::Broken);
        }
        if head[6] == 0 {
            return Ok(Self::Accepted);
        }
        let millis = u32::from_be_bytes([head[8], head[9], head[10], head[11]]);
        // Control characters are removed, because the text is printed to a terminal.
        let text = String::from_utf8_lossy(text).chars().filter(|c| !c.is_control()).collect();
        Ok(Self::Refused(Refusal {
            reason: Reason::of(head[6]),
            depot: head[7],
            retry_after: (millis > 0).then(|| Duration::from_millis(u64::from(millis))),
            text,
        }))
    }

    /// The encoded answer.
    pub fn write(&self) -> Vec<u8> {
        let accepted =
            Refusal { reason: Reason::Other(0), depot: 0, retry_after: None, text: String::new() };
        let refusal = match self {
            Self::Accepted => &accepted,
            Self::Refused(refusal) => refusal,
        };
        let end = (0..=refusal.text.len().min(TEXT_MAX))
            .rev()
            .find(|end| refusal.text.is_char_boundary(*end))
            .unwrap_or(0);
        let text = &refusal.text.as_bytes()[..end];
        let wait = refusal.retry_after.map_or(0, |wait| wait.as_millis().max(1));
        let mut out = Vec::with_capacity(ANSWER_HEAD + text.len());
        out.extend(MAGIC);
        out.extend(VERSION.to_be_bytes());
        out.push(refusal.reason.code());
        out.push(refusal.depot);
        out.extend(u32::try_from(wait).unwrap_or(u32::MAX).to_be_bytes());
        out.extend((text.len() as u16).to_be_bytes());
        out.extend(text);
        out
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_reason_has_a_code_of_its_own() {
        for (reason, code) in Reason::CODES {
            assert_eq!((reason.code(), Reason::of(code)), (code, reason));
            assert_ne!(reason.word(), "other");
        }
        assert_eq!(Reason::of(200), Reason::Other(200));
    }

    #[test]
    fn what_is_no_answer_is_told_apart() {
        let good = Answer::Accepted.write();
        assert_eq!(good.len(), ANSWER_HEAD);
        assert_eq!(Answer::read(&good), Ok(Answer::Accepted));
        assert_eq!(Answer::read(b"HTTP/1.1 400 Bad Request"), Err(AnswerError::NoDepot));
        assert_eq!(Answer::read(&good[..9]), Err(AnswerError::Broken));
        let mut later = good.clone();
        later[5] = 2;
        assert_eq!(Answer::read(&later), Err(AnswerError::Version(2)));
        let mut long = good;
        long[12] = 0xff;
        assert_eq!(Answer::read(&long), Err(AnswerError::Broken));
    }

    proptest! {
        #[test]
        fn a_refusal_reads_back(
            code in 1u8..,
            depot: u8,
            millis in 0u32..,
            text in "[ -~é]{0,300}",
        ) {
            let refusal = Refusal {
                reason: Reason::of(code),
                depot,
                retry_after: (millis > 0).then(|| Duration::from_millis(u64::from(millis))),
                text,
            };
            let bytes = Answer::Refused(refusal.clone()).write();
            prop_assert!(bytes.len() <= ANSWER_HEAD + TEXT_MAX);
            let read = Answer::read(&bytes);
            if refusal.text.len() <= TEXT_MAX {
                prop_assert_eq!(read, Ok(Answer::Refused(refusal)));
            } else {
                prop_assert!(matches!(read, Ok(Answer::Refused(_))));
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let _ = Answer::read(&bytes);
            let forged = [&Answer::Accepted.write()[..8], &bytes].concat();
            let _ = Answer::read(&forged);
        }
    }
}
