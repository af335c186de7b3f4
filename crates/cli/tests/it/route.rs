//! `packtrain route`: paths from a table of bandwidths.

use serde_json::{Value, json};

use crate::common::{Home, code, stderr, stdout};

const TABLE: &str = "from,ucsb,denver,uiuc,lost,host\n\
                     ucsb,,90,40,,\n\
                     denver,90,,80,,70\n\
                     uiuc,40,80,,,\n\
                     lost,,,,,\n";

fn lines(home: &Home, words: &[&str]) -> Vec<Value> {
    let output = home.run(words);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    stdout(&output).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn one_line_of_json_a_destination() {
    let home = Home::new();
    home.file("m.csv", TABLE.as_bytes());
    let found = lines(&home, &["route", "--matrix", "m.csv", "--from", "ucsb", "--json"]);
    assert_eq!(found.len(), 3);
    let path = json!(["ucsb", "denver", "uiuc"]);
    let wanted = json!({"destination": "uiuc", "parent": "denver", "cost": 1.0 / 70.0,
                        "next_hop": "denver", "path": path});
    assert_eq!(found[1], wanted);
    let wanted = json!({"destination": "lost", "parent": null, "cost": null, "next_hop": null,
                        "path": []});
    assert_eq!(found[2], wanted);
    let direct = ["route", "--matrix", "m.csv", "--from", "ucsb", "--epsilon", "0.8", "--json"];
    assert_eq!(lines(&home, &direct)[1]["path"], json!(["ucsb", "uiuc"]));
}

#[test]
fn an_unsure_edge_is_not_taken() {
    let home = Home::new();
    let mut words = vec!["route".to_owned()];
    for (at, rate) in [90.0, 20.0, 160.0, 30.0, 150.0, 25.0, 155.0].iter().enumerate() {
        let file = format!("m{at}.csv");
        let table = TABLE.replace(",80,,70", &format!(",{rate},,")).replace("90,40", "90,70");
        home.file(&file, table.as_bytes());
        words.extend(["--matrix".to_owned(), file]);
    }
    words.extend(["--from", "ucsb", "--to", "uiuc", "--json"].map(str::to_owned));
    let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
    assert_eq!(lines(&home, &words)[0]["path"], json!(["ucsb", "uiuc"]));
    words.extend(["--epsilon", "0.1"]);
    assert_eq!(lines(&home, &words)[0]["path"], json!(["ucsb", "denver", "uiuc"]));
}

#[test]
fn tables_for_depots() {
    let home = Home::new();
    home.file("m.csv", TABLE.as_bytes());
    let output = home.run(&["route", "--matrix", "m.csv", "--tables", "out", "--port", "7000"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let table = |host: &str| {
        let path = home.path(&format!("out/{host}.routes"));
        std::fs::read_to_string(path).expect("written")
    };
    assert_eq!(table("ucsb"), "uiuc denver:7000\n");
    assert_eq!(table("uiuc"), "ucsb denver:7000\n");
    assert_eq!((table("denver"), table("lost")), (String::new(), String::new()));
    // A host that no depot could look up, or that is no file of this directory.
    home.file("bad.csv", b",a b,../c\na b,,9\n../c,9,\n");
    let output = home.run(&["route", "--matrix", "bad.csv", "--tables", "out"]);
    assert_eq!(code(&output), 2, "{}", stderr(&output));
    assert!(stderr(&output).contains("no host"), "{}", stderr(&output));
    let output = home.run(&["route", "--matrix", "m.csv"]);
    assert_eq!(code(&output), 2, "{}", stderr(&output));
}

#[test]
fn a_table_for_people_and_a_picture() {
    let home = Home::new();
    home.file("m.csv", TABLE.as_bytes());
    let output = home.run(&["route", "--matrix", "m.csv", "--from", "ucsb"]);
    let text = stdout(&output);
    assert!(text.contains("uiuc"), "{text}");
    assert!(text.contains("ucsb > denver > uiuc") && text.contains("no way"), "{text}");
    let output = home.run(&["route", "--matrix", "m.csv", "--from", "ucsb", "--dot"]);
    let text = stdout(&output);
    assert!(text.starts_with("digraph") && text.trim_end().ends_with('}'), "{text}");
    assert_eq!(text.matches("->").count(), 2, "{text}");
}

#[test]
fn slips_are_said_with_file_and_line() {
    let home = Home::new();
    home.file("m.csv", TABLE.as_bytes());
    home.file("bad.csv", TABLE.replace("90,,80", "90,,fast").as_bytes());
    home.file("bytes.csv", b"from,\xff\n");
    for (words, status, says) in [
        ("--matrix m.csv --from nowhere", 2, "no host is called \"nowhere\""),
        ("--matrix bad.csv --from ucsb", 2, "bad.csv: line 3: \"fast\""),
        ("--matrix bytes.csv --from ucsb", 2, "bytes.csv"),
        ("--matrix none.csv --from ucsb", 3, "none.csv"),
        ("--matrix m.csv --from ucsb --epsilon -1", 2, "a number from 0 to 10"),
        ("--matrix m.csv --from ucsb --json --dot", 2, "cannot be used with"),
    ] {
        let mut line = vec!["route"];
        line.extend(words.split(' '));
        let output = home.run(&line);
        assert_eq!(code(&output), status, "{words}: {}", stderr(&output));
        assert!(stderr(&output).contains(says), "{words}: {}", stderr(&output));
    }
}
