//! Copies from and to S3 stores whose answers a test chooses.

use std::io::Write as _;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::common::{Home, code, done, exists, stderr};
use crate::web::server::{Request, Response, Server};
use crate::web::{command, noise};

/// `cp` with a store at this address.
fn cp(home: &Home, server: &Server) -> Command {
    let mut command = command(home);
    command.env("AWS_ENDPOINT_URL", format!("http://{}", server.address));
    command.env("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE");
    command.env("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY");
    command.args(["cp", "--json", "--retries", "0"]);
    command
}

fn run(home: &Home, server: &Server, words: &[&str]) -> Output {
    cp(home, server).args(words).output().expect("the command starts")
}

/// An empty store that takes objects.
fn takes_objects() -> Server {
    Server::new(|request, _| match request.method.as_str() {
        "PUT" => Response::new(200).with("ETag", "\"tag\""),
        _ => Response::new(404),
    })
}

/// A page of a list: keys and sizes, and the token of the next page.
fn page(objects: &[(&str, usize)], next: Option<&str>) -> Response {
    let mut text = format!(
        "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>bucket</Name>\
         <Prefix></Prefix><KeyCount>{}</KeyCount><MaxKeys>1000</MaxKeys>\
         <IsTruncated>{}</IsTruncated>",
        objects.len(),
        next.is_some()
    );
    if let Some(next) = next {
        text.push_str(&format!("<NextContinuationToken>{next}</NextContinuationToken>"));
    }
    for (key, size) in objects {
        text.push_str(&format!(
            "<Contents><Key>{key}</Key><LastModified>2024-02-29T23:59:59.000Z</LastModified>\
             <ETag>\"x\"</ETag><Size>{size}</Size><StorageClass>STANDARD</StorageClass></Contents>"
        ));
    }
    text.push_str("</ListBucketResult>");
    let mut response = Response::new(200);
    response.body = text.into_bytes();
    response
}

/// A store with these objects in `bucket`.
fn store(objects: &'static [(&str, &[u8])]) -> Server {
    Server::new(move |request, _| {
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        if query.contains("list-type=2") {
            let prefix = query.split('&').find_map(|part| part.strip_prefix("prefix="));
            let prefix = prefix.unwrap_or_default().replace("%2F", "/");
            let below = objects.iter().filter(|(key, _)| key.starts_with(&prefix));
            let below: Vec<_> = below.map(|(key, body)| (*key, body.len())).collect();
            return page(&below, None);
        }
        let key = path.strip_prefix("/bucket/").unwrap_or_default();
        match objects.iter().find(|(own, _)| *own == key) {
            Some((_, body)) => Response::file(request, body, "\"x\""),
            None => Response::new(404),
        }
    })
}

