//! What an emulation said of its path in its last line.

use serde_json::Value;

/// The way out, from the near to the far host.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct PathReport {
    pub(super) packets: u64,
    pub(super) dropped: u64,
    pub(super) overflow: u64,
    /// The emulator kept up with what was asked of it.
    pub(super) honest: bool,
}

/// Reads the last JSON line of `said`; zeros where there is none.
pub(super) fn read(said: &str) -> PathReport {
    let value: Value =
        said.lines().rev().find_map(|line| serde_json::from_str(line).ok()).unwrap_or(Value::Null);
    let out = &value["links"][0];
    let number = |v: &Value| v.as_u64().unwrap_or(0);
    let drops = &out["dropped"];
    PathReport {
        packets: number(&out["offered"]),
        dropped: drops.as_object().map_or(0, |all| all.values().map(number).sum()),
        overflow: number(&drops["overflow"]),
        honest: value["ok"].as_bool().unwrap_or(false),
    }
}
