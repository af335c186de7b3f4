//! Extended attributes of a file or directory (`--xattrs`), of the namespace `user` alone.

use std::fmt;

use crate::wire::{Reader, put_bytes, put_uint};

/// The namespace that the kernel puts before each name. Attributes of `security`, `system`,
/// `trusted`, `lustre` and others cannot be expressed, so no peer can ask for them.
pub const NAMESPACE: &[u8] = b"user.";
/// Maximum length of a name with its namespace, in bytes (Linux `XATTR_NAME_MAX`).
pub const MAX_NAME: usize = 255;
/// Maximum length of the names without namespace and the values of one entry, in bytes; also the
/// maximum length of a value (Linux `XATTR_SIZE_MAX`).
pub const MAX_BYTES: usize = 64 << 10;

/// Maximum number of attributes of one entry.
pub const MAX_COUNT: usize = 1024;

/// A name without its namespace, and its value.
type Pair = (Box<[u8]>, Box<[u8]>);

/// The attributes of one entry, in the order of their names.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Attributes(Vec<Pair>);

/// Why attributes are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttributesError {
    /// A name is empty, too long, or has a zero byte.
    #[error("the name of an extended attribute is empty, has a zero byte or more than 255 bytes")]
    Name,
    /// Names are not in ascending order, or one occurs twice.
    #[error("extended attributes are out of order")]
    Order,
    /// There are too many, or names and values are too long together.
    #[error("there are more than 1,024 extended attributes, or they have more than 64 KiB")]
    TooLarge,
}

impl Attributes {
    /// The attributes with these names, without their namespace, and values.
    ///
    /// # Errors
    /// A name that occurs twice or cannot be one, or more than [`MAX_COUNT`] or [`MAX_BYTES`].
    pub fn new(mut pairs: Vec<(Vec<u8>, Vec<u8>)>) -> Result<Self, AttributesError> {
        pairs.sort_unstable();
        let boxed = |(name, value): (Vec<u8>, Vec<u8>)| (name.into(), value.into());
        let attributes = Self(pairs.into_iter().map(boxed).collect());
        attributes.check()?;
        Ok(attributes)
    }

    fn check(&self) -> Result<(), AttributesError> {
        let fits = |name: &[u8]| {
            !name.is_empty() && NAMESPACE.len() + name.len() <= MAX_NAME && !name.contains(&0)
        };
        if !self.0.iter().all(|(name, _)| fits(name)) {
            return Err(AttributesError::Name);
        }
        if self.0.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
            return Err(AttributesError::Order);
        }
        let is_large = self.len() > MAX_COUNT || self.bytes() > MAX_BYTES;
        if is_large { Err(AttributesError::TooLarge) } else { Ok(()) }
    }

    /// Names without their namespace, and values.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.0.iter().map(|(name, value)| (&name[..], &value[..]))
    }

    /// Number of attributes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes of all names and values.
    pub fn bytes(&self) -> usize {
        self.iter().map(|(name, value)| name.len() + value.len()).sum()
    }

    /// The value of this name.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        let at = self.0.binary_search_by(|(known, _)| known[..].cmp(name)).ok()?;
        Some(&self.0[at].1)
    }

    /// An upper bound of the encoded bytes.
    pub(crate) fn longest(&self) -> usize {
        self.bytes() + 8 * self.len() + 4
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        put_uint(self.len() as u64, out);
        for (name, value) in self.iter() {
            put_bytes(name, out);
            put_bytes(value, out);
        }
    }

    /// Reads what [`Attributes::put`] wrote; the outer none if it is cut short. Memory is bounded by
    /// the bytes that are read, which are at most [`MAX_BYTES`] besides lengths.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Option<Result<Self, AttributesError>> {
        let count = reader.uint()?;
        if count > MAX_COUNT as u64 {
            return Some(Err(AttributesError::TooLarge));
        }
        let (mut pairs, mut bytes) = (Vec::new(), 0);
        for _ in 0..count {
            let (name, value) = (reader.bytes(MAX_NAME)?, reader.bytes(MAX_BYTES)?);
            bytes += name.len() + value.len();
            if bytes > MAX_BYTES {
                return Some(Err(AttributesError::TooLarge));
            }
            pairs.push((name.into(), value.into()));
        }
        let attributes = Self(pairs);
        Some(attributes.check().map(|()| attributes))
    }
}

impl fmt::Debug for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |bytes: &[u8]| bytes.escape_ascii().to_string();
        let pairs = self.iter().map(|(name, value)| (shown(name), shown(value)));
        f.debug_map().entries(pairs).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(Vec<u8>, Vec<u8>)> {
        pairs
            .iter()
            .map(|(name, value)| (name.as_bytes().into(), value.as_bytes().into()))
            .collect()
    }

    #[test]
    fn what_is_written_is_read_in_one_order() {
        let attributes = Attributes::new(pairs(&[("b", ""), ("a", "x\0y")])).expect("fine");
        assert_eq!(attributes.get(b"a"), Some(&b"x\0y"[..]));
        assert_eq!((attributes.len(), attributes.bytes()), (2, 5));
        let mut out = Vec::new();
        attributes.put(&mut out);
        assert_eq!(out, b"\x02\x01a\x03x\0y\x01b\x00");
        assert!(out.len() <= attributes.longest());
        assert_eq!(Attributes::read(&mut Reader(&out)), Some(Ok(attributes)));
        for cut in 0..out.len() {
            assert_eq!(Attributes::read(&mut Reader(&out[..cut])), None, "{cut}");
        }
    }

    #[test]
    fn what_is_out_of_range_is_refused() {
        let new = |list: &[(&str, &str)]| Attributes::new(pairs(list)).map(drop);
        assert_eq!(new(&[("", "x")]), Err(AttributesError::Name));
        assert_eq!(new(&[("a\0", "x")]), Err(AttributesError::Name));
        assert_eq!(new(&[(&"n".repeat(250), "")]), Ok(()));
        assert_eq!(new(&[(&"n".repeat(251), "")]), Err(AttributesError::Name));
        assert_eq!(new(&[("a", "x"), ("a", "y")]), Err(AttributesError::Order));
        let large = "v".repeat(MAX_BYTES - 1);
        assert_eq!(new(&[("a", &large)]), Ok(()));
        assert_eq!(new(&[("a", &large), ("b", "")]), Err(AttributesError::TooLarge));
        let out_of_order = b"\x02\x01b\x00\x01a\x00";
        let read = Attributes::read(&mut Reader(out_of_order));
        assert_eq!(read, Some(Err(AttributesError::Order)));
        let mut many = Vec::new();
        put_uint(u64::MAX, &mut many);
        assert_eq!(Attributes::read(&mut Reader(&many)), Some(Err(AttributesError::TooLarge)));
    }
}
