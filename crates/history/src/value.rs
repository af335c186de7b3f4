//! Values of columns in both databases.

/// The value of a column.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// NULL.
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
            // SQLite returns a float without a fraction as an integer.
            Self::Int(n) => Some(*n as f64),
            _ => None,
        }
    }
}
