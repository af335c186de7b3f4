//! The commands of the README and of the guide, run as they are printed.
//!
//! Each page is one script in mount and network namespaces, in an empty home directory. Every host
//! of the page is an address of this machine. A command in place of `ssh` starts a login shell in
//! the host's home directory, where packtrain is not installed. Servers run in the background;
//! `/data` and `/var/spool` are folders of the test. What a tutorial shows of the screen is compared
//! with what was printed, apart from figures.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use packtrain_testkit::documents::{guide, screen_blocks, shell_blocks};

use crate::rig::{Rig, is_root, skipped};

/// A page, what it takes for granted, what is so afterwards, and the commands that are not run.
struct Page {
    path: &'static str,
    /// Shell, run before the page.
    given: &'static str,
    /// Shell, run after the page.
    then: &'static str,
    /// The beginning of a command, and why it is not run.
    not_run: &'static [(&'static str, &'static str)],
}

const INSTALL: (&str, &str) =
    ("cargo install", "it builds the program, which this test was built with");
const DIST: (&str, &str) =
    ("cargo xtask dist", "it builds for minutes: `cargo xtask nightly` runs it");
const SERVICE: &str = "it changes services of the machine; a test of xtask/dist reads the units";
const FORM: &str = "a form, not a command";
const IPERF: &str = "it takes 30 s";
const WEEKS: &str = "it needs transfers of some weeks";
const S3: &str = "e2e s3 has the store";

/// The table of pages, and a test for each that runs it.
macro_rules! pages {
    ($($name:ident: $page:expr;)*) => {
        const PAGES: &[Page] = &[$($page),*];
        $(
            #[test]
            #[ignore = "needs namespaces; `cargo xtask test` runs it"]
            fn $name() {
                run(&$page);
            }
        )*
    };
}

