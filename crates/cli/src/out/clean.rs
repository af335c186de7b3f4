//! The output of `clean`.

use packtrain_client::clean::{CleanSummary, Leftover, LeftoverKind, LeftoverStatus};

use super::object::Object;
use super::{clean, json_line, line, shown};
use crate::exit::{Code, print_message, print_stderr};

/// A path, escaped, on one line.
pub(crate) fn path(path: &[u8]) -> String {
    shown(path).replace('\n', "\\n")
}

/// Prints one file.
pub(crate) fn leftover(left: &Leftover, dry_run: bool, json: bool) {
    let kind = match left.kind {
        LeftoverKind::Temporary => "temporary",
        LeftoverKind::Journal => "journal",
        LeftoverKind::Lock => "lock",
        LeftoverKind::Output => "output",
    };
    let (result, detail, uid) = match &left.status {
        LeftoverStatus::Removed if dry_run => ("would_remove", None, None),
        LeftoverStatus::Removed => ("removed", None, None),
        LeftoverStatus::InUse { who } => ("in_use", Some(who.as_str()), None),
        LeftoverStatus::Foreign { uid } => ("foreign", None, Some(*uid)),
        LeftoverStatus::Failed { why } => ("failed", Some(why.as_str()), None),
    };
    let path = path(&left.path);
    if json {
        let event = Object::event("leftover").with("path", path).with("kind", kind);
        let event = event.with("bytes", left.bytes.get()).with("result", result);
        json_line(&event.with_some("detail", detail).with_some("uid", uid));
        return;
    }
    let what = format!("{kind:<9}  {:>10}  {path}", left.bytes.to_string());
    match &left.status {
        LeftoverStatus::Removed if dry_run => line(&format!("would remove  {what}")),
        LeftoverStatus::Removed => line(&format!("removed  {what}")),
        LeftoverStatus::InUse { who } => line(&format!("in use   {what}  by {}", clean(who))),
        LeftoverStatus::Foreign { uid } => line(&format!("not ours {what}  of user {uid}")),
        LeftoverStatus::Failed { why } => print_message(&format!("{path}: {}", clean(why))),
    }
}

/// Prints the summary.
pub(crate) fn summary(summary: &CleanSummary, dry_run: bool, json: Option<Code>) {
    let CleanSummary { removed, bytes, in_use, foreign, failed } = *summary;
    if let Some(code) = json {
        json_line(
            &Object::done(code == Code::DONE, code.0)
                .with("dry_run", dry_run)
                .with("removed", removed)
                .with("bytes", bytes.get())
                .with("in_use", in_use)
                .with("foreign", foreign)
                .with("failed", failed),
        );
        return;
    }
    if *summary == CleanSummary::default() {
        return print_stderr("nothing left by interrupted transfers");
    }
    let files = |n: u64| if n == 1 { "1 file".to_owned() } else { format!("{n} files") };
    let verb = if dry_run { "would be removed" } else { "removed" };
    let mut text = format!("{} ({bytes}) {verb}", files(removed));
    for (n, what) in [(in_use, "in use"), (foreign, "of other users"), (failed, "failed")] {
        if n > 0 {
            text.push_str(&format!("; {} {what}", files(n)));
        }
    }
    print_stderr(&text);
}
