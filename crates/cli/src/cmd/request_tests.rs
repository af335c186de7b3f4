use clap::FromArgMatches as _;
use packtrain_service::{PortRange, SshSettings};
use packtrain_units::ByteCount;

use super::*;
use crate::args::{Cli, Command, bare};

fn cp(line: &str) -> Result<CpRequest, String> {
    let words = ["packtrain", "cp"].into_iter().chain(line.split(' '));
    let matches = bare().try_get_matches_from(words).map_err(|error| error.to_string())?;
    let cli = Cli::from_arg_matches(&matches).map_err(|error| error.to_string())?;
    let Command::Cp(args) = cli.command else { return Err("not cp".to_owned()) };
    let (_, own) = matches.subcommand().expect("there is a command");
    copy(&args, own).map_err(|exit| exit.into_error().text)
}

pub(crate) fn good(line: &str) -> CpRequest {
    cp(line).unwrap_or_else(|text| panic!("{line}: {text}"))
}

fn refused(line: &str) -> String {
    cp(line).err().unwrap_or_else(|| panic!("{line} is not refused"))
}

#[test]
fn a_plain_copy_has_the_defaults_of_design() {
    let request = good("a b");
    assert_eq!(request.options, Options::default());
    assert_eq!(request.transport, TransportChoice::Auto);
    assert_eq!(request.ssh, SshSettings::default());
    assert_eq!((request.streams, request.ports, request.explain), (None, None, false));
}

#[test]
fn every_flag_arrives() {
    let request = good(
        "-r --checksum --delete --force-delete --dry-run --inplace --transport tcp \
         --streams 4 --tcp-cc reno --tcp-buffer 2MiB --bwlimit 500mbit -e ssh --remote-path /opt/packtrain \
         --bootstrap never --ports 5000-5100 --data-addr 10.0.0.1 --accept-new-host \
         --retries 2 --explain --log-file log --via none a b me@host:c",
    );
    let options = &request.options;
    assert!(options.recursive && options.checksum && options.delete);
    assert!(good("-u a b").options.update, "not together with --inplace");
    assert!(options.force_delete && options.dry_run && options.inplace);
    assert_eq!(options.rate_bps, Some(500_000_000));
    assert_eq!((request.transport, request.streams), (TransportChoice::Tcp, Some(4)));
    assert_eq!(request.tcp_cc.as_deref(), Some("reno"));
    assert_eq!(request.tcp_buffer, Some(ByteCount(2 << 20)));
    assert_eq!(request.ssh.remote_path, "/opt/packtrain");
    assert!(!request.ssh.bootstrap && request.accept_new_host && request.explain);
    assert_eq!(request.ports, Some(PortRange { first: 5000, last: 5100 }));
    assert_eq!(request.data_addr.as_deref(), Some("10.0.0.1"));
    assert_eq!((request.retries, request.log_file.is_some()), (2, true));
    assert_eq!((request.sources.len(), request.dest.is_remote()), (2, true));
}

#[test]
fn resume_is_on_unless_told_otherwise_and_the_later_word_counts() {
    let resume = |flags: &str| good(&format!("{flags} a b")).options.resume;
    assert_eq!(resume("-r"), Resume::On);
    assert_eq!(resume("--resume"), Resume::On);
    assert_eq!(resume("--resume=trust"), Resume::Trust);
    assert_eq!(resume("--no-resume"), Resume::Off);
    assert_eq!(resume("--no-resume --resume=trust"), Resume::Trust);
    assert_eq!(resume("--resume --no-resume"), Resume::Off);
}

#[test]
fn rules_keep_their_order_over_three_options() {
    let line = "--exclude *.o --include keep --exclude tmp --filter=-_x --filter=include_y a b";
    assert_eq!(good(line).options.filters, ["- *.o", "+ keep", "- tmp", "- x", "+ y"]);
    assert!(refused("--filter=merge_/nonexistent a b").contains("/nonexistent"));
    assert_eq!(good("--filter=P_x --exclude=y a b").options.filters, ["-r x", "- y"]);
    let files = good("--exclude=x -F --include=y a b").options.filters;
    assert_eq!(files, ["- x", ": .rsync-filter", "+ y"]);
    assert_eq!(good("-FF a b").options.filters, ["- .rsync-filter", ": .rsync-filter"]);
    assert_eq!(good("--filter=:-_.gitignore a b").options.filters, [":- .gitignore"]);
    assert!(refused("--filter=+ a b").contains("no pattern"));
}