pages! {
    readme: Page {
        path: "README.md",
        given: "mkdir -p src $HOSTS/host/data $HOSTS/a/data && echo one >src/one && \
                echo two >$HOSTS/host/data/two && echo three >$HOSTS/a/data/three",
        then: "test -s $HOSTS/host/results/now.txt && cmp src/one $HOSTS/host/dst/one && test -s data/two && cmp $HOSTS/a/data/three $HOSTS/b/data/three",
        not_run: &[
            ("cargo demo", "CI runs `demo --wan` of the tests' build: e2e demo"),
            ("cargo xtask test", "CI runs it"),
            INSTALL,
            DIST,
            ("packtrain cp -r results s3:", S3),
            ("packtrain emulate", "e2e emulate"),
        ],
    };
    emulated_ocean: Page {
        path: "docs/guide/tutorials/emulated-ocean.md",
        given: ":",
        then: ":",
        not_run: &[
            ("packtrain demo", "e2e demo"),
            (
                "packtrain emulate --rate 1gbit --rtt 100ms --loss 1e-4 --queue 1bdp --far 'iperf3",
                "it takes 30 s",
            ),
        ],
    };
    install: Page {
        path: "docs/guide/tasks/install.md",
        given: ":",
        then: ":",
        not_run: &[
            INSTALL,
            DIST,
            ("sudo dpkg", "it changes the machine; a test of xtask/dist unpacks the deb"),
            ("sudo rpm", "the same, and a test of xtask/dist reads the rpm"),
            ("tar -xzf", "`dist` writes the file, and a test of xtask/dist reads it"),
            ("echo 'packtrain-ed25519", SERVICE),
            ("sudo systemctl", SERVICE),
            ("systemctl status", SERVICE),
        ],
    };
    firewalls: Page {
        path: "docs/guide/tasks/firewalls.md",
        given: "results && mkdir -p $HOSTS/host",
        then: "cmp results/one $HOSTS/host/results/one",
        not_run: &[],
    };
    terabytes: Page {
        path: "docs/guide/tasks/terabytes.md",
        given: ":",
        then: ":",
        not_run: &[
            ("loginctl", SERVICE),
            ("systemd-run", SERVICE),
            ("journalctl", SERVICE),
        ],
    };
    diagnose: Page {
        path: "docs/guide/tasks/diagnose.md",
        given: "mkdir -p $HOSTS/host/data && head -c 3M /dev/urandom >f && packtrain cp f g",
        then: ":",
        not_run: &[
            ("packtrain diagnose 4f21c09a", "the id of another transfer"),
            ("packtrain diagnose 31268", "the id of another process"),
        ],
    };
    doctor: Page {
        path: "docs/guide/tasks/doctor.md",
        given: "mkdir -p $HOSTS/host",
        then: ":",
        not_run: &[],
    };
    first_copy: Page {
        path: "docs/guide/tutorials/first-copy.md",
        given: ":",
        then: "cmp results/run3.dat $HOSTS/host/data/results/run3.dat",
        not_run: &[INSTALL],
    };
    resume: Page {
        path: "docs/guide/tasks/resume.md",
        given: "mkdir results /data/in && echo one >results/one && mkdir -p $HOSTS/host/data",
        then: "cmp results/one $HOSTS/host/data/results/one",
        not_run: &[],
    };
    nightly_mirror: Page {
        path: "docs/guide/tasks/nightly-mirror.md",
        given: "mkdir src && echo one >src/one && mkdir -p $HOSTS/host/dst && echo >$HOSTS/host/dst/x",
        then: "cmp src/one $HOSTS/host/dst/one && test ! -e $HOSTS/host/dst/x",
        not_run: &[],
    };
    server: Page {
        path: "docs/guide/tasks/server.md",
        given: "results",
        then: "cmp results/one /data/results/one",
        not_run: &[("packtrain cp -r pt://a.", "two servers on one port: e2e hops has the copy")],
    };
    share: Page {
        path: "docs/guide/tasks/share.md",
        given: "mkdir -p /data/project/results && echo one >/data/project/results/one",
        then: "cmp results/one /data/project/results/one",
        not_run: &[],
    };
    depots: Page {
        path: "docs/guide/tasks/depots.md",
        given: "{ results; printf '[cp]\\naccept-new-host = true\\n' >$XDG_CONFIG_HOME/packtrain/config.toml; }",
        then: "cmp big /data/x && cmp big /data/x1 && cmp big /data/x2 && cmp results/one /data/results/one",
        not_run: &[
            (
                "packtrain cp -r --via d1.example.org:7879,d2.",
                "there is one depot, and it may not connect to another: e2e hops has chains",
            ),
            (
                "packtrain cp -r --via d1.example.org:7879 --by-destination",
                "the depot has no table: e2e depots has them",
            ),
        ],
    };
    leave_data: Page {
        path: "docs/guide/tasks/leave-data.md",
        given: "results",
        then: ":",
        not_run: &[
            ("packtrain send", "two depots of one port: e2e spool has them"),
            ("packtrain claim", "the same"),
        ],
    };
    measure: Page { path: "docs/guide/tasks/measure.md", given: ":", then: ":", not_run: &[] };
    tcp_streams: Page {
        path: "docs/guide/tasks/tcp-streams.md",
        given: "packtrain perf server --listen 0.0.0.0:7876 --ticket-file t && \
                printf 'streams,throughput_mbps\\n1,90\\n2,170\\n4,300\\n8,420\\n' >samples.csv",
        then: ":",
        not_run: &[
            ("packtrain cp --transport tcp", FORM),
            ("modprobe", "a module of the machine's kernel"),
            ("sysctl", "a setting of the machine's kernel"),
        ],
    };
    udt4: Page {
        path: "docs/guide/tasks/udt4.md",
        given: "head -c 3M /dev/urandom >/data/run7.dat",
        then: "cmp run7.dat /data/run7.dat",
        not_run: &[],
    };
    https_and_s3: Page {
        path: "docs/guide/tasks/https-and-s3.md",
        given: ":",
        then: ":",
        not_run: &[
            ("packtrain cp https:", FORM),
            ("packtrain cp s3:", FORM),
            ("packtrain cp -r s3:", FORM),
            ("packtrain cp [-r]", FORM),
            ("packtrain cp report.pdf s3:", S3),
            ("packtrain cp -r results s3:", S3),
        ],
    };
    commands: Page {
        path: "docs/guide/reference/commands.md",
        given: ":",
        then: ":",
        not_run: &[("PACKTRAIN_WRITE_REFERENCE=1", "it tests compare the page with the definitions")],
    };
    configuration: Page {
        path: "docs/guide/reference/configuration.md",
        given: ":",
        then: "test -s commands.md",
        not_run: &[
            ("packtrain completions bash", "it writes to the machine's /etc"),
            ("packtrain man --out /usr", "it writes to the machine's /usr"),
        ],
    };
    controllers: Page {
        path: "docs/guide/reference/controllers.md",
        given: "head -c 3M /dev/urandom >big",
        then: "cmp big $HOSTS/host/big",
        not_run: &[
            ("packtrain perf client HOST", FORM),
            ("packtrain sim run", "the scenario is that of the page about sim"),
        ],
    };
    cp: Page {
        path: "docs/guide/reference/cp.md",
        given: "results; mkdir -p $HOSTS/host && cp -r results $HOSTS/host/ && mkdir outbox && echo one >outbox/one && head -c 9M /dev/urandom >disk.img && \
                mkdir project photos && echo out >project/.gitignore && echo 1 >project/out && \
                echo 2 >project/in && echo '- raw' >photos/.rsync-filter && echo 3 >photos/raw && \
                echo 4 >photos/jpg",
        then: "test -s MANIFEST && cmp disk.img $HOSTS/host/vm/disk.img && test ! -e outbox/one && \
               test -s $HOSTS/host/archive/one && cmp project/in $HOSTS/host/project/in && \
               test ! -e $HOSTS/host/project/out && test $(ls -A $HOSTS/host/photos) = jpg",
        not_run: &[("packtrain cp [-r]", FORM), ("packtrain verify SRC", FORM)],
    };
    depot: Page {
        path: "docs/guide/reference/depot.md",
        given: "results",
        then: ":",
        not_run: &[("packtrain forecast", WEEKS)],
    };
    emulate: Page {
        path: "docs/guide/reference/emulate.md",
        given: ":",
        then: ":",
        not_run: &[
            ("packtrain emulate --rate 1gbit", IPERF),
            ("packtrain emulate --rate 100mbit", "a web server with a file of the reader"),
            ("for cc in", IPERF),
            ("    packtrain emulate", IPERF),
            ("        sh -c", IPERF),
            ("done", IPERF),
            ("packtrain emulate --rate 50mbit", "programs of the reader"),
            ("packtrain emulate exec", "hosts of another command"),
            ("packtrain emulate --topology", IPERF),
        ],
    };
    forecast: Page {
        path: "docs/guide/reference/forecast.md",
        given: ":",
        then: ":",
        not_run: &[("packtrain forecast", WEEKS)],
    };
    history: Page {
        path: "docs/guide/reference/history.md",
        given: "head -c 3M /dev/urandom >f && packtrain cp f g",
        then: "test $(wc -l <transfers.csv) -eq 2",
        not_run: &[("packtrain history 1a2b3c4d", "the id of another transfer")],
    };
    loss: Page {
        path: "docs/guide/reference/loss.md",
        given: "seq 20000 | awk '{printf NR % 97 ? 1 : 0} END {print \"\"}' >signatures.txt",
        then: ":",
        not_run: &[
            ("packtrain loss classify connection", "a log of the reader"),
            ("packtrain loss classify receiver", "a capture of the reader"),
            ("tail -f", "it does not end"),
            ("packtrain sim signatures", "it takes minutes"),
            ("packtrain loss train", "it takes minutes"),
            ("packtrain loss classify windows", "the model of the line before"),
        ],
    };
    predict: Page {
        path: "docs/guide/reference/predict.md",
        given: "printf 'streams,throughput_mbps\n1,90\n2,170\n4,300\n8,420\n' >samples.csv",
        then: "test -s curve.svg",
        not_run: &[("packtrain predict --from history", WEEKS)],
    };
    route: Page {
        path: "docs/guide/reference/route.md",
        given: "block 1 >net.csv",
        then: "packtrain route --matrix net.csv --from ucsb | diff - <(block 2)",
        not_run: &[("packtrain route --matrix net.csv --from ucsb --dot", "it needs Graphviz")],
    };
    scripts: Page {
        path: "docs/guide/reference/scripts.md",
        given: "mkdir results src && echo one >results/one && echo two >src/two",
        then: "cmp src/two dst/src/two && cmp results/one $HOSTS/host/data/one",
        not_run: &[],
    };
    sim: Page {
        path: "docs/guide/reference/sim.md",
        given: ":",
        then: ":",
        not_run: &[
            ("packtrain sim run", "it takes a minute in a build for tests; it tests run scenarios"),
            ("cat grid-results", "the results of the line before"),
            ("packtrain sim bench", FORM),
            ("packtrain sim signatures --families", "it takes minutes"),
            ("packtrain sim reproduce", "tests of crates/reproduce play the experiments"),
        ],
    };
    sockets: Page {
        path: "docs/guide/reference/sockets.md",
        given: ":",
        then: ":",
        not_run: &[("cargo run", "it builds; tests of crates/socket run the example")],
    };
    spool: Page {
        path: "docs/guide/reference/spool.md",
        given: "results",
        then: ":",
        not_run: &[("packtrain send", FORM), ("packtrain claim", FORM)],
    };
}

