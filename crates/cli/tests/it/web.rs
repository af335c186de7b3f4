//! Copies from web servers that follow the protocol, and from servers that violate it.

pub(crate) mod server;

use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use server::{Response, Server};

use crate::common::{Home, code, done, exists, stderr};

/// Bytes without repetition.
pub(crate) fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// The command without the proxies of the developer's environment.
pub(crate) fn command(home: &Home) -> Command {
    let mut command = home.command();
    for name in ["http_proxy", "https_proxy", "all_proxy", "no_proxy"] {
        command.env_remove(name).env_remove(name.to_uppercase());
    }
    command
}

pub(crate) fn fetch(home: &Home, words: &[&str]) -> Output {
    command(home).args(["cp", "--json"]).args(words).output().expect("the command starts")
}

pub(crate) const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

#[test]
fn a_file_comes_by_ranges_over_several_streams() {
    let body = Arc::new(noise(21_000_003));
    let file = Arc::clone(&body);
    let server = Server::new(move |request, _| {
        let mut response = Response::file(request, &file, "\"one\"").with("Last-Modified", DATE);
        response.rate = Some(8_000_000);
        response
    });
    let home = Home::new();
    let output = fetch(&home, &["--streams", "3", &server.url("a%20b.bin?x=1"), "."]);
    let last = done(&output);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert_eq!(std::fs::read(home.path("a b.bin")).unwrap(), *body);
    assert_eq!((&last["transport"], &last["bytes_moved"]), (&"http".into(), &21_000_003.into()));
    assert_eq!(last["streams"]["most"], 3, "{last}");
    let requests = server.requests();
    assert!(requests.iter().filter(|a| a.range().is_some_and(|(f, t)| t - f > 1)).count() >= 3);
    assert!(requests.iter().all(|a| a.header("accept-encoding") == Some("identity")));
    let modified = std::fs::metadata(home.path("a b.bin")).unwrap().modified().unwrap();
    let secs = modified.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert_eq!(secs, 784_111_777);
    // The same version is at the target: one request shows that.
    let before = server.requests().len();
    let again = fetch(&home, &[&server.url("a%20b.bin?x=1"), "."]);
    assert_eq!((code(&again), &done(&again)["unchanged"]), (0, &1.into()), "{}", stderr(&again));
    assert_eq!(server.requests().len(), before + 1);
    assert_eq!(server.requests()[0].method, "GET");
    assert!(server.requests()[0].path.ends_with("a%20b.bin?x=1"));
}

#[test]
fn a_new_version_of_the_same_size_and_second_is_fetched() {
    let bodies = [noise(3_000_000), vec![7; 3_000_000]];
    let which = Arc::new(AtomicUsize::new(0));
    let now = Arc::clone(&which);
    let files = bodies.clone();
    let server = Server::new(move |request, _| {
        let n = now.load(Ordering::Relaxed);
        Response::file(request, &files[n], &format!("\"v{n}\"")).with("Last-Modified", DATE)
    });
    let home = Home::new();
    for (n, body) in bodies.iter().enumerate() {
        which.store(n, Ordering::Relaxed);
        let output = fetch(&home, &[&server.url("x"), "x"]);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        assert!(std::fs::read(home.path("x")).unwrap() == *body);
    }
}

