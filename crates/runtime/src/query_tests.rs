use std::fs;
use std::path::Path;

use packtrain_service::StopHandle;
use packtrain_transfer::Versions;
use packtrain_transfer::limits::MAX_TEXT;
use packtrain_transfer::message::Hello;

use super::*;
use crate::control::pair;
use crate::handshake;

type Files = Vec<(Vec<u8>, Result<Sum, Failure>)>;

/// A caller that asks `called`, which runs in a thread of its own.
fn ask(
    path: &[u8],
    options: &Options,
    kind: HashKind,
    called: impl FnOnce(Control) + Send + 'static,
) -> (Files, Result<(), Failure>) {
    let (near, far) = pair().expect("sockets");
    let thread = std::thread::spawn(move || called(far));
    let mut files = Files::new();
    let mut note = |path: &[u8], sum: Result<Sum, Failure>| files.push((path.to_vec(), sum));
    let stop = Stop::new(StopHandle::new());
    let done = digests(&near, path, options, (kind, None), stop, &mut note);
    drop(near);
    thread.join().expect("no panic");
    (files, done)
}

/// A responder that serves the directory `root`, as a server does.
fn serving(root: &Path) -> impl FnOnce(Control) + Send + 'static {
    let root = Confinement::open(root).expect("a directory");
    move |far| {
        let stop = || Stop::new(StopHandle::new());
        let mut asked = handshake::answer(&far, &stop()).expect("a request");
        let request = SessionRequest::decode(&asked.open.channel).expect("understood");
        *asked.open.options.extra = request.options;
        let channel = packtrain_service::ceilings::Ceilings::default().encode();
        far.tx.send(&Message::Opened(packtrain_transfer::Opened { channel }));
        let query = request.query.expect("a query");
        let _ = answer(&far, &query, &asked.open, Some(&root), stop());
        far.tx.close();
        far.tx.wait_closed(StdDuration::from_secs(60));
    }
}

/// A responder that accepts the query and sends this.
fn saying(parts: Vec<Message>) -> impl FnOnce(Control) + Send + 'static {
    move |far| {
        handshake::answer(&far, &Stop::new(StopHandle::new())).expect("a request");
        let channel = packtrain_service::ceilings::Ceilings::default().encode();
        far.tx.send(&Message::Opened(packtrain_transfer::Opened { channel }));
        parts.iter().for_each(|part| far.tx.send(part));
        far.tx.close();
        far.tx.wait_closed(StdDuration::from_secs(60));
    }
}

#[test]
fn the_other_end_answers_with_the_digests_of_its_files_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().join("root");
    fs::create_dir_all(root.join("tree/sub")).expect("fine");
    for name in ["tree/a", "tree/sub/b", "tree/c.log", "beside"] {
        fs::write(root.join(name), name).expect("fine");
    }
    fs::write(dir.path().join("secret"), "no").expect("fine");
    std::os::unix::fs::symlink("../../secret", root.join("tree/link")).expect("fine");
    let options = Options { filters: vec!["- *.log".to_owned()], ..Options::default() };
    let sha = |text: &str| {
        let sum = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes());
        Sum::try_from(sum.as_ref()).expect("32 bytes")
    };
    let (files, done) = ask(b"tree", &options, HashKind::Sha256, serving(&root));
    assert_eq!(done, Ok(()));
    let wanted = [("a", "tree/a"), ("sub/b", "tree/sub/b")];
    let wanted = wanted.map(|(name, text)| (name.as_bytes().to_vec(), Ok(sha(text))));
    assert_eq!(files, wanted);
    let (files, done) = ask(b"/tree/sub/", &options, HashKind::Blake3, serving(&root));
    assert_eq!(done, Ok(()));
    assert_eq!(files[0].1, Ok(*blake3::hash(b"tree/sub/b").as_bytes()));
    // No path leads out of the directory that is served.
    for (path, kind) in [("..", FailureKind::NotAuthorised), ("none", FailureKind::SourceMissing)] {
        let (files, done) = ask(path.as_bytes(), &options, HashKind::Blake3, serving(&root));
        assert_eq!((files.len(), done.unwrap_err().kind), (0, kind), "{path}");
    }
}

#[test]
fn a_directory_that_cannot_be_read_is_one_failed_path() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::create_dir_all(dir.path().join("tree/sub")).expect("fine");
    fs::write(dir.path().join("tree/a"), "text").expect("fine");
    fs::write(dir.path().join("tree/sub/.rules"), "nonsense").expect("fine");
    let options = Options { filters: vec![": .rules".to_owned()], ..Options::default() };
    for path in ["tree", "/tree", "/tree/"] {
        let (files, done) = ask(path.as_bytes(), &options, HashKind::Blake3, serving(dir.path()));
        assert_eq!(done, Ok(()), "{path}");
        let kinds = files.iter().map(|(path, sum)| (&path[..], sum.as_ref().err().map(|f| f.kind)));
        let wanted = [(&b"a"[..], None), (b"sub", Some(FailureKind::Unreadable))];
        assert!(kinds.eq(wanted), "{files:?}");
    }
}

