//! Errors, and features of later versions, end with exit code 2 and an error message.

use std::io::Write as _;
use std::process::Stdio;

use crate::common::{Home, code, done, exists, stderr, stdout};

#[test]
fn options_that_contradict_each_other_are_refused() {
    let home = Home::new();
    home.file("a", b"a");
    for (line, says) in [
        ("cp --via auto a b", "both places are"),
        ("cp --via auto h:a g:b", "needs one of the two places"),
        ("cp --via auto a h:b", "has no depots to choose from"),
        ("cp --via auto --depots d:1 --transport udt a h:b", "depots are chosen for TCP"),
        ("cp --depots d:1 a h:b", "--via auto chooses from --depots"),
        ("cp --via d:1 --transport native a h:b", "the ends of a path over depots use TCP"),
        ("cp --via d:1 --transport pipe a h:b", "the ends of a path over depots use TCP"),
        ("cp --hops native a h:b", "name them by --via"),
        ("cp --via d:1,e:1 --hops tcp,udt,tcp a h:b", "3 words for 2 depots"),
        ("cp --via d:1 --hops sabul a h:b", "reached by tcp, native or udt"),
        ("cp --via d:1 a b", "both places are"),
        ("cp --via d:1 h:a g:b", "needs one of the two places"),
        ("cp --streams some a b", "1 to 64, or auto"),
        ("cp --data-addr 10.0.0.1 h:a g:b", "both places are on other machines"),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let output = home.run(&words);
        let said = stderr(&output);
        assert_eq!(code(&output), 2, "{line}: {said}");
        assert!(said.starts_with("packtrain: ") && said.contains(says), "{line}: {said}");
        assert_eq!(stdout(&output), "", "{line}");
        assert!(!exists(&home.path("b")), "{line}");
    }
}