#[test]
fn delete_spares_the_targets_of_sources_without_a_file() {
    let server = store(&[("a/f", b"new"), ("c/", b""), ("c/x/", b"")]);
    let (a, c) = ("s3://bucket/a", "s3://bucket/c");
    let home = Home::new();
    home.file("dst/a/old", b"stray");
    home.file("dst/c/old", b"the files of yesterday");
    let output = run(&home, &server, &["-r", "--delete", a, c, "dst"]);
    assert_eq!(code(&output), 23, "{}", stderr(&output));
    assert!(stderr(&output).contains("c: the source brought no file"), "{}", stderr(&output));
    assert!(exists(&home.path("dst/a/f")) && !exists(&home.path("dst/a/old")));
    assert!(exists(&home.path("dst/c/old")), "{}", stderr(&output));
    let output = run(&home, &server, &["-r", "--delete", "--force-delete", a, c, "dst"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(!exists(&home.path("dst/c/old")), "{}", stderr(&output));
    // The contents of both go into one directory, of which the second tells nothing.
    home.file("all/old", b"the files of yesterday");
    let words = ["-r", "--delete", "s3://bucket/a/", "s3://bucket/c/", "all"];
    let output = run(&home, &server, &words);
    assert_eq!(code(&output), 23, "{}", stderr(&output));
    assert!(exists(&home.path("all/f")) && exists(&home.path("all/old")), "{}", stderr(&output));
}

#[test]
fn the_marker_of_the_source_with_content_counts_as_failed() {
    let server = store(&[("p/", b"data"), ("p/f", b"file")]);
    let home = Home::new();
    let output = run(&home, &server, &["-r", "s3://bucket/p/", "dst"]);
    assert_eq!((code(&output), &done(&output)["failed"]), (23, &1.into()), "{}", stderr(&output));
    assert!(exists(&home.path("dst/f")));
}

#[test]
fn sockets_are_skipped_and_told() {
    let server = takes_objects();
    let home = Home::new();
    home.file("src/f", b"file");
    let _socket = std::os::unix::net::UnixListener::bind(home.path("src/s")).expect("it is bound");
    let output = run(&home, &server, &["-r", "src", "s3://bucket/"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(stderr(&output).contains("socket or device is not copied"), "{}", stderr(&output));
}

#[test]
fn a_dry_run_tells_how_much_would_be_sent() {
    let server = takes_objects();
    let home = Home::new();
    home.file("src/a", &noise(1000));
    home.file("src/b", b"small");
    let output = run(&home, &server, &["-r", "--dry-run", "src", "s3://bucket"]);
    let last = done(&output);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert_eq!((&last["files_moved"], &last["bytes_moved"]), (&2.into(), &1005.into()), "{last}");
    assert_eq!(last["transport"], "none", "{last}");
    assert!(server.requests().iter().all(|request| request.method == "HEAD"));
}

#[test]
fn filter_files_choose_what_is_sent_and_are_refused_in_a_fetch() {
    let server = takes_objects();
    let home = Home::new();
    home.file("src/sub/.rules", b"*.o\n");
    home.file("src/sub/a.o", b"object");
    home.file("src/sub/a.c", b"source");
    let filter = ["-r", "--filter", ":e- .rules"];
    let output = cp(&home, &server).args(filter).args(["src/", "s3://bucket/"]).output().unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let sent = server.requests().into_iter().filter(|request| request.method == "PUT");
    let sent: Vec<String> = sent.map(|request| request.path).collect();
    assert_eq!(sent.len(), 1, "{sent:?}");
    assert!(sent[0].contains("sub/a.c"), "{sent:?}");
    let output = cp(&home, &server).args(filter).args(["s3://bucket/", "dst"]).output().unwrap();
    assert_eq!(code(&output), 2, "{}", stderr(&output));
}

#[test]
fn settings_that_keep_or_choose_files_are_refused_for_uploads() {
    let server = takes_objects();
    let home = Home::new();
    home.file("f", b"file");
    let words = ["f", "s3://bucket/key"];
    for (option, value) in [
        ("ignore-existing", "true"),
        ("existing", "true"),
        ("backup", "true"),
        ("max-size", "1M"),
        ("min-size", "1"),
        ("one-file-system", "true"),
        ("checksum", "true"),
        ("remove-source-files", "true"),
    ] {
        let variable = format!("PACKTRAIN_{}", option.to_uppercase().replace('-', "_"));
        let output = cp(&home, &server).args(words).env(&variable, value).output().unwrap();
        assert_eq!(code(&output), 2, "{option}: {}", stderr(&output));
        assert!(stderr(&output).contains(&variable), "{}", stderr(&output));
    }
    home.config("[cp]\nignore-existing = true\n");
    let output = run(&home, &server, &words);
    assert_eq!(code(&output), 2, "{}", stderr(&output));
    assert!(server.requests().is_empty(), "nothing was replaced");
    let mut command = cp(&home, &server);
    command.args(words).env("PACKTRAIN_IGNORE_EXISTING", "false");
    let output = command.output().expect("the command starts");
    assert_eq!(code(&output), 0, "{}", stderr(&output));
}

/// The answer of a store that knows no object and creates the upload `id`, to all but parts.
fn without_parts(request: &Request, id: usize) -> Response {
    let query = request.path.split_once('?').map_or("", |(_, query)| query);
    let mut response = match request.method.as_str() {
        "POST" if query.starts_with("uploads") => Response::new(200),
        "POST" => Response::new(200),
        "PUT" => return Response::new(200).with("ETag", "\"tag\""),
        "DELETE" => return Response::new(204),
        _ => return Response::new(404),
    };
    let ns = "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"";
    let text = match query.starts_with("uploads") {
        true => format!(
            "<InitiateMultipartUploadResult {ns}><Bucket>bucket</Bucket><Key>key</Key>\
             <UploadId>{id}</UploadId></InitiateMultipartUploadResult>"
        ),
        false => format!(
            "<CompleteMultipartUploadResult {ns}><Location>x</Location><Bucket>bucket</Bucket>\
             <Key>key</Key><ETag>\"tag\"</ETag></CompleteMultipartUploadResult>"
        ),
    };
    response.body = text.into_bytes();
    response
}

/// The answer of a store without the upload.
fn no_upload() -> Response {
    let mut response = Response::new(404);
    response.body = b"<Error><Code>NoSuchUpload</Code></Error>".to_vec();
    response
}

#[test]
fn an_upload_that_is_gone_is_begun_anew_and_other_files_are_sent() {
    let ids = AtomicUsize::new(0);
    let server = Server::new(move |request, _| {
        if request.method == "PUT" && request.path.contains("uploadId=1") {
            return no_upload();
        }
        let is_new = request.method == "POST" && request.path.contains("?uploads");
        without_parts(request, ids.fetch_add(usize::from(is_new), Ordering::Relaxed) + 1)
    });
    let home = Home::new();
    home.file("src/big", &noise(17_000_000));
    home.file("src/other", b"small");
    let output = run(&home, &server, &["-r", "src", "s3://bucket"]);
    assert_eq!(
        (code(&output), &done(&output)["files_moved"]),
        (0, &2.into()),
        "{}",
        stderr(&output)
    );
    let parts = |id: &str| {
        let all = server.requests();
        all.iter().filter(|one| one.method == "PUT" && one.path.contains(id)).count()
    };
    assert!(parts("uploadId=1") >= 1 && parts("uploadId=2") == 3, "{:?}", server.requests());
}

#[test]
fn a_file_that_changes_while_its_parts_are_sent_fails_alone() {
    let home = Home::new();
    let big = home.file("src/big", &noise(40_000_000));
    home.file("src/other", b"small");
    // Whether the file was changed, and whether its upload was aborted.
    let state = Arc::new((Mutex::new((false, false)), Condvar::new()));
    let server = Server::new(move |request, _| {
        let (flags, changed) = &*state;
        let wait = |is_over: &dyn Fn(&(bool, bool)) -> bool| {
            let limit = Duration::from_secs(60);
            changed.wait_while_for(&mut flags.lock(), |flags| !is_over(flags), limit);
        };
        if request.method == "DELETE" {
            flags.lock().1 = true;
            changed.notify_all();
        }
        if request.method == "PUT" && request.path.contains("partNumber=") {
            if !request.path.contains("partNumber=1&") {
                wait(&|flags| flags.0);
            } else {
                let file = std::fs::OpenOptions::new().append(true).open(&big);
                file.expect("it is there").write_all(b"more").expect("writable");
                flags.lock().0 = true;
                changed.notify_all();
                // This part is under way until another stream has noticed the change.
                wait(&|flags| flags.1);
                return no_upload();
            }
        }
        without_parts(request, 1)
    });
    let output = run(&home, &server, &["-r", "--streams", "2", "src", "s3://bucket"]);
    let last = done(&output);
    assert_eq!(code(&output), 23, "{}", stderr(&output));
    assert_eq!((&last["failed"], &last["files_moved"]), (&1.into(), &1.into()), "{last}");
    assert!(stderr(&output).contains("changed while it was sent"), "{}", stderr(&output));
}

#[test]
fn an_upload_that_cannot_be_aborted_is_told_and_its_name_is_kept() {
    let home = Home::new();
    let big = home.file("big", &noise(17_000_000));
    let uploads = || {
        let dir = std::fs::read_dir(home.state().join("packtrain/uploads"));
        dir.expect("it was made").count()
    };
    for (refusals, left) in [(2, 0), (usize::MAX, 1)] {
        let refused = AtomicUsize::new(0);
        let big = big.clone();
        let server = Server::new(move |request, _| {
            if request.method == "DELETE" && refused.fetch_add(1, Ordering::Relaxed) < refusals {
                return Response::new(503);
            }
            if request.method == "PUT" {
                let file = std::fs::OpenOptions::new().append(true).open(&big);
                file.expect("it is there").write_all(b"more").expect("writable");
            }
            without_parts(request, 1)
        });
        let output = run(&home, &server, &["--streams", "1", "big", "s3://bucket/key"]);
        assert_eq!(code(&output), 23, "{}", stderr(&output));
        let told = stderr(&output).contains("1 unfinished upload(s) could not be removed");
        assert_eq!((told, uploads()), (left == 1, left), "{}", stderr(&output));
        assert!(server.requests().iter().filter(|one| one.method == "DELETE").count() > 2);
    }
}

/// The account may write parts, and neither list nor abort them.
#[test]
fn an_upload_whose_parts_may_not_be_listed_is_begun_anew() {
    let home = Home::new();
    home.file("big", &noise(17_000_000));
    let ids = AtomicUsize::new(0);
    let server = Server::new(move |request, _| {
        let of_first = request.path.contains("uploadId=1");
        let is_listed = request.method == "GET" || request.method == "DELETE";
        if of_first && (is_listed || request.method == "PUT") {
            return Response::new(403);
        }
        let is_new = request.method == "POST" && request.path.contains("?uploads");
        without_parts(request, ids.fetch_add(usize::from(is_new), Ordering::Relaxed) + 1)
    });
    let words = ["--streams", "1", "big", "s3://bucket/key"];
    assert_eq!(code(&run(&home, &server, &words)), 12, "no part is taken");
    let output = run(&home, &server, &words);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(stderr(&output).contains("permission to list parts"), "{}", stderr(&output));
    let all = server.requests();
    let listed = |one: &&Request| one.method == "GET" && one.path.contains("uploadId=1");
    assert!(all.iter().any(|one| listed(&one)), "{all:?}");
    let parts = all.iter().filter(|one| one.method == "PUT" && one.path.contains("uploadId=2"));
    assert_eq!(parts.count(), 3, "{all:?}");
}

#[test]
fn working_files_of_interrupted_copies_are_not_sent() {
    let home = Home::new();
    home.file("src/f", b"data");
    home.file("src/.packtrain-0a1b2c3d.journal", b"journal");
    home.file("src/sub/.g.packtrain-0a1b2c3d", b"temporary");
    let server = Server::new(|request, _| without_parts(request, 1));
    let output = run(&home, &server, &["-r", "src", "s3://bucket"]);
    let last = done(&output);
    assert_eq!((code(&output), &last["files_moved"]), (0, &1.into()), "{}", stderr(&output));
    let named = ["src/sub/.g.packtrain-0a1b2c3d", "s3://bucket/key"];
    assert_eq!(code(&run(&home, &server, &named)), 23);
    let all = server.requests();
    assert!(!all.iter().any(|one| one.path.contains("packtrain-0a1b2c3d")), "{all:?}");
}

#[test]
fn a_list_without_objects_does_not_go_on_for_ever() {
    let server = Server::new(|_, before| page(&[], Some(["one", "two"][before % 2])));
    let home = Home::new();
    let output = run(&home, &server, &["-r", "s3://bucket/p", "dst"]);
    assert_eq!(code(&output), 7, "{}", stderr(&output));
    assert!(stderr(&output).contains("it does not end"), "{}", stderr(&output));
}
