use super::*;

fn tree(rules: &[&str], files: &[(u32, &str, &str)]) -> TreeFilter {
    let mut filters = Filters::new();
    for rule in rules {
        filters.rule(rule.as_bytes()).unwrap_or_else(|e| panic!("{rule}: {e}"));
    }
    let mut tree = TreeFilter::new(filters);
    for (number, dir, text) in files {
        tree.add_file(*number, dir.as_bytes(), text.as_bytes())
            .unwrap_or_else(|e| panic!("{dir}: {e}"));
    }
    tree
}

fn excluded(tree: &TreeFilter, path: &str) -> bool {
    tree.excludes(path.trim_end_matches('/').as_bytes(), path.ends_with('/'))
}

#[track_caller]
fn check(tree: &TreeFilter, out: &[&str], kept: &[&str]) {
    for path in out {
        assert!(excluded(tree, path), "{path} is excluded");
    }
    for path in kept {
        assert!(!excluded(tree, path), "{path} is kept");
    }
}

#[test]
fn rules_of_deeper_directories_come_first() {
    let files = [(0, "", "- *.o\n# no\n; no\n\n- /top\n"), (0, "a/b", "+ x.o\n- /top\n")];
    let tree = tree(&[": .f", "- z"], &files);
    check(
        &tree,
        &["m.o", "a/m.o", "a/b/y.o", "top", "a/b/top", "z", "a/b/z"],
        &["a/b/x.o", "a/top", "a/b/c/top", "# no", "a/b/c/x.o"],
    );
    assert!(excluded(&tree, "a/x.o") && !excluded(&tree, "a"));
}

#[test]
fn they_have_the_place_of_their_rule() {
    let files = [(0, "", "+ keep\n- x\n")];
    check(&tree(&["- keep", ": .f", "+ x"], &files), &["keep", "x"], &["y"]);
    check(&tree(&["+ x", ": .f", "- keep"], &files), &[], &["keep", "x"]);
    let two = [(0, "", "- a\n"), (1, "", "+ a\n- b\n"), (1, "d", "- c\n")];
    check(&tree(&[": .f", ": .g"], &two), &["a", "b", "d/a", "d/c"], &["c"]);
}

#[test]
fn a_list_is_cleared_by_an_exclamation_mark() {
    let files = [(0, "", "- a\n- b\n"), (0, "d", "- c\n!\n- e\n"), (1, "", "- g\n")];
    let tree = tree(&[": .f", ": .g", "- h"], &files);
    // The rules of the command and of the other file name stay.
    check(&tree, &["a", "b", "d/e", "d/g", "d/h", "d/x/e"], &["d/a", "d/b", "d/c"]);
}

#[test]
fn modifiers_change_how_a_file_is_read() {
    let ignore = [(0, "a", "*.o\n/build/\n# no\n+ plus\n!\n!neg\n")];
    check(
        &tree(&[":- .gitignore"], &ignore),
        &["a/x.o", "a/b/x.o", "a/build/", "a/+ plus", "a/!", "a/!neg"],
        &["x.o", "a/b/build/", "a/build", "a/plus", "a/neg", "a/# no"],
    );
    check(&tree(&[":+ .f", "- *"], &[(0, "", "a\n")]), &["b"], &["a"]);
    let own = [(0, "a", "- x\n- b/y\n- /b/\n")];
    check(&tree(&[":n .f"], &own), &["a/x", "a/b/"], &["a/b/x", "a/b/y", "x"]);
    let words = [(0, "", "-_a +_b\t! -_e\nexclude_f")];
    check(&tree(&[":w .f"], &words), &["e", "f"], &["a", "b"]);
    // Words have no comments.
    let mut filter = TreeFilter::new(tree(&[":w .f"], &[]).filters);
    assert!(filter.add_file(0, b"", b"-_a #d").is_err());
    assert!(filter.add_file(0, b"", b"- a").is_err());
    check(&tree(&[":w- .f"], &[(0, "", " a  - b\n")]), &["a", "b", "-"], &["c"]);
    check(&tree(&[":0 .f"], &[(0, "", "- a\nb\0- c")]), &["a\nb", "c"], &["a", "b"]);
}

#[test]
fn sides_are_those_of_the_file_or_of_its_rules() {
    let tree_of = |rule, text| tree(&[rule], &[(0, "", text)]);
    let hidden = tree_of(":s .f", "- a\n");
    assert!(hidden.excludes(b"a", false) && !hidden.protects(b"a", false));
    let kept = tree_of(":- .f", "a\n");
    assert!(kept.excludes(b"a", false) && kept.protects(b"a", false));
    let own = tree_of(": .f", "P p\nH h\n");
    assert!(own.protects(b"p", false) && !own.excludes(b"p", false));
    assert!(own.excludes(b"h", false) && !own.protects(b"h", false));
    let mut filter = TreeFilter::new(tree(&[":r .f"], &[]).filters);
    assert!(matches!(filter.add_file(0, b"", b"H a\n"), Err(FilterError::TwoSides(_))));
}