#[test]
fn more_digests_than_a_message_holds_arrive_in_order() {
    let dir = tempfile::tempdir().expect("a directory");
    for index in 0..2 * MAX_BATCH + 1 {
        fs::write(dir.path().join(format!("{index:06}")), "").expect("fine");
    }
    let options = Options::default();
    let (files, done) = ask(b"", &options, HashKind::Blake3, serving(dir.path()));
    assert_eq!(done, Ok(()));
    assert_eq!(files.len(), 2 * MAX_BATCH + 1);
    assert!(files.is_sorted_by(|one, two| one.0 < two.0));
}

#[test]
fn a_hostile_answer_ends_the_query() {
    let file = |path: &[u8]| QueryAnswer::Digests(vec![(path.to_vec(), Ok([1; 32]))]).message();
    let long = Failure::new(FailureKind::Fatal, "x".repeat(500_000));
    for (parts, why) in [
        (vec![file(b"../up")], "leads out"),
        (vec![file(b"/etc/passwd")], "leads out"),
        (vec![file(b"a\0b")], "leads out"),
        (vec![file(b"a"), Message::Channel(vec![9, 9])], "unintelligible"),
        (vec![Message::Bye], "out of turn"),
        // The list is cut off.
        (vec![file(b"a")], "connection"),
        (vec![QueryAnswer::End(Err(long)).message()], "xxx"),
    ] {
        let (_, done) = ask(b"", &Options::default(), HashKind::Blake3, saying(parts));
        let text = done.expect_err(why).text;
        assert!(text.contains(why) && text.len() <= MAX_TEXT, "{why}: {text}");
    }
}

#[test]
fn an_end_that_does_not_know_queries_refuses() {
    let older = |far: Control| {
        far.tx.send(&Message::Hello(Hello {
            magic: *b"PKTR",
            lowest: 1,
            highest: Versions::QUERIES - 1,
            agent: "packtrain 0.1.0".to_owned(),
        }));
        far.tx.close();
        far.tx.wait_closed(StdDuration::from_secs(60));
    };
    let (_, done) = ask(b"", &Options::default(), HashKind::Blake3, older);
    let text = done.expect_err("it is older").text;
    assert!(text.contains("older"), "{text}");
}

fn ask_names(
    path: &[u8],
    called: impl FnOnce(Control) + Send + 'static,
) -> Result<Vec<Name>, Failure> {
    let (near, far) = pair().expect("sockets");
    let thread = std::thread::spawn(move || called(far));
    let done = names(&near, path, Stop::new(StopHandle::new()));
    drop(near);
    thread.join().expect("no panic");
    done
}

#[test]
fn names_are_those_of_one_directory_of_the_root() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().join("root");
    for name in ["sub/deep", "data", "outside"] {
        fs::create_dir_all(root.join(name)).expect("fine");
    }
    for name in ["date", "sub/da", "sub/x", ".hidden", "da\n", ".dx.packtrain-0011aabb"] {
        fs::write(root.join(name), "").expect("fine");
    }
    fs::create_dir(dir.path().join("secret")).expect("fine");
    std::os::unix::fs::symlink("../secret", root.join("out")).expect("fine");
    std::os::unix::fs::symlink("sub", root.join("dlink")).expect("fine");
    let said = |path: &str| {
        let mut names = ask_names(path.as_bytes(), serving(&root)).expect("an answer");
        names.sort();
        let text = |(name, is_dir): Name| {
            format!("{}{}", String::from_utf8_lossy(&name), if is_dir { "/" } else { "" })
        };
        names.into_iter().map(text).collect::<Vec<_>>()
    };
    assert_eq!(said("d"), ["da\n", "data/", "date", "dlink/"]);
    assert_eq!(said("/da"), ["da\n", "data/", "date"]);
    assert_eq!(said("sub/"), ["da", "deep/", "x"]);
    assert_eq!(said("dlink/d"), ["da", "deep/"]);
    assert_eq!(said("."), [".hidden"]);
    // A link that leads out is a name without contents.
    assert_eq!(said("o"), ["out", "outside/"]);
    for (path, kind) in [
        ("../", FailureKind::NotAuthorised),
        ("out/", FailureKind::NotAuthorised),
        ("none/", FailureKind::SourceMissing),
        ("date/", FailureKind::Unreadable),
    ] {
        let failure = ask_names(path.as_bytes(), serving(&root)).expect_err(path);
        assert_eq!(failure.kind, kind, "{path}: {failure}");
        assert!(!failure.text.contains(&root.display().to_string()), "{failure}");
    }
    for number in 0..2 * MAX_NAMES {
        fs::write(root.join(format!("sub/m{number}")), "").expect("fine");
    }
    assert_eq!(said("sub/m").len(), MAX_NAMES);
}

#[test]
fn an_answer_with_too_many_names_or_another_one_is_refused() {
    let end = || QueryAnswer::End(Ok(())).message();
    let names = |count| QueryAnswer::Names(vec![(b"a".to_vec(), false); count]).message();
    let said = |parts| ask_names(b"a", saying(parts));
    assert_eq!(said(vec![names(MAX_NAMES), end()]).map(|names| names.len()), Ok(MAX_NAMES));
    assert_eq!(said(vec![end()]), Ok(Vec::new()));
    for parts in [
        vec![names(MAX_NAMES + 1), end()],
        vec![names(1), names(1), end()],
        vec![QueryAnswer::Digests(Vec::new()).message(), end()],
        vec![Message::Channel(vec![9; 40])],
    ] {
        assert_eq!(said(parts).expect_err("refused").kind, FailureKind::Protocol);
    }
}
