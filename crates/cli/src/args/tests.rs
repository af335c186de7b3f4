use super::*;
use crate::args::values::{self, Words, words};

#[test]
fn the_definitions_are_sound() {
    bare().debug_assert();
}

#[test]
fn every_option_has_help_and_p_is_that_of_rsync() {
    let mut commands = vec![bare()];
    while let Some(command) = commands.pop() {
        for arg in command.get_arguments() {
            // In `cp` they mean what they mean in rsync; no other command has them.
            let is_cp = command.get_name() == "cp";
            assert!(is_cp || !matches!(arg.get_short(), Some('p' | 'P')), "{arg}");
            assert!(arg.get_help().is_some() || arg.is_hide_set(), "{arg} has no help");
        }
        commands.extend(command.get_subcommands().cloned());
    }
}

#[test]
fn every_flag_of_cp_is_there() {
    let options = options(&bare());
    for flag in [
        "transport",
        "cc",
        "streams",
        "tcp-cc",
        "tcp-buffer",
        "via",
        "depots",
        "hops",
        "rate",
        "background",
        "resume",
        "no-resume",
        "checksum",
        "update",
        "delete",
        "dry-run",
        "include",
        "exclude",
        "filter",
        "files-from",
        "from0",
        "preserve",
        "inplace",
        "progress",
        "json",
        "explain",
        "retries",
        "log-file",
        "remote-path",
        "bootstrap",
        "ports",
        "data-addr",
        "ticket",
        "accept-new-host",
        "error-on-no-transfer",
        "force-delete",
    ] {
        assert!(options["cp"].iter().any(|known| known == flag), "--{flag}");
    }
}

#[test]
fn a_command_is_split_as_a_shell_splits_it() {
    let split = |text: &str| words(text).map(|Words(words)| words);
    let want = ["ssh", "-p", "22 22", "a'b", "", "c\\d", "é"].map(str::to_owned);
    assert_eq!(split(r#" ssh -p "22 22" a\'b '' "c\d" é "#), Ok(want.to_vec()));
    for bad in ["", "  ", "a 'b", "a \"b", "a\\"] {
        assert!(split(bad).is_err(), "{bad}");
    }
}

#[test]
fn text_that_is_not_ascii_is_no_quantity() {
    for text in ["10é", "é", "1é1", "10Mé", "1.5é-1", "−1", "٣", "10\u{301}"] {
        let refused = [
            values::rsync_size(text).is_err(),
            values::limit(text).is_err(),
            values::duration(text).is_err(),
            values::when(text).is_err(),
            values::seconds(text).is_err(),
            values::bytes(text).is_err(),
            values::size(text).is_err(),
            values::buffer(text).is_err(),
            values::ports(text).is_err(),
            values::load(text).is_err(),
        ];
        assert!(refused.iter().all(|refused| *refused), "{text}: {refused:?}");
    }
    assert_eq!(values::rsync_size("1.5K-1"), Ok(1535));
}