#[test]
fn mistakes_are_usage_errors_that_say_what_to_write() {
    let home = Home::new();
    for (line, says) in [
        ("frob", "unrecognized subcommand 'frob'"),
        ("cp", "required"),
        ("cp a", "write SRC... DST"),
        ("cp --zeal a b", "unexpected argument '--zeal'"),
        ("cp -i key a h:b", "write -e 'ssh -i FILE'"),
        ("cp -o a b", "-o without -g"),
        ("cp --max-size 5X a b", "`5X` is no size"),
        ("cp --max-size 1K --min-size 1M a b", "--min-size is above --max-size"),
        ("cp --chmod u+q a b", "`u+q` is no mode"),
        ("cp --chmod F600 --preserve=times a b", "add mode to --preserve"),
        ("cp --suffix .old a b", "--backup"),
        ("cp -b --backup-dir ../x a b", "lies below the target"),
        ("cp -u --inplace a b", "cannot be used with"),
        ("cp --inplace --size-only a b", "cannot be used with"),
        ("cp -b --inplace a b", "cannot be used with"),
        ("cp --size-only --checksum a b", "cannot be used with"),
        ("cp -a --max-size 1 a s3://b/y", "--max-size needs packtrain at the other end"),
        ("cp --exclude-from /nonexistent a b", "--exclude-from /nonexistent"),
        ("cp --rate 500 a b", "`500` needs a unit: write `500mbit` or `500MB/s`"),
        ("cp --transport carrier-pigeon a b", "use auto, native, udt, fobs, sabul, tcp or pipe"),
        ("cp host::mod/x b", "rsync server's spelling"),
        ("cp -- -oProxyCommand=x:a b", "not a host"),
        ("cp --ticket nonsense pt://h/x b", "not a ticket"),
        ("serve", "--listen"),
        ("depot", "--listen"),
        ("depot --listen :1 --allow *", "is not a rule: write ADDRESS"),
        ("depot --listen :1 --pool 0MiB", "a size of zero"),
        ("depot --listen :1 --full-load much", "write a load per core"),
        ("depot --listen 127.0.0.1:0 --pool 1KiB", "no room for one session"),
        ("cp --via d a h:b", "write HOST:PORT"),
        ("cp --via d:1,e:1,d:1 a h:b", "name each depot once"),
        ("cp --via a:1,b:1,c:1,d:1,e:1 a h:b", "at most 4 depots"),
        ("cp --via d:1 udt4://h:1/x b", "--via does not apply to udt4://"),
        ("serve --stdio --listen :1", "cannot be used with"),
        ("perf client h:1 --transport pipe", "use --transport native, udt, tcp or udt4"),
        ("perf client h:1 --transport udt4 --accept-new-host", "neither keys nor tickets"),
        ("perf server --listen :1 --transport tcp", "the client chooses"),
        ("perf server --listen :1 --transport udt4 --ports 5-6", "does not apply to udt4"),
        ("cp --transport udt4 a b", "write udt4://host:port/name"),
        ("cp https://me:secret@h/x b", "visible to every user"),
        ("cp a https://h/x", "can only be read"),
        ("cp -r https://h/x b", "--recursive needs a directory list"),
        ("cp https://h/x h:b", "only come to this machine"),
        ("cp --checksum https://h/x b", "--checksum needs packtrain at the other end"),
        ("cp --transport tcp s3://b/x b", "--transport needs packtrain at the other end"),
        ("cp --tcp-cc reno s3://b/x b", "--tcp-cc is set by the sender"),
        ("cp s3://b/x s3://b/y", "only come to this machine"),
        ("cp h:a s3://b/y", "only come from this machine"),
        ("cp -r --delete a s3://b/y", "--delete does not apply to S3 stores"),
        ("verify s3://b/x b", "verify needs packtrain"),
        ("cp s3://UP%/x b", "write s3://bucket/key"),
        ("cp ftp://h/x b", "ftp:// is not known"),
        ("cp udt4://h:1/ b", "names no file"),
        ("cp a udt4://h:1/x", "can only be read"),
        ("cp udt4://h:1/x udt4://h:1/y b", "one file at a time"),
        ("cp udt4://h:1/x h:b", "only come to this machine"),
        ("cp --resume udt4://h:1/x b", "--resume does not apply to udt4://"),
        ("cp -r udt4://h:1/x b", "--recursive does not apply to udt4://"),
        ("cp --cc bbr udt4://h:1/x b", "--cc does not apply to udt4://"),
        ("verify udt4://h:1/x b", "verify needs packtrain"),
        ("serve --udt4 :1", "--root"),
        ("serve --udt4 :1 --listen :2 --root .", "cannot be used with"),
        ("serve --udt4 :1 --root . --ticket-file t", "cannot be used with"),
        ("perf client h:1 --transport udt --cc native", "does not measure (one-way queueing delay"),
        ("perf client h:1 --transport udt --cc udt:later", "--cc"),
        ("cp --transport udt --cc native a b", "does not measure (one-way queueing delay"),
        ("cp --transport fobs --cc udt:grid a b", "use it with --transport udt"),
        (
            "perf client h:1 --transport fobs --cc native",
            "does not measure (one-way queueing delay",
        ),
        ("cp --transport udt --background a b", "leave one out"),
        ("cp --transport sabul --background a b", "leave one out"),
        ("cp --transport sabul --cc native a b", "does not measure (one-way queueing delay"),
        ("cp --transport sabul --cc sabul:sometimes a b", "--cc"),
        ("cp --transport udt --streams 2 a b", "--streams applies to TCP, not to udt"),
        ("perf client h:1 --seconds 0", "zero seconds"),
        ("perf client h:1 --bytes 0", "zero bytes"),
        ("perf server", "--listen"),
        ("key forget a:b:c", "[2001:db8::1]"),
        ("verify - x", "not pipes"),
        ("cp -q -v a b", "contradict"),
        ("cp --history h.db a b", "whole path"),
        ("cp --history mysql://h/x a b", "postgresql:// URL"),
        ("cp --history postgresql://u:p@h/x a b", "a password does not belong on a command line"),
        ("perf client h:1 --history=postgres://u:p@h/x", "a password does not belong"),
        ("history xyz", "digits and the letters a to f"),
        ("history --since 30", "`30` needs a unit"),
        ("history --export xml", "csv, jsonl"),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let output = home.run(&words);
        let said = stderr(&output);
        assert_eq!(code(&output), 2, "{line}: {said}");
        assert!(said.starts_with("packtrain: ") && said.contains(says), "{line}: {said}");
    }
}

