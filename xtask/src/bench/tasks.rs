//! Ten tasks of a first hour, typed as a user types them, beside rsync, scp, rclone and croc.
//!
//! Three hosts, `near`, `far` and `third`, are 60 ms apart, each behind 200 Mbit/s. Every host has a
//! home directory of its own, which is empty before each run but for what the task needs. ssh has
//! keys, and every program reaches the hosts by their names. The files are in memory.

mod table;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use self::table::{TASKS, Task, Tool};
use super::Plan;
use super::emulation::{self, Commands};
use super::lab::Lab;
use super::report::Report;
use crate::{needs, sh};

const HOSTS: [&str; 3] = ["near", "far", "third"];
/// A task that takes longer is cut off: rclone copies 2,000 small files in minutes.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The version of croc that the bench builds.
const CROC: &str = "github.com/schollz/croc/v10@v10.7.0";

/// Runs every program of every task once a round.
pub(super) fn run(lab: &Lab, plan: &Plan, report: &mut Report) -> Result<()> {
    if !sh::is_root() {
        bail!("tasks needs root: each host has a home directory of its own, mounted over yours");
    }
    let place = Place::new(lab)?;
    let tasks: Vec<&Task> = TASKS.iter().filter(|task| plan.wants_case(task.key)).collect();
    for task in &tasks {
        report.suite(task.key, task.title, "s", false);
    }
    for round in plan.rounds() {
        for task in &tasks {
            for tool in task.tools.iter().filter(|tool| plan.wants(tool.name)) {
                if let Some(missing) = place.missing(tool) {
                    report.add(task.key, &row(tool), round, Err(anyhow::anyhow!("{missing}")));
                    continue;
                }
                let seconds = place.play(lab, task, tool, round);
                report.add(task.key, &row(tool), round, seconds);
            }
        }
    }
    for task in &tasks {
        report.remark(task.key, said(&place, task));
    }
    Ok(())
}

/// The program, and what is typed.
fn row(tool: &Tool) -> String {
    let lines = tool.lines.iter().copied().chain(tool.receiver);
    let lines: Vec<String> = lines.map(|line| format!("`{}`", line.replace('|', "\\|"))).collect();
    format!("{}: {}", tool.name, lines.join(" and "))
}

/// The path, and the last line that the first program printed.
fn said(place: &Place, task: &Task) -> String {
    let path = "200 Mbit/s, 60 ms between any two hosts, drop-tail queue of 1 BDP, no random loss, \
                kernel cubic";
    let log = task.tools.first().map(|tool| place.log(task, tool));
    let log = log.and_then(|log| fs::read_to_string(log).ok()).unwrap_or_default();
    let last = log.lines().map(str::trim).rfind(|line| !line.is_empty());
    last.map_or_else(|| path.to_owned(), |last| format!("{path}. packtrain's last line: `{last}`"))
}

/// The directories of the suite, which are in memory.
struct Place {
    dir: PathBuf,
    moto: Option<PathBuf>,
    croc: Option<PathBuf>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Place {
    fn new(lab: &Lab) -> Result<Self> {
        let dir = PathBuf::from(format!("/dev/shm/packtrain-tasks-{}", std::process::id()));
        let bin = dir.join("seed/bin");
        fs::create_dir_all(&bin)?;
        fs::copy(&lab.packtrain, bin.join("packtrain")).context("copying the program")?;
        let moto = needs::moto().map_err(|error| eprintln!("no moto: {error:#}")).ok();
        let croc = croc(lab).map_err(|error| eprintln!("no croc: {error:#}")).ok();
        if let Some(croc) = &croc {
            fs::copy(croc, bin.join("croc"))?;
        }
        let place = Self { dir, moto, croc };
        place.shell(table::MAKE)?;
        place.make_keys()?;
        Ok(place)
    }

    /// Why the tool cannot run here.
    fn missing(&self, tool: &Tool) -> Option<&'static str> {
        match tool.name {
            "croc" if self.croc.is_none() => Some("croc was not built: it needs Go"),
            "rsync" | "scp" | "rclone" if sh::find(tool.name).is_none() => Some("not installed"),
            _ if tool.store && self.moto.is_none() => Some("moto's server is not installed"),
            _ => None,
        }
    }

    /// Runs a shell script on this machine, with the variables of the tasks.
    fn shell(&self, script: &str) -> Result<String> {
        let script = format!("set -e\n{}{script}", table::functions());
        sh::capture(sh::command("bash", ["-c", &script]).envs(self.variables()))
    }

