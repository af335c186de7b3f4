//! What `clean` prints.

use packtrain_client::clean::{CleanSummary, Leftover, LeftoverFate, LeftoverKind};
use serde::Serialize;

use super::{clean, json_line, line, shown};
use crate::exit::{Code, complain, say};

#[derive(Serialize)]
struct LeftoverEvent<'a> {
    event: &'static str,
    path: String,
    kind: &'static str,
    bytes: u64,
    result: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<u32>,
}

#[derive(Serialize)]
struct DoneEvent {
    event: &'static str,
    ok: bool,
    exit_code: u8,
    dry_run: bool,
    removed: u64,
    bytes: u64,
    in_use: u64,
    foreign: u64,
    failed: u64,
}

/// A path on one line.
pub(crate) fn path(path: &[u8]) -> String {
    shown(path).replace('\n', "\\n")
}

/// One file.
pub(crate) fn leftover(left: &Leftover, dry_run: bool, json: bool) {
    let kind = match left.kind {
        LeftoverKind::Temporary => "temporary",
        LeftoverKind::Journal => "journal",
        LeftoverKind::Lock => "lock",
        LeftoverKind::Output => "output",
    };
    let (result, detail, uid) = match &left.fate {
        LeftoverFate::Removed if dry_run => ("would_remove", None, None),
        LeftoverFate::Removed => ("removed", None, None),
        LeftoverFate::InUse { who } => ("in_use", Some(who.as_str()), None),
        LeftoverFate::Foreign { uid } => ("foreign", None, Some(*uid)),
        LeftoverFate::Failed { why } => ("failed", Some(why.as_str()), None),
    };
    let path = path(&left.path);
    if json {
        let bytes = left.bytes.get();
        json_line(&LeftoverEvent { event: "leftover", path, kind, bytes, result, detail, uid });
        return;
    }
    let what = format!("{kind:<9}  {:>10}  {path}", left.bytes.to_string());
    match &left.fate {
        LeftoverFate::Removed if dry_run => line(&format!("would remove  {what}")),
        LeftoverFate::Removed => line(&format!("removed  {what}")),
        LeftoverFate::InUse { who } => line(&format!("in use   {what}  by {}", clean(who))),
        LeftoverFate::Foreign { uid } => line(&format!("not ours {what}  of user {uid}")),
        LeftoverFate::Failed { why } => complain(&format!("{path}: {}", clean(why))),
    }
}

/// The end.
pub(crate) fn summary(summary: &CleanSummary, dry_run: bool, json: Option<Code>) {
    let CleanSummary { removed, bytes, in_use, foreign, failed } = *summary;
    if let Some(code) = json {
        json_line(&DoneEvent {
            event: "done",
            ok: code == Code::DONE,
            exit_code: code.0,
            dry_run,
            removed,
            bytes: bytes.get(),
            in_use,
            foreign,
            failed,
        });
        return;
    }
    if *summary == CleanSummary::default() {
        return say("nothing left by interrupted transfers");
    }
    let files = |n: u64| if n == 1 { "1 file".to_owned() } else { format!("{n} files") };
    let verb = if dry_run { "would be removed" } else { "removed" };
    let mut text = format!("{} ({bytes}) {verb}", files(removed));
    for (n, what) in [(in_use, "in use"), (foreign, "of other users"), (failed, "failed")] {
        if n > 0 {
            text.push_str(&format!("; {} {what}", files(n)));
        }
    }
    say(&text);
}