/// The hosts that the pages name, and their addresses.
const HOSTS: &str = "127.0.0.1 localhost host a b server depot your-host.example.org \
                     host.example.org depot.example.org d1.example.org near.example.org\n\
                     198.51.100.7 d2.example.org\n\
                     198.51.100.9 far.example.org\n";

/// The login shell of a host in place of `ssh`: `ssh [OPTION...] -- [USER@]HOST COMMAND`.
const SSH: &str = r#"#!/bin/sh
case " $* " in *' -G '*) exit 1;; esac
while [ "$1" != -- ]; do shift; done
host=${2#*@}
mkdir -p "$HOSTS/$host" && cd "$HOSTS/$host" || exit 1
unset XDG_STATE_HOME XDG_CONFIG_HOME PACKTRAIN_SSH
unset XDG_CACHE_HOME
HOME=$PWD TMPDIR=$PWD PATH=/usr/bin:/bin SSH_CONNECTION='127.0.0.1 50000 127.0.0.1 22' exec sh -c "$3"
"#;

/// Runs before each page. Measurements take one second. `packtrain` starts servers in the background and waits until they listen;
/// a server takes the place of an earlier one on the same port.
const PRELUDE: &str = r#"set -e
ip link set lo up
ip address add 198.51.100.7/32 dev lo && ip address add 198.51.100.9/32 dev lo
mount --bind hosts /etc/hosts || exit 99
mkdir -p data spool home servers && cd home
# Of what the pages copy in gibibytes a hundredth is copied.
head() { command head "${@/%G/0M}"; }
# Presses Ctrl-C once a part of the copy is durable at the host.
interrupted() {
    PACKTRAIN_RATE=40mbit env --default-signal=INT "$@" &
    local copy=$! size='' first=''
    for _ in $(seq 1200); do
        size=$(cat $(find "$HOSTS" -name '.packtrain-*.journal') </dev/null | wc -c)
        [ "$size" != 0 ] && first=${first:-$size} && [ "$size" -gt "$first" ] && break
        sleep 0.05
    done
    kill -INT "$copy"
    if wait "$copy"; then return 1; else [ $? = 130 ]; fi
}
packtrain() {
    case "$1 $2" in
    serve*|depot*|'perf server') ;;
    # A busy machine delivers late: what the run shows is not wanted here.
    emulate*) shift && command packtrain emulate --best-effort "$@"; return;;
    'perf client') set -- $(printf '%s ' "$@" | sed 's/--seconds [0-9]*//') --seconds 1
        command packtrain "$@"; return;;
    *) command packtrain "$@"; return;;
    esac
    port=$(printf '%s\n' "$@" | sed -n 's/.*[0-9]:\([0-9]*\)$/\1/p' | head -n 1)
    if [ -e "$TOP/servers/$port" ]; then
        read -r old <"$TOP/servers/$port" && kill "$old" && wait "$old" || true
    fi
    command packtrain "$@" </dev/null &
    echo $! >"$TOP/servers/$port"
    ticket=$(printf '%s\n' "$@" | sed -n '/^--ticket-file$/{n;p}')
    for _ in $(seq 200); do
        if [ -n "$(ss -Hltun "sport = :$port")" ] && [ -s "${ticket:-/etc/hosts}" ]; then return; fi
        sleep 0.05
    done
    echo "packtrain $*: nothing listens at port $port" >&2
    return 1
}
# The text of the Nth block of output in the page.
block() { awk -v n="$1" '/^```/ { if (on) exit; if (/^```text/ && ++seen == n) on = 1; next } on' "$PAGE"; }
# Something to copy, and this user's key at every server and depot.
results() {
    mkdir results && echo one >results/one && head -c 3M /dev/urandom >big
    mkdir -p "$XDG_CONFIG_HOME/packtrain"
    packtrain key show >"$XDG_CONFIG_HOME/packtrain/authorized_keys"
}
trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT
"#;