    fn variables(&self) -> Vec<(&'static str, PathBuf)> {
        let program = |path: &Option<PathBuf>| path.clone().unwrap_or_else(|| "false".into());
        vec![
            ("SEED", self.dir.join("seed")),
            ("NEAR", self.dir.join("near")),
            ("FAR", self.dir.join("far")),
            ("THIRD", self.dir.join("third")),
            ("SHARE", self.dir.join("share")),
            ("MOTO", program(&self.moto)),
            ("CROC", self.dir.join("seed/bin/croc")),
        ]
    }

    /// Keys of the user and of the hosts, and the files that lead programs to them by name.
    fn make_keys(&self) -> Result<()> {
        let seed = self.dir.join("seed");
        let ssh = seed.join("ssh");
        fs::create_dir_all(&ssh)?;
        fs::create_dir_all("/run/sshd")?;
        let mut hosts = "127.0.0.1 localhost\n".to_owned();
        for (host, address) in [("near", 1), ("hub", 2), ("far", 3), ("third", 4)] {
            hosts += &format!("10.77.0.{address} {host}\n");
        }
        fs::write(seed.join("hosts"), hosts)?;
        self.shell(
            "cd $SEED/ssh && ssh-keygen -q -t ed25519 -N '' -f host && \
             ssh-keygen -q -t ed25519 -N '' -f id_ed25519 && \
             echo \"far,third $(cut -d' ' -f1,2 host.pub)\" >known_hosts",
        )?;
        let at = ssh.display();
        fs::write(
            seed.join("sshd_config"),
            format!(
                "Port 22\nHostKey {at}/host\nPidFile none\nAuthorizedKeysFile {at}/id_ed25519.pub\n\
                 StrictModes no\nUsePAM no\nLogLevel ERROR\nPasswordAuthentication no\n\
                 KbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n\
                 Subsystem sftp internal-sftp\n"
            ),
        )?;
        let mut remotes = String::new();
        for host in ["far", "third"] {
            remotes += &format!(
                "[{host}]\ntype = sftp\nhost = {host}\nuser = root\nkey_file = {at}/id_ed25519\n\
                 known_hosts_file = {at}/known_hosts\n\n"
            );
        }
        remotes += "[s3]\ntype = s3\nprovider = Other\nenv_auth = true\n\
                    endpoint = http://far:5000\n";
        fs::write(seed.join("rclone.conf"), remotes)?;
        Ok(())
    }

    /// Where the output of the tool is kept until the suite ends.
    fn log(&self, task: &Task, tool: &Tool) -> PathBuf {
        self.dir.join(format!("{}-{}.log", task.key.replace(' ', "-"), tool.name))
    }

    /// Does a task once, checks that it was done, and returns its duration in seconds.
    fn play(&self, lab: &Lab, task: &Task, tool: &Tool, round: usize) -> Result<f64> {
        for name in HOSTS.iter().chain(&["share"]) {
            let dir = self.dir.join(name);
            let _ = fs::remove_dir_all(&dir);
            fs::create_dir_all(&dir)?;
        }
        self.shell(task.given).context("preparing")?;
        self.shell(
            "install -d -m 700 $NEAR/.ssh && cp $SEED/ssh/{id_ed25519,known_hosts} $NEAR/.ssh/ && \
             mkdir -p $NEAR/.config/rclone && cp $SEED/rclone.conf $NEAR/.config/rclone/",
        )?;
        let near = self.script("near", &near(tool))?;
        let sshd = sh::find("sshd").context("no sshd")?;
        let sshd = format!("{} -D -e -f $SEED/sshd_config", sshd.display());
        let server = tool.server.map_or_else(String::new, |line| format!("({line}) &\n"));
        let far = self.script("far", &format!("{server}exec {sshd}"))?;
        let receiver = tool.receiver.map_or_else(String::new, |line| {
            format!(
                "(export PATH=$SEED/bin:$PATH; until test -s $SHARE/begun -a -s $SHARE/code; do sleep 0.01; done; \
                 {line} >$SHARE/received.log 2>&1; echo $? >$SHARE/received) &\n"
            )
        });
        let third = self.script("third", &format!("{receiver}exec {sshd}"))?;
        let mut started = vec![("far", far), ("third", third)];
        if tool.store {
            // Without a home directory of its own: Python's files may be in this user's.
            started.push(("far", "exec $MOTO -H 0.0.0.0 -p 5000".to_owned()));
        }
        let variables: Vec<(&str, String)> = self
            .variables()
            .into_iter()
            .map(|(name, path)| (name, path.display().to_string()))
            .collect();
        let commands = Commands {
            topology: &topology(),
            seed: round,
            started: &started,
            near: &near,
            variables: &variables,
            timeout: TIMEOUT,
        };
        let ended = emulation::run(lab, "tasks", &commands);
        let log = fs::read_to_string(self.dir.join("share/log")).unwrap_or_default();
        fs::write(self.log(task, tool), &log)?;
        let ended = ended.map_err(|failed| {
            let share = self.dir.join("share");
            let logs = ["before.log", "log", "received.log"];
            let last =
                |name| Some(fs::read_to_string(share.join(name)).ok()?.lines().last()?.to_owned());
            failed
                .error
                .context(logs.into_iter().filter_map(last).collect::<Vec<String>>().join("; "))
        })?;
        self.shell(tool.check).context("the task was not done")?;
        let result: Value = serde_json::from_str(&ended.text()?)?;
        result["nanoseconds"].as_f64().map(|time| time / 1e9).context("no time")
    }

