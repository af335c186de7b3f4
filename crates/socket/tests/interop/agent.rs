//! The two hosts: the remote one starts commands, the local one runs the connections.

use parking_lot::Mutex;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::cells::{Cell, How, Road};
use crate::me;
use crate::ours::{UNTOLD, expected};

const PORT: u16 = 4_000;
const NEAR: &str = "10.77.0.1";
const FAR: &str = "10.77.0.2";
/// Number of concurrent connections.
const ABREAST: usize = 6;
/// Maximum number of polls, `POLL_INTERVAL` apart; a connection takes longer only if it hangs. A
/// stock receiver that was not informed of the end takes 47 s, which counts as a failure.
const MAX_POLLS: u32 = 400;
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Delay before the caller starts, so that the called end runs. A caller tries again, but late.
const START: Duration = Duration::from_millis(60);

/// Starts the commands that clients send, one per line, in this folder. Returns their output.
pub(crate) fn listen() {
    let listener = TcpListener::bind(("0.0.0.0", PORT)).expect("a port");
    for caller in listener.incoming() {
        let mut caller = caller.expect("a caller");
        std::thread::spawn(move || {
            let mut line = String::new();
            BufReader::new(&caller).read_line(&mut line).expect("a line");
            let child = start(line.trim());
            caller.write_all(b"started\n").expect("a caller that listens");
            let _ = caller.write_all(finish(child).as_bytes());
        });
    }
}

fn start(line: &str) -> Child {
    let mut words = line.split_whitespace();
    let program = words.next().expect("a program");
    let mut command = Command::new(program);
    command.args(words).stdout(Stdio::piped()).stdin(Stdio::null());
    command.spawn().unwrap_or_else(|e| panic!("{line}: {e}"))
}

/// Waits for its end; returns its output.
fn finish(mut child: Child) -> String {
    for _ in 0..MAX_POLLS {
        if child.try_wait().expect("a child").is_some() {
            let mut text = String::new();
            let mut out = child.stdout.take().expect("a pipe");
            out.read_to_string(&mut text).expect("text");
            return text.trim().to_owned();
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    let _ = child.kill();
    let _ = child.wait();
    format!("hung, and was killed after {} s", (POLL_INTERVAL * MAX_POLLS).as_secs())
}

/// Runs the connections of a path; writes one line for each.
pub(crate) fn near(road: &str, dir: &Path) {
    let road = Road::named(road).expect("a path of this name");
    let cells = Cell::chosen(road);
    let next = AtomicUsize::new(0);
    let lines = Mutex::new(vec![String::new(); cells.len()]);
    std::thread::scope(|scope| {
        for _ in 0..ABREAST {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(cell) = cells.get(number) else { return };
                    let result = run_connection(*cell, number, dir);
                    let line = result.map_or_else(|why| why, |()| "pass".to_owned());
                    lines.lock()[number] = line;
                }
            });
        }
    });
    let lines = lines.into_inner();
    let file = dir.join(format!("{}.results", road.name()));
    std::fs::write(file, lines.join("\n") + "\n").expect("a file for the results");
}

/// One connection between this crate's end on the local host and the stock library's end on the
/// remote host.
fn run_connection(cell: Cell, number: usize, dir: &Path) -> Result<(), String> {
    let role = |sends: bool| if sends { "source" } else { "sink" };
    let words = cell.words();
    let ours = format!(
        "{} ours {} {words} {}",
        me().display(),
        role(cell.ours_sends),
        cell.meeting(cell.ours_sends, FAR, number)
    );
    let stock = format!(
        "{} {} {words} {}",
        dir.join("stock").display(),
        role(!cell.ours_sends),
        cell.meeting(!cell.ours_sends, NEAR, number)
    );
    // The called end starts first.
    let near_first =
        cell.how == How::IsCalled && cell.ours_sends || cell.how == How::Calls && !cell.ours_sends;
    let early = near_first.then(|| {
        let child = start(&ours);
        std::thread::sleep(START);
        child
    });
    let mut agent = TcpStream::connect((FAR, PORT)).map_err(|e| format!("no agent: {e}"))?;
    // The agent kills and reports ends that hang; this timeout is for an agent that hangs.
    agent
        .set_read_timeout(Some(POLL_INTERVAL * MAX_POLLS * 3))
        .map_err(|e| format!("no agent: {e}"))?;
    writeln!(agent, "{stock}").map_err(|e| format!("no agent: {e}"))?;
    let mut far = BufReader::new(agent);
    let mut line = String::new();
    far.read_line(&mut line).map_err(|e| format!("no agent: {e}"))?;
    if !near_first && cell.how != How::Rendezvous {
        std::thread::sleep(START);
    }
    let ours = finish(early.unwrap_or_else(|| start(&ours)));
    let mut stock = String::new();
    far.read_to_string(&mut stock).map_err(|e| format!("no agent: {e}"))?;
    let (sent, got) = if cell.ours_sends { (&ours, stock.trim()) } else { (&stock, ours.as_str()) };
    let want = expected(cell.message, cell.bytes(), cell.largest());
    if sent.trim().starts_with("ok ") && got.strip_suffix(UNTOLD) == Some(&want) {
        return Err(UNTOLD.to_owned());
    }
    if got != want || !sent.trim().starts_with("ok ") {
        return Err(format!("sender: {}; receiver: {got}; wanted: {want}", sent.trim()));
    }
    Ok(())
}
