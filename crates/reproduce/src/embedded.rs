//! The folders of `experiments/`, as embedded by the build script.

include!(concat!(env!("OUT_DIR"), "/experiments.rs"));

/// The text of the embedded file `path`, which is `folder/file`.
pub(super) fn text(path: &str) -> Option<String> {
    use std::io::Read as _;
    let (_, bytes) = FILES.iter().find(|(known, _)| *known == path)?;
    let mut text = String::new();
    flate2::read::ZlibDecoder::new(*bytes).read_to_string(&mut text).ok()?;
    Some(text)
}
