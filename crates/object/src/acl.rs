//! POSIX access control lists (`--acls`), in a form that depends on no machine.

use crate::wire::{Reader, put_uint};

/// Maximum number of entries of one list.
pub const MAX_ENTRIES: usize = 512;

const ACCESS: u8 = 1;
const DEFAULT: u8 = 2;

/// To whom an entry of a list applies. The order is that of the entries in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AclTag {
    /// The owner.
    Owner,
    /// This user.
    User(u32),
    /// The group of the file.
    OwningGroup,
    /// This group.
    Group(u32),
    /// Limits the entries of users and groups.
    Mask,
    /// Everybody else.
    Other,
}

/// A list: each tag once, in order, with its permissions (a mask of 4 read, 2 write, 1 execute).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl(Box<[(AclTag, u8)]>);

/// The lists of a file or directory, and no others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acls {
    /// Who may access it; none if its mode says all.
    pub access: Option<Acl>,
    /// The list of what is created in a directory, if it has one.
    pub default: Option<Acl>,
}

/// A list that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an access control list is incomplete, out of order or too long")]
pub struct AclError;

impl Acl {
    /// A list of these entries.
    ///
    /// # Errors
    /// Entries that are not in order, that lack owner, owning group or others, or that name users or
    /// groups without a mask; permissions that are none; more than [`MAX_ENTRIES`].
    pub fn new(entries: Vec<(AclTag, u8)>) -> Result<Self, AclError> {
        let has = |tag| entries.iter().any(|(known, _)| *known == tag);
        let is_named = |tag: &AclTag| matches!(tag, AclTag::User(_) | AclTag::Group(_));
        let any_named = entries.iter().any(|(tag, _)| is_named(tag));
        let is_complete = [AclTag::Owner, AclTag::OwningGroup, AclTag::Other].into_iter().all(has);
        let is_ordered = entries.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let fits = entries.len() <= MAX_ENTRIES && entries.iter().all(|(_, bits)| *bits <= 7);
        match is_complete && is_ordered && fits && (!any_named || has(AclTag::Mask)) {
            true => Ok(Self(entries.into())),
            false => Err(AclError),
        }
    }

    /// The entries.
    pub fn iter(&self) -> impl Iterator<Item = (AclTag, u8)> + '_ {
        self.0.iter().copied()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Never: a list has three entries at least.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_uint(self.len() as u64, out);
        for (tag, permissions) in self.iter() {
            let (kind, id) = match tag {
                AclTag::Owner => (0, None),
                AclTag::User(id) => (1, Some(id)),
                AclTag::OwningGroup => (2, None),
                AclTag::Group(id) => (3, Some(id)),
                AclTag::Mask => (4, None),
                AclTag::Other => (5, None),
            };
            out.push(kind << 3 | permissions);
            if let Some(id) = id {
                put_uint(u64::from(id), out);
            }
        }
    }

    fn read(reader: &mut Reader<'_>) -> Option<Result<Self, AclError>> {
        let count = reader.uint()?;
        if count > MAX_ENTRIES as u64 {
            return Some(Err(AclError));
        }
        let mut entries = Vec::new();
        for _ in 0..count {
            let head = reader.byte()?;
            let tag = match head >> 3 {
                0 => AclTag::Owner,
                1 => AclTag::User(reader.uint32()?),
                2 => AclTag::OwningGroup,
                3 => AclTag::Group(reader.uint32()?),
                4 => AclTag::Mask,
                5 => AclTag::Other,
                _ => return Some(Err(AclError)),
            };
            entries.push((tag, head & 7));
        }
        Some(Self::new(entries))
    }
}

impl Acls {
    fn lists(&self) -> impl Iterator<Item = &Acl> {
        self.access.iter().chain(&self.default)
    }

    /// Number of entries of both lists.
    pub fn entries(&self) -> usize {
        self.lists().map(Acl::len).sum()
    }

    /// The permission bits that give nobody more than the lists do until the lists are set. With a
    /// list, the group bits of a `mode` are the mask, not the permissions of the owning group.
    pub fn mode_without_list(&self, mode: u32) -> u32 {
        let Some(access) = &self.access else { return mode };
        let of = |tag| access.iter().find(|(known, _)| *known == tag).map(|(_, bits)| bits);
        match (of(AclTag::OwningGroup), of(AclTag::Mask)) {
            (Some(group), Some(mask)) => mode & !0o070 | mode & u32::from(group & mask) << 3,
            _ => mode,
        }
    }

