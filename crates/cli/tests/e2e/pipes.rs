//! Standard output as the target and standard input as the source of copies with a server.

use std::fs::{self, File};
use std::os::unix::fs::symlink;

use serde_json::Value;

use crate::proxy::Proxy;
use crate::rig::Rig;
use crate::server::{serve, ticket};
use crate::tree::{self, MIB};

#[test]
fn standard_output_gets_one_whole_file_or_nothing() {
    let rig = Rig::local();
    let (_server, port) = serve(&rig, &[]);
    tree::file(&rig.path("root/f"), 5000, 1);
    fs::create_dir(rig.path("root/dir")).expect("a folder");
    // The server's machine is this one: a link that is followed here leads to a file.
    fs::write(rig.path("secret"), "of this machine").expect("a file");
    symlink(rig.path("secret"), rig.path("root/away")).expect("a link");
    symlink("f", rig.path("root/current")).expect("a link");
    symlink("none", rig.path("root/dangling")).expect("a link");
    let get = |words: &[&str], name: &str| {
        let mut get = rig.packtrain();
        get.args(["cp", "--ticket", &ticket(&rig)]).args(words);
        rig.run(get.arg(format!("pt://127.0.0.1:{port}/{name}")).arg("-"))
    };
    for (words, name, code, says) in [
        (&[][..], "away", 2, "add -L"),
        (&[], "current", 2, "add -L"),
        (&["--max-size", "1K"], "f", 3, "nothing was chosen"),
        (&["-L"], "dangling", 3, "dangling: "),
        (&[], "dir", 23, "dir: "),
    ] {
        let ended = get(words, name);
        assert_eq!(ended.code, code, "{name}: {}", ended.stderr);
        assert!(ended.stderr.contains(says), "{name}: {}", ended.stderr);
        assert_eq!(ended.stdout, b"", "{name}");
    }
    for (words, name) in [(&[][..], "f"), (&["-L"], "current")] {
        let ended = get(words, name);
        assert_eq!(ended.code, 0, "{name}: {}", ended.stderr);
        assert!(Some(ended.stdout) == fs::read(rig.path("root/f")).ok(), "{name}");
    }
}

#[test]
fn standard_input_is_not_read_on_after_a_lost_connection() {
    let rig = Rig::local();
    let (_server, port) = serve(&rig, &[]);
    tree::file(&rig.path("src"), 20 * MIB, 1);
    fs::write(rig.path("root/f"), "old").expect("a file");
    let port = Proxy::start(port, 8 * MIB).port;
    let mut put = rig.packtrain();
    put.args(["cp", "--json", "--transport", "pipe", "--ticket", &ticket(&rig), "-"]);
    put.arg(format!("pt://127.0.0.1:{port}/f"));
    let ended = rig.run(put.stdin(File::open(rig.path("src")).expect("it was made")));
    assert_eq!(ended.code, 5, "{}", ended.stderr);
    assert!(ended.stderr.contains("run the whole pipe again"), "{}", ended.stderr);
    let last = ended.json_lines().pop().expect("a line");
    assert_eq!((&last["resumable"], &last["resume_command"]), (&false.into(), &Value::Null));
    let error = last["error"]["text"].as_str().expect("a message");
    assert!(error.contains("standard input was read already"), "{last}");
    assert_eq!(fs::read(rig.path("root/f")).expect("it stays"), b"old");
}
