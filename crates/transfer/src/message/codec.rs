//! Encodes and decodes messages.

use packtrain_units::Offset;

use super::{MAX_FRAME, Message};

/// Bytes before the payload in a frame of [`Message::Data`].
pub const DATA_HEADER: usize = LENGTH + 1 + 8;
/// Bytes of the length field of a frame.
const LENGTH: usize = 4;
/// The type byte of `Data`: its index among the variants, which postcard writes for the others.
const DATA: u8 = 18;

/// Errors of decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The frame is longer than [`MAX_FRAME`], or empty.
    #[error("a control frame of {0} bytes")]
    Length(u32),
    /// The body is not a valid message.
    #[error("a control frame that is no message (type {0})")]
    Malformed(u8),
}

/// Appends the frame of `message`.
pub fn encode(message: &Message, out: &mut Vec<u8>) {
    if let Message::Data { offset, bytes } = message {
        out.extend_from_slice(&data_header(*offset, bytes.len()));
        out.extend_from_slice(bytes);
        return;
    }
    let start = out.len();
    out.extend_from_slice(&[0; LENGTH]);
    // Writing to a vector cannot fail; an error of the serialiser would be a bug in `Message`.
    if let Ok(more) = postcard::to_extend(message, std::mem::take(out)) {
        *out = more;
    }
    let len = out.len().saturating_sub(start + LENGTH);
    debug_assert!(len <= MAX_FRAME, "a message of {len} bytes");
    if let Some(field) = out.get_mut(start..start + LENGTH) {
        field.copy_from_slice(&(len as u32).to_le_bytes());
    }
}

/// The frame of [`Message::Data`] up to its payload of `len` bytes (at most [`super::MAX_DATA`]).
/// With it a driver sends the payload without copying it into a message.
pub fn data_header(offset: Offset, len: usize) -> [u8; DATA_HEADER] {
    let mut header = [0; DATA_HEADER];
    let frame = (len + 1 + 8) as u32;
    header[..LENGTH].copy_from_slice(&frame.to_le_bytes());
    header[LENGTH] = DATA;
    header[LENGTH + 1..].copy_from_slice(&offset.0.to_le_bytes());
    header
}

/// Decodes messages from a byte stream. It holds at most one frame and the bytes fed with it.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// Bytes of `buffer` that are decoded.
    done: usize,
}

impl Decoder {
    /// A decoder at the start of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds bytes. Call [`Decoder::next`] until it returns none before feeding more.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.done > 0 {
            self.buffer.drain(..self.done);
            self.done = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete message, if there is one. After an error the stream is invalid and each
    /// further call returns an error.
    #[expect(clippy::should_implement_trait, reason = "none means not yet, not the end")]
    pub fn next(&mut self) -> Result<Option<Message>, MessageError> {
        let rest = self.buffer.get(self.done..).unwrap_or_default();
        let Some((length, rest)) = rest.split_first_chunk::<LENGTH>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length);
        if length == 0 || length as usize > MAX_FRAME {
            return Err(MessageError::Length(length));
        }
        let Some(frame) = rest.get(..length as usize) else { return Ok(None) };
        let message = decode(frame)?;
        self.done += LENGTH + frame.len();
        Ok(Some(message))
    }

    /// Bytes held that are not a complete message yet.
    pub fn pending(&self) -> usize {
        self.buffer.len() - self.done
    }
}

fn decode(frame: &[u8]) -> Result<Message, MessageError> {
    let kind = frame.first().copied().unwrap_or_default();
    let malformed = MessageError::Malformed(kind);
    if kind == DATA {
        let (offset, bytes) = frame[1..].split_first_chunk::<8>().ok_or(malformed)?;
        if bytes.len() > super::MAX_DATA {
            return Err(malformed);
        }
        let offset = Offset(u64::from_le_bytes(*offset));
        return Ok(Message::Data { offset, bytes: bytes.to_vec() });
    }
    match postcard::take_from_bytes(frame) {
        Ok((message, [])) => Ok(message),
        _ => Err(malformed),
    }
}

#[cfg(test)]
#[path = "codec_tests.rs"]
mod tests;
