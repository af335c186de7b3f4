//! Controllers by name.

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
use crate::udt::{Udt, Variant};

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

/// The names that `build` accepts; an argument follows a colon.
pub fn names() -> &'static [&'static str] {
    &[
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
    ]
}

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
        ("udt", Some(a)) => match Variant::named(a) {
            Some(variant) => Ok(Box::new(Udt::new(config, variant))),
            None => Err(BuildError::Argument { name: "udt", argument: a.to_owned() }),
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
        (stem, Some(a)) => match names().iter().find(|known| **known == stem) {
            Some(name) => Err(BuildError::Argument { name, argument: a.to_owned() }),
            None => Err(BuildError::Unknown(name.to_owned())),
        },
        _ => Err(BuildError::Unknown(name.to_owned())),
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
        for name in names() {
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
            assert!(names().contains(&&*name), "{name}");
            assert_eq!(build(&name, &config()).unwrap().name(), name);
        }
        assert!(matches!(build("udt:udt5", &config()), Err(BuildError::Argument { .. })));
        let unknown = build("renault", &config()).unwrap_err().to_string();
        assert!(unknown.contains("native"), "{unknown}");
    }
}
