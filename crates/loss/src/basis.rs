//! The evidence on which a verdict is based.

use serde::Serialize;

/// The basis of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// No packet was lost.
    NoLoss,
    /// The host's own drop counter.
    HostCounter,
    /// The host's drop counter, which fits all losses as well as a part of them, and the signature.
    CounterAndSignature,
    /// The signature.
    Signature,
    /// The signature and the delay around the losses.
    SignatureAndDelay,
    /// The signature is unlike all training data.
    Unlike,
    /// The model has no windows of about this length.
    WindowLength,
}
