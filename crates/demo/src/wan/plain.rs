//! A plain copy for comparison: files over one kernel TCP connection, unencrypted, with `sendfile`.
//!
//! It has the best conditions for TCP: no cipher, no round trip per file, and socket buffers as
//! large as the path needs. Only the congestion control is compared.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use packtrain_net::tcp::tune::set_congestion;

/// Socket buffers for autotuning, at most three times the bandwidth-delay product of 1 Gbit/s and
/// 100 ms, since the kernel counts twice the stored bytes.
const BUFFER: &str = "4096 131072 67108864";
/// Maximum length of a name.
const MAX_NAME: usize = 4_096;

/// Sends the files below `dir` to `to` with the congestion control `cc`.
///
/// # Errors
/// The error of the system; `NotFound` if the kernel has no such congestion control.
pub(super) fn send(to: SocketAddr, cc: &str, dir: &Path) -> io::Result<()> {
    widen();
    let mut files = Vec::new();
    list(dir, Path::new(""), &mut files)?;
    let mut socket = TcpStream::connect(to)?;
    set_congestion(&socket, cc)?;
    for name in &files {
        let file = File::open(dir.join(name))?;
        let size = file.metadata()?.len();
        let bytes = name.as_os_str().as_bytes();
        let mut head = (bytes.len() as u16).to_be_bytes().to_vec();
        head.extend(bytes);
        head.extend(size.to_be_bytes());
        socket.write_all(&head)?;
        let mut left = size;
        while left > 0 {
            let most = usize::try_from(left.min(1 << 30)).unwrap_or(1 << 30);
            match rustix::fs::sendfile(&socket, &file, None, most)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                sent => left -= sent as u64,
            }
        }
    }
    socket.write_all(&0_u16.to_be_bytes())?;
    // The other end answers when all files are on its disk.
    socket.read_exact(&mut [0])
}

/// Accepts one connection at `listen` and writes its files below `dir`. The files are synced before
/// the answer.
///
/// # Errors
/// The error of the system; `InvalidData` for names that lead out of `dir`.
pub(super) fn receive(listen: SocketAddr, cc: &str, dir: &Path) -> io::Result<()> {
    widen();
    let listener = TcpListener::bind(listen)?;
    set_congestion(&listener, cc)?;
    loop {
        let (socket, _) = listener.accept()?;
        // A connection that only checks whether the port is open sends nothing.
        if socket.peek(&mut [0])? > 0 {
            return take(socket, dir);
        }
    }
}

fn take(mut socket: TcpStream, dir: &Path) -> io::Result<()> {
    let mut input = BufReader::with_capacity(1 << 20, socket.try_clone()?);
    let mut written = Vec::new();
    while let Some(name) = name(&mut input)? {
        let mut size = [0; 8];
        input.read_exact(&mut size)?;
        let path = dir.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let mut file = File::create(path)?;
        let size = u64::from_be_bytes(size);
        if io::copy(&mut (&mut input).take(size), &mut file)? < size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        written.push(file);
    }
    written.iter().try_for_each(File::sync_data)?;
    socket.write_all(&[1])
}

/// The next file's name; `None` at the end.
fn name(input: &mut impl Read) -> io::Result<Option<PathBuf>> {
    let mut len = [0; 2];
    input.read_exact(&mut len)?;
    let len = usize::from(u16::from_be_bytes(len));
    if len == 0 {
        return Ok(None);
    }
    let mut bytes = vec![0; len.min(MAX_NAME)];
    input.read_exact(&mut bytes)?;
    let path = PathBuf::from(std::ffi::OsString::from_vec(bytes));
    let plain = path.components().all(|c| matches!(c, Component::Normal(_)));
    if !plain || len > MAX_NAME {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a name that leads elsewhere"));
    }
    Ok(Some(path))
}

fn list(root: &Path, below: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    let mut items: Vec<_> = fs::read_dir(root.join(below))?.collect::<Result<_, _>>()?;
    items.sort_by_key(fs::DirEntry::file_name);
    for item in items {
        let path = below.join(item.file_name());
        if item.file_type()?.is_dir() {
            list(root, &path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

/// Raises the limits of the kernel's autotuning in the demo's own namespace. If that fails, the
/// limits stay.
fn widen() {
    if std::env::var_os("PACKTRAIN_NEAR").is_none() {
        return; // Not in an emulation: the setting would be the machine's.
    }
    for name in ["tcp_rmem", "tcp_wmem"] {
        let _ = fs::write(Path::new("/proc/sys/net/ipv4").join(name), BUFFER);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_arrives_whole() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("sub")).unwrap();
        fs::create_dir(&to).unwrap();
        fs::write(from.join("big"), vec![7; 3 << 20]).unwrap();
        fs::write(from.join("sub/small"), b"x").unwrap();
        fs::write(from.join("sub/empty"), b"").unwrap();
        let probe = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = probe.local_addr().unwrap();
        let (client, (server, _)) = (TcpStream::connect(address).unwrap(), probe.accept().unwrap());
        let target = to.clone();
        let receiver = std::thread::spawn(move || take(server, &target));
        drop(client);
        assert!(receiver.join().unwrap().is_err(), "a connection cut short is an error");
        drop(probe);
        let target = to.clone();
        let receiver = std::thread::spawn(move || receive(address, "reno", &target));
        while let Err(e) = send(address, "reno", &from) {
            assert_eq!(e.kind(), io::ErrorKind::ConnectionRefused, "{e}");
            std::thread::yield_now();
        }
        receiver.join().unwrap().unwrap();
        assert_eq!(fs::read(to.join("big")).unwrap(), vec![7; 3 << 20]);
        assert_eq!(fs::read(to.join("sub/small")).unwrap(), b"x");
        assert_eq!(fs::read(to.join("sub/empty")).unwrap(), b"");
    }

    #[test]
    fn names_that_lead_out_are_refused() {
        for bad in ["../x", "/x", "a/../../x"] {
            let mut bytes = (bad.len() as u16).to_be_bytes().to_vec();
            bytes.extend(bad.as_bytes());
            let error = name(&mut bytes.as_slice()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
        assert!(name(&mut [0xff, 0xff, b'x'].as_slice()).is_err());
    }
}
