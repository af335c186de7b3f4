//! The remote address of one lane: probes the candidate addresses, and follows an address change (a
//! NAT rebinding) after the new address has answered a challenge.

use std::net::SocketAddr;

use packtrain_units::{Duration, Time};

use crate::config::limits::CANDIDATES;
use crate::secrets::Secrets;

/// Gap between the first probes; it doubles after each probe up to `MAX_PROBE_GAP`.
const FIRST_PROBE_GAP: Duration = Duration::from_millis(20);
const MAX_PROBE_GAP: Duration = Duration::from_millis(500);
/// First gap between challenges, which doubles each time, and how often one is sent.
const CHALLENGE_GAP: Duration = Duration::from_millis(250);
const CHALLENGE_TRIES: u32 = 6;
/// Time for which the answer to a challenge counts. The path may be long, and packets from the new
/// address do not begin another challenge until then.
const CHALLENGE_LIFE: Duration = Duration::from_secs(10);
/// Number of recent probes that are kept.
const PROBES: usize = 8;

/// The path of one lane.
#[derive(Debug)]
pub(crate) struct Path {
    remote: Option<SocketAddr>,
    validated: bool,
    candidates: Vec<SocketAddr>,
    /// Whether the peer is known to be at the candidates.
    known: bool,
    /// A ring of the newest probes.
    probes: Vec<Probe>,
    /// Probes sent so far.
    sent: usize,
    tries: usize,
    next_at: Time,
    challenge: Option<Challenge>,
}

/// Pings that left together. A pong shows that the peer is at the address that this ping went to (RFC
/// 9000 section 8.2.3), wherever it comes from. So no address may learn the token of another one.
#[derive(Clone, Debug)]
struct Probe {
    at: Time,
    /// Each address, and the token of the ping to it.
    targets: Vec<(SocketAddr, u64)>,
    /// Number of further pings to the last address, with the tokens that follow.
    extra: u64,
}

impl Probe {
    /// The address that the ping with this token went to.
    fn target(&self, token: u64) -> Option<SocketAddr> {
        let (last, others) = self.targets.split_last()?;
        let is_last = token.wrapping_sub(last.1) <= self.extra;
        let other = || others.iter().find(|(_, sent)| *sent == token);
        Some(if is_last { last.0 } else { other()?.0 })
    }
}

#[derive(Clone, Copy, Debug)]
struct Challenge {
    to: SocketAddr,
    token: u64,
    since: Time,
    tries: u32,
    /// When it is sent again, if it is.
    next_at: Option<Time>,
}

impl Challenge {
    fn is_open(&self, now: Time) -> bool {
        now < self.since + CHALLENGE_LIFE
    }
}

/// The meaning of a `Pong`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The first answer on this lane: its round trip, and where data may go from now on.
    Validated(Duration, SocketAddr),
    /// The answer to a probe; with its round trip.
    Alive(Duration),
    /// The peer proved its new address.
    Moved(SocketAddr),
    /// An unknown token.
    Unknown,
}

impl Path {
    /// `known`: the peer is known to be at all of the candidates.
    pub(crate) fn new(mut candidates: Vec<SocketAddr>, known: bool, now: Time) -> Self {
        candidates.truncate(CANDIDATES);
        Self {
            remote: None,
            validated: false,
            candidates,
            known,
            probes: Vec::new(),
            sent: 0,
            tries: 0,
            next_at: now,
            challenge: None,
        }
    }

    /// Destination of data and reports, once validated.
    pub(crate) fn remote(&self) -> Option<SocketAddr> {
        self.remote.filter(|_| self.validated)
    }

    /// The address that the peer was last seen at, else the first candidate. Not yet validated.
    pub(crate) fn last_known(&self) -> Option<SocketAddr> {
        self.remote.or(self.candidates.first().copied())
    }

    pub(crate) fn add(&mut self, address: SocketAddr) {
        if !self.candidates.contains(&address) && self.candidates.len() < CANDIDATES {
            self.candidates.push(address);
            self.known = false;
            self.next_at = Time::ZERO;
            self.tries = 0;
        }
    }

    /// An authentic packet arrived from `from`; `newest` if its number is the largest so far. Tells
    /// whether data may be sent there from now on, because the peer was known to be there.
    pub(crate) fn on_packet(
        &mut self,
        now: Time,
        from: SocketAddr,
        newest: bool,
        secrets: &mut Secrets,
    ) -> bool {
        if self.known && !self.validated && self.candidates.contains(&from) {
            (self.remote, self.validated) = (Some(from), true);
            return true;
        }
        match self.remote {
            None => {
                self.remote = Some(from);
                self.next_at = now;
                self.tries = 0;
            }
            Some(remote) if self.validated && newest && remote != from => {
                if self.challenge.is_none_or(|c| c.to != from || !c.is_open(now)) {
                    let (to, token, next_at) = (from, secrets.token(), Some(now));
                    self.challenge = Some(Challenge { to, token, since: now, tries: 0, next_at });
                }
            }
            Some(_) => {}
        }
        false
    }