#[test]
fn what_is_kept_can_be_chosen() {
    let kept = |flag: &str| {
        let options = good(&format!("{flag} a b")).options;
        (options.preserve_mode, options.preserve_times, options.preserve_owner)
    };
    assert_eq!(kept("-r"), (true, true, false));
    assert_eq!(kept("--preserve"), (true, true, true));
    assert_eq!(kept("--preserve=times,owner"), (false, true, true));
    assert_eq!(kept("--preserve=none"), (false, false, false));
    assert!(refused("--preserve=context a b").contains("not in this version"));
    assert!(refused("--preserve=acl a b").contains("use -A"));
    assert!(refused("--preserve=links a b").contains("use -H"));
    assert!(refused("--preserve=xattr a b").contains("use -X"));
    assert!(refused("--preserve=sense a b").contains("not known"));
}

#[test]
fn options_of_rsync_arrive() {
    let options = good("-a a b").options;
    assert!(options.recursive && options.preserve_mode && options.preserve_owner);
    assert!(good("-n a b").options.dry_run && good("-u a b").options.update);
    let options = good("-a --preserve=none -t a b").options;
    assert!(options.preserve_times && options.preserve_owner && options.preserve_mode);
    let line = "-Lx --mkpath --ignore-existing --existing --size-only --max-size 1.5K --min-size 7 \
                --chmod D700,F600 -b --backup-dir old/./x/ a b";
    let extra = good(line).options.extra;
    assert!(extra.copy_links && extra.one_file_system && extra.make_path && extra.size_only);
    assert!(extra.ignore_existing && extra.existing_only);
    assert_eq!((extra.min_size, extra.max_size), (Some(7), Some(1536)));
    assert_eq!(extra.mode_changes.len(), 2);
    let backup = extra.backup.expect("a backup");
    assert_eq!((backup.suffix, backup.dir), (Vec::new(), Some(b"old/x".to_vec())));
    let beside = good("-b a b").options.extra.backup.expect("a backup");
    assert_eq!((beside.suffix, beside.dir), (b"~".to_vec(), None));
}

#[test]
fn sizes_are_those_of_rsync() {
    let size = |text: &str| good(&format!("--max-size {text} a b")).options.extra.max_size;
    for (text, bytes) in [
        ("0", 0),
        ("12", 12),
        ("1b", 1),
        ("1K", 1024),
        ("1kb", 1000),
        ("1KiB", 1024),
        ("1.5mb-1", 1_499_999),
        ("2g+1", (2 << 30) + 1),
        ("1P", 1 << 50),
    ] {
        assert_eq!(size(text), Some(bytes), "{text}");
    }
    for bad in ["-1", "x", "1.2.3", "1KK", "99999999999P", "0-1"] {
        assert!(cp(&format!("--max-size={bad} a b")).is_err(), "{bad}");
    }
}

#[test]
fn what_would_do_nothing_is_refused() {
    for (line, says) in [
        ("a", "only `a` was named"),
        ("--delete a b", "add -r"),
        ("a h:b c", "different places"),
        ("- a b", "a pipe carries one file"),
        ("- -", "cat"),
        ("--json a -", "--json"),
        ("--dry-run - a", "--dry-run"),
        ("--transport native --streams 2 a b", "--streams"),
        ("--transport native --tcp-cc reno a b", "--tcp-cc applies to TCP"),
        ("--transport udt --tcp-buffer 1MiB a b", "--tcp-buffer applies to TCP"),
        ("--tcp-buffer 16 a b", "--tcp-buffer"),
        ("--tcp-buffer 1KiB a b", "4KiB"),
        ("--transport pipe --cc native a b", "--cc"),
        ("--ticket pt1-x h:a b", "--ticket"),
        ("--ticket @/nonexistent pt://h/a b", "/nonexistent"),
        ("--files-from /nonexistent a b", "/nonexistent"),
        ("--ports 9-8 a b", "lowest and the highest"),
        ("--retries -1 a b", "-1"),
        ("--rate 0 a b", "rate of zero"),
        ("--streams 0 a b", "1 to 64"),
        ("--force-delete a b", "--delete"),
    ] {
        let text = refused(line);
        assert!(text.contains(says), "{line}: {text}");
    }
}

#[test]
fn a_ticket_comes_from_a_file_or_the_line_and_is_not_shown() {
    let ticket = Ticket::new([7; 16], packtrain_identity::pubkey::Fingerprint([9; 32]));
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("ticket");
    ticket.write(&path).expect("the directory can be written");
    for given in [format!("@{}", path.display()), ticket.to_text()] {
        let request = good(&format!("--ticket {given} pt://h/a b"));
        assert_eq!(request.ticket.as_ref(), Some(&ticket));
        assert!(!format!("{request:?}").contains(&ticket.to_text()));
    }
    let mut cut = ticket.to_text();
    cut.pop();
    assert!(refused(&format!("--ticket {cut} pt://h/a b")).contains("damaged"));
}
