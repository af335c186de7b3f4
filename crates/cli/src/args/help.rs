//! Help in two lengths: `-h` has one sentence for each option, `--help` has all of them and three
//! examples for each command.

use clap::Command;

/// A command by its words after `packtrain`, and its examples: a line to type, and what it does.
type Examples = (&'static str, [(&'static str, &'static str); 3]);

const EXAMPLES: &[Examples] = &[
    (
        "",
        [
            ("packtrain cp -r results user@host:data/", "copy a directory over ssh"),
            ("packtrain demo", "see an interrupted and damaged transfer end well"),
            ("packtrain doctor user@host", "find what would make transfers slow or impossible"),
        ],
    ),
    (
        "cp",
        [
            ("packtrain cp -r results user@host:data/", "copy a directory, or resume its copy"),
            ("packtrain cp pt://server.example.org/run7.tar .", "fetch a file from a server"),
            ("packtrain cp -r --delete --exclude '*.tmp' data/ user@host:data/", "mirror"),
        ],
    ),
    (
        "verify",
        [
            ("packtrain verify results user@host:data/results", "compare by content"),
            ("packtrain verify --json a b", "the same for a program"),
            ("packtrain verify --exclude '*.log' src dst", "leave files out"),
        ],
    ),
    (
        "serve",
        [
            ("packtrain serve --listen 0.0.0.0:7876 --root /data", "serve known keys"),
            (
                "packtrain serve --listen 0.0.0.0:7876 --root /data --ticket-file t",
                "admit also one client with a ticket",
            ),
            (
                "packtrain serve --listen 0.0.0.0:7876 --root /data --ports 5000-5511",
                "behind a firewall with these ports open",
            ),
        ],
    ),
    (
        "depot",
        [
            (
                "packtrain depot --listen 0.0.0.0:7879 --allow 198.51.100.7:7876",
                "relay to one server",
            ),
            (
                "packtrain depot --listen 0.0.0.0:7879 --spool /var/spool/packtrain",
                "keep data until it is claimed",
            ),
            (
                "packtrain depot --listen 0.0.0.0:7879 --allow 198.51.100.9:7879 --json",
                "relay to another depot, with events for a program",
            ),
        ],
    ),
    (
        "send",
        [
            ("packtrain send --via depot.example.org:7879 run7.tar", "leave a file at a depot"),
            (
                "packtrain send --via depot.example.org:7879 --code run7.tar",
                "with a short code in place of a ticket",
            ),
            (
                "packtrain send --via d1.example.org:7879,d2.example.org:7879 --keep 7d run7.tar",
                "over two depots, for a week",
            ),
        ],
    ),
    (
        "claim",
        [
            ("packtrain claim @t .", "fetch with the ticket in the file t"),
            ("packtrain claim - . --at depot.example.org:7879", "ask for the code"),
            ("packtrain claim @t . --release", "let the depots remove the data afterwards"),
        ],
    ),
    (
        "perf server",
        [
            ("packtrain perf server --listen 0.0.0.0:7876 --ticket-file t", "for one client"),
            ("packtrain perf server --listen 0.0.0.0:7876", "for known keys"),
            (
                "packtrain perf server --listen 0.0.0.0:9000 --transport udt4",
                "for the stock UDT library",
            ),
        ],
    ),
    (
        "perf client",
        [
            ("packtrain perf client host:7876 --ticket @t --seconds 10", "measure for 10 s"),
            ("packtrain perf client host:7876 --ticket @t --reverse", "the other direction"),
            (
                "packtrain perf client host:7876 --ticket @t --transport tcp --parallel 8",
                "eight TCP streams",
            ),
        ],
    ),
    (
        "diagnose",
        [
            ("packtrain diagnose last", "the last copy"),
            ("packtrain diagnose 4f21c09a", "the transfer of this id"),
            ("packtrain diagnose user@host", "measure each stage to a host"),
        ],
    ),
    (
        "doctor",
        [
            ("packtrain doctor", "this machine"),
            ("packtrain doctor user@host", "this machine, the other one, and UDP between them"),
            ("packtrain doctor --json", "for a program"),
        ],
    ),
    (
        "clean",
        [
            ("packtrain clean --dry-run data", "list what interrupted transfers left"),
            ("packtrain clean data", "remove it"),
            ("packtrain clean --json data", "the same, for a program"),
        ],
    ),
    (
        "history",
        [
            ("packtrain history", "the last transfers"),
            ("packtrain history last", "all about the last one; or about one by its id"),
            ("packtrain history --since 7d --failed", "those of a week that failed"),
        ],
    ),
    (
        "predict",
        [
            ("packtrain predict --from history --to dtn.example", "from past transfers"),
            ("packtrain predict --from samples.csv", "from measurements"),
            ("packtrain predict --from samples.csv --plot curve.svg", "with a plot"),
        ],
    ),
    (
        "demo",
        [
            ("packtrain demo", "a transfer that is interrupted and damaged"),
            ("packtrain demo --wan", "several programs over a long path"),
            ("packtrain demo --to user@host", "your own path"),
        ],
    ),
    (
        "sim run",
        [
            ("packtrain sim run scenario.toml", "run a scenario"),
            ("packtrain sim run scenario.toml --json", "for a program"),
            ("packtrain sim run scenario.toml --seed 7", "with another seed"),
        ],
    ),
    (
        "sim reproduce",
        [
            ("packtrain sim list", "the experiments of this program"),
            ("packtrain sim reproduce udt-2003-rtt", "play one"),
            ("packtrain sim reproduce udt-2003-rtt --out results", "and keep its table and plot"),
        ],
    ),
    (
        "sim list",
        [
            ("packtrain sim list", "the experiments of this program"),
            ("packtrain sim list --json", "the same, for a program"),
            ("packtrain sim reproduce udt-2003-rtt", "play one of them"),
        ],
    ),
    (
        "sim bench",
        [
            ("packtrain sim bench", "measure how fast this machine simulates"),
            ("packtrain sim bench --json", "the same, for a program"),
            ("packtrain sim run scenario.toml", "run a scenario of your own"),
        ],
    ),
    (
        "sim signatures",
        [
            ("packtrain sim signatures --list", "the loss models, with their causes"),
            ("packtrain sim signatures --families trained --out data.jsonl.gz", "write windows"),
            ("packtrain sim signatures --per-family 100 --seed 7", "more of them, another seed"),
        ],
    ),
    (
        "emulate exec",
        [
            (
                "packtrain emulate exec near -- ping -c 3 10.77.0.2",
                "on a host of a running emulate",
            ),
            ("packtrain emulate exec far -- ss -tin", "look at the connections of the other one"),
            ("packtrain emulate exec far --pid 31268 -- sh", "if several emulates run"),
        ],
    ),
    (
        "emulate",
        [
            (
                "packtrain emulate --rate 1gbit --rtt 100ms -- sh",
                "a shell on a host behind a long path",
            ),
            (
                "packtrain emulate --rate 100mbit --rtt 40ms --far 'iperf3 -s' -- iperf3 -c 10.77.0.2",
                "measure another program",
            ),
            (
                "packtrain emulate --rate 1gbit --rtt 20ms --loss 1e-3 -- sh",
                "a path that loses packets",
            ),
        ],
    ),
    (
        "loss",
        [
            ("packtrain loss classify receiver.pcap.gz", "say what lost the packets of a capture"),
            ("packtrain loss classify signatures.txt", "one signature a line"),
            ("packtrain loss train data.jsonl.gz --out model.json", "fit a model of your own"),
        ],
    ),
    (
        "loss train",
        [
            ("packtrain sim signatures --out data.jsonl.gz", "make labelled windows"),
            ("packtrain loss train data.jsonl.gz --out model.json", "fit a model to them"),
            ("packtrain loss classify lines.txt --model model.json", "use it"),
        ],
    ),
    (
        "loss classify",
        [
            ("packtrain loss classify signatures.txt", "one signature a line"),
            ("packtrain loss classify receiver.pcap.gz", "a capture at the receiver"),
            ("packtrain loss classify connection.qlog --json", "the log of a QUIC connection"),
        ],
    ),
    (
        "forecast",
        [
            ("packtrain forecast here.example dtn.example", "from past transfers"),
            (
                "packtrain forecast a b --perfsonar archive.json --explain",
                "from an archive of perfSONAR",
            ),
            ("packtrain forecast here.example dtn.example --json", "for a program"),
        ],
    ),
    (
        "route",
        [
            ("packtrain route --matrix net.csv --from ucsb", "to all hosts"),
            ("packtrain route --matrix net.csv --from ucsb --to uiuc --json", "to one host"),
            ("packtrain route --matrix net.csv --from ucsb --dot", "as a graph"),
        ],
    ),
    (
        "key",
        [
            ("packtrain key show", "the line for authorized_keys at a server"),
            ("packtrain key show --json", "the same, for a program"),
            ("packtrain key forget server.example.org", "after the server got a new key"),
        ],
    ),
    (
        "key show",
        [
            ("packtrain key show", "the line for authorized_keys at a server"),
            ("packtrain key show --json", "the same, for a program"),
            ("packtrain key show > laptop.pub", "in a file, to send it to the server's owner"),
        ],
    ),
    (
        "key forget",
        [
            ("packtrain key forget server.example.org", "after the server got a new key"),
            ("packtrain key forget server.example.org:7900", "a server on another port"),
            ("packtrain key forget '[2001:db8::7]:7876'", "a server named by its address"),
        ],
    ),
    (
        "config show",
        [
            ("packtrain config show", "which values are set, where, and which win"),
            ("packtrain config show --json", "the same, for a program"),
            ("PACKTRAIN_RATE=500mbit packtrain config show", "with a variable"),
        ],
    ),
    (
        "config",
        [
            ("packtrain config show", "which values are set, where, and which win"),
            ("packtrain config show --json", "the same, for a program"),
            ("PACKTRAIN_RATE=500mbit packtrain config show", "with a variable"),
        ],
    ),
    (
        "completions",
        [
            ("packtrain completions bash", "print them for bash"),
            (
                "packtrain completions fish > ~/.config/fish/completions/packtrain.fish",
                "install them for fish",
            ),
            ("packtrain completions zsh > ~/.zfunc/_packtrain", "install them for zsh"),
        ],
    ),
    (
        "man",
        [
            ("packtrain man --out man", "write all pages to a directory"),
            ("packtrain man --out ~/.local/share/man/man1", "install them"),
            ("packtrain man --markdown --out docs", "the reference as one page of Markdown"),
        ],
    ),
];

/// Adds the examples, and the short form of each option's help.
pub(super) fn add(command: Command) -> Command {
    add_to(command, "")
}

fn add_to(command: Command, path: &str) -> Command {
    let mut command = command.mut_args(|arg| {
        let Some(all) = arg.get_help().map(ToString::to_string) else { return arg };
        match first_sentence(&all) {
            Some(first) if arg.get_long_help().is_none() => {
                arg.help(first.to_owned()).long_help(all)
            }
            _ => arg,
        }
    });
    if let Some((_, examples)) = EXAMPLES.iter().find(|(name, _)| *name == path) {
        let text = with_examples(&command, examples);
        command = command.after_long_help(text);
    }
    command.mut_subcommands(|sub| {
        let name = sub.get_name();
        let path = if path.is_empty() { name.to_owned() } else { format!("{path} {name}") };
        add_to(sub, &path)
    })
}

fn with_examples(command: &Command, examples: &[(&str, &str)]) -> String {
    let mut text = command.get_after_help().map(|help| format!("{help}\n\n")).unwrap_or_default();
    text.push_str("Examples:");
    for (line, what) in examples {
        text.push_str(&format!("\n  # {what}\n  {line}"));
    }
    text
}

/// The first of several sentences, without its full stop.
fn first_sentence(text: &str) -> Option<&str> {
    let mut ends = text.match_indices(". ").map(|(at, _)| at);
    // `e.g. x` and the like do not end a sentence; a capital letter after it, or a name, does.
    ends.find(|&at| text[at + 2..].starts_with(|c: char| c.is_uppercase() || c == '=' || c == '`'))
        .map(|at| &text[..at])
}

#[cfg(test)]
mod tests {
    use super::super::{bare, documents_tests::split};
    use super::*;

    #[test]
    fn the_first_sentence_is_short_help() {
        let first = "Resume an interrupted copy; this is the default";
        assert_eq!(first_sentence(&format!("{first}. =trust uses the chunks.")), Some(first));
        assert_eq!(first_sentence("One sentence only."), None);
        assert_eq!(first_sentence("Such as 1.5 or i.e. this"), None);
    }

    #[test]
    fn every_example_is_understood() {
        for (name, examples) in EXAMPLES {
            for (line, _) in examples {
                for words in split(line) {
                    let words = words.into_iter().skip_while(|word| word.contains('='));
                    let words: Vec<_> = words.collect();
                    if words.first().is_none_or(|word| word != "packtrain") {
                        continue;
                    }
                    if let Err(error) = bare().try_get_matches_from(words) {
                        panic!("{name}: {line}: {error}");
                    }
                }
            }
        }
    }

    #[test]
    fn every_command_has_short_and_long_help_with_examples() {
        let mut open = vec![(String::new(), bare())];
        while let Some((path, mut command)) = open.pop() {
            let (short, long) = (command.render_help(), command.render_long_help());
            let subs: Vec<_> = command.get_subcommands().filter(|sub| !sub.is_hide_set()).collect();
            let (short, long) = (short.to_string(), long.to_string());
            assert!(!short.contains("Examples:"), "{path}");
            let lists = subs.iter().any(|sub| sub.get_name() != "help");
            let needs = !lists || EXAMPLES.iter().any(|(name, _)| *name == path);
            if needs && !path.is_empty() {
                assert!(long.contains("Examples:\n  # "), "{path}: {long}");
            }
            for sub in subs.into_iter().filter(|sub| sub.get_name() != "help") {
                let name = sub.get_name();
                let deep = if path.is_empty() { name.to_owned() } else { format!("{path} {name}") };
                open.push((deep, sub.clone()));
            }
        }
        let mut cp = bare().find_subcommand("cp").expect("it is there").clone();
        let (short, long) = (cp.render_help().to_string(), cp.render_long_help().to_string());
        let detail = "=trust uses the chunks";
        assert!(!short.contains(detail) && long.contains(detail), "{short}");
        for place in ["user@host:path", "pt://", "https://", "s3://", "udt4://", " - "] {
            assert!(short.contains(place) && long.contains(place), "{place}");
        }
    }
}