    /// A `Pong` with `token` arrived.
    pub(crate) fn on_pong(&mut self, now: Time, token: u64) -> Answer {
        if let Some(challenge) = self.challenge
            && challenge.token == token
            && challenge.is_open(now)
        {
            self.challenge = None;
            self.remote = Some(challenge.to);
            return Answer::Moved(challenge.to);
        }
        let Some((to, rtt)) = self.find(token).map(|(probe, to)| (to, now.since(probe.at))) else {
            return Answer::Unknown;
        };
        if self.validated {
            return Answer::Alive(rtt);
        }
        (self.remote, self.validated) = (Some(to), true);
        Answer::Validated(rtt, to)
    }

    /// The probe with this token, and where its ping went. Those at the very beginning of a simulation
    /// do not count: the committed results of experiments have flows that validate with their second
    /// ping.
    fn find(&self, token: u64) -> Option<(&Probe, SocketAddr)> {
        let mut sent = self.probes.iter().filter(|probe| probe.at != Time::ZERO);
        sent.find_map(|probe| Some((probe, probe.target(token)?)))
    }

    /// The first token of the pings that this one left with.
    pub(crate) fn first_token(&self, token: u64) -> Option<u64> {
        self.find(token).and_then(|(probe, _)| Some(probe.targets.first()?.1))
    }

    /// Pings leave now for these addresses, `extra` further ones for the last of them. Returns the
    /// token for each address; the further ones follow the last token.
    pub(crate) fn on_pings(
        &mut self,
        now: Time,
        targets: &[SocketAddr],
        extra: u64,
        secrets: &mut Secrets,
    ) -> Vec<u64> {
        let tokens = secrets.tokens(targets.len());
        let targets = targets.iter().copied().zip(tokens.iter().copied()).collect();
        let probe = Probe { at: now, targets, extra };
        if self.probes.len() < PROBES {
            self.probes.push(probe);
        } else {
            self.probes[self.sent % PROBES] = probe;
        }
        self.sent += 1;
        tokens
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let probing = !self.validated && (self.remote.is_some() || !self.candidates.is_empty());
        let probe = probing.then_some(self.next_at);
        self.challenge.and_then(|c| c.next_at).into_iter().chain(probe).min()
    }

    /// Whether the addresses of the peer are to be pinged now because none has answered yet.
    pub(crate) fn probes_at(&self, now: Time) -> bool {
        !self.validated && now >= self.next_at
    }

    /// Whether the addresses are to be pinged for the first time, or for the first time since the
    /// peer was heard from; and from where it was heard.
    pub(crate) fn first_probes(&self) -> Option<Option<SocketAddr>> {
        (!self.validated && self.tries == 0).then_some(self.remote)
    }

    /// The addresses that the peer may have.
    pub(crate) fn targets(&self) -> Vec<SocketAddr> {
        let heard = self.remote.filter(|r| !self.candidates.contains(r));
        self.candidates.iter().copied().chain(heard).collect()
    }

