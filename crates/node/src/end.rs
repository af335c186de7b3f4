//! One end of a transfer that the other end of a control connection asked for: what ssh, a server
//! and a local copy have in common.

use std::path::PathBuf;

use packtrain_io::tcp::tune::check_congestion;
use packtrain_transfer::message::{Message, Open, Opened, Role};
use packtrain_transfer::{Failure, FailureKind, Outcome};
use packtrain_units::DataRate;

use crate::api::{NodeError, PortRange, TransportChoice};
use crate::ceilings::Ceilings;
use crate::config::{self, Dirs, Policy};
use crate::control::Control;
use crate::handshake::{self, Ask};
use crate::perf;
use crate::session::{Observer, Stop};
use crate::sink::{self, Destination, SinkSetup};
use crate::source::{self, SourceSetup, SourceSpec};
use crate::transports::{Hints, MOST_STREAMS, Moved, Plan, SinkTransports, SourceTransports};

/// What a called end allows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Allowed {
    /// Everything lies below this directory.
    pub(crate) root: Option<PathBuf>,
    /// Nobody writes.
    pub(crate) read_only: bool,
    /// Only perf tests.
    pub(crate) perf_only: bool,
    /// Ports for data.
    pub(crate) ports: Option<PortRange>,
    /// Rate, streams and transports.
    pub(crate) ceilings: Ceilings,
}

impl Allowed {
    /// What the site's policy allows at this end, whoever asks.
    pub(crate) fn by_policy() -> Result<Self, NodeError> {
        // Without a home directory there is still a site.
        let dirs = Dirs::from_env().unwrap_or_else(|_| Dirs {
            config: PathBuf::new(),
            state: PathBuf::new(),
            site: PathBuf::from(config::SITE),
        });
        let policy =
            Policy::load(&dirs).map_err(|e| NodeError::new(FailureKind::Usage, e.to_string()))?;
        let ceilings = Ceilings {
            rate_bps: policy.max_rate.map(DataRate::as_bps),
            transports: policy.transports,
            streams: policy.max_streams,
        };
        Ok(Self { ceilings: ceilings.checked(), ..Self::default() })
    }
}

impl Allowed {
    /// The same with a ceiling of the rate, or the lower one where there is one.
    pub(crate) fn with_rate(mut self, rate: Option<DataRate>) -> Self {
        let rates = [rate.map(DataRate::as_bps), self.ceilings.rate_bps];
        self.ceilings.rate_bps = rates.into_iter().flatten().min();
        self
    }

    /// Within one process, or to a server of another kind, no transport of ours is used.
    pub(crate) fn any_transport(mut self) -> Self {
        self.ceilings.transports = None;
        self
    }
}

impl Ask {
    fn transport(&self) -> TransportChoice {
        match self.choice {
            1 => TransportChoice::Native,
            2 => TransportChoice::Tcp,
            3 => TransportChoice::Pipe,
            4 => TransportChoice::Udt,
            5 => TransportChoice::Fobs,
            6 => TransportChoice::Sabul,
            _ => TransportChoice::Auto,
        }
    }

    /// How transports are to be set up at an end with these hints, where the other end has the
    /// limits `peer` and the user asked for a rate.
    pub(crate) fn plan(
        &self,
        hints: Hints,
        allowed: &Allowed,
        peer: &Ceilings,
        rate_bps: Option<u64>,
    ) -> Plan {
        let choice = self.transport();
        let ceilings = allowed.ceilings.and(peer);
        let rate = allowed.ceilings.rate(peer, rate_bps);
        let asked = self.ports.filter(|(first, last)| first <= last && *first > 0);
        let asked = asked.map(|(first, last)| PortRange { first, last });
        Plan {
            choice,
            cc: self.cc.clone(),
            background: self.background,
            // Zero leaves the number to the source.
            streams: (self.streams > 0).then_some(self.streams),
            most_streams: ceilings.streams.unwrap_or(MOST_STREAMS).clamp(1, MOST_STREAMS),
            earlier: Vec::new(),
            kernel: self.more.kernel(),
            allowed: ceilings.transports,
            rate_bps: rate.map(|(rate, _)| rate),
            rate_by: rate.map(|(_, by)| by),
            ports: allowed.ports.or(asked),
            via: None,
            ways: None,
            relayed: self.path.relayed,
            hints,
        }
    }
}

