//! Versions of files at web servers, and answers that stand for a whole file.

use std::sync::Arc;

use crate::common::{Home, code, exists, stderr};
use crate::web::server::{Response, Server};
use crate::web::{DATE, fetch, noise};

/// RFC 9110, section 14.2, allows it, and Tornado does it.
#[test]
fn a_range_that_is_the_whole_file_may_be_answered_with_200() {
    let body = Arc::new(noise(3_000_000));
    let file = Arc::clone(&body);
    let server = Server::new(move |request, _| {
        let is_whole = request.range() == Some((0, file.len()));
        let tag = if is_whole && request.path == "/changed" { "\"b\"" } else { "\"a\"" };
        let mut response = Response::file(request, &file, tag);
        if is_whole {
            response = Response::new(200).with("ETag", tag);
            response.body = file.to_vec();
        }
        response
    });
    let home = Home::new();
    let fetch = |name: &str| {
        let url = server.url(name);
        fetch(&home, &["--streams", "1", "--retries", "0", &url, name])
    };
    let output = fetch("x");
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(std::fs::read(home.path("x")).unwrap() == *body);
    assert_eq!(server.requests().len(), 2);
    let output = fetch("changed");
    assert_eq!(code(&output), 23, "{}", stderr(&output));
    assert!(stderr(&output).contains("changed while it was fetched"), "{}", stderr(&output));
    assert!(!exists(&home.path("changed")));
}

/// Below the seconds the time of a file tells versions apart, and not which one is newer.
#[test]
fn update_fetches_each_new_version_of_the_same_second() {
    for dated in [false, true] {
        let server = Server::new(move |request, before| {
            // A probe and a request for each version.
            let n = before / 2;
            let mut response = Response::file(request, &[n as u8; 1000], &format!("\"v{n}\""));
            if dated {
                response = response.with("Last-Modified", DATE);
            }
            response
        });
        let home = Home::new();
        for n in 0..6 {
            let output = fetch(&home, &["--update", &server.url("x"), "x"]);
            assert_eq!(code(&output), 0, "{}", stderr(&output));
            assert!(std::fs::read(home.path("x")).unwrap() == [n; 1000], "{n}, {dated}");
        }
        // What another program wrote since then is newer.
        home.file("x", b"own");
        let output = fetch(&home, &["--update", &server.url("x"), "x"]);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        assert_eq!(std::fs::read(home.path("x")).unwrap(), b"own");
    }
}
