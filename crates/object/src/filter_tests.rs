use super::*;
use proptest::prelude::*;

fn filters(rules: &[&str]) -> Filters {
    let mut filters = Filters::new();
    for rule in rules {
        filters.rule(rule.as_bytes()).unwrap_or_else(|e| panic!("{rule}: {e}"));
    }
    filters
}

/// Whether `- pattern` excludes the path; a path that ends with a slash is a directory.
fn excluded(pattern: &str, path: &str) -> bool {
    let mut filters = Filters::new();
    filters.exclude(pattern.as_bytes()).unwrap();
    filters.excludes(path.trim_end_matches('/').as_bytes(), path.ends_with('/'))
}

#[test]
fn patterns_match_as_documented() {
    for (pattern, yes, no) in [
        // A name anywhere.
        ("foo", &["foo", "foo/", "a/foo", "a/b/foo"][..], &["food", "a/xfoo", "foo/a"][..]),
        ("*.o", &["x.o", "a/x.o", ".o"], &["x.oo", "o"]),
        ("f?o", &["foo", "a/fxo"], &["fo", "f/o", "fooo"]),
        // Bound to the root.
        ("/foo", &["foo", "foo/"], &["a/foo"]),
        ("/a*", &["a", "abc"], &["b/a", "a/b"]),
        ("/foo/bar", &["foo/bar"], &["a/foo/bar", "foo/bar/c"]),
        // With a slash inside: the end of the path, from any directory on.
        ("foo/bar", &["foo/bar", "a/foo/bar"], &["afoo/bar", "foo/x/bar", "bar"]),
        ("foo/*", &["foo/x", "a/foo/x"], &["foo", "foo/x/y"]),
        ("/foo/*/bar", &["foo/x/bar"], &["foo/x/y/bar", "foo/bar"]),
        // Directories only.
        ("foo/", &["foo/", "a/foo/"], &["foo", "a/foo"]),
        ("/foo/", &["foo/"], &["foo", "a/foo/"]),
        // Across directories.
        ("/foo/**/bar", &["foo/x/bar", "foo/x/y/bar"], &["foo/bar", "a/foo/x/bar"]),
        ("/foo/**", &["foo/x", "foo/x/y"], &["foo", "food/x"]),
        ("foo/**", &["foo/x", "a/foo/x/y"], &["foo", "afoo/x"]),
        ("**/bar", &["bar", "a/bar", "a/b/bar"], &["xbar", "bar/a"]),
        ("**bar", &["bar", "xbar", "a/xbar"], &["bar/a"]),
        ("a**z", &["az", "a/b/z", "x/a/z"], &["xa/z", "az/b"]),
        ("**", &["a", "a/b"], &[]),
        ("*", &["a", "a/b", ".hidden"], &[]),
        // A directory and what is in it.
        ("dir/***", &["dir/", "dir/x", "a/dir/x/y"], &["dir", "xdir/"]),
        ("/dir/***", &["dir/", "dir/x"], &["a/dir/"]),
        // Classes.
        ("[abc]x", &["ax", "d/cx"], &["dx", "x"]),
        ("[!abc]x", &["dx", "a/dx"], &["ax"]),
        ("[^a-c]x", &["dx"], &["bx"]),
        ("[]x]y", &["]y", "xy"], &["ay"]),
        ("a[!x]b", &["a.b"], &["a/b"]),
        ("[[:digit:]][[:upper:]]", &["1A"], &["A1", "1a"]),
        ("[a\\]]x", &["ax", "]x"], &["\\x"]),
        ("[a-]x", &["ax", "-x"], &["bx"]),
        // The backslash takes the next byte as it is, where there is a wildcard.
        ("a\\*b*", &["a*b", "a*bc"], &["axb"]),
        ("a\\b", &["a\\b"], &["ab"]),
        ("a\\[b?", &["a[bc"], &["ab"]),
    ] {
        for path in yes {
            assert!(excluded(pattern, path), "`{pattern}` should match `{path}`");
        }
        for path in no {
            assert!(!excluded(pattern, path), "`{pattern}` should not match `{path}`");
        }
    }
}

#[test]
fn the_first_match_decides() {
    let rules = filters(&["+ *.c", "- /build/", "+ */", "- *"]);
    assert!(!rules.excludes(b"a.c", false));
    assert!(!rules.excludes(b"sub", true));
    assert!(rules.excludes(b"build", true));
    assert!(rules.excludes(b"a.h", false));
    assert!(!rules.excludes(b"build/a.c", false), "asked by itself");
    assert!(rules.excludes_within(b"build/a.c", false), "but its directory is left out");
    assert!(!rules.excludes_within(b"sub/a.c", false));
    assert!(!rules.excludes(b"", true), "the root is always in");
    assert!(!Filters::new().excludes_within(b"x/y", false));
}

#[test]
fn rules_are_read_as_rsync_reads_them() {
    let rules = filters(&["exclude a", "include b", "-_c", "+_d", "-! e", "-,! f"]);
    assert!(rules.excludes(b"a", false) && !rules.excludes(b"b", false));
    assert!(rules.excludes(b"c", false) && !rules.excludes(b"d", false));
    // Negated: everything but `e`.
    assert!(rules.excludes(b"x", false));

    let mut old = Filters::new();
    old.exclude(b"+ keep").unwrap();
    old.include(b"- drop").unwrap();
    old.exclude(b"-dash").unwrap();
    assert!(!old.excludes(b"keep", false) && old.excludes(b"drop", false));
    assert!(old.excludes(b"-dash", false), "no space, no sign");
    old.exclude(b"!").unwrap();
    assert!(old.is_empty());
    old.rule(b"- x").unwrap();
    old.rule(b"clear").unwrap();
    assert!(old.is_empty());
}

