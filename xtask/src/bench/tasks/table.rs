//! The ten tasks, and the lines that a user types for each of them.
//!
//! The shell variables of the hidden parts: `$SEED` has the data, `$NEAR`, `$FAR` and `$THIRD` are the
//! home directories of the three hosts, and `$SHARE` is a directory that all see.

/// A task of the first hour.
pub(super) struct Task {
    pub(super) key: &'static str,
    pub(super) title: &'static str,
    /// A shell script before each run, outside of the emulation: what the homes have.
    pub(super) given: &'static str,
    pub(super) tools: &'static [Tool],
}

/// A program that does a task.
pub(super) struct Tool {
    pub(super) name: &'static str,
    /// What is typed on `near`, and measured.
    pub(super) lines: &'static [&'static str],
    /// What is typed on `third` once `$SHARE/code` is there; its time counts too.
    pub(super) receiver: Option<&'static str>,
    /// Runs on `near` before the time begins.
    pub(super) before: &'static str,
    /// A server on `far`, beside sshd.
    pub(super) server: Option<&'static str>,
    /// Whether `far` has an S3 server, at port 5000.
    pub(super) store: bool,
    /// Succeeds on the machine of the bench if the task was done. `:` where the exit code says it.
    pub(super) check: &'static str,
}

const fn tool(name: &'static str, lines: &'static [&'static str], check: &'static str) -> Tool {
    Tool { name, lines, receiver: None, before: "", server: None, store: false, check }
}

const INSTALLED: &str = "mkdir -p $FAR/.local/bin $THIRD/.local/bin && \
    cp $SEED/bin/packtrain $FAR/.local/bin/ && cp $SEED/bin/packtrain $THIRD/.local/bin/ && ";

const DATA_ARRIVED: &str = "diff -rq $SEED/data $FAR/data";
const BIG_ARRIVED: &str = "cmp $SEED/big $FAR/big";
const SITE_IS_MIRRORED: &str = "diff -rq $NEAR/site $FAR/site";
const SITE_IS_PULLED: &str = "diff -rq $FAR/site $NEAR/site";
const PROJECT_ARRIVED: &str =
    "diff -rq -x '*.tmp' $SEED/site $FAR/site && test ! -e $FAR/site/d00/scratch.tmp";
const BIG_AT_THIRD: &str = "cmp $SEED/big $THIRD/big";
const BIG_IS_HERE: &str = "cmp $SEED/big $NEAR/big";

/// Twenty files changed, ten new, five gone.
const CHANGE: &str = "for i in $(seq 10 29); do echo changed >>$1/d00/f0$i; done; \
    for i in $(seq 0 9); do echo new >$1/d01/new$i; done; rm $1/d02/f04[0-4]; ";

pub(super) const TASKS: &[Task] = &[
    Task {
        key: "first copy",
        title: "1. First copy, 100 MB in 100 files; packtrain is not installed on far",
        given: "cp -a $SEED/data $NEAR/",
        tools: &[
            tool("packtrain", &["packtrain cp -r data far:"], DATA_ARRIVED),
            tool("rsync", &["rsync -a data far:"], DATA_ARRIVED),
            tool("scp", &["scp -qr data far:"], DATA_ARRIVED),
            tool("rclone", &["rclone copy data far:data"], DATA_ARRIVED),
        ],
    },
    Task {
        key: "resume",
        title: "2. Resume a copy of 100 MB that was killed after 3 s",
        given: "installed && cp -a $SEED/big $NEAR/",
        tools: &[
            Tool {
                before: "timeout -s KILL 3 packtrain cp -q big far:",
                ..tool("packtrain", &["packtrain cp big far:"], BIG_ARRIVED)
            },
            Tool {
                before: "timeout -s KILL 3 rsync -q --partial big far:",
                ..tool("rsync", &["rsync --partial big far:"], BIG_ARRIVED)
            },
            Tool {
                before: "timeout -s KILL 3 rclone copy big far:",
                ..tool("rclone", &["rclone copy big far:"], BIG_ARRIVED)
            },
        ],
    },
    Task {
        key: "mirror",
        title: "3. Mirror 2,000 files of 8 KiB of which 20 changed, 10 are new and 5 are gone",
        given: "installed && cp -a $SEED/site $NEAR/ && cp -a $SEED/site $FAR/ && change $NEAR/site",
        tools: &[
            tool("packtrain", &["packtrain cp -r --delete site/ far:site"], SITE_IS_MIRRORED),
            tool("rsync", &["rsync -a --delete site/ far:site"], SITE_IS_MIRRORED),
            tool("rclone", &["rclone sync site far:site"], SITE_IS_MIRRORED),
        ],
    },
    Task {
        key: "s3",
        title: "4. Fetch an object of 100 MB from S3 (moto's server on far)",
        given: ":",
        tools: &[
            Tool {
                store: true,
                before: FILL_BUCKET,
                ..tool("packtrain", &["packtrain cp s3://bucket/big ."], BIG_IS_HERE)
            },
            Tool {
                store: true,
                before: FILL_BUCKET,
                ..tool("rclone", &["rclone copy s3:bucket/big ."], BIG_IS_HERE)
            },
        ],
    },
    Task {
        key: "send",
        title: "5. Send 100 MB to a colleague on third, by a code; far is the depot or relay",
        given: "cp -a $SEED/big $NEAR/ && mkdir -p $FAR/.config/packtrain && \
                HOME=$NEAR $SEED/bin/packtrain key show >$FAR/.config/packtrain/authorized_keys",
        tools: &[
            Tool {
                server: Some("exec $SEED/bin/packtrain depot --listen 0.0.0.0:7879 --spool spool"),
                receiver: Some("packtrain claim - . --at far:7879 <$SHARE/code"),
                ..tool("packtrain", &["packtrain send --via far:7879 --code big"], BIG_AT_THIRD)
            },
            Tool {
                server: Some("exec $CROC relay --host 0.0.0.0"),
                receiver: Some("CROC_SECRET=$(cat $SHARE/code) croc --relay far:9009 --yes"),
                before: "echo 2048-lunar-cactus >$SHARE/code",
                ..tool(
                    "croc",
                    &["CROC_SECRET=$(cat $SHARE/code) croc --relay far:9009 send --no-local big"],
                    BIG_AT_THIRD,
                )
            },
        ],
    },
    Task {
        key: "two remotes",
        title: "6. Copy 100 MB from far to third, typed on near",
        given: "installed && cp -a $SEED/big $FAR/",
        tools: &[
            tool("packtrain", &["packtrain cp far:big third:"], BIG_AT_THIRD),
            tool("scp", &["scp -q far:big third:"], BIG_AT_THIRD),
            tool("rclone", &["rclone copy far:big third:"], BIG_AT_THIRD),
        ],
    },
    Task {
        key: "why slow",
        title: "7. Find out what limited the last copy",
        given: "installed && cp -a $SEED/big $NEAR/",
        tools: &[Tool {
            before: "packtrain cp -q big far:",
            ..tool("packtrain", &["packtrain diagnose last"], "test -s $SHARE/log")
        }],
    },
    Task {
        key: "exclude",
        title: "8. Copy 2,000 files without `*.tmp`, and compare the contents of both sides",
        given: "installed && cp -a $SEED/site $NEAR/ && echo x >$NEAR/site/d00/scratch.tmp",
        tools: &[
            tool(
                "packtrain",
                &[
                    "packtrain cp -r --exclude '*.tmp' site/ far:site",
                    "packtrain verify --exclude '*.tmp' site/ far:site",
                ],
                PROJECT_ARRIVED,
            ),
            tool(
                "rsync",
                &[
                    "rsync -a --exclude '*.tmp' site/ far:site",
                    "rsync -anci --exclude '*.tmp' site/ far:site",
                ],
                PROJECT_ARRIVED,
            ),
            tool(
                "rclone",
                &[
                    "rclone copy --exclude '*.tmp' site far:site",
                    "rclone check --download --exclude '*.tmp' site far:site",
                ],
                PROJECT_ARRIVED,
            ),
        ],
    },
    Task {
        key: "pull",
        title: "9. Pull what is new: 30 of 2,000 files",
        given: "installed && cp -a $SEED/site $FAR/ && cp -a $SEED/site $NEAR/ && \
                rm $NEAR/site/d03/f06? $NEAR/site/d04/f08? $NEAR/site/d05/f09?",
        tools: &[
            tool("packtrain", &["packtrain cp -r far:site/ site"], SITE_IS_PULLED),
            tool("rsync", &["rsync -a far:site/ site"], SITE_IS_PULLED),
            tool("rclone", &["rclone copy far:site site"], SITE_IS_PULLED),
        ],
    },
    Task {
        key: "manifest",
        title: "10. Verify 2,000 files on near against a list of SHA-256 digests",
        given: "cp -a $SEED/site $NEAR/ && \
                (cd $NEAR/site && find . -type f -exec sha256sum {} +) >$NEAR/SUMS",
        tools: &[
            tool("packtrain", &["packtrain verify --hash sha256 --manifest SUMS site"], ":"),
            tool("sha256sum", &["cd site && sha256sum --quiet -c ../SUMS"], ":"),
        ],
    },
];

/// A bucket with one object. The server begins with none.
const FILL_BUCKET: &str = "until packtrain cp -q --no-resume $SEED/big s3://bucket/big || \
    rclone mkdir s3:bucket; do sleep 0.3; done; \
    packtrain cp -q $SEED/big s3://bucket/big";

/// The shell functions of `given`.
pub(super) fn functions() -> String {
    format!("installed() {{ {INSTALLED} :; }}\nchange() {{ {CHANGE} :; }}\n")
}

/// Fills `$SEED`.
pub(super) const MAKE: &str = "set -e; mkdir -p $SEED/data $SEED/site; \
    head -c 100000000 /dev/urandom >$SEED/big; \
    (cd $SEED/data && split -b 1000000 -d -a 3 $SEED/big run); \
    for d in $(seq -f %02g 0 19); do mkdir $SEED/site/d$d; \
    (cd $SEED/site/d$d && head -c 819200 /dev/urandom | split -b 8192 -d -a 3 - f); done";
