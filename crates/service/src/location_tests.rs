use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Result<Location, LocationError> {
    Location::parse(OsStr::new(text))
}

fn ssh(user: Option<&str>, host: &str, path: &str) -> Location {
    Location::Ssh { user: user.map(str::to_owned), host: host.to_owned(), path: path.into() }
}

fn server(host: &str, port: u16, path: &str) -> Location {
    Location::Server { host: host.to_owned(), port, path: path.into() }
}

fn udt4(host: &str, port: u16, path: &str) -> Location {
    Location::Udt4 { host: host.to_owned(), port, path: path.into() }
}

#[test]
fn names_are_read_as_scp_and_rsync_read_them() {
    let local = |path: &str| Location::Local(path.into());
    for (text, want) in [
        ("a", local("a")),
        ("/a:b", local("/a:b")),
        ("./a:b", local("./a:b")),
        ("dir/a:b", local("dir/a:b")),
        ("-", Location::Stdio),
        ("-x", local("-x")),
        ("host:", ssh(None, "host", ".")),
        ("host:file", ssh(None, "host", "file")),
        ("host:/data/x:y", ssh(None, "host", "/data/x:y")),
        ("me@host:~/x", ssh(Some("me"), "host", "~/x")),
        ("me@EXAMPLE@host:x", ssh(Some("me@EXAMPLE"), "host", "x")),
        ("[::1]:x", ssh(None, "::1", "x")),
        ("me@[fe80::1%eth0]:/x", ssh(Some("me"), "fe80::1%eth0", "/x")),
        ("[a]b", local("[a]b")),
        ("pt://host/x", server("host", DEFAULT_PORT, "x")),
        ("pt://host:99/x/y/", server("host", 99, "x/y/")),
        ("pt://host:99", server("host", 99, "")),
        ("pt://[2001:db8::1]:99/a b%20", server("2001:db8::1", 99, "a b%20")),
        ("udt4://host/x", udt4("host", DEFAULT_UDT4_PORT, "x")),
        ("udt4://[::1]:99//data/x y", udt4("::1", 99, "/data/x y")),
        ("a/b://c", local("a/b://c")),
    ] {
        assert_eq!(parse(text), Ok(want), "{text}");
    }
}

#[test]
fn what_is_not_a_place_is_refused_with_a_reason() {
    use LocationError as E;
    for (text, want) in [
        ("", E::Empty),
        ("https://me:secret@x/y", E::UrlSecret),
        ("https://", E::BadUrl("https://".into(), "empty host".into())),
        ("udt4://x:9", E::NoName("udt4://x:9".into())),
        ("udt4://x:9/", E::NoName("udt4://x:9/".into())),
        ("udt4://me@x/y", E::ServerUser("x".into())),
        ("s3:///key", E::BadBucket("s3:///key".into())),
        ("s3://b@d/key", E::BadBucket("s3://[redacted]@d/key".into())),
        ("gopher://x", E::UnknownScheme("gopher".into())),
        ("host::mod/x", E::RsyncDaemon("host::mod/x".into())),
        ("-oProxyCommand=x:y", E::BadName("-oProxyCommand=x".into())),
        ("-lroot@h:x", E::BadName("-lroot".into())),
        ("a b:x", E::BadName("a b".into())),
        (":x", E::BadName("".into())),
        ("[::1:x", E::BadBrackets("[::1:x".into())),
        ("[::g]:x", E::BadBrackets("[::g]".into())),
        ("pt://h:0/x", E::BadPort("0".into())),
        ("pt://h:70000/x", E::BadPort("70000".into())),
        ("pt://h:/x", E::BadPort("".into())),
        ("pt://h:+9/x", E::BadPort("+9".into())),
        ("pt://::1/x", E::BadBrackets("::1".into())),
        ("pt://me@h/x", E::ServerUser("h".into())),
        ("pt:///x", E::BadName("".into())),
    ] {
        assert_eq!(parse(text), Err(want), "{text}");
    }
}

#[test]
fn the_same_end_is_the_same_host_and_login() {
    let at = |text| parse(text).expect("a good location");
    assert!(at("a").same_end(&at("-")));
    assert!(at("h:a").same_end(&at("h:b")));
    assert!(!at("h:a").same_end(&at("me@h:b")));
    assert!(!at("h:a").same_end(&at("a")));
    assert!(!at("pt://h/a").same_end(&at("h:a")));
    assert!(at("pt://h/a").same_end(&at("pt://h:7876/b")));
}

#[test]
fn brackets_belong_to_the_host_before_the_path() {
    assert_eq!(parse("[%]:@[").expect("a host, a path").to_string(), "%:@[");
    assert_eq!(parse("%:@[").expect("a host, a path").to_string(), "%:@[");
    assert_eq!(parse("a@b@[::1]:x]").expect("all parts").to_string(), "a@b@[::1]:x]");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_bytes_parse_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        if let Ok(location) = Location::parse(OsStr::from_bytes(&bytes)) {
            let _ = location.to_string();
        }
    }

    #[test]
    fn what_is_printed_is_read_back(text in "[-a:/@.\\[\\]% 1]{1,20}|pt://[-a:/@.\\[\\]1]{1,20}") {
        if let Ok(location) = parse(&text) {
            let again = parse(&location.to_string());
            match location {
                // Printed with a leading `./` if it needs one.
                Location::Local(_) => prop_assert!(matches!(again, Ok(Location::Local(_)))),
                other => prop_assert_eq!(again, Ok(other)),
            }
        }
    }

    #[test]
    fn no_host_or_user_is_an_option_of_ssh(text in "[-a@]{1,8}:[a-]{0,3}") {
        if let Ok(Location::Ssh { user, host, .. }) = parse(&text) {
            prop_assert!(!host.starts_with('-'));
            prop_assert!(!user.unwrap_or_default().starts_with('-'));
        }
    }
}

#[test]
fn an_address_spelled_wrongly_is_no_host_of_ssh() {
    for text in ["HTTPS://h/x?sig=5ecre7", "https:/h/x?sig=5ecre7", "Https:h?sig=5ecre7", "s3:/b"] {
        let error = Location::parse(text.as_ref()).expect_err(text);
        assert!(matches!(error, LocationError::BadScheme(_)), "{text}: {error}");
        assert!(!error.to_string().contains("5ecre7"), "{error}");
    }
    // A host may still have the name of a scheme.
    assert!(matches!(Location::parse("pt:data".as_ref()), Ok(Location::Ssh { .. })));
}
