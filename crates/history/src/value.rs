//! What both databases hold in a column.

/// What a column holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing.
    Null,
    /// A whole number.
    Int(i64),
    /// A floating point number.
    Real(f64),
    /// Text.
    Text(String),
}

impl Value {
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) const fn int(&self) -> Option<i64> {
        match self {
            Self::Int(n) => Some(*n),
            _ => None,
        }
    }

    pub(crate) const fn real(&self) -> Option<f64> {
        match self {
            Self::Real(x) => Some(*x),
            // SQLite gives a whole number back as one.
            Self::Int(n) => Some(*n as f64),
            _ => None,
        }
    }
}
