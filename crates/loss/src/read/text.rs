//! Signatures as text, one per line.

use std::io::BufRead;

use super::{Found, ReadError};
use crate::Signature;

/// Reads packet by packet, so that a line may be as long as a signature.
pub(super) struct Lines<R> {
    file: R,
    window: usize,
    line: u64,
    part: u64,
    bits: Vec<u64>,
    len: usize,
    comment: bool,
    cut: bool,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(file: R, window: Option<usize>) -> Self {
        let cut = window.is_some();
        let window = window.unwrap_or(Signature::MAX_PACKETS).clamp(1, Signature::MAX_PACKETS);
        let bits = Vec::new();
        Self { file, window, line: 1, part: 1, bits, len: 0, comment: false, cut }
    }

    /// The packets read so far, as a signature.
    fn take(&mut self) -> Found {
        let place = if self.cut {
            format!("line {}, window {}", self.line, self.part)
        } else {
            format!("line {}", self.line)
        };
        self.part += 1;
        let words = std::mem::take(&mut self.bits);
        let signature = Signature::from_words(words, std::mem::take(&mut self.len));
        Found::bare(place, signature.expect("a bit for each packet"))
    }

    fn push(&mut self, received: bool) -> Result<Option<Found>, ReadError> {
        let found = if self.len < self.window {
            None
        } else if self.cut {
            Some(self.take())
        } else {
            let what = format!("more than {} packets on one line", self.window);
            return Err(ReadError::line(self.line, what));
        };
        if self.len.is_multiple_of(64) {
            self.bits.push(0);
        }
        if let Some(word) = self.bits.last_mut() {
            *word |= u64::from(received) << (self.len % 64);
        }
        self.len += 1;
        Ok(found)
    }

    fn byte(&mut self, byte: u8) -> Result<Option<Found>, ReadError> {
        match byte {
            b'\n' => {
                let found = (self.len > 0).then(|| self.take());
                self.line += 1;
                self.part = 1;
                self.comment = false;
                Ok(found)
            }
            _ if self.comment => Ok(None),
            b'1' | b'0' => self.push(byte == b'1'),
            b'#' => {
                self.comment = true;
                Ok(None)
            }
            b' ' | b'\t' | b'\r' => Ok(None),
            other => {
                let what = format!("{:?} is neither 1 (received) nor 0 (lost)", char::from(other));
                Err(ReadError::line(self.line, what))
            }
        }
    }
}

impl<R: BufRead> Iterator for Lines<R> {
    type Item = Result<Found, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let buffer = match self.file.fill_buf() {
                Ok([]) => return (self.len > 0).then(|| Ok(self.take())),
                Ok(buffer) => buffer,
                Err(error) => return Some(Err(error.into())),
            };
            let buffer = buffer[..buffer.len().min(4096)].to_vec();
            for (index, byte) in buffer.iter().enumerate() {
                let found = self.byte(*byte).transpose();
                if found.is_some() {
                    self.file.consume(index + 1);
                    return found;
                }
            }
            self.file.consume(buffer.len());
        }
    }
}
