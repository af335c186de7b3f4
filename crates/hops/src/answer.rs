//! Reads a depot's answer to a header from a shared socket.

use packtrain_net::tcp::describe;
use packtrain_session::{ANSWER_HEAD, Answer};

use super::Socket;

/// Writes all bytes to a shared socket.
pub async fn write_all(socket: &impl Socket, mut bytes: &[u8]) -> std::io::Result<()> {
    while !bytes.is_empty() {
        socket.writable().await?;
        match socket.try_write(bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

async fn read_exact(socket: &impl Socket, mut room: &mut [u8]) -> std::io::Result<()> {
    while !room.is_empty() {
        socket.readable().await?;
        match socket.try_read(room) {
            Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => room = &mut room[n..],
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Reads an answer and no byte more.
pub async fn read_answer(socket: &impl Socket) -> Result<Answer, String> {
    let mut bytes = vec![0; ANSWER_HEAD];
    read_exact(socket, &mut bytes).await.map_err(|e| describe(&e))?;
    let head = bytes.first_chunk().ok_or("too short")?;
    let text = Answer::text_len(head).map_err(|e| e.to_string())?;
    bytes.resize(ANSWER_HEAD + text, 0);
    read_exact(socket, &mut bytes[ANSWER_HEAD..]).await.map_err(|e| describe(&e))?;
    Answer::read(&bytes).map_err(|e| e.to_string())
}