#[test]
fn patterns_without_a_leading_slash_match_the_whole_path() {
    // As rsync does: `a/x` in the file of `a` matches `a/x` itself.
    check(&tree(&[": .f"], &[(0, "a", "- a/x\n- b/**/z\n")]), &["a/x", "a/b/c/z"], &["b/c/z"]);
}

#[test]
fn the_rules_of_the_command_alone_decide_only_before_the_first_file() {
    let filters = tree(&["- a", ": .f", "- b"], &[]).filters;
    assert!(filters.excludes(b"a", false) && !filters.excludes(b"b", false));
    assert!(filters.protects(b"a", false) && !filters.protects(b"b", false));
    assert!(filters.has_files());
    for (rules, own) in [
        (&["- .f", ": .f"][..], true),
        (&["- .*", ": .f", ":- .g"], true),
        (&[": .f", "- .f"], false),
        (&["- .f", ": .f", ": .g"], false),
        (&["- /.f", ": .f"], false),
        (&["- */.f", ": .f"], false),
        (&["+ /keep/.f", "- .f", ": .f"], false),
        (&["- .f", "+ /keep/.f", ": .f"], true),
        (&["- x"], true),
    ] {
        assert_eq!(tree(rules, &[]).filters.exclude_own_files(), own, "{rules:?}");
    }
}

#[test]
fn rules_of_files_are_written_as_they_are_read() {
    for rule in [": .f", ":- .gitignore", ":+n0 f", ":wsr _x", ":s y", ":r a b"] {
        let filters = tree(&[rule], &[]).filters;
        let [text] = &filters.to_rules()[..] else { panic!("one rule") };
        assert_eq!(tree(&[std::str::from_utf8(text).unwrap()], &[]).filters, filters, "{rule}");
    }
    assert_eq!(tree(&["dir-merge,n- .f"], &[]).filters, tree(&[":n- .f"], &[]).filters);
    assert_eq!(tree(&["dir-merge .f"], &[]).filters, tree(&[":_.f"], &[]).filters);
    for bad in [":", ": ", ": a/b", ": /f", ": ..", ":C f", ":p f", ":! f", ":ef", ":xf", ":e f"] {
        assert!(Filters::new().rule(bad.as_bytes()).is_err(), "{bad}");
    }
    let mut many = Filters::new();
    (0..MAX_RULES_OF_FILES).for_each(|_| many.rule(b": f").expect("room"));
    assert_eq!(many.rule(b": f"), Err(FilterError::TooManyFiles));
}

#[test]
fn what_a_tree_can_make_an_end_hold_is_limited() {
    let mut tree = tree(&[": .f"], &[]);
    assert!(tree.add_file(1, b"", b"- a\n").is_err(), "no such rule");
    assert_eq!(tree.add_file(0, b"", b"# nothing\n"), Ok(false));
    assert_eq!(tree.add_file(0, b"", b"- a\n"), Ok(true));
    assert!(tree.add_file(0, b"", b"- a\n").is_err(), "twice");
    for bad in ["- [a", "+", ". x", ": x", "-C", "frob x", "-p x", "-/ x"] {
        assert!(tree.add_file(0, b"bad", bad.as_bytes()).is_err(), "{bad}");
    }
    let long = vec![b'#'; MAX_FILE_BYTES + 1];
    assert_eq!(tree.add_file(0, b"long", &long), Err(FilterError::TooManyRules));
    assert_eq!(tree.add_file(0, b"long", &long[1..]), Ok(false));
    let many = b"-_x\n".repeat(MAX_FILE_BYTES / 4);
    let added = |tree: &mut TreeFilter, n: u32| tree.add_file(0, &n.to_le_bytes(), &many);
    let fit = (0..).take_while(|n| added(&mut tree, *n).is_ok()).count();
    assert_eq!(fit, (MAX_FILE_RULES - 3) / (many.len() / 4));
    // What is forgotten makes room.
    tree.leave(&0u32.to_le_bytes());
    assert_eq!(added(&mut tree, 77), Ok(true));
    assert!(added(&mut tree, 78).is_err());
    tree.clear_files();
    assert_eq!(added(&mut tree, 78), Ok(true));
}

/// A file with `!` alone has no rule and is kept, because it clears those above.
#[test]
fn the_paths_of_directories_with_files_are_limited() {
    let mut tree = tree(&[": .f"], &[]);
    let dir = |i: usize| format!("{i:04}{}", "/d".repeat(2_000)).into_bytes();
    let add = |tree: &mut TreeFilter, i| tree.add_file(0, &dir(i), b"!");
    let fit = (0..).take_while(|i| add(&mut tree, *i).is_ok()).count();
    assert_eq!(fit, MAX_DIR_BYTES / dir(0).len());
    assert_eq!(add(&mut tree, fit), Err(FilterError::TooManyRules));
    tree.leave(&dir(3));
    assert_eq!(add(&mut tree, fit), Ok(true), "what is left counts no more");
}
