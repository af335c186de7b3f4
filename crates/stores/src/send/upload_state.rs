//! Saves the ids of unfinished uploads for later runs. A store keeps the parts and lists them, but
//! only by the id of the upload.

use std::path::PathBuf;

use packtrain_object::Mtime;
use packtrain_units::ByteCount;
use serde::{Deserialize, Serialize};

use packtrain_identity::config::Dirs;
use packtrain_identity::statefile;

/// An unfinished upload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SavedUpload {
    /// The full address of the object.
    pub(super) url: String,
    /// The store's id of the upload.
    pub(super) upload: String,
    size: u64,
    secs: i64,
    nanos: u32,
    part: u64,
}

impl SavedUpload {
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

    /// Whether it belongs to the current version of the file, with the same part size.
    pub(super) fn is_of(&self, size: ByteCount, mtime: Mtime, part: ByteCount) -> bool {
        *self == Self::new(&self.url, &self.upload, size, mtime, part)
    }
}

/// The state file for an object's upload, if there is a state directory.
fn place(url: &str) -> Option<PathBuf> {
    let name = packtrain_object::digest::root_of(url.as_bytes()).to_string();
    Some(Dirs::from_env().ok()?.state.join("uploads").join(format!("{}.json", &name[..32])))
}

/// Loads the saved upload of an object.
pub(super) fn load(url: &str) -> Option<SavedUpload> {
    let text = statefile::read(&place(url)?).ok()??;
    let begun: SavedUpload = serde_json::from_str(&text).ok()?;
    (begun.url == url).then_some(begun)
}

/// Saves an upload. If this fails, the next run starts from the beginning.
pub(super) fn save(begun: &SavedUpload) {
    if let (Some(place), Ok(text)) = (place(&begun.url), serde_json::to_vec(begun)) {
        let _ = statefile::replace(&place, &text);
    }
}

/// Removes this upload of an object, if it is the one that is saved.
pub(super) fn remove(url: &str, upload: &str) {
    let is_saved = load(url).is_some_and(|saved| saved.upload == upload);
    if let (true, Some(place)) = (is_saved, place(url)) {
        let _ = std::fs::remove_file(place);
    }
}
