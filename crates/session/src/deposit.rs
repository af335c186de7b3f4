//! The options of a header for kept sessions.

use packtrain_units::{ByteCount, Duration};

use super::id::SessionId;

/// A session to deposit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deposit {
    /// Its random number, used in claims.
    pub session: SessionId,
    /// The public key whose owner may claim it.
    pub capability: [u8; 32],
    /// Its sealed size; none for a pipe.
    pub size: Option<ByteCount>,
    /// How long it is kept after the header's time, in whole seconds.
    pub keep: Duration,
}

/// A claim of a kept session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The session.
    pub session: SessionId,
    /// The purpose.
    pub purpose: ClaimPurpose,
}

/// The purpose of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimPurpose {
    /// To read it.
    Read,
    /// To delete it.
    Release,
}

/// The option of a header for a kept session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spool {
    /// Deposits it.
    Deposit(Deposit),
    /// Claims it.
    Claim(Claim),
}

impl Spool {
    /// The option's type and value.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Deposit(deposit) => {
                out.extend(deposit.session.0);
                out.extend(deposit.capability);
                out.extend(deposit.size.map_or(u64::MAX, ByteCount::get).to_be_bytes());
                let keep = u32::try_from(deposit.keep.as_millis() / 1000).unwrap_or(u32::MAX);
                out.extend(keep.to_be_bytes());
            }
            Self::Claim(claim) => {
                out.extend(claim.session.0);
                out.push(match claim.purpose {
                    ClaimPurpose::Read => 0,
                    ClaimPurpose::Release => 1,
                });
            }
        }
    }
}

impl Deposit {
    pub(super) fn read(value: &[u8]) -> Option<Self> {
        let (session, rest) = value.split_first_chunk::<16>()?;
        let (capability, rest) = rest.split_first_chunk::<32>()?;
        let (size, rest) = rest.split_first_chunk::<8>()?;
        let size = u64::from_be_bytes(*size);
        let keep = u32::from_be_bytes(rest.try_into().ok()?);
        Some(Self {
            session: SessionId(*session),
            capability: *capability,
            size: (size != u64::MAX).then_some(ByteCount(size)),
            keep: Duration::from_secs(keep.into()),
        })
    }
}

impl Claim {
    pub(super) fn read(value: &[u8]) -> Option<Self> {
        let (session, rest) = value.split_first_chunk::<16>()?;
        let purpose = match rest {
            [0] => ClaimPurpose::Read,
            [1] => ClaimPurpose::Release,
            _ => return None,
        };
        Some(Self { session: SessionId(*session), purpose })
    }
}
