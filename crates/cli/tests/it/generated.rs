//! Completions and manual pages are generated from the definitions that parse the command line.

use crate::common::{Home, code, stderr, stdout};

#[test]
fn every_shell_completes_every_command() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = home.run(&["completions", shell]);
        assert_eq!(code(&output), 0, "{shell}: {}", stderr(&output));
        let script = stdout(&output);
        for word in ["verify", "accept-new-host", "ticket-file"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    assert_eq!(code(&home.run(&["completions", "dos"])), 2);
}

#[test]
fn every_command_has_a_manual_page() {
    let home = Home::new();
    let output = home.run(&["man", "--out", "man"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let mut pages: Vec<String> = std::fs::read_dir(home.path("man"))
        .expect("it was made")
        .map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned())
        .collect();
    pages.sort();
    for page in ["packtrain.1", "packtrain-cp.1", "packtrain-sim-run.1", "packtrain-emulate.1"] {
        assert!(pages.iter().any(|name| name == page), "{page}: {pages:?}");
    }
    assert!(!pages.iter().any(|name| name.contains("help")), "{pages:?}");
    let text = std::fs::read_to_string(home.path("man/packtrain-cp.1")).expect("it is there");
    assert!(text.contains("checksum") && text.contains("OTHER END"), "{text}");
}

/// The page in the guide matches the definitions.
#[test]
fn the_reference_in_the_guide_is_generated() {
    let home = Home::new();
    let output = home.run(&["man", "--markdown", "--out", "man"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let made = std::fs::read_to_string(home.path("man/commands.md")).expect("it was made");
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/reference/commands.md");
    if std::env::var_os("PACKTRAIN_WRITE_REFERENCE").is_some() {
        std::fs::write(page, &made).expect("the guide");
    }
    let there = std::fs::read_to_string(page).unwrap_or_default();
    assert!(
        there == made,
        "docs/guide/reference/commands.md is not what the program says of itself: run this test with \
         PACKTRAIN_WRITE_REFERENCE=1"
    );
}
