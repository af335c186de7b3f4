//! Precedence: command line, environment, configuration file, default.

use crate::common::{Home, code, stderr, stdout};

/// Each layer has an invalid value, so the error names the layer that was read.
#[test]
fn the_nearest_layer_wins() {
    let home = Home::new();
    let config = home.config("rate = '1furlong'\n");
    let run = |variable: Option<&str>, flag: Option<&str>| {
        let mut command = home.command();
        command.args(["cp", "a", "b"]);
        if let Some(value) = variable {
            command.env("PACKTRAIN_RATE", value);
        }
        if let Some(value) = flag {
            command.args(["--rate", value]);
        }
        let output = command.output().expect("the command starts");
        (code(&output), stderr(&output))
    };
    let (status, said) = run(None, None);
    assert!(status == 2 && said.contains("1furlong"), "{said}");
    assert!(said.contains(&format!("comes from {}", config.display())), "{said}");
    let (status, said) = run(Some("2furlong"), None);
    assert!(status == 2 && said.contains("2furlong"), "{said}");
    assert!(said.contains("comes from PACKTRAIN_RATE"), "{said}");
    let (status, said) = run(Some("2furlong"), Some("3furlong"));
    assert!(status == 2 && said.contains("3furlong"), "{said}");
    assert!(!said.contains("comes from"), "{said}");
    // A valid option hides the invalid layers below it, so the error is now that there is no
    // source.
    let (status, said) = run(Some("2furlong"), Some("1gbit"));
    assert_eq!(status, 3, "{said}");
}

#[test]
fn a_table_is_for_its_command_and_flags_are_true_or_false() {
    let home = Home::new();
    home.config("[serve]\nrate = '1furlong'\n[cp]\nchecksum = true\nexclude = ['*.o', 'x']\n");
    assert_eq!(code(&home.run(&["cp", "a", "b"])), 3, "serve's rate is not cp's");
    let output = home.run(&["serve", "--listen", "127.0.0.1:0", "--root", "."]);
    assert!(stderr(&output).contains("1furlong"), "{}", stderr(&output));
    let mut command = home.command();
    let output = command.env("PACKTRAIN_CHECKSUM", "perhaps").args(["cp", "a", "b"]).output();
    let output = output.expect("the command starts");
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("perhaps"), "{}", stderr(&output));
}

#[test]
fn the_configuration_shows_which_value_wins() {
    let home = Home::new();
    let config = home.config("rate = '1gbit'\nretries = 3\n[cp]\nretries = 4\n");
    let shown = |variables: &[(&str, &str)]| {
        let mut command = home.command();
        command.args(["config", "show"]).envs(variables.iter().copied());
        stdout(&command.output().expect("the command starts"))
    };
    let plain = shown(&[("PACKTRAIN_RATE", "")]);
    assert!(plain.contains(&format!("rate = 1gbit  # {}\n", config.display())), "{plain}");
    assert!(!plain.contains("overridden"), "{plain}");
    let set = shown(&[("PACKTRAIN_RATE", "2gbit")]);
    assert!(set.contains("rate = 2gbit  # PACKTRAIN_RATE\n"), "{set}");
    let loses = format!("rate = 1gbit  # {}; overridden by PACKTRAIN_RATE\n", config.display());
    assert!(set.contains(&loses), "{set}");
    let mut command = home.command();
    command.args(["config", "show", "--json"]).env("PACKTRAIN_RETRIES", "5");
    let text = stdout(&command.output().expect("the command starts"));
    let json: serde_json::Value = serde_json::from_str(text.trim()).expect("JSON");
    let settings = json["settings"].as_array().expect("a list");
    let lost = settings.iter().filter(|one| one["overridden_by"] == "PACKTRAIN_RETRIES");
    assert_eq!(lost.count(), 2, "{text}");
}

#[test]
fn typing_mistakes_in_a_file_are_not_ignored() {
    let home = Home::new();
    for (text, says) in [
        ("raet = '1gbit'", "`raet` is not an option"),
        ("[cp]\nlisten = 'x'", "[cp] `listen` is not an option"),
        ("[sim]\nrate = 'x'", "[sim] `rate` is not an option"),
        ("ticket = 'pt1-x'", "does not belong in a configuration file"),
        ("rate = ", "config.toml: "),
        ("rate = 1.5", "`rate` is a float"),
    ] {
        home.config(text);
        let output = home.run(&["cp", "a", "b"]);
        let said = stderr(&output);
        assert_eq!(code(&output), 2, "{text}: {said}");
        assert!(said.contains(says), "{text}: {said}");
    }
    // Commands that shells and packagers run work with an invalid configuration.
    assert_eq!(code(&home.run(&["completions", "bash"])), 0);
    assert_eq!(code(&home.run(&["--version"])), 0);
}

