//! Runs the program: its own controller in the simulator and over real sockets.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// The program, without the configuration of the user who runs the tests.
fn program(home: &str) -> Command {
    let home = format!("{}/{home}-{}", env!("CARGO_TARGET_TMPDIR"), std::process::id());
    std::fs::create_dir_all(&home).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_own-controller"));
    command.env_clear().env("HOME", &home).current_dir(home);
    command
}

/// The standard output of a command that succeeds.
fn output(command: &mut Command) -> String {
    let out = command.output().unwrap();
    let (text, errors) =
        (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{command:?}\n{text}\n{errors}");
    text.into_owned()
}

/// The number after the last `"name":` of JSON.
fn number(json: &str, name: &str) -> f64 {
    let (_, rest) = json.rsplit_once(&format!("\"{name}\":")).expect(name);
    let end = rest.find([',', '}', ']']).unwrap();
    rest[..end].parse().unwrap_or_else(|_| panic!("{name} in {json}"))
}

fn simulated(cc: &str) -> String {
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/mine.toml");
    let set = format!("flow.mine.cc={cc}");
    output(program("sim").args(["sim", "run", scenario, "--json", "--set", &set]))
}

#[test]
fn the_simulator_runs_the_controller() {
    let json = simulated("aimd");
    let done = json.lines().last().unwrap();
    assert!(done.contains("\"cc\":\"aimd\""), "{done}");
    let (goodput, cuts) = (number(done, "goodput_bps"), number(done, "loss_events"));
    assert!(goodput > 18e6 && goodput < 20e6, "{goodput} bit/s of 20 Mbit/s");
    // A packet each round trip from half of the window on: about one cut in four seconds.
    assert!((8.0..=20.0).contains(&cuts), "{cuts} cuts in 60 s");
    // The argument of the name reaches the controller: the sawtooth is steeper.
    let steeper = simulated("aimd:4");
    let more = number(steeper.lines().last().unwrap(), "loss_events");
    assert!(more > 2.0 * cuts, "{more} cuts with four packets a round trip, {cuts} with one");
}

#[test]
fn a_bad_argument_is_refused_and_the_name_is_known() {
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/mine.toml");
    for (cc, why) in [("aimd:0", "does not take the argument"), ("aimed", "did you mean `aimd`")] {
        let set = format!("flow.mine.cc={cc}");
        let out = program("bad").args(["sim", "run", scenario, "--set", &set]).output().unwrap();
        let errors = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{errors}");
        assert!(errors.contains(why), "{errors}");
    }
}

/// A server that ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_flow_over_real_sockets_uses_the_controller() {
    let mut command = program("perf");
    command.args([
        "perf",
        "server",
        "--listen",
        "127.0.0.1:0",
        "--ticket-file",
        "ticket",
        "--json",
    ]);
    let mut server = Server(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(server.0.stdout.take().unwrap()).lines();
    let listening = lines.next().unwrap().unwrap();
    let (_, address) = listening.split_once("\"address\":\"").expect(&listening);
    let address = address.split('"').next().unwrap();
    let common = ["--ticket", "@ticket", "--transport", "native", "--seconds", "1", "--json"];
    let json = output(
        program("perf").args(["perf", "client", address]).args(common).args(["--cc", "aimd"]),
    );
    let done = json.lines().last().unwrap();
    assert!(number(done, "bytes") > 0.0, "{done}");
}