/// The script of a page.
fn script(page: &Page, data: &Path, spool: &Path) -> String {
    let mut script = format!("{PRELUDE}{}\n", page.given);
    let mut unused: Vec<&str> = page.not_run.iter().map(|(begin, _)| *begin).collect();
    let screens = screen_blocks(Path::new(page.path));
    let blocks = shell_blocks(Path::new(page.path));
    for (at, block) in blocks.iter().enumerate() {
        // The screen after a command that is interrupted says how it is resumed.
        let next = blocks.get(at + 1).map_or(usize::MAX, |next| next.line);
        let is_interrupted = screens.iter().any(|screen| {
            (block.line..next).contains(&screen.line) && screen.text.contains("to resume, run:")
        });
        script.push_str(&format!("echo '== {}:{}' >&2\n", page.path, block.line));
        let mut left_out = false;
        for line in block.text.lines() {
            let skipped = page.not_run.iter().find(|(begin, _)| line.starts_with(begin));
            unused.retain(|begin| skipped.is_none_or(|(skipped, _)| skipped != begin));
            // A command that is left out ends with its last line.
            if !std::mem::replace(&mut left_out, false) && skipped.is_none() {
                if is_interrupted && line.starts_with("packtrain ") {
                    script.push_str("interrupted ");
                }
                script.push_str(line);
                script.push('\n');
            } else {
                left_out = line.ends_with(['\\', '|']);
            }
        }
    }
    assert!(unused.is_empty(), "{} has no command that begins with {unused:?}", page.path);
    script.push_str(&format!("echo '== {}: afterwards' >&2\n{}\n", page.path, page.then));
    script
        .replace(" /data", &format!(" {}", data.display()))
        .replace(">/data", &format!(">{}", data.display()))
        .replace("/var/spool/packtrain", &spool.display().to_string())
}

