//! Compares the checksum that a server sent with the file that was written.

use std::fs::File;
use std::io::Read as _;

use aws_lc_rs::digest as lc;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::HeaderMap;
use md5::{Digest as _, Md5};

use super::answer;

/// What is read at once.
const STEP_BYTES: usize = 256 << 10;

/// A checksum of a whole file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sum {
    kind: Kind,
    value: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Md5,
    Sha1,
    Sha256,
    Sha512,
    Crc32,
    Crc32c,
    Crc64,
}

/// The checksum headers of S3, strongest first.
const STORES: [(&str, Kind); 5] = [
    ("x-amz-checksum-sha256", Kind::Sha256),
    ("x-amz-checksum-sha1", Kind::Sha1),
    ("x-amz-checksum-crc64nvme", Kind::Crc64),
    ("x-amz-checksum-crc32c", Kind::Crc32c),
    ("x-amz-checksum-crc32", Kind::Crc32),
];

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Md5 => "MD5",
            Self::Sha1 => "SHA-1",
            Self::Sha256 => "SHA-256",
            Self::Sha512 => "SHA-512",
            Self::Crc32 => "CRC-32",
            Self::Crc32c => "CRC-32C",
            Self::Crc64 => "CRC-64/NVME",
        }
    }

    fn len(self) -> usize {
        match self {
            Self::Md5 => 16,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
            Self::Sha512 => 64,
            Self::Crc32 | Self::Crc32c => 4,
            Self::Crc64 => 8,
        }
    }
}

impl Sum {
    fn new(kind: Kind, text: &str) -> Option<Self> {
        let value = STANDARD.decode(text.trim().trim_matches(':')).ok()?;
        (value.len() == kind.len()).then_some(Self { kind, value })
    }

    /// The checksum in the headers of a store. A `COMPOSITE` checksum of an upload in parts is the
    /// checksum of the parts' checksums and is not used.
    pub(super) fn of_store(headers: &HeaderMap) -> Option<Self> {
        let parts = answer::text(headers, "x-amz-checksum-type").as_deref() == Some("COMPOSITE");
        let told = STORES.iter().filter(|_| !parts).find_map(|(name, kind)| {
            let text = answer::text(headers, *name)?;
            if text.contains('-') { None } else { Self::new(*kind, &text) }
        });
        told.or_else(|| Self::of_tag(headers))
    }

    /// The tag, if the object was not uploaded in parts and is not encrypted with a KMS or customer
    /// key.
    fn of_tag(headers: &HeaderMap) -> Option<Self> {
        let how = answer::text(headers, "x-amz-server-side-encryption");
        let own = "x-amz-server-side-encryption-customer-algorithm";
        if how.is_some_and(|how| how.starts_with("aws:")) || headers.contains_key(own) {
            return None;
        }
        let tag = answer::text(headers, "etag")?;
        let tag = tag.trim_matches('"');
        let digits = tag.len() == 32 && tag.bytes().all(|c| c.is_ascii_hexdigit());
        let value: Option<Vec<u8>> =
            (0..16).map(|n| u8::from_str_radix(tag.get(2 * n..2 * n + 2)?, 16).ok()).collect();
        value.filter(|_| digits).map(|value| Self { kind: Kind::Md5, value })
    }

    /// The strongest checksum of the whole file in a web server's response; a response with a range
    /// has it too (`Repr-Digest`, RFC 9530; `Digest`, RFC 3230).
    pub(super) fn of_web(headers: &HeaderMap) -> Option<Self> {
        let all = [answer::text(headers, "repr-digest"), answer::text(headers, "digest")];
        let found = all.iter().flatten().flat_map(|text| text.split(',')).filter_map(|one| {
            let (name, value) = one.split_once('=')?;
            let kind = match name.trim().to_ascii_lowercase().as_str() {
                "sha-512" => Kind::Sha512,
                "sha-256" => Kind::Sha256,
                "sha" => Kind::Sha1,
                "md5" => Kind::Md5,
                _ => return None,
            };
            Self::new(kind, value)
        });
        found.max_by_key(|sum| sum.value.len())
    }

    /// Whether the value has the length of its algorithm.
    #[cfg(feature = "fuzzing")]
    pub(super) fn is_whole(&self) -> bool {
        self.value.len() == self.kind.len()
    }

    /// The name of the algorithm.
    pub(super) fn name(&self) -> &'static str {
        self.kind.name()
    }

    /// Whether the file has this checksum.
    pub(super) fn matches(&self, mut file: &File) -> std::io::Result<bool> {
        let mut hasher = Hasher::new(self.kind);
        let mut buffer = vec![0; STEP_BYTES];
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok(hasher.finish() == self.value),
                n => hasher.update(&buffer[..n]),
            }
        }
    }
}

