//! What the evidence of a verdict was.

use serde::Serialize;

/// What a verdict rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// Nothing was lost.
    NoLoss,
    /// The host's own counter.
    HostCounter,
    /// The host's own counter, which fits all losses and a part of them, and the signature.
    CounterAndSignature,
    /// The signature.
    Signature,
    /// The signature and the delay around the losses.
    SignatureAndDelay,
    /// Nothing like the signature was in the training data.
    Unlike,
    /// The model knows no windows of about this length.
    WindowLength,
}