    /// An upper bound of the encoded bytes.
    pub(crate) fn longest(&self) -> usize {
        8 + 6 * self.entries()
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        let flag = |list: &Option<Acl>, flag| if list.is_some() { flag } else { 0 };
        out.push(flag(&self.access, ACCESS) | flag(&self.default, DEFAULT));
        self.lists().for_each(|list| list.put(out));
    }

    /// Reads what [`Acls::put`] wrote; the outer none if it is cut short. Memory is bounded by
    /// [`MAX_ENTRIES`].
    pub(crate) fn read(reader: &mut Reader<'_>) -> Option<Result<Self, AclError>> {
        let flags = reader.byte()?;
        if flags & !(ACCESS | DEFAULT) != 0 {
            return Some(Err(AclError));
        }
        let mut list = |flag| match flags & flag {
            0 => Some(Ok(None)),
            _ => Some(Acl::read(reader)?.map(Some)),
        };
        let (access, default) = (list(ACCESS)?, list(DEFAULT)?);
        Some(access.and_then(|access| Ok(Self { access, default: default? })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: [(AclTag, u8); 3] =
        [(AclTag::Owner, 7), (AclTag::OwningGroup, 5), (AclTag::Other, 0)];

    #[test]
    fn what_is_written_is_read() {
        let named = vec![
            (AclTag::Owner, 7),
            (AclTag::User(0), 4),
            (AclTag::User(1000), 6),
            (AclTag::OwningGroup, 5),
            (AclTag::Group(u32::MAX), 1),
            (AclTag::Mask, 7),
            (AclTag::Other, 0),
        ];
        let access = Acl::new(named).expect("a list");
        let default = Acl::new(PLAIN.to_vec()).expect("a list");
        for lists in [
            Acls::default(),
            Acls { access: Some(access.clone()), default: None },
            Acls { access: None, default: Some(default.clone()) },
            Acls { access: Some(access), default: Some(default) },
        ] {
            let mut out = Vec::new();
            lists.put(&mut out);
            assert!(out.len() <= lists.longest());
            for cut in 0..out.len() {
                assert_eq!(Acls::read(&mut Reader(&out[..cut])), None, "{cut}");
            }
            assert_eq!(Acls::read(&mut Reader(&out)), Some(Ok(lists)));
        }
    }

    #[test]
    fn a_mode_without_its_list_gives_the_owning_group_no_more_than_the_list() {
        let list = |group, mask: Option<u8>| {
            let mut entries = vec![(AclTag::Owner, 7), (AclTag::OwningGroup, group)];
            entries.extend(mask.map(|bits| (AclTag::Mask, bits)));
            entries.push((AclTag::Other, 0));
            Acls { access: Some(Acl::new(entries).expect("a list")), default: None }
        };
        for (lists, mode) in [
            (Acls::default(), 0o6770),
            (list(0, Some(7)), 0o6700),
            (list(7, Some(5)), 0o6750),
            (list(5, None), 0o6770),
        ] {
            assert_eq!(lists.mode_without_list(0o6770), mode, "{lists:?}");
        }
        assert_eq!(list(7, Some(7)).mode_without_list(0o700), 0o700);
    }

    #[test]
    fn incomplete_and_disordered_lists_are_refused() {
        let with = |change: fn(&mut Vec<(AclTag, u8)>)| {
            let mut entries = PLAIN.to_vec();
            change(&mut entries);
            Acl::new(entries).map(drop)
        };
        assert_eq!(with(|_| {}), Ok(()));
        assert_eq!(with(|list| list[0].1 = 8), Err(AclError));
        assert_eq!(with(|list| list.swap(0, 1)), Err(AclError));
        assert_eq!(with(|list| list.insert(0, (AclTag::Owner, 7))), Err(AclError));
        assert_eq!(with(|list| list.insert(1, (AclTag::User(7), 7))), Err(AclError), "no mask");
        assert_eq!(with(|list| list.insert(2, (AclTag::Mask, 7))), Ok(()));
        for missing in 0..3 {
            let mut entries = PLAIN.to_vec();
            entries.remove(missing);
            assert_eq!(Acl::new(entries).map(drop), Err(AclError));
        }
        let users = (0..MAX_ENTRIES as u32).map(|id| (AclTag::User(id), 7));
        let many = [(AclTag::Owner, 7)].into_iter().chain(users);
        let many = many.chain([PLAIN[1], (AclTag::Mask, 7), PLAIN[2]]);
        assert_eq!(Acl::new(many.collect()).map(drop), Err(AclError));
        for bad in [&b"\x04"[..], b"\x01\xff\xff\xff\xff\x0f", b"\x01\x01\x30", b"\x01\x00"] {
            assert_eq!(Acls::read(&mut Reader(bad)), Some(Err(AclError)), "{bad:?}");
        }
    }
}