fn executable(path: &Path, text: &str) {
    fs::write(path, text).expect("a script");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("mode");
}

fn run(page: &Page) {
    let rig = Rig::local();
    let (top, bin) = (rig.path(""), rig.path("bin"));
    fs::create_dir(&bin).expect("a folder");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_packtrain"), bin.join("packtrain"))
        .expect("a link");
    executable(&bin.join("ssh"), SSH);
    fs::write(rig.path("hosts"), HOSTS).expect("a file");
    let mut command = Command::new("unshare");
    if !is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--mount", "--net", "--pid", "--fork", "--kill-child", "bash", "-c"]);
    command.arg(script(page, &rig.path("data"), &rig.path("spool")));
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", bin.display()));
    command.env("PAGE", packtrain_testkit::documents::root().join(page.path));
    command.env("HOME", rig.path("home")).env("HOSTS", rig.path("far")).env("TOP", &top);
    command.env("XDG_STATE_HOME", rig.path("state")).env("XDG_CONFIG_HOME", rig.path("config"));
    let is_tutorial = page.path.starts_with("docs/guide/tutorials");
    if is_tutorial {
        // The reader of a tutorial sits at a terminal, where copies end with a line.
        command.env("PACKTRAIN_PROGRESS", "bar");
    }
    let ended = rig.run(command.current_dir(&top).stdin(std::process::Stdio::null()));
    if ended.code == 99 || ended.stderr.contains("unshare:") {
        return skipped(&format!("no namespaces: {}", ended.stderr));
    }
    let out = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert_eq!(ended.code, 0, "{}:\n{out}{}", page.path, ended.stderr);
    if is_tutorial {
        shows(page, &format!("{out}{}", ended.stderr));
    }
}

