//! One program on an emulated path of its own, observed while it runs.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration as StdDuration;

use packtrain_os::clock;
use packtrain_units::{ByteCount, DataRate, Duration};

use super::near::{self, Ran};
use super::show::Bar;
use crate::failed;
use packtrain_service::{RequestError, StopHandle};

/// Maximum duration of a program.
pub(super) const MAX_DURATION: Duration = Duration::from_secs(25);
/// Timeout for the start of the emulation and the remote end.
const START_TIMEOUT: Duration = Duration::from_secs(15);
pub(super) const SAMPLE_INTERVAL: StdDuration = StdDuration::from_millis(100);

/// The path; each program gets its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wan {
    pub(super) rate: DataRate,
    pub(super) rtt: Duration,
    pub(super) loss: f64,
    pub(super) seed: u64,
}

/// A program that moves the files.
pub(super) struct Mover {
    pub(super) name: &'static str,
    /// The shell command on the remote host.
    pub(super) far: String,
    /// The measured command on the local host.
    pub(super) near: Vec<OsString>,
    pub(super) port: u16,
    pub(super) wait_for: Option<PathBuf>,
}

/// The result of a program.
#[derive(Clone, Debug)]
pub(super) struct Moved {
    pub(super) seconds: f64,
    pub(super) bytes: u64,
    /// Every file has arrived with the right content.
    pub(super) whole: bool,
    /// Packets of the forward direction that the path dropped, for any reason.
    pub(super) lost: u64,
    /// Packets of these that the queue dropped because it was full.
    pub(super) overflow: u64,
    /// Packets sent.
    pub(super) packets: u64,
    /// The emulator was fast enough.
    pub(super) honest: bool,
    /// Stopped by the time limit.
    pub(super) stopped: bool,
    /// The program's own statement of what limited it.
    pub(super) verdict: Option<String>,
}

impl Moved {
    pub(super) fn goodput(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.seconds.max(1e-3)
    }
}

/// The directories of one program.
pub(super) struct Lane<'a> {
    pub(super) program: &'a Path,
    /// The directory of the whole demo.
    pub(super) place: &'a Path,
    pub(super) wan: Wan,
    /// Number of bytes to move.
    pub(super) total: ByteCount,
    pub(super) stop: &'a StopHandle,
}

/// The emulation; a drop ends everything in it.
pub(super) struct Running(pub(super) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Lane<'_> {
    /// Runs `mover`; `Err` has the reason if it cannot run here.
    pub(super) fn run(
        &self,
        mover: &Mover,
        bar: &mut Bar,
    ) -> Result<Result<Moved, String>, RequestError> {
        let target = self.target(mover.name);
        fs::create_dir_all(&target).map_err(failed("the target"))?;
        let out = self.place.join(format!("{}.out", mover.name));
        let said = File::create(out.with_extension("json")).map_err(failed("a log"))?;
        let trouble = File::create(out.with_extension("emulation")).map_err(failed("a log"))?;
        let mut command = Command::new(self.program);
        command.args(["emulate", "--json", "--queue", "1bdp"]);
        command.arg("--rate").arg(format!("{}bit", self.wan.rate.as_bps()));
        command.arg("--rtt").arg(format!("{}us", self.wan.rtt.as_micros()));
        command.arg("--loss").arg(self.wan.loss.to_string());
        command.arg("--seed").arg(self.wan.seed.to_string());
        command.arg("--far").arg(&mover.far).arg("--").arg(self.program);
        command.args(["demo", "near", "--address", &format!("10.77.0.2:{}", mover.port)]);
        command.arg("--out").arg(&out);
        if let Some(file) = &mover.wait_for {
            command.arg("--file").arg(file);
        }
        command.arg("--").args(&mover.near);
        command.stdin(Stdio::null()).stdout(said).stderr(trouble);
        crate::own_environment(&mut command, self.place);
        let child = command.spawn().map_err(failed("the emulation"))?;
        let mut running = Running(child);
        let ran = self.watch(&mut running, &out, &target, bar);
        let (seconds, stopped) = match ran {
            Ok(Some(ran)) if ran.code == 0 => (ran.seconds, false),
            Ok(None) => (MAX_DURATION.as_secs_f64(), true),
            Ok(Some(_)) | Err(()) => {
                crate::check_stop(self.stop)?;
                return Ok(Err(reason(&out)));
            }
        };
        let bytes = if stopped { size(&target).min(self.total.get()) } else { self.total.get() };
        if stopped {
            interrupt(&running.0);
        }
        let _ = running.0.wait();
        let said = fs::read_to_string(out.with_extension("json")).unwrap_or_default();
        let path = super::report::read(&said);
        let words = fs::read_to_string(&out).unwrap_or_default();
        Ok(Ok(Moved {
            seconds,
            bytes,
            whole: false,
            lost: path.dropped,
            overflow: path.overflow,
            packets: path.packets,
            honest: path.honest,
            stopped,
            verdict: super::report::verdict(&words),
        }))
    }

    /// The target directory of `mover`.
    pub(super) fn target(&self, name: &str) -> PathBuf {
        self.place.join("targets").join(name)
    }

    /// Waits until the command has ended (returns its result), the time limit has passed (`None`),
    /// or the emulation has ended without it.
    fn watch(
        &self,
        running: &mut Running,
        out: &Path,
        target: &Path,
        bar: &mut Bar,
    ) -> Result<Option<Ran>, ()> {
        let mut start = clock::now();
        let mut begun = false;
        loop {
            if let Ok(text) = fs::read(near::result(out)) {
                bar.draw(1.0, clock::now().since(start));
                return serde_json::from_slice(&text).map(Some).map_err(|_| ());
            }
            if !begun && near::begun(out).exists() {
                (begun, start) = (true, clock::now());
            }
            let since = clock::now().since(start);
            if begun {
                bar.draw(size(target) as f64 / self.total.get().max(1) as f64, since);
            }
            if since >= if begun { MAX_DURATION } else { START_TIMEOUT } {
                return if begun { Ok(None) } else { Err(()) };
            }
            if self.stop.requested().is_some() {
                return Err(());
            }
            if running.0.try_wait().map_err(|_| ())?.is_some() && !near::result(out).exists() {
                return Err(());
            }
            std::thread::sleep(SAMPLE_INTERVAL);
        }
    }
}

/// The reason why it did not run: the last line of output.
fn reason(out: &Path) -> String {
    let last = |extension: &str| {
        let text = fs::read_to_string(out.with_extension(extension)).unwrap_or_default();
        text.lines().rev().find(|line| !line.trim().is_empty()).map(str::to_owned)
    };
    last("trouble").or_else(|| last("emulation")).unwrap_or_else(|| "it printed nothing".to_owned())
}

/// Asks the emulation to end, so that it still reports. It does not use SIGINT, which background
/// jobs of a script ignore.
fn interrupt(child: &Child) {
    let Some(pid) = rustix::process::Pid::from_raw(child.id() as i32) else { return };
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
}

/// Allocated size of the files below `dir`, with the temporaries of the programs.
fn size(dir: &Path) -> u64 {
    let Ok(items) = fs::read_dir(dir) else { return 0 };
    items
        .flatten()
        .map(|item| match item.metadata() {
            Ok(meta) if meta.is_dir() => size(&item.path()),
            Ok(meta) => meta.blocks() * 512,
            Err(_) => 0,
        })
        .sum()
}
