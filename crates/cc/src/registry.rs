//! Controllers by name: those of this crate, and those that a program registers.

use parking_lot::RwLock;

use packtrain_units::{DataRate, ParseError, parse_rate};

use crate::bbr::Bbr;
use crate::config::{ControllerConfig, Start};
use crate::cubic::Cubic;
use crate::fixed::Fixed;
use crate::fobs::{Fobs, Options};
use crate::highspeed::HighSpeed;
use crate::interface::CongestionController;
use crate::native::Native;
use crate::reno::Reno;
use crate::sabul::{self, Sabul};
use crate::scalable::Scalable;
use crate::udt::{AsPrinted, Udt, Variant};

/// Why no controller was built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// No controller has this name.
    #[error("there is no controller `{0}`; known: {list}", list = names().join(", "))]
    Unknown(String),
    /// The controller needs an argument.
    #[error("the controller `{name}` needs an argument: write `{example}`")]
    NoArgument {
        /// Its name.
        name: &'static str,
        /// A valid example.
        example: &'static str,
    },
    /// The controller takes no argument, or the argument is invalid for it.
    #[error("the controller `{name}` does not take the argument `{argument}`")]
    Argument {
        /// Its name.
        name: &'static str,
        /// The argument.
        argument: String,
    },
    /// The argument could not be parsed.
    #[error(transparent)]
    Parse(#[from] ParseError),
}

/// Makes a registered controller. The first argument is the text after the colon in the name that
/// the user typed, if there is one. It comes from a command line, a file or a peer: refuse it with
/// [`BuildError::Argument`] instead of a panic.
pub type Constructor = fn(
    Option<&str>,
    &ControllerConfig,
    &Start,
) -> Result<Box<dyn CongestionController>, BuildError>;

/// Why a controller was not registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// A controller has this name already.
    #[error("there is a controller `{0}` already")]
    Exists(&'static str),
    /// The name is not one.
    #[error("`{0}` cannot name a controller: use 1 to {MAX_NAME} of a-z, 0-9 and `-`")]
    Name(&'static str),
}

/// Longest name of a registered controller, in bytes.
const MAX_NAME: usize = 32;

/// The controllers that this process registered, in that order.
static REGISTERED: RwLock<Vec<(&'static str, Constructor)>> = RwLock::new(Vec::new());

/// Makes `build` and `names` of this process know the controller `name`, which `constructor` makes.
/// A program calls this at its start, before its first flow. A registration holds until the process
/// ends: flows find their controller by its name at any time.
///
/// # Errors
///
/// Fails if a controller of this crate or a registered one has the name, and if the name is not 1
/// to 32 bytes of `a-z`, `0-9` and `-`.
pub fn register(name: &'static str, constructor: Constructor) -> Result<(), RegisterError> {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(allowed) {
        return Err(RegisterError::Name(name));
    }
    let mut registered = REGISTERED.write();
    let mut known = NAMES.iter().chain(registered.iter().map(|(known, _)| known));
    if known.any(|known| stem(known) == name) {
        return Err(RegisterError::Exists(name));
    }
    registered.push((name, constructor));
    Ok(())
}

/// A name without its argument.
fn stem(name: &str) -> &str {
    name.split_once(':').map_or(name, |(stem, _)| stem)
}

/// The names that `build` accepts; an argument follows a colon. Those of this crate come first, then
/// the registered ones.
pub fn names() -> Vec<&'static str> {
    let registered = REGISTERED.read();
    NAMES.iter().copied().chain(registered.iter().map(|(name, _)| *name)).collect()
}

/// The controllers of this crate that messages list. `udt:paper+WORD` are only for experiments.
const NAMES: &[&str] = &[
    "native",
    "native:background",
    "fixed:RATE",
    "reno",
    "cubic",
    "highspeed",
    "scalable",
    "bbr",
    "udt",
    "udt:paper",
    "udt:grid",
    "udt:ns2-2003",
    "udt:ns2-2003-grid",
    "udt:udt4",
    "fobs",
    "fobs:window",
    "fobs:rate",
    "fobs:ours",
    "fobs:paper",
    "fobs:blind",
    "sabul",
    "sabul:linear",
    "sabul:step",
    "sabul:multiplicative",
    "sabul:proportional",
    "sabul:reduce",
];