#[test]
fn what_is_not_understood_is_refused() {
    let mut rules = Filters::new();
    for bad in ["", "x", "foo bar", ". file", "merge file", "Q x", "hidex x", "-q x", "+a"] {
        assert!(matches!(rules.rule(bad.as_bytes()), Err(FilterError::Unknown(_))), "{bad}");
    }
    for bad in ["-", "+", "- ", "exclude", "- /"] {
        assert!(matches!(rules.rule(bad.as_bytes()), Err(FilterError::NoPattern(_))), "{bad}");
    }
    for bad in ["- [a", "- a[]", "- [[:nonsense:]]", "- [[:alpha"] {
        assert!(matches!(rules.rule(bad.as_bytes()), Err(FilterError::OpenClass(_))), "{bad}");
    }
    assert_eq!(rules.exclude(&[b'x'; 5000]), Err(FilterError::TooLong));
    assert!(rules.is_empty());
}

#[test]
fn a_file_of_rules_may_have_comments() {
    let mut rules = Filters::new();
    rules.file(false, b"# no\n; no\n\n*.tmp\r\n+ keep.log\n*.log\n", false).unwrap();
    assert!(rules.excludes(b"a.tmp", false) && rules.excludes(b"a.log", false));
    assert!(!rules.excludes(b"keep.log", false));
    assert_eq!(rules.to_rules(), [&b"- *.tmp"[..], b"+ keep.log", b"- *.log"]);

    let mut zero = Filters::new();
    zero.file(false, b"#a\0b\nc\0", true).unwrap();
    assert!(zero.excludes(b"#a", false) && zero.excludes(b"b\nc", false));

    assert_eq!(names(b"a\n#b\n\nc d\n", false), [&b"a"[..], b"c d"]);
    assert_eq!(names(b"a\0#b\0\0c\nd", true), [&b"a"[..], b"#b", b"c\nd"]);
}

#[test]
fn a_hostile_pattern_takes_no_exponential_time() {
    let pattern = "a*".repeat(1000) + "b";
    assert!(!excluded(&pattern, &"a".repeat(250)));
    let pattern = "**a".repeat(300);
    assert!(!excluded(&pattern, &"a/".repeat(150)));
}

/// A simple reference implementation, not optimised.
fn slow(pattern: &[u8], text: &[u8]) -> bool {
    match pattern {
        [] => text.is_empty(),
        [b'*', b'*', rest @ ..] => (0..=text.len()).any(|at| slow(rest, &text[at..])),
        [b'*', rest @ ..] => {
            let reach = text.iter().position(|b| *b == b'/').unwrap_or(text.len());
            (0..=reach).any(|at| slow(rest, &text[at..]))
        }
        [b'?', rest @ ..] => text.first().is_some_and(|b| *b != b'/') && slow(rest, &text[1..]),
        [byte, rest @ ..] => text.first() == Some(byte) && slow(rest, &text[1..]),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn bound_patterns_agree_with_a_slow_matcher(pattern in "[ab*?/]{1,8}", path in "[ab]{1,3}(/[ab]{1,3}){0,3}") {
        prop_assume!(!pattern.starts_with('/') && !pattern.ends_with('/') && !pattern.contains("***"));
        let bound = format!("/{pattern}");
        prop_assert_eq!(excluded(&bound, &path), slow(pattern.as_bytes(), path.as_bytes()));
    }

    #[test]
    fn any_rule_is_taken_or_refused(rule in proptest::collection::vec(any::<u8>(), 0..40), path in proptest::collection::vec(any::<u8>(), 0..40)) {
        let mut rules = Filters::new();
        let _ = rules.rule(&rule);
        let _ = rules.exclude(&rule);
        rules.excludes_within(&path, true);
        let mut again = Filters::new();
        for rule in rules.to_rules() {
            again.rule(&rule).unwrap();
        }
        prop_assert_eq!(again, rules);
    }
}

#[test]
fn rules_of_one_side_apply_there_only() {
    let mut rules = Filters::new();
    for rule in
        ["P *.keep", "H secret", "show,_s", "risk r", "-s only_source", "-!r *.c", "+rs both"]
    {
        rules.rule(rule.as_bytes()).unwrap_or_else(|error| panic!("{rule}: {error}"));
    }
    assert!(rules.has_sides());
    assert!(rules.protects(b"a.keep", false) && !rules.excludes(b"a.keep", false));
    assert!(rules.excludes(b"secret", false));
    assert!(rules.excludes(b"only_source", false));
    // Everything at the target that is not a C file is kept, by the rule that is negated.
    assert!(rules.protects(b"x.h", false) && !rules.protects(b"x.c", false));
    assert!(!rules.protects(b"r", false) && !rules.excludes(b"x.h", false));
    let mut again = Filters::new();
    for rule in rules.to_rules() {
        again.rule(&rule).expect("what was written is read");
    }
    assert_eq!(again, rules);
    let mut plain = Filters::new();
    plain.rule(b"-! x").expect("a rule");
    assert!(!plain.has_sides());
    for bad in ["Px", "P", "hidex a", "-q x", "merge f", ". f", "-C"] {
        assert!(Filters::new().rule(bad.as_bytes()).is_err(), "{bad}");
    }
}