    /// Writes the script of a host, whose home directory is mounted over that of this user, and
    /// returns the command that runs it.
    fn script(&self, host: &str, text: &str) -> Result<String> {
        let file = self.dir.join(format!("{host}.sh"));
        let home = std::env::var("HOME").context("no HOME")?;
        let text = format!(
            "echo cubic >/proc/sys/net/ipv4/tcp_congestion_control\n\
             mount --bind $SEED/hosts /etc/hosts\nmount --bind {} '{home}'\ncd '{home}'\n\
             unset XDG_CONFIG_HOME XDG_STATE_HOME XDG_CACHE_HOME AWS_CA_BUNDLE\n{}\n{text}",
            self.dir.join(host).display(),
            match host {
                "near" => "export PATH=$SEED/bin:$PATH",
                _ => "export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            }
        );
        fs::write(&file, text)?;
        Ok(format!("exec unshare -m bash {}", file.display()))
    }
}

/// What the near host runs: the lines with their time.
fn near(tool: &Tool) -> String {
    let mut text = "export AWS_ACCESS_KEY_ID=key AWS_SECRET_ACCESS_KEY=secret \
                    AWS_REGION=us-east-1 AWS_ENDPOINT_URL=http://far:5000\n\
                    for host in far third; do until ssh $host true 2>$SHARE/ssh.log; do \
                    sleep 0.1; done; done\n"
        .to_owned();
    if !tool.before.is_empty() {
        text += &format!("({}) >$SHARE/before.log 2>&1 || true\n", tool.before);
    }
    if tool.receiver.is_some() {
        // The sender prints its code, if it was not given one.
        text += "(until test -s $SHARE/code; do sleep 0.01; \
                 grep -oEm1 '[0-9a-z]{6}(-[0-9a-z]{6}){2}' $SHARE/log >$SHARE/found && \
                 mv $SHARE/found $SHARE/code; done) 2>/dev/null &\n";
    }
    text += "begin=$(date +%s%N)\ncode=0\necho now >$SHARE/begun\n";
    for line in tool.lines {
        text += &format!("({line}) >>$SHARE/log 2>&1 || code=$?\n");
    }
    if tool.receiver.is_some() {
        text += "until test -s $SHARE/received; do sleep 0.01; done\n\
                 test $code != 0 || code=$(cat $SHARE/received)\n";
    }
    text + "end=$(date +%s%N)\necho \"{\\\"nanoseconds\\\":$((end - begin))}\" >$OUT\nexit $code\n"
}

/// A link of each host to `hub`.
fn topology() -> String {
    let link = |host| {
        format!(
            "[[link]]\nfrom = \"{host}\"\nto = \"hub\"\nrate = \"200mbit\"\ndelay = \"15ms\"\n\
             queue = \"1bdp\"\nbdp_rtt = \"60ms\"\n\n"
        )
    };
    HOSTS.map(link).concat()
}

/// croc, built on first use.
fn croc(lab: &Lab) -> Result<PathBuf> {
    let place = lab.dir.join("croc");
    let program = place.join("croc");
    if !program.is_file() {
        let mut go = sh::command("go", ["install", CROC]);
        sh::capture(go.env("GOBIN", &place).env("GOFLAGS", "-modcacherw"))?;
    }
    Ok(program)
}