#[test]
fn json_has_its_last_line_even_for_a_wrong_command_line() {
    let home = Home::new();
    for words in [
        &["cp", "--json"][..],
        &["cp", "--json", "--rate", "5", "a", "b"],
        &["verify", "--json", "a", "https://x/y"],
        &["perf", "client", "h:1", "--json", "--transport", "pipe"],
    ] {
        let output = home.run(words);
        let last = done(&output);
        assert_eq!((code(&output), &last["ok"]), (2, &false.into()), "{words:?}");
        assert_eq!(last["error"]["kind"], "usage");
        for field in ["goodput_bps", "seconds", "transport", "retransmitted_bytes", "loss_cause"] {
            assert!(last.get(field).is_some(), "{words:?}: {field}");
        }
    }
    // After `--` it is a file name.
    assert_eq!(stdout(&home.run(&["cp", "--", "--json"])), "");
}

#[test]
fn help_and_version_end_well() {
    let home = Home::new();
    for words in [&["--help"][..], &["cp", "--help"], &["help", "serve"], &["--version"]] {
        let output = home.run(words);
        assert_eq!((code(&output), stderr(&output)), (0, String::new()), "{words:?}");
        assert!(stdout(&output).contains("packtrain"), "{words:?}");
    }
    let output = home.run(&[]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("Usage: packtrain <COMMAND>"));
}

#[test]
fn a_full_disk_behind_stdout_is_a_failure() {
    let home = Home::new();
    home.file("a", b"a");
    for words in [&["cp", "--json", "a", "b"][..], &["completions", "bash"], &["sim", "list"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("Linux has it");
        let output = home.command().args(words).stdout(full).output().expect("the command starts");
        let said = stderr(&output);
        assert_eq!(code(&output), 7, "{words:?}: {said}");
        assert!(said.contains("cannot write to standard output: No space left"), "{said}");
    }
}

#[test]
fn standard_input_has_one_reader() {
    let home = Home::new();
    home.file("src/a", b"a");
    home.file("dst", b"old");
    home.file("list", b"a\n");
    let run = |line: &str| {
        let mut command = home.command();
        command.args(line.split(' ')).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it");
        // A command that does not read it closes it.
        let _ = child.stdin.take().expect("a pipe").write_all(b"a\n");
        child.wait_with_output().expect("it ends")
    };
    for (line, says) in [
        ("cp -r --exclude-from - --files-from - src d", "another option has read standard input"),
        ("cp -r --exclude-from - --include-from - src d", "another option has read standard input"),
        ("cp --exclude-from - - dst", "cannot be the source and the value"),
        ("cp --ticket @- --exclude-from - pt://127.0.0.1:9/f d", "another option has read"),
        ("cp --files-from list - dst", "a pipe carries one file"),
        ("cp --files-from list pt://127.0.0.1:9/src -", "a pipe carries one file"),
        ("send --via 127.0.0.1:9 --exclude-from - -", "cannot be the source and the value"),
        ("send --via 127.0.0.1:9 --files-from list -", "a pipe carries one file"),
    ] {
        let output = run(line);
        assert_eq!(code(&output), 2, "{line}: {}", stderr(&output));
        assert!(stderr(&output).contains(says), "{line}: {}", stderr(&output));
        assert!(!home.path("d").exists(), "{line}");
        assert_eq!(std::fs::read(home.path("dst")).expect("it stays"), b"old", "{line}");
    }
    assert_eq!(code(&run("cp -r --exclude-from - src d")), 0);
    assert!(home.path("d").exists() && !home.path("d/a").exists());
}