/// The controller called `name`, such as `native` or `fixed:800mbit`.
pub fn build(
    name: &str,
    config: &ControllerConfig,
) -> Result<Box<dyn CongestionController>, BuildError> {
    build_with(name, config, &Start::default())
}

/// The controller called `name` for a sender with the start `start`.
pub fn build_with(
    name: &str,
    config: &ControllerConfig,
    start: &Start,
) -> Result<Box<dyn CongestionController>, BuildError> {
    let (stem, argument) = match name.split_once(':') {
        Some((stem, argument)) => (stem, Some(argument)),
        None => (name, None),
    };
    match (stem, argument) {
        ("native", None) => Ok(Box::new(Native::new(config))),
        ("native", Some("background")) => Ok(Box::new(Native::background(config))),
        ("fixed", None) => Err(BuildError::NoArgument { name: "fixed", example: "fixed:800mbit" }),
        ("fixed", Some(a)) => {
            let rate = parse_rate(a)?;
            if rate == DataRate::ZERO {
                return Err(BuildError::Argument { name: "fixed", argument: a.to_owned() });
            }
            let rate = config.ceiling.map_or(rate, |ceiling| rate.min(ceiling));
            Ok(Box::new(Fixed::new(rate, config.mtu)))
        }
        ("reno", None) => Ok(Box::new(Reno::new(config, start))),
        ("reno", Some("acks")) => Ok(Box::new(Reno::by_acks(config, start))),
        ("cubic", None) => Ok(Box::new(Cubic::new(config, start))),
        ("cubic", Some("rfc")) => Ok(Box::new(Cubic::exact(config, start))),
        ("cubic", Some("no-hystart")) => Ok(Box::new(Cubic::without_hystart(config, start))),
        ("bbr", None) => Ok(Box::new(Bbr::new(config, start))),
        ("highspeed", None) => Ok(Box::new(HighSpeed::new(config, start))),
        ("scalable", None) => Ok(Box::new(Scalable::new(config, start))),
        ("udt", None) => Ok(Box::new(Udt::new(config, Variant::default()))),
        ("udt", Some("ns2-2003-grid")) => {
            Ok(Box::new(Udt::new(config, Variant::Ns2).without_formula_3()))
        }
        ("udt", Some(a)) => match (Variant::named(a), AsPrinted::named(a)) {
            (Some(variant), _) => Ok(Box::new(Udt::new(config, variant))),
            (_, Some(printed)) => Ok(Box::new(Udt::as_printed(config, printed))),
            _ => Err(BuildError::Argument { name: "udt", argument: a.to_owned() }),
        },
        ("fobs", None) => Ok(Box::new(Fobs::new(config, Options::default()))),
        ("fobs", Some(a)) => match Options::parse(a) {
            Some(options) => Ok(Box::new(Fobs::new(config, options))),
            None => Err(BuildError::Argument { name: "fobs", argument: a.to_owned() }),
        },
        ("sabul", words) => match words.map_or(Some(Default::default()), sabul::Variant::named) {
            Some(variant) => Ok(Box::new(Sabul::new(config, variant))),
            None => Err(BuildError::Argument {
                name: "sabul",
                argument: words.unwrap_or_default().to_owned(),
            }),
        },
        (stem, argument) => {
            if let Some(name) = NAMES.iter().find(|known| **known == stem) {
                let argument = argument.unwrap_or_default().to_owned();
                return Err(BuildError::Argument { name, argument });
            }
            // A copy, so that the constructor runs without the lock.
            let found = REGISTERED.read().iter().find(|(known, _)| *known == stem).copied();
            match found {
                Some((_, constructor)) => constructor(argument, config, start),
                None => Err(BuildError::Unknown(name.to_owned())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use packtrain_units::{ByteCount, Time};

    use super::*;

    fn config() -> ControllerConfig {
        ControllerConfig {
            mtu: ByteCount(1472),
            seed: 1,
            now: Time::ZERO,
            ceiling: Some(DataRate::from_mbps(500)),
            rtt: None,
        }
    }

    #[test]
    fn every_controller_follows_the_size_of_datagrams() {
        for name in NAMES {
            let name = name.replace("RATE", "400mbit");
            let mut controller = build(&name, &ControllerConfig { rtt: None, ..config() }).unwrap();
            let quantum = controller.send_quantum().get();
            assert_eq!(quantum % 1472, 0, "{name}");
            let packets = controller.cwnd().get() / 1472;
            controller.set_mtu(ByteCount(8972));
            let grown = controller.send_quantum().get();
            assert!(grown.is_multiple_of(8972) && grown > quantum, "{name}: {quantum} {grown}");
            if ["reno", "cubic", "highspeed", "scalable", "bbr"].contains(&&*name) {
                assert_eq!(controller.cwnd(), ByteCount(packets * 8972), "{name}");
            }
        }
    }

    #[test]
    fn a_registered_controller_is_built_by_its_name() {
        fn build_slow(
            argument: Option<&str>,
            config: &ControllerConfig,
            _: &Start,
        ) -> Result<Box<dyn CongestionController>, BuildError> {
            let name = "test-slow";
            match argument {
                None => Ok(Box::new(Fixed::new(DataRate::from_mbps(1), config.mtu))),
                Some("fast") => Ok(Box::new(Fixed::new(DataRate::from_mbps(9), config.mtu))),
                Some(other) => Err(BuildError::Argument { name, argument: other.to_owned() }),
            }
        }
        let rate = |name: &str| build(name, &config()).map(|built| built.pacing_rate());
        assert!(matches!(rate("test-slow"), Err(BuildError::Unknown(_))));
        register("test-slow", build_slow).unwrap();
        assert_eq!(rate("test-slow"), Ok(Some(DataRate::from_mbps(1))));
        assert_eq!(rate("test-slow:fast"), Ok(Some(DataRate::from_mbps(9))));
        let refused = BuildError::Argument { name: "test-slow", argument: "warp".to_owned() };
        assert_eq!(rate("test-slow:warp"), Err(refused));
        assert_eq!(names().iter().filter(|name| **name == "test-slow").count(), 1);
        assert_eq!(names()[0], "native", "those of this crate come first");

        for taken in ["test-slow", "native", "fixed", "sabul"] {
            assert_eq!(register(taken, build_slow), Err(RegisterError::Exists(taken)));
        }
        for bad in
            ["", "a:b", "With Capitals", "caf\u{e9}", "new\nline", &"x".repeat(33).leak()[..]]
        {
            assert_eq!(register(bad, build_slow), Err(RegisterError::Name(bad)));
        }
    }

    #[test]
    fn builds_by_name_and_says_what_is_wrong() {
        assert_eq!(build("native", &config()).unwrap().name(), "native");
        let fixed = build("fixed:800mbit", &config()).unwrap();
        assert_eq!(fixed.pacing_rate(), Some(DataRate::from_mbps(500)), "the ceiling holds");
        assert!(matches!(build("fixed", &config()), Err(BuildError::NoArgument { .. })));
        assert!(matches!(build("fixed:0mbit", &config()), Err(BuildError::Argument { .. })));
        assert!(matches!(build("fixed:12", &config()), Err(BuildError::Parse(_))));
        assert_eq!(build("udt", &config()).unwrap().name(), "udt:grid");
        for variant in Variant::ALL {
            let name = format!("udt:{}", variant.name());
            assert!(NAMES.contains(&&*name), "{name}");
            assert_eq!(build(&name, &config()).unwrap().name(), name);
        }
        for printed in AsPrinted::ALL {
            let name = printed.name();
            assert_eq!(build(name, &config()).unwrap().name(), name);
            assert_eq!(Variant::of_controller(name), Variant::Paper);
        }
        let unknown = build("udt:paper+speed", &config());
        assert!(matches!(unknown, Err(BuildError::Argument { .. })));
        let name = crate::udt::NS2_WITHOUT_FORMULA_3;
        assert!(NAMES.contains(&name));
        assert_eq!(build(name, &config()).unwrap().name(), name);
        assert_eq!(Variant::of_controller(name), Variant::Ns2);
        assert!(matches!(build("udt:udt5", &config()), Err(BuildError::Argument { .. })));
        let unknown = build("renault", &config()).unwrap_err().to_string();
        assert!(unknown.contains("native"), "{unknown}");
    }
}
