//! Runs the command in a temporary home directory.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// A home, and a directory to work in.
pub(crate) struct Home {
    dir: tempfile::TempDir,
}

impl Home {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::create_dir(dir.path().join("work")).expect("it is empty");
        Self { dir }
    }

    /// A path in the working directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("work").join(name)
    }

    /// Where the command keeps its state.
    pub(crate) fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// Writes a file to the working directory.
    pub(crate) fn file(&self, name: &str, contents: &[u8]) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("it has a parent")).expect("writable");
        std::fs::write(&path, contents).expect("writable");
        path
    }

    /// Writes the user's configuration.
    pub(crate) fn config(&self, text: &str) -> PathBuf {
        let path = self.dir.path().join("config/packtrain/config.toml");
        std::fs::create_dir_all(path.parent().expect("it has a parent")).expect("writable");
        std::fs::write(&path, text).expect("writable");
        path
    }

    /// The command without the settings of the developer's environment.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_packtrain"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PACKTRAIN_") {
                command.env_remove(name);
            }
        }
        let own = |name: &str| self.dir.path().join(name);
        command.env("HOME", own("home")).env("XDG_CONFIG_HOME", own("config"));
        command.env("XDG_STATE_HOME", own("state")).current_dir(own("work"));
        command.stdin(std::process::Stdio::null());
        command
    }

    /// Runs the command with these arguments.
    pub(crate) fn run(&self, words: &[&str]) -> Output {
        self.command().args(words).output().expect("the command starts")
    }
}

pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().expect("it ends by itself")
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The last line of stdout, parsed as JSON.
pub(crate) fn done(output: &Output) -> Value {
    let text = stdout(output);
    let line = text.lines().last().unwrap_or_else(|| panic!("no line; stderr: {}", stderr(output)));
    let value: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    assert_eq!(value["event"], "done", "{line}");
    value
}

pub(crate) fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}