#[test]
fn a_server_without_ranges_is_read_by_one_stream_and_that_is_said() {
    let body = Arc::new(noise(9_500_000));
    let file = Arc::clone(&body);
    let server = Server::new(move |_, _| {
        let mut response = Response::new(200).with("ETag", "\"x\"");
        response.body = file.to_vec();
        response
    });
    let home = Home::new();
    let output = fetch(&home, &[&server.url("x"), "y"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(stderr(&output).contains("gives no ranges: one stream"), "{}", stderr(&output));
    assert!(std::fs::read(home.path("y")).unwrap() == *body);
    assert!(server.connections() <= 5, "a probe and one stream that reads");
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn connections_that_are_cut_are_gone_on_from() {
    let body = Arc::new(noise(12_000_000));
    let file = Arc::clone(&body);
    let server = Server::new(move |request, _| {
        let mut response = Response::file(request, &file, "\"x\"");
        response.cut = Some(1_500_000);
        response
    });
    let home = Home::new();
    let output = fetch(&home, &["--streams", "2", &server.url("x"), "y"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(std::fs::read(home.path("y")).unwrap() == *body);
}

#[test]
fn a_busy_server_is_waited_for() {
    let body = Arc::new(noise(5_000_000));
    let file = Arc::clone(&body);
    let server = Server::new(move |request, before| match before {
        0 | 3 => Response::new(503).with("Retry-After", "1"),
        4 => Response::new(429),
        _ => Response::file(request, &file, "\"x\""),
    });
    let home = Home::new();
    let output = fetch(&home, &["--streams", "1", "--retries", "0", &server.url("x"), "y"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(std::fs::read(home.path("y")).unwrap() == *body);
    let always = Server::new(|_, _| Response::new(503));
    let output = fetch(&home, &["--retries", "0", &always.url("x"), "z"]);
    assert_eq!((code(&output), &done(&output)["error"]["kind"]), (5, &"temporary".into()));
}

#[test]
fn a_version_that_changes_on_the_way_is_never_mixed() {
    for strict in [true, false] {
        let old = noise(24_000_000);
        let server = Server::new(move |request, before| {
            let (body, tag) =
                if before < 3 { (old.clone(), "\"a\"") } else { (vec![1; 24_000_000], "\"b\"") };
            let mut response = Response::file(request, &body, tag);
            if !strict && request.range().is_some() {
                // The server ignores If-Range.
                let (from, to) = request.range().expect("just seen");
                response = Response::new(206).with("ETag", tag);
                response =
                    response.with("Content-Range", format!("bytes {from}-{}/24000000", to - 1));
                response.body = body[from..to].to_vec();
            }
            response.cut = Some(5_000_000);
            response
        });
        let home = Home::new();
        let output = fetch(&home, &["--streams", "2", "--retries", "0", &server.url("x"), "y"]);
        assert_eq!(code(&output), 23, "{}", stderr(&output));
        assert!(stderr(&output).contains("changed while it was fetched"), "{}", stderr(&output));
        assert!(!exists(&home.path("y")), "nothing takes the name");
        // The next run writes one version, whatever is left of the other.
        let output = fetch(&home, &["--streams", "2", &server.url("x"), "y"]);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        assert!(std::fs::read(home.path("y")).unwrap() == vec![1; 24_000_000]);
    }
}

#[test]
fn ranges_that_were_not_asked_for_are_refused() {
    let body = noise(8_000_000);
    let server = Server::new(move |request, before| {
        let mut response = Response::file(request, &body, "\"x\"");
        if before > 0 {
            response.headers.retain(|(name, _)| *name != "Content-Range");
            response = response.with("Content-Range", "bytes 100-5000000/8000000");
        }
        response
    });
    let home = Home::new();
    let output = fetch(&home, &["--streams", "1", &server.url("x"), "y"]);
    assert_eq!(code(&output), 23, "{}", stderr(&output));
    assert!(stderr(&output).contains("another range"), "{}", stderr(&output));
    assert!(!exists(&home.path("y")));
}

#[test]
fn a_server_that_stops_giving_ranges_does_not_corrupt() {
    // No request is for all of it.
    let body = noise(24_000_000);
    let server = Server::new(move |request, before| {
        if before == 0 {
            return Response::file(request, &body, "\"x\"");
        }
        let mut response = Response::new(200).with("ETag", "\"x\"");
        response.body = body.clone();
        response
    });
    let home = Home::new();
    let output = fetch(&home, &["--streams", "2", "--retries", "0", &server.url("x"), "y"]);
    // The server announces ranges and does not send them; packtrain then trusts no range of it.
    assert_eq!(code(&output), 5, "{}", stderr(&output));
    assert!(stderr(&output).contains("stopped giving ranges"), "{}", stderr(&output));
    assert!(!exists(&home.path("y")));
}

#[test]
fn coded_contents_and_refusals_have_their_codes() {
    let home = Home::new();
    for (status, wanted) in [(404, 3), (410, 3), (401, 12), (403, 12), (418, 23), (503, 5)] {
        for coding in ["identity", "gzip"] {
            let server = Server::new(move |_, _| {
                let mut response = Response::new(status).with("Content-Encoding", coding);
                response.body = vec![0x1f, 0x8b];
                response
            });
            let output = fetch(&home, &["--retries", "0", &server.url("x"), "y"]);
            assert_eq!(code(&output), wanted, "{status}, {coding}: {}", stderr(&output));
        }
    }
    let server = Server::new(|request, _| {
        Response::file(request, &[1; 100], "\"x\"").with("Content-Encoding", "gzip")
    });
    let output = fetch(&home, &[&server.url("x"), "y"]);
    assert_eq!(code(&output), 7, "{}", stderr(&output));
    assert!(stderr(&output).contains("sends it as gzip"), "{}", stderr(&output));
    assert!(!exists(&home.path("y")));
}

#[test]
fn a_range_that_is_refused_is_no_empty_file() {
    let body = noise(3_000_000);
    let file = body.clone();
    let server = Server::new(move |request, _| {
        let mut response = Response::new(if request.range().is_some() { 416 } else { 200 });
        if request.range().is_none() && request.path == "/x" {
            response.body = file.clone();
        }
        response.with("ETag", "\"x\"")
    });
    let home = Home::new();
    home.file("x", b"old");
    for (name, wanted) in [("x", &body[..]), ("empty", b"")] {
        let output = fetch(&home, &[&server.url(name), "."]);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        assert!(std::fs::read(home.path(name)).unwrap() == wanted, "{name}");
    }
}

#[test]
fn redirections_are_followed_but_not_for_ever() {
    let server = Server::new(|request, _| match request.path.as_str() {
        "/start" => Response::new(302).with("Location", "/next/"),
        "/next/" => Response::new(307).with("Location", "../file"),
        "/file" => Response::file(request, &noise(700_000), "\"x\""),
        _ => Response::new(301).with("Location", "/loop"),
    });
    let home = Home::new();
    let output = fetch(&home, &[&server.url("start"), "y"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(std::fs::read(home.path("y")).unwrap() == noise(700_000));
    let output = fetch(&home, &[&server.url("loop"), "z"]);
    assert_eq!(code(&output), 23, "{}", stderr(&output));
    assert!(stderr(&output).contains("redirections"), "{}", stderr(&output));
}

#[test]
fn what_has_no_length_comes_as_a_stream() {
    for size in [0, 100_000, 4 << 20, 9_000_000] {
        let server = Server::new(move |_, _| {
            let mut response = Response::new(200);
            response.body = noise(size);
            response.endless = true;
            response
        });
        let home = Home::new();
        let output = fetch(&home, &[&server.url("x"), "y"]);
        assert_eq!(code(&output), 0, "{size}: {}", stderr(&output));
        assert!(stderr(&output).contains("of unknown length"), "{}", stderr(&output));
        assert!(std::fs::read(home.path("y")).unwrap() == noise(size), "{size}");
    }
}

#[test]
fn small_and_empty_files_and_standard_output() {
    let server = Server::new(|request, _| {
        let size: usize = request.path.trim_start_matches('/').parse().unwrap_or(0);
        Response::file(request, &noise(size), &format!("\"{size}\"")).with("Last-Modified", DATE)
    });
    let home = Home::new();
    let sizes = [0usize, 1, 255, 262_144, 262_145, 1_048_577, 4_194_304, 4_194_305];
    let mut words: Vec<String> = sizes.iter().map(|size| server.url(&size.to_string())).collect();
    std::fs::create_dir(home.path("d")).unwrap();
    words.push("d".to_owned());
    let output = fetch(&home, &words.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    for size in sizes {
        let path = home.path("d").join(size.to_string());
        assert!(std::fs::read(path).unwrap() == noise(size), "{size}");
    }
    let url = server.url("300000");
    let output = command(&home).args(["cp", &url, "-"]).output().unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(output.stdout == noise(300_000));
}

/// A server with a certificate of a test authority. Its key is in the tests and secures nothing
/// else.
fn secure(body: Vec<u8>) -> Server {
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let chain = CertificateDer::pem_slice_iter(include_bytes!("web/server.pem"));
    let chain: Vec<_> = chain.map(|one| one.expect("a certificate")).collect();
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("web/server.key")).expect("a key");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("they are known")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("they fit");
    let config = Arc::new(config);
    Server::over(
        move |request, _| Response::file(request, &body, "\"x\""),
        move |socket| {
            let session = rustls::ServerConnection::new(Arc::clone(&config)).ok()?;
            Some(Box::new(rustls::StreamOwned::new(session, socket)))
        },
    )
}

#[test]
fn certificates_are_checked_and_an_authority_of_ones_own_can_be_named() {
    let body = noise(6_000_000);
    let server = secure(body.clone());
    let home = Home::new();
    home.file("ca.pem", include_bytes!("web/ca.pem"));
    let url = format!("https://localhost:{}/x", server.address.port());
    let output = fetch(&home, &[&url, "y"]);
    assert_eq!(code(&output), 12, "{}", stderr(&output));
    assert!(stderr(&output).contains("certificate"), "{}", stderr(&output));
    for name in ["SSL_CERT_FILE", "CURL_CA_BUNDLE"] {
        let ca = home.path("ca.pem");
        let output =
            command(&home).args(["cp", "--json", &url, name]).env(name, &ca).output().unwrap();
        let last = done(&output);
        assert_eq!(
            (code(&output), &last["transport"]),
            (0, &"https".into()),
            "{}",
            stderr(&output)
        );
        assert!(std::fs::read(home.path(name)).unwrap() == body);
    }
}

#[test]
fn a_proxy_of_the_environment_is_asked() {
    let body = noise(800_000);
    let file = body.clone();
    // A proxy receives absolute addresses and the user's credentials.
    let proxy = Server::new(move |request, _| {
        let known = request.header("proxy-authorization") == Some("Basic bWU6c2VjcmV0");
        match request.path.as_str() {
            "http://far.example/x" if known => Response::file(request, &file, "\"x\""),
            "far.example:443" => Response::new(407),
            _ => Response::new(400),
        }
    });
    let home = Home::new();
    let address = format!("http://me:secret@{}", proxy.address);
    let run = |url: &str| {
        let mut command = command(&home);
        command.env("http_proxy", &address).env("https_proxy", &address);
        command.args(["cp", "--json", url, "y"]).output().unwrap()
    };
    let output = run("http://far.example/x");
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(std::fs::read(home.path("y")).unwrap() == body);
    let output = run("https://far.example/x");
    assert_eq!(code(&output), 12, "{}", stderr(&output));
    assert_eq!(proxy.requests().last().unwrap().method, "CONNECT");
}

#[test]
fn what_the_server_says_of_the_whole_is_compared() {
    let body = noise(5_000_000);
    let good = "sha-256=:lR1AqpSUOlzX8rF6fBmWRJCmXkVdbD7ZQt3XyTzCXv4=:";
    let server = Server::new(move |request, _| {
        Response::file(request, &body, "\"x\"").with("Repr-Digest", good)
    });
    let home = Home::new();
    let output = fetch(&home, &[&server.url("x"), "y"]);
    assert_eq!(code(&output), 13, "{}", stderr(&output));
    assert!(stderr(&output).contains("SHA-256"), "{}", stderr(&output));
    // The same command does not take it for unchanged, whatever the options.
    let output = fetch(&home, &["--update", &server.url("x"), "y"]);
    assert_eq!(code(&output), 13, "{}", stderr(&output));
    assert_eq!(done(&output)["bytes_moved"], 5_000_000, "{}", stderr(&output));
    // With the correct digest.
    let sum = "sha-256=:dLNXKfFhz2L0diIctU3c02AmXl5tXmRXWRRqAWu1oZQ=:";
    let server = Server::new(move |request, _| {
        Response::file(request, b"packtrain", "\"x\"").with("Repr-Digest", sum)
    });
    let output = fetch(&home, &[&server.url("x"), "z"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
}

#[test]
fn what_was_not_compared_is_compared_by_the_next_run() {
    let sum = "sha-256=:dLNXKfFhz2L0diIctU3c02AmXl5tXmRXWRRqAWu1oZQ=:";
    let busy = Arc::new(AtomicBool::new(true));
    let now = Arc::clone(&busy);
    let server = Server::new(move |request, _| {
        let is_probe = request.range() == Some((0, 1));
        match request.path.as_str() {
            "/busy" if !is_probe && now.load(Ordering::Relaxed) => Response::new(503),
            "/gone" => Response::new(404),
            "/right" => Response::file(request, b"packtrain", "\"x\"").with("Repr-Digest", sum),
            "/wrong" => Response::file(request, b"pocktrain", "\"x\"").with("Repr-Digest", sum),
            _ => Response::file(request, &noise(9_000_000), "\"x\""),
        }
    });
    let (right, wrong, busy_url) = (server.url("right"), server.url("wrong"), server.url("busy"));
    let home = Home::new();
    std::fs::create_dir(home.path("d")).unwrap();
    let words = ["--retries", "0", &right, &wrong, &busy_url, "d"];
    let output = fetch(&home, &words);
    assert_eq!(code(&output), 5, "{}", stderr(&output));
    assert!(exists(&home.path("d/wrong")) && !exists(&home.path("d/busy")));
    busy.store(false, Ordering::Relaxed);
    let output = fetch(&home, &words);
    assert_eq!(
        (code(&output), &done(&output)["unchanged"]),
        (13, &2.into()),
        "{}",
        stderr(&output)
    );
    assert!(stderr(&output).contains("wrong does not have the SHA-256"), "{}", stderr(&output));
    // An object that is missing does not keep the others from being compared.
    let output = fetch(&home, &[&right, &wrong, &server.url("gone"), "d"]);
    assert_eq!(
        (code(&output), &done(&output)["unchanged"]),
        (13, &1.into()),
        "{}",
        stderr(&output)
    );
    // A file that was compared is not read again, so its old mark is gone.
    let marks = std::fs::read_dir(home.state().join("packtrain/uncompared")).unwrap();
    assert_eq!(marks.count(), 1);
}

#[test]
fn the_second_file_of_one_name_is_refused() {
    let bodies = [vec![1; 6_000_000], vec![2; 6_000_000]];
    let server = Server::new(move |request, _| {
        let second = usize::from(request.path.starts_with("/2/"));
        Response::file(request, &bodies[second], ["\"1\"", "\"2\""][second])
    });
    for flags in [&[][..], &["--inplace"]] {
        let home = Home::new();
        let (one, two) = (server.url("1/x"), server.url("2/x"));
        let output = fetch(&home, &[flags, &[&one, &two, "."]].concat());
        assert_eq!(code(&output), 23, "{}", stderr(&output));
        assert!(stderr(&output).contains("which was taken"), "{}", stderr(&output));
        assert!(std::fs::read(home.path("x")).unwrap() == vec![1; 6_000_000]);
        // One address twice is one file.
        let output = fetch(&home, &[flags, &[&two, &two, "."]].concat());
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        assert!(std::fs::read(home.path("x")).unwrap() == vec![2; 6_000_000]);
    }
}

/// A copy of `file` to the key `key` of a store at this address.
fn upload(home: &Home, server: &Server, file: &str) -> Output {
    let mut command = command(home);
    command.env("AWS_ENDPOINT_URL", format!("http://{}", server.address));
    command.env("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE");
    command.env("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY");
    command.args(["cp", "--json", "--retries", "0", file, "s3://bucket/key"]);
    command.output().expect("the command starts")
}

#[test]
fn an_object_of_before_is_not_taken_for_an_upload_that_is_gone() {
    const SIZE: usize = 17_000_000;
    let server = Server::new(|request, _| {
        let mut response = match (request.method.as_str(), request.path.split_once('?')) {
            // An object of the same size that was not made of parts.
            ("HEAD", _) => Response::new(200)
                .with("Content-Length", SIZE.to_string())
                .with("ETag", "\"d41d8cd98f00b204e9800998ecf8427e\"")
                .with("Last-Modified", DATE),
            ("POST", Some((_, query))) if query.starts_with("uploads") => Response::new(200),
            ("PUT", _) => Response::new(200).with("ETag", "\"part\""),
            _ => Response::new(404),
        };
        response.body = match response.status {
            404 => b"<Error><Code>NoSuchUpload</Code></Error>".to_vec(),
            _ if request.method == "POST" => b"<InitiateMultipartUploadResult \
                xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
                <Bucket>bucket</Bucket><Key>key</Key><UploadId>1</UploadId>\
                </InitiateMultipartUploadResult>"
                .to_vec(),
            _ => Vec::new(),
        };
        response
    });
    let home = Home::new();
    home.file("file", &noise(SIZE));
    let output = upload(&home, &server, "file");
    assert_eq!(code(&output), 5, "{}", stderr(&output));
    assert!(stderr(&output).contains("no longer has the upload"), "{}", stderr(&output));
    assert!(server.requests().iter().any(|request| request.path.contains("uploadId=1")));
}

/// Everything that the command wrote to its state directory and to its output.
fn traces(home: &Home, outputs: &[&Output], log: &std::path::Path) -> Vec<u8> {
    let mut all = std::fs::read(log).unwrap_or_default();
    let mut dirs = vec![home.state()];
    while let Some(dir) = dirs.pop() {
        for item in std::fs::read_dir(dir).expect("readable").flatten() {
            match item.path() {
                path if path.is_dir() => dirs.push(path),
                path => all.extend(std::fs::read(path).expect("readable")),
            }
        }
    }
    for output in outputs {
        all.extend_from_slice(&output.stdout);
        all.extend_from_slice(&output.stderr);
    }
    all
}

#[test]
fn the_secrets_of_a_signed_address_are_not_kept_or_shown() {
    let body = noise(300_000);
    let server = Server::new(move |request, _| match request.path.split('?').next() {
        Some("/gone") => Response::new(404),
        Some("/away") => Response::new(302).with("Location", "ftp://me:5ecre7@h/x?sig=5ecre7"),
        Some("/busy") => Response::new(503),
        _ => Response::file(request, &body, "\"one\"").with("Last-Modified", DATE),
    });
    let home = Home::new();
    let log = home.path("log");
    let outputs: Vec<Output> = ["file", "gone", "away", "busy"]
        .iter()
        .map(|name| {
            let url = server.url(&format!("{name}?X-Amz-Signature=5ecre7&X-Amz-Expires=9"));
            let flags = ["--retries", "0", "-v", "--explain", "--log-file"];
            let mut command = command(&home);
            command.args(["cp", "--json"]).args(flags).arg(&log).args([&url, "."]);
            command.output().expect("the command starts")
        })
        .collect();
    assert_eq!(code(&outputs[0]), 0, "{}", stderr(&outputs[0]));
    assert!(outputs[1..].iter().all(|output| code(output) != 0));
    let login = home.run(&["cp", "https://me:5ecre7@h.example/x", "."]);
    let broken = home.run(&["cp", "https://me:5ecre7@h.example:x/x?sig=5ecre7", "."]);
    let pt = home.run(&["cp", "pt://me:5ecre7@h.example/x", "."]);
    let history = home.run(&["history", "--json"]);
    let show = home.run(&["history"]);
    let mut all: Vec<&Output> = outputs.iter().collect();
    all.extend([&login, &broken, &pt, &history, &show]);
    let traces = traces(&home, &all, &log);
    let has = |text: &str| traces.windows(text.len()).any(|w| w == text.as_bytes());
    assert!(has("/file?[redacted]"), "the address itself is told of");
    assert!(!has("5ecre7"), "{}", String::from_utf8_lossy(&traces));
}