#[test]
fn config_show_names_every_value_and_where_it_comes_from() {
    let home = Home::new();
    let config = home.config("[cp]\nrate = '1gbit'\n");
    let mut command = home.command();
    command.env("PACKTRAIN_TRANSPORT", "tcp").env("PACKTRAIN_TICKET", "pt1-secret");
    let output = command.args(["config", "show"]).output().expect("the command starts");
    let shown = stdout(&output);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(shown.contains("transport = tcp  # PACKTRAIN_TRANSPORT"), "{shown}");
    assert!(shown.contains(&format!("[cp] rate = 1gbit  # {}", config.display())), "{shown}");
    assert!(shown.contains("ticket = (set)") && !shown.contains("secret"), "{shown}");
    let output = home.run(&["config", "show", "--json"]);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(value["settings"][0]["option"], "rate");
}

#[test]
fn a_flag_wins_over_a_variable_that_contradicts_it() {
    let home = Home::new();
    let run = |variable: (&str, &str), words: &[&str]| {
        let mut command = home.command();
        let output = command.env(variable.0, variable.1).args(words).output();
        code(&output.expect("the command starts"))
    };
    assert_eq!(run(("PACKTRAIN_QUIET", "yes"), &["cp", "-v", "nothing", "b"]), 3);
    assert_eq!(run(("PACKTRAIN_NO_RESUME", "1"), &["cp", "--resume", "nothing", "b"]), 3);
    assert_eq!(run(("PACKTRAIN_RATE", ""), &["cp", "nothing", "b"]), 3, "empty is not set");
    assert_eq!(run(("PACKTRAIN_JSON", "maybe"), &["cp", "nothing", "b"]), 2);
}

/// A value of a file is a default to clap, which excludes none.
#[test]
fn options_of_a_file_exclude_others_where_both_would_lose_data() {
    let home = Home::new();
    home.file("src/a", b"new");
    home.file("dst/a", b"old");
    home.file("dst/moved", b"earlier");
    home.file("code", packtrain_client::store_forward::ClaimCode::random().to_text().as_bytes());
    for (option, line) in [
        ("delete", "cp -r --remove-source-files src/ dst"),
        ("remove-source-files", "cp -r --delete src/ dst"),
        ("inplace", "cp -u src/a dst/a"),
        ("inplace", "cp -b src/a dst/a"),
        ("backup", "cp --inplace src/a dst/a"),
        ("inplace", "cp -rH src/ dst"),
        ("inplace", "claim --update --at 127.0.0.1:1 @code dst"),
    ] {
        home.config(&format!("{option} = true\n"));
        let words: Vec<&str> = line.split(' ').collect();
        let output = home.run(&words);
        let said = stderr(&output);
        assert_eq!(code(&output), 2, "{option}, {line}: {said}");
        assert!(said.contains(&format!("--{option}")), "{option}, {line}: {said}");
        assert!(said.contains("packtrain config show"), "{option}, {line}: {said}");
        assert_eq!(std::fs::read(home.path("src/a")).expect("it stays"), b"new", "{line}");
        assert_eq!(std::fs::read(home.path("dst/a")).expect("it stays"), b"old", "{line}");
        assert!(home.path("dst/moved").exists(), "{line}");
    }
    // A variable turns the option of the file off.
    home.config("delete = true\n");
    let mut command = home.command();
    command.env("PACKTRAIN_DELETE", "off").args(["cp", "-r", "--remove-source-files", "src/"]);
    let output = command.arg("dst").output().expect("the command starts");
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(!home.path("src/a").exists() && home.path("dst/moved").exists());
}

/// Nothing listens there: a copy that is not refused ends with another code.
#[test]
fn options_that_protect_files_are_refused_for_udt4_from_every_source() {
    let home = Home::new();
    for (option, value) in [
        ("dry-run", "true"),
        ("update", "true"),
        ("ignore-existing", "true"),
        ("existing", "true"),
        ("backup", "true"),
        ("remove-source-files", "true"),
        ("max-size", "'1K'"),
        ("min-size", "'1K'"),
    ] {
        let config = home.config(&format!("{option} = {value}\n"));
        let words = ["cp", "--retries", "0", "udt4://127.0.0.1:9/f", "dst"];
        let from_file = home.run(&words);
        std::fs::remove_file(config).expect("it was written");
        let mut command = home.command();
        command.env(
            format!("PACKTRAIN_{}", option.to_uppercase().replace('-', "_")),
            value.trim_matches('\''),
        );
        let from_variable = command.args(words).output().expect("the command starts");
        for output in [from_file, from_variable] {
            let said = stderr(&output);
            assert_eq!(code(&output), 2, "{option}: {said}");
            let says = format!("--{option} does not apply to udt4://");
            assert!(said.contains(&says), "{option}: {said}");
        }
    }
    // Others are for the transfers that have them.
    home.config("streams = '2'\ncc = 'native'\nrecursive = true\n");
    let output = home.run(&["cp", "--retries", "0", "udt4://127.0.0.1:9/f", "dst"]);
    assert_eq!(code(&output), 5, "{}", stderr(&output));
}
