//! The table of results in `docs/udt4.md`.

use std::path::Path;

use crate::Tried;
use crate::cells::How;

const BEGIN: &str =
    "<!-- interop: this table is written by the test `interop` of crates/socket -->";
const END: &str = "<!-- interop: end -->";

/// Compares the table with the results, or writes it if requested.
pub(crate) fn check(results: &[Tried]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/udt4.md");
    let text = std::fs::read_to_string(&path).expect("docs/udt4.md");
    let begin = text.find(BEGIN).expect("the table's begin in docs/udt4.md") + BEGIN.len();
    let end = text.find(END).expect("the table's end in docs/udt4.md");
    let table = table(results);
    if text[begin..end] == table {
        return;
    }
    assert!(
        std::env::var("PACKTRAIN_BLESS").as_deref() == Ok("1"),
        "docs/udt4.md says something else (PACKTRAIN_BLESS=1 writes this):\n{table}"
    );
    let text = format!("{}{table}{}", &text[..begin], &text[end..]);
    std::fs::write(&path, text).expect("docs/udt4.md, written");
}

fn table(results: &[Tried]) -> String {
    let mut text = String::from(
        "\n| path | carries | windows | ours sends, calls | ours sends, is called \
         | ours sends, rendezvous | stock sends, calls | stock sends, is called \
         | stock sends, rendezvous |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    for row in results.chunks(2 * How::ALL.len()) {
        let Some((first, _)) = row.first() else { continue };
        let kind = if first.message { "messages" } else { "stream" };
        let (road, windows) = (first.road.title(), first.windows.title());
        text.push_str(&format!("| {road} | {kind} | {windows} |"));
        for (_, result) in row {
            text.push_str(if result.is_ok() { " pass |" } else { " FAIL |" });
        }
        text.push('\n');
    }
    text
}