    /// The pings due now: destinations and tokens.
    pub(crate) fn poll(&mut self, now: Time, secrets: &mut Secrets) -> Vec<(SocketAddr, u64)> {
        let mut pings = Vec::new();
        if !self.validated && now >= self.next_at {
            let gap = (FIRST_PROBE_GAP * (1 << self.tries.min(5))).min(MAX_PROBE_GAP);
            let targets = self.targets();
            if !targets.is_empty() {
                let tokens = self.on_pings(now, &targets, 0, secrets);
                self.tries += 1;
                pings.extend(targets.into_iter().zip(tokens));
            }
            self.next_at = now + gap;
        }
        if let Some(challenge) = &mut self.challenge
            && challenge.next_at.is_some_and(|at| now >= at)
        {
            pings.push((challenge.to, challenge.token));
            let gap = CHALLENGE_GAP * (1 << challenge.tries);
            challenge.tries += 1;
            challenge.next_at = (challenge.tries < CHALLENGE_TRIES).then(|| now + gap);
        }
        pings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn the_first_candidate_to_answer_wins() {
        let (mut secrets, now) = (Secrets::new(1), Time::from_nanos(1));
        let mut path = Path::new(vec![addr(1), addr(2)], false, now);
        let pings = path.poll(now, &mut secrets);
        assert_eq!(pings.len(), 2);
        path.on_packet(now, addr(1), true, &mut secrets);
        assert_eq!(path.remote(), None, "heard is not validated");
        let later = now + Duration::from_millis(5);
        assert_eq!(path.on_pong(later, pings[1].1.wrapping_add(1)), Answer::Unknown);
        let answer = path.on_pong(later, pings[1].1);
        assert_eq!(answer, Answer::Validated(Duration::from_millis(5), addr(2)));
        assert_eq!(path.remote(), Some(addr(2)));
        assert_eq!(path.poll_timeout(), None);
    }

    #[test]
    fn a_peer_at_one_address_cannot_answer_for_another() {
        let (mut secrets, now) = (Secrets::new(1), Time::from_nanos(1));
        let mut path = Path::new(vec![addr(1)], false, now);
        // A packet with another address as its forged source.
        path.on_packet(now, addr(2), true, &mut secrets);
        for extra in [0, 63] {
            let targets = [addr(2), addr(1)];
            let tokens = path.on_pings(now, &targets, extra, &mut secrets);
            for k in 1..=1_000 {
                for guess in [tokens[1].wrapping_sub(k), tokens[1].wrapping_add(extra + k)] {
                    assert_eq!(path.on_pong(now, guess), Answer::Unknown, "{k} from its own");
                }
            }
        }
        assert_eq!(path.remote(), None);
        let pings = path.poll(now, &mut secrets);
        let own = pings.iter().find(|(to, _)| *to == addr(1)).expect("a ping to each").1;
        assert_eq!(path.on_pong(now, own), Answer::Validated(Duration::ZERO, addr(1)));
    }

    #[test]
    fn a_packet_opens_a_lane_only_where_the_peer_is_known_to_be() {
        let (mut secrets, now) = (Secrets::new(1), Time::from_nanos(1));
        let opens = |known, from, secrets: &mut Secrets| {
            let mut path = Path::new(vec![addr(1), addr(2)], known, now);
            (path.on_packet(now, addr(from), true, secrets), path.remote())
        };
        assert_eq!(opens(true, 2, &mut secrets), (true, Some(addr(2))));
        assert_eq!(opens(true, 3, &mut secrets), (false, None));
        assert_eq!(opens(false, 2, &mut secrets), (false, None));
        // An address that was learned later has proved nothing, and neither have the others then.
        let mut path = Path::new(vec![addr(1)], true, now);
        path.add(addr(3));
        assert!(!path.on_packet(now, addr(3), true, &mut secrets));
        assert!(!path.on_packet(now, addr(1), true, &mut secrets));
    }

    #[test]
    fn a_new_address_is_challenged_before_the_move() {
        let (mut secrets, now) = (Secrets::new(1), Time::from_nanos(1));
        let mut path = Path::new(vec![addr(1)], false, now);
        let token = path.poll(now, &mut secrets)[0].1;
        path.on_pong(now, token);
        path.on_packet(now, addr(9), false, &mut secrets);
        assert_eq!(path.poll_timeout(), None, "an old packet proves nothing");
        path.on_packet(now, addr(9), true, &mut secrets);
        let challenge = path.poll(now, &mut secrets);
        assert_eq!((challenge[0].0, path.remote()), (addr(9), Some(addr(1))));
        assert_eq!(path.on_pong(now, 12345), Answer::Unknown);
        assert_eq!(path.on_pong(now, challenge[0].1), Answer::Moved(addr(9)));
        assert_eq!(path.remote(), Some(addr(9)));
    }

    #[test]
    fn a_challenge_is_answered_late_on_a_long_path() {
        let (mut secrets, now) = (Secrets::new(1), Time::from_nanos(1));
        let mut path = Path::new(vec![addr(1)], false, now);
        let token = path.poll(now, &mut secrets)[0].1;
        path.on_pong(now, token);
        let seconds = |s| now + Duration::from_secs(s);
        // Packets come from the new address all the time.
        let mut challenges = Vec::new();
        for ms in 0..3_000 {
            let at = now + Duration::from_millis(ms);
            path.on_packet(at, addr(9), true, &mut secrets);
            challenges.extend(path.poll(at, &mut secrets));
        }
        assert!(challenges.len() <= CHALLENGE_TRIES as usize, "{challenges:?}");
        let mut late = Path { challenge: path.challenge, ..Path::new(vec![addr(1)], false, now) };
        assert_eq!(path.on_pong(seconds(3), challenges[0].1), Answer::Moved(addr(9)));
        assert_eq!(late.on_pong(seconds(11), challenges[0].1), Answer::Unknown);
        // An address that has never answered is challenged again.
        (late.remote, late.validated) = (Some(addr(1)), true);
        while late.poll_timeout().is_some_and(|at| at <= seconds(11)) {
            late.poll(seconds(11), &mut secrets);
        }
        late.on_packet(seconds(11), addr(9), true, &mut secrets);
        let again = late.poll(seconds(11), &mut secrets);
        assert_eq!(late.on_pong(seconds(12), again[0].1), Answer::Moved(addr(9)));
    }
}
