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

/// A home with a program `ssh` that runs commands in a folder of it, as the host that it is asked for.
fn home_with_host() -> Home {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::new();
    let ssh = home.file(
        "bin/ssh",
        b"#!/bin/sh\necho \"$@\" >>\"$HOSTS/log\"\nwhile [ \"$1\" != -- ]; do shift; done\n\
          cd \"$HOSTS/$2\" && echo motd && exec sh -c \"$3\"\n",
    );
    std::fs::set_permissions(&ssh, std::fs::Permissions::from_mode(0o755)).expect("mode");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_packtrain"), home.path("bin/packtrain"))
        .expect("a link");
    for name in ["part one", "parts/x", "$(touch bad)", "a:b", "esc\u{1b}[2J", ".hidden"] {
        home.file(&format!("hosts/host/{name}"), b"");
    }
    home.file("parents-here", b"");
    home
}

/// What `shell` prints of a script.
fn shown_by(home: &Home, shell: &str, script: &str) -> Option<String> {
    let mut command = home.command();
    let environment: Vec<_> = command
        .get_envs()
        .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
        .collect();
    let path = std::env::var("PATH").unwrap_or_default();
    command = std::process::Command::new(shell);
    command.envs(environment).args(["-c", script]).current_dir(home.path("."));
    command.env("PATH", format!("{}:{path}", home.path("bin").display()));
    command.env("HOSTS", home.path("hosts")).env_remove("PACKTRAIN_SSH");
    let output = command.output().ok()?;
    assert!(output.status.success(), "{script}: {}", stderr(&output));
    Some(stdout(&output))
}

#[test]
fn bash_completes_names_at_another_machine() {
    let home = home_with_host();
    // What readline gives a completion function: words split at the separators too.
    let complete = |line: &str, words: &str| {
        let script = format!(
            "source <(packtrain completions bash)\n\
             COMP_LINE={line} COMP_POINT=${{#COMP_LINE}} COMP_WORDS=({words})\n\
             COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)) COMP_WORDBREAKS=$' \\t\\n\"\\'@><=;|&(:'\n\
             _packtrain_places packtrain \"${{COMP_WORDS[COMP_CWORD]}}\"\n\
             printf '[%s]' \"${{COMPREPLY[@]}}\""
        );
        shown_by(&home, "bash", &script).expect("bash is there")
    };
    let remote = |place: &str, last: &str| {
        complete(&format!("'packtrain cp {place}'"), &format!("packtrain cp host : '{last}'"))
    };
    assert_eq!(remote("host:pa", "pa"), "[part\\ one][parts/]");
    assert_eq!(remote("host:part\\ ", "part\\ "), "[part\\ one]");
    assert_eq!(remote("host:parts/", "parts/"), "[parts/x]");
    assert_eq!(remote("host:\\$", "\\$"), "[\\$\\(touch\\ bad\\)]");
    assert_eq!(remote("host:a", "a"), "[a\\:b]");
    assert_eq!(remote("host:.h", ".h"), "[.hidden]");
    assert_eq!(remote("host:e", "e"), "[]", "a name that a terminal must not print");
    assert_eq!(remote("gone:pa", "pa"), "[]", "files of this machine do not count");
    // Options and words of this machine are those of the generated script.
    assert_eq!(complete("'packtrain cp --transpo'", "packtrain cp --transpo"), "[--transport]");
    assert!(!home.path("hosts/host/bad").exists() && !home.path("bad").exists());
    let log = std::fs::read_to_string(home.path("hosts/log")).expect("ssh was started");
    assert!(log.lines().all(|line| line.contains("-oBatchMode=yes")), "{log}");
}

#[test]
fn fish_and_zsh_complete_names_at_another_machine() {
    let home = home_with_host();
    let complete = |place: &str| {
        let script =
            format!("packtrain completions fish | source; complete -C 'packtrain cp {place}'");
        shown_by(&home, "fish", &script)
    };
    match complete("host:pa") {
        Some(found) => assert_eq!(found, "host:part one\nhost:parts/\n"),
        None => packtrain_testkit::skip("there is no fish"),
    }
    if let Some(found) = complete("gone:pa") {
        assert_eq!(found, "", "files of this machine do not count");
    }
    // The script of zsh passes words without quotes.
    let printed = |words: &[&str]| {
        let all = [&["completions", "--", "packtrain", "cp"], words].concat();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = home.command();
        command.env("PATH", format!("{}:{path}", home.path("bin").display()));
        let output = command.env("HOSTS", home.path("hosts")).args(all).output().expect("it runs");
        (code(&output), stdout(&output))
    };
    assert_eq!(printed(&["host:part "]), (0, "host:part one\n".to_owned()));
    assert_eq!(printed(&["host:"]).1.lines().count(), 4, "hidden and hostile names are left out");
    assert_eq!(printed(&["parents"]), (1, String::new()));
    let script = stdout(&home.run(&["completions", "zsh"]));
    assert!(script.contains("_packtrain() {\n    _packtrain_places && return 0\n"), "{script}");
}
