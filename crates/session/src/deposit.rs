//! What a header says of a session that is kept.

use packtrain_units::{ByteCount, Duration};

use super::id::SessionId;

/// What a sender deposits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deposit {
    /// What it is called in claims: random, of its own.
    pub session: SessionId,
    /// The public half of the key that claims it.
    pub capability: [u8; 32],
    /// How long it is, sealed; none for a pipe.
    pub size: Option<ByteCount>,
    /// How long after the header's time it is kept, in whole seconds.
    pub keep: Duration,
}

/// What is asked of a session that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Which.
    pub session: SessionId,
    /// What for.
    pub purpose: ClaimPurpose,
}

/// What a claim is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimPurpose {
    /// To read it.
    Read,
    /// It is needed no more.
    Release,
}

/// What a header says of a session that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spool {
    /// It comes.
    Deposit(Deposit),
    /// It is asked for.
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
