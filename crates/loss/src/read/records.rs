//! Labelled records: one JSON object per line.

use std::io::BufRead;

use super::{ReadError, read_line};
use crate::Labelled;

/// Maximum length of a line: more than the run lengths of a window that lost every other packet.
const MAX_LINE_BYTES: usize = 16 << 20;

pub(super) struct Records<R> {
    file: R,
    line: u64,
    text: Vec<u8>,
    done: bool,
}

impl<R> Records<R> {
    pub(super) fn new(file: R) -> Self {
        Self { file, line: 0, text: Vec::new(), done: false }
    }
}

impl<R: BufRead> Iterator for Records<R> {
    type Item = Result<(u64, Labelled), ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.done {
            self.line += 1;
            match read_line(&mut self.file, b'\n', MAX_LINE_BYTES, &mut self.text) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    self.done = true;
                    return Some(Err(ReadError::line(self.line, error)));
                }
            }
            if self.text.trim_ascii().is_empty() {
                continue;
            }
            let record = serde_json::from_slice(&self.text);
            self.done = record.is_err();
            let line = self.line;
            return Some(
                record.map(|record| (line, record)).map_err(|error| ReadError::line(line, error)),
            );
        }
        None
    }
}
