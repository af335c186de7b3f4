//! Uploads in parts that are not over, remembered across runs: a store keeps the parts, and a list
//! of them, but only who knows the upload's name finds it.

use std::path::PathBuf;

use packtrain_object::Mtime;
use packtrain_units::ByteCount;
use serde::{Deserialize, Serialize};

use packtrain_identity::config::Dirs;
use packtrain_identity::statefile;

/// An upload that was begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Begun {
    /// The object's whole address.
    pub(super) url: String,
    /// What the store calls the upload.
    pub(super) upload: String,
    size: u64,
    secs: i64,
    nanos: u32,
    part: u64,
}

impl Begun {
    pub(super) fn new(
        url: &str,
        upload: &str,
        size: ByteCount,
        mtime: Mtime,
        part: ByteCount,
    ) -> Self {
        let (url, upload) = (url.to_owned(), upload.to_owned());
        let Mtime { secs, nanos } = mtime;
        Self { url, upload, size: size.get(), secs, nanos, part: part.get() }
    }

    /// Whether it is of the file as it is now, cut in the same way.
    pub(super) fn is_of(&self, size: ByteCount, mtime: Mtime, part: ByteCount) -> bool {
        *self == Self::new(&self.url, &self.upload, size, mtime, part)
    }
}

/// The file that remembers an object's upload, if there is a place for it.
fn place(url: &str) -> Option<PathBuf> {
    let name = packtrain_object::digest::root_of(url.as_bytes()).to_string();
    Some(Dirs::from_env().ok()?.state.join("uploads").join(format!("{}.json", &name[..32])))
}

/// What is remembered of an object.
pub(super) fn recall(url: &str) -> Option<Begun> {
    let text = statefile::read(&place(url)?).ok()??;
    let begun: Begun = serde_json::from_str(&text).ok()?;
    (begun.url == url).then_some(begun)
}

/// Remembers an upload; where that is impossible the next run begins anew.
pub(super) fn remember(begun: &Begun) {
    if let (Some(place), Ok(text)) = (place(&begun.url), serde_json::to_vec(begun)) {
        let _ = statefile::replace(&place, &text);
    }
}

/// There is nothing to remember any more.
pub(super) fn forget(url: &str) {
    if let Some(place) = place(url) {
        let _ = std::fs::remove_file(place);
    }
}