/// Answers one caller and does what it asks.
pub(crate) fn serve(
    control: Control,
    mut hints: Hints,
    admit: impl FnOnce(&Ask) -> Result<Allowed, Failure>,
    observer: &dyn Observer,
    stop: Stop,
) -> Result<(Outcome, Moved), Failure> {
    let open = handshake::answer(&control, &stop)?;
    let refuse = |failure: Failure| {
        control.tx.send(&Message::Refused(failure.clone()));
        failure
    };
    let admitted = Ask::decode(&open.channel).and_then(|ask| {
        let allowed = admit(&ask)?;
        check(&open, &ask, &allowed)?;
        check_transports(&ask, &allowed.ceilings, &ask.ceilings)?;
        Ok((ask, allowed))
    });
    let (ask, allowed) = admitted.map_err(refuse)?;
    if !ask.peer.is_empty() {
        hints.peer.clone_from(&ask.peer);
    }
    let far = hints.peer.first().map(|address| address.to_canonical().to_string());
    let mut plan = ask.plan(hints, &allowed, &ask.ceilings, open.options.rate_bps);
    if let (Role::Source, Some(far), None) = (open.role, far, plan.streams) {
        plan.earlier = observer.earlier(&far);
    }
    observer.asked(&open, ask.perf.as_ref().map(|test| test.parallel), plan.choice.name());
    control.tx.send(&Message::Opened(Opened { channel: allowed.ceilings.encode() }));
    if let Some(test) = &ask.perf {
        let empty = Outcome { summary: Default::default(), failure: None, failed: Vec::new() };
        let parallel = allowed.ceilings.and(&ask.ceilings).streams;
        let done = perf::called(control, plan, open.role, (test, parallel), stop);
        return done.map(|moved| (empty, moved));
    }
    let tx = control.tx.clone();
    let ended = match open.role {
        Role::Sink => {
            let transports = SinkTransports::new(plan, control.tx.clone());
            let destination = Destination {
                path: open.paths.into_iter().next().unwrap_or_default(),
                confined: allowed.root.clone(),
                sources: ask.sources as usize,
                names: open.sources,
            };
            let options = open.options;
            sink::run(SinkSetup { control, options, destination, observer, transports, stop })
        }
        Role::Source => {
            let transports = SourceTransports::new(plan);
            let spec = match &allowed.root {
                Some(root) => SourceSpec::Confined(root.clone(), open.paths),
                None => SourceSpec::Paths(open.paths),
            };
            let options = open.options;
            source::run(SourceSetup { control, options, spec, observer, transports, stop })
        }
    };
    tx.close();
    Ok(ended)
}

/// What was asked for must be allowed by both policies: this is told, rather than tried in vain.
fn check_transports(ask: &Ask, own: &Ceilings, caller: &Ceilings) -> Result<(), Failure> {
    let choice = ask.transport();
    if choice.fits(own.transports.as_ref()) && choice.fits(own.and(caller).transports.as_ref()) {
        return Ok(());
    }
    let list = |ceilings: &Ceilings| match &ceilings.transports {
        Some(names) => names.join(", "),
        None => "all".to_owned(),
    };
    let text = match choice {
        TransportChoice::Auto => format!(
            "policy leaves no transport for --transport auto: the server's allows {}, the \
             caller's {}",
            list(own),
            list(caller)
        ),
        choice => format!(
            "the server's policy does not allow --transport {}: it allows {}",
            choice.name(),
            list(own)
        ),
    };
    Err(Failure::new(FailureKind::NotAuthorised, text))
}

fn check(open: &Open, ask: &Ask, allowed: &Allowed) -> Result<(), Failure> {
    let denied = |text: &str| Err(Failure::new(FailureKind::NotAuthorised, text));
    if let (Some(name), Role::Source) = (&ask.more.tcp_cc, open.role) {
        check_congestion(name).map_err(|e| Failure::new(FailureKind::Usage, e.to_string()))?;
    }
    if allowed.perf_only && ask.perf.is_none() {
        return denied("this server only measures: use packtrain perf client");
    }
    if ask.perf.is_some() {
        return Ok(());
    }
    let writes = open.role == Role::Sink && !open.options.verify && !open.options.dry_run;
    if allowed.read_only && writes {
        return denied("this key or server is read-only: nothing may be written there");
    }
    if open.paths.is_empty() || (open.role == Role::Sink && open.paths.len() != 1) {
        return Err(Failure::new(FailureKind::Protocol, "the request names no paths"));
    }
    Ok(())
}