enum Hasher {
    Md5(Md5),
    Sha(lc::Context),
    Crc { table: Box<[u64; 256]>, at: u64, mask: u64, len: usize },
}

impl Hasher {
    fn new(kind: Kind) -> Self {
        let sha = |algorithm| Self::Sha(lc::Context::new(algorithm));
        match kind {
            Kind::Md5 => Self::Md5(Md5::new()),
            Kind::Sha1 => sha(&lc::SHA1_FOR_LEGACY_USE_ONLY),
            Kind::Sha256 => sha(&lc::SHA256),
            Kind::Sha512 => sha(&lc::SHA512),
            // Reflected polynomials.
            Kind::Crc32 => Self::crc(0xedb8_8320, 4),
            Kind::Crc32c => Self::crc(0x82f6_3b78, 4),
            Kind::Crc64 => Self::crc(0x9a6c_9329_ac4b_c9b5, 8),
        }
    }

    fn crc(polynomial: u64, len: usize) -> Self {
        let mut table = Box::new([0; 256]);
        for (byte, slot) in table.iter_mut().enumerate() {
            *slot = (0..8).fold(byte as u64, |crc, _| {
                if crc & 1 == 1 { crc >> 1 ^ polynomial } else { crc >> 1 }
            });
        }
        let mask = if len == 8 { u64::MAX } else { u64::from(u32::MAX) };
        Self::Crc { table, at: mask, mask, len }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Md5(md5) => md5.update(bytes),
            Self::Sha(sha) => sha.update(bytes),
            Self::Crc { table, at, .. } => {
                for byte in bytes {
                    *at = *at >> 8 ^ table[usize::from(*at as u8 ^ byte)];
                }
            }
        }
    }

    fn finish(self) -> Vec<u8> {
        match self {
            Self::Md5(md5) => md5.finalize().to_vec(),
            Self::Sha(sha) => sha.finish().as_ref().to_vec(),
            Self::Crc { at, mask, len, .. } => {
                ((at ^ mask) & mask).to_be_bytes()[8 - len..].to_vec()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(n, v)| (n.parse().unwrap(), v.parse().unwrap())).collect()
    }

    #[test]
    fn checksums_have_their_check_values() {
        let of = |kind| {
            let mut hasher = Hasher::new(kind);
            hasher.update(b"1234");
            hasher.update(b"56789");
            hasher.finish()
        };
        assert_eq!(of(Kind::Crc32), [0xcb, 0xf4, 0x39, 0x26]);
        assert_eq!(of(Kind::Crc32c), [0xe3, 0x06, 0x92, 0x83]);
        assert_eq!(of(Kind::Crc64), [0xae, 0x8b, 0x14, 0x86, 0x0a, 0x79, 0x98, 0x88]);
        assert_eq!(of(Kind::Md5)[..4], [0x25, 0xf9, 0xe7, 0x94]);
        assert_eq!(of(Kind::Sha1)[..4], [0xf7, 0xc3, 0xbc, 0x1d]);
        assert_eq!(of(Kind::Sha256)[..4], [0x15, 0xe2, 0xb0, 0xd3]);
    }

    #[test]
    fn what_is_no_digest_of_the_file_is_not_taken_for_one() {
        let kind = |pairs: &[(&'static str, &str)]| Sum::of_store(&headers(pairs)).map(|s| s.kind);
        let tag = ("etag", "\"d41d8cd98f00b204e9800998ecf8427e\"");
        assert_eq!(kind(&[tag]), Some(Kind::Md5));
        assert_eq!(kind(&[tag, ("x-amz-server-side-encryption", "aws:kms")]), None);
        assert_eq!(kind(&[("etag", "\"d41d8cd98f00b204e9800998ecf8427e-2\"")]), None);
        let crc = ("x-amz-checksum-crc64nvme", "rosUhgp5mIg=");
        assert_eq!(kind(&[tag, crc]), Some(Kind::Crc64));
        assert_eq!(kind(&[crc, ("x-amz-checksum-type", "COMPOSITE")]), None);
        assert_eq!(kind(&[("x-amz-checksum-crc32c", "4waSgw==-3")]), None);
        let web = headers(&[("repr-digest", "sha-256=:AAAA:, md5=:JfnnlDI7RThTRfK+6bX4xA==:")]);
        assert_eq!(Sum::of_web(&web).map(|s| s.kind), Some(Kind::Md5), "the other is too short");
    }
}
