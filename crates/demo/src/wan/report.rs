//! The report of an emulation in its last line.

use serde_json::Value;

/// The forward direction, from the local to the remote host.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct PathReport {
    pub(super) packets: u64,
    pub(super) dropped: u64,
    pub(super) overflow: u64,
    /// The emulator was fast enough.
    pub(super) honest: bool,
}

/// Parses the last JSON line of `said`; zeros without one.
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

/// The verdict in the last JSON line of `cp --json`.
pub(super) fn verdict(said: &str) -> Option<String> {
    let last = said.lines().rev().find_map(|line| serde_json::from_str::<Value>(line).ok())?;
    last["verdict"].as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_out_is_the_first_link() {
        let said = concat!(
            "something else\n",
            r#"{"event":"done","ok":true,"links":[{"offered":100,"dropped":{"overflow":3,"random":2}},{"offered":7}]}"#,
            "\n"
        );
        let read = read(said);
        assert_eq!(read, PathReport { packets: 100, dropped: 5, overflow: 3, honest: true });
        assert_eq!(super::read("nothing"), PathReport::default());
    }
}
