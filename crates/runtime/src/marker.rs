//! Finds the line with which the responder starts the protocol on its standard output. A login
//! shell may write other lines before it.

use std::io::{self, Read};

/// The line with which the responder starts.
pub const LINE: &[u8] = b"PACKTRAIN-STDIO-1";
/// The bytes that the responder writes. The first newline ends an incomplete line before it.
pub const MARKER: &[u8] = b"\nPACKTRAIN-STDIO-1\n";
/// More than this is not a login shell's greeting.
const MAX_NOISE_BYTES: usize = 1 << 20;

/// Reads up to and including the first line that `wanted` accepts. It reads one byte at a time, so
/// that it consumes nothing after that line. None if the output ends first.
pub fn find<T>(
    output: &mut impl Read,
    mut wanted: impl FnMut(&[u8]) -> Option<T>,
) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    let mut byte = [0];
    for _ in 0..MAX_NOISE_BYTES {
        match output.read(&mut byte) {
            Ok(0) => return Ok(None),
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        }
        if byte[0] != b'\n' {
            line.push(byte[0]);
            continue;
        }
        if let Some(found) = wanted(&line) {
            return Ok(Some(found));
        }
        line.clear();
    }
    Ok(None)
}

/// Skips the lines before the marker. False if the output ended without it.
pub fn skip_noise(output: &mut impl Read) -> io::Result<bool> {
    let found = find(output, |line| (line == LINE).then_some(()))?;
    Ok(found.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_before_the_marker_is_skipped_and_nothing_after_it_taken() {
        for noise in ["", "Welcome!\n", "no line end", "PACKTRAIN\n\n"] {
            let mut bytes = noise.as_bytes().to_vec();
            bytes.extend_from_slice(MARKER);
            bytes.extend_from_slice(b"rest");
            let mut input = &bytes[..];
            assert!(skip_noise(&mut input).unwrap(), "{noise:?}");
            assert_eq!(input, b"rest");
        }
        assert!(!skip_noise(&mut &b"only noise\n"[..]).unwrap());
    }

    #[test]
    fn endless_noise_is_given_up() {
        assert!(!skip_noise(&mut io::repeat(b'x')).unwrap());
    }
}