/// Asserts that each line that the page shows of the screen was printed, in the order of the page.
/// Figures, units, ids and names of transports may be others, and a printed line may say more.
fn shows(page: &Page, printed: &str) {
    // The bar is erased before a line is printed in its place.
    let on_screen = |line: &str| clauses(line.rsplit("\u{1b}[K").next().unwrap_or_default());
    let mut lines = printed.split(['\n', '\r']).map(on_screen);
    for screen in screen_blocks(Path::new(page.path)) {
        for line in screen.text.lines() {
            let wanted = clauses(line);
            let found = lines.any(|line| wanted.iter().all(|clause| line.contains(clause)));
            assert!(found, "{}: {line:?} was not printed:\n{printed}", page.path);
        }
    }
}

/// The parts of a line between semicolons, with words in place of what differs from run to run.
fn clauses(line: &str) -> Vec<String> {
    let line = line.replace("what limited it: packtrain diagnose ", "id ");
    let is_id = |word: &str| word.len() == 8 && word.bytes().all(|b| b.is_ascii_hexdigit());
    let is_clock = |word: &str| {
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        word.split(':').count() > 1 && word.split(':').all(digits)
    };
    let general = |word: &str| {
        let core = word.trim_matches(['(', ')', ',']);
        let class = match core {
            "B" | "KiB" | "MiB" | "GiB" => "BYTES",
            "us" | "ms" | "s" => "TIME",
            clock if is_clock(clock) => "NUMBER TIME",
            "bit/s" | "kbit/s" | "Mbit/s" | "Gbit/s" => "RATE",
            "native" | "tcp" | "pipe" => "TRANSPORT",
            // Before the numbers: one id in thirty has digits alone, or reads as an exponent.
            id if is_id(id) => "ID",
            number if number.parse::<f64>().is_ok() => "NUMBER",
            _ => return word.to_owned(),
        };
        word.replace(core, class)
    };
    let words = |clause: &str| {
        let words = clause.split(' ').map(general).collect::<Vec<_>>().join(" ");
        // Where the start is slow, two transports share a copy.
        words.replace("TRANSPORT and TRANSPORT", "TRANSPORT")
    };
    line.split("; ").map(words).collect()
}

#[test]
fn screens_differ_by_more_than_figures_or_not_at_all() {
    let shown = "packtrain: 2 files, 2.0 GiB in 21.4 s (806.5 Mbit/s) over native; what limited it: \
                 packtrain diagnose 4f21c09a";
    let same = "packtrain: 2 files, 30.0 MiB in 310 ms (1.2 Gbit/s) over tcp; the sending disk; id 00aa11bb";
    let has = |printed: &str| {
        let printed = clauses(printed);
        clauses(shown).iter().all(|clause| printed.contains(clause))
    };
    assert!(has(same));
    assert!(has(&same.replace("310 ms", "1:02").replace("tcp", "native and tcp")));
    for id in ["43139851", "1234e567"] {
        assert!(has(&same.replace("00aa11bb", id)), "{id}");
    }
    for (from, to) in
        [(" in ", " within "), ("files", "file"), ("; id 00aa11bb", ""), (" over tcp", "")]
    {
        assert!(!has(&same.replace(from, to)), "{from}");
    }
}

#[test]
fn every_page_with_commands_is_in_the_table() {
    // It needs a controller that the reader writes.
    let left_out = Path::new("docs/guide/tutorials/your-own-controller.md");
    let pages = guide().into_iter().filter(|page| page != left_out);
    let kinds = ["docs/guide/tutorials", "docs/guide/tasks", "docs/guide/reference"];
    let missing: Vec<_> = pages
        .filter(|page| kinds.iter().any(|kind| page.starts_with(kind)))
        .filter(|page| !shell_blocks(page).is_empty())
        .filter(|page| !PAGES.iter().any(|known| Path::new(known.path) == page))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}
