//! Keeps what a running transfer's ends tell, and its record.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use crossbeam_channel::{Sender, bounded};
use packtrain_io::{clock, entropy};
use packtrain_units::{ByteCount, Time};

use super::evidence::{Evidence, Part, PartRole, Record};
use super::{Diagnosis, judge, record};
use crate::control::spawn;

/// How often the record is written.
const WRITE: std::time::Duration = std::time::Duration::from_secs(1);

/// The book of one transfer.
pub(crate) struct Book {
    state: Arc<Mutex<State>>,
    dir: Option<PathBuf>,
    /// Dropped, it ends the thread that writes.
    _end: Sender<()>,
}

struct State {
    record: Record,
    begun: Time,
    ssh: bool,
}

impl State {
    fn now(&mut self) -> Record {
        self.record.written = clock::wall();
        self.record.evidence.elapsed = clock::now().since(self.begun);
        self.record.clone()
    }
}

impl Book {
    /// A book about `what`, written once a second from now on.
    pub(crate) fn open(what: String, local: bool, ssh: bool) -> Self {
        let record = Record {
            id: format!("{:08x}", entropy::seed() as u32),
            pid: std::process::id(),
            began: clock::wall(),
            what,
            evidence: Evidence { local, ..Evidence::default() },
            ..Record::default()
        };
        let state = Arc::new(Mutex::new(State { record, begun: clock::now(), ssh }));
        let (end, ended) = bounded::<()>(0);
        let dir = record::dir();
        if let Some(dir) = dir.clone() {
            let state = Arc::clone(&state);
            spawn("record", move || {
                record::prune(&dir);
                loop {
                    // Nothing depends on it: a full disk is told by those who need it.
                    let now = state.lock().expect("no holder panics").now();
                    let _ = record::write(&dir, &now);
                    if ended.recv_timeout(WRITE)
                        != Err(crossbeam_channel::RecvTimeoutError::Timeout)
                    {
                        return;
                    }
                }
            });
        }
        Self { state, dir, _end: end }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }

    /// Names the transfer.
    pub(crate) fn id(&self) -> String {
        self.state().record.id.clone()
    }

    /// An end tells of itself.
    pub(crate) fn part(&self, part: Part) {
        let mut state = self.state();
        let ssh = state.ssh;
        let evidence = &mut state.record.evidence;
        match part.role {
            PartRole::Source => {
                evidence.source = Some(part.end);
                if let Some(mut path) = part.path {
                    path.ssh = ssh;
                    evidence.path = Some(path);
                }
            }
            PartRole::Sink => evidence.sink = Some(part.end),
        }
    }

    /// How far it is.
    pub(crate) fn progress(&self, bytes: ByteCount, files: u64) {
        let evidence = &mut self.state().record.evidence;
        evidence.bytes = evidence.bytes.max(bytes);
        evidence.files = evidence.files.max(files);
    }

    /// It is over: the last record, and what is to be said of it.
    pub(crate) fn close(&self, bytes: ByteCount, files: u64) -> Diagnosis {
        self.progress(bytes, files);
        let record = {
            let mut state = self.state();
            state.record.over = true;
            state.now()
        };
        if let Some(dir) = &self.dir {
            // As above.
            let _ = record::write(dir, &record);
        }
        judge(&record.evidence)
    }
}
