use packtrain_units::Rng;
use proptest::prelude::{ProptestConfig, any, prop_assert, proptest};

use super::*;

const TIMING: Timing = Timing {
    lease: Duration::from_millis(2000),
    rest: Duration::from_millis(100),
    delay: Duration::from_millis(500),
};
const STEP: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug)]
enum What {
    Token(Epoch, u64),
    Claim(Epoch),
    /// Back to who sent it, and to which message.
    Passed(u64, Reply),
    Claimed(Epoch, Reply),
    /// The sender's connection was refused.
    NotPassed(u64),
    NotClaimed(Epoch),
}

#[derive(Clone, Copy, Debug)]
struct Letter {
    at: Time,
    from: usize,
    to: usize,
    what: What,
}

struct World {
    rng: Rng,
    now: Time,
    members: Vec<Option<Clique>>,
    half: Vec<bool>,
    letters: Vec<Letter>,
    /// Share of messages that are lost silently or duplicated.
    loss: f64,
    copies: f64,
    turns: Vec<u32>,
    lives: u64,
}

impl World {
    fn new(seed: u64, members: usize) -> Self {
        let mut world = Self {
            rng: Rng::new(seed),
            now: Time::from_nanos(1),
            members: vec![None; members],
            half: vec![false; members],
            letters: Vec::new(),
            loss: 0.0,
            copies: 0.1,
            turns: vec![0; members],
            lives: 0,
        };
        (0..members).for_each(|n| world.begin(n));
        world
    }

    fn begin(&mut self, n: usize) {
        self.lives += 1;
        // Each start has another author: depots draw a random one.
        let author = self.lives << 8 | n as u64;
        self.members[n] = Some(Clique::new(n, self.members.len(), author, TIMING, self.now));
    }

    fn together(&self, a: usize, b: usize) -> bool {
        self.half[a] == self.half[b]
    }

    fn send(&mut self, from: usize, to: usize, what: What) {
        if self.rng.chance(self.loss) {
            return;
        }
        let copies = 1 + usize::from(self.rng.chance(self.copies));
        for _ in 0..copies {
            let delay = TIMING.delay.mul_f64(self.rng.unit() * 0.9);
            self.letters.push(Letter { at: self.now + delay, from, to, what });
        }
    }

    /// Carries out a member's orders.
    fn carry_out(&mut self, n: usize) {
        while let Some(order) = self.members[n].as_mut().and_then(Clique::poll) {
            let (to, what, not) = match order {
                Order::Probe(_) => {
                    self.turns[n] += 1;
                    continue;
                }
                Order::Pass { to, epoch, serial } => {
                    (to, What::Token(epoch, serial), What::NotPassed(serial))
                }
                Order::Claim { to, epoch } => (to, What::Claim(epoch), What::NotClaimed(epoch)),
            };
            // A refused connection is reported; a message behind a network split is lost, or
            // reported as unreachable.
            if self.members[to].is_none() || !self.together(n, to) {
                self.letters.push(Letter { at: self.now + STEP, from: to, to: n, what: not });
            } else {
                self.send(n, to, what);
            }
        }
    }

    fn deliver(&mut self, letter: Letter) {
        let Letter { from, to, what, .. } = letter;
        let local = matches!(what, What::NotPassed(_) | What::NotClaimed(_));
        if !local && !self.together(from, to) {
            return;
        }
        let now = self.now;
        let Some(member) = self.members[to].as_mut() else { return };
        match what {
            What::Token(epoch, serial) => {
                let reply = member.on_token(now, epoch, serial);
                self.send(to, from, What::Passed(serial, reply));
            }
            What::Claim(epoch) => {
                let reply = member.on_claim(now, epoch);
                self.send(to, from, What::Claimed(epoch, reply));
            }
            What::Passed(serial, reply) => {
                member.on_pass_result(now, from, serial, Sent::Answered(reply));
            }
            What::Claimed(epoch, reply) => {
                member.on_claim_result(now, from, epoch, Sent::Answered(reply));
            }
            What::NotPassed(serial) => member.on_pass_result(now, from, serial, Sent::Unreachable),
            What::NotClaimed(epoch) => member.on_claim_result(now, from, epoch, Sent::Unreachable),
        }
    }

    /// Runs for `span`; `check` is called at each step.
    fn run(&mut self, span: Duration, mut check: impl FnMut(&Self)) {
        let end = self.now + span;
        while self.now < end {
            self.now += STEP;
            let (due, later) = self.letters.iter().partition(|letter| letter.at <= self.now);
            self.letters = later;
            let due: Vec<Letter> = due;
            due.into_iter().for_each(|letter| self.deliver(letter));
            for n in 0..self.members.len() {
                let now = self.now;
                let done = self.rng.chance(0.05);
                if let Some(member) = &mut self.members[n] {
                    if done {
                        member.done(now);
                    }
                    member.on_timeout(now);
                }
                self.carry_out(n);
            }
            check(self);
        }
    }

    fn holders(&self, half: bool) -> usize {
        let all = self.members.iter().zip(&self.half).filter(|(_, own)| **own == half);
        all.filter(|(member, _)| member.as_ref().is_some_and(|m| m.holds(self.now))).count()
    }

    /// Time within which a new token always appears.
    fn long(&self) -> Duration {
        let one = Clique::new(0, self.members.len(), 1, TIMING, self.now);
        one.round() * 3 + TIMING.delay * 20 * self.members.len() as u64
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// In a connected network, with duplicates, crashes and restarts: never two holders at once,
    /// and each member gets turns.
    #[test]
    fn there_is_one_holder(seed in any::<u64>(), members in 2usize..6, crashes in 0usize..6) {
        let mut world = World::new(seed, members);
        let mut two = 0;
        let long = world.long();
        world.run(long, |world| two += usize::from(world.holders(false) > 1));
        for _ in 0..crashes {
            let n = world.rng.below(members as u64) as usize;
            world.members[n] = None;
            let span = long.mul_f64(world.rng.unit());
            world.run(span, |world| two += usize::from(world.holders(false) > 1));
            world.begin(n);
            let span = long.mul_f64(world.rng.unit() * 0.3);
            world.run(span, |world| two += usize::from(world.holders(false) > 1));
        }
        world.run(long, |world| two += usize::from(world.holders(false) > 1));
        prop_assert!(two == 0, "two held it for {two} steps");
        world.turns.fill(0);
        world.run(long, |_| {});
        prop_assert!(world.turns.iter().all(|turns| *turns > 0), "{:?}", world.turns);
    }

    /// Each half of a split network has a token; after the halves join, one remains.
    #[test]
    fn halves_meet(seed in any::<u64>(), members in 2usize..6) {
        let mut world = World::new(seed, members);
        let long = world.long();
        world.run(long, |_| {});
        for n in 0..members {
            world.half[n] = n % 2 == 1;
        }
        let mut two = 0;
        world.run(long, |world| {
            two += [false, true].iter().filter(|half| world.holders(**half) > 1).count();
        });
        prop_assert!(two == 0, "two held it in a half for {two} steps");
        world.turns.fill(0);
        world.run(long, |_| {});
        prop_assert!(world.turns.iter().all(|turns| *turns > 0), "{:?}", world.turns);
        world.half.fill(false);
        world.run(long, |_| {});
        world.turns.fill(0);
        world.run(long, |world| two += usize::from(world.holders(false) > 1));
        prop_assert!(two == 0, "two held it for {two} steps after they met");
        prop_assert!(world.turns.iter().all(|turns| *turns > 0), "{:?}", world.turns);
    }

    /// Silently lost messages lose tokens; once messages arrive again there is one token.
    #[test]
    fn lost_tokens_are_replaced(seed in any::<u64>(), members in 2usize..6) {
        let mut world = World::new(seed, members);
        world.loss = 0.4;
        let long = world.long();
        world.run(long * 4, |_| {});
        world.loss = 0.0;
        world.run(long * 2, |_| {});
        world.turns.fill(0);
        let mut two = 0;
        world.run(long, |world| two += usize::from(world.holders(false) > 1));
        prop_assert!(two == 0, "two held it for {two} steps");
        prop_assert!(world.turns.iter().all(|turns| *turns > 0), "{:?}", world.turns);
    }
}

#[test]
fn a_member_alone_has_every_turn() {
    let mut now = Time::from_nanos(1);
    let mut one = Clique::new(0, 1, 7, TIMING, now);
    let mut turns = 0;
    for _ in 0..4000 {
        now += STEP;
        one.on_timeout(now);
        while let Some(order) = one.poll() {
            assert!(matches!(order, Order::Probe(_)), "{order:?}");
            turns += 1;
        }
    }
    assert!(turns > 10, "{turns}");
}

/// The highest epoch of all would leave no later one, at every member that hears of it.
#[test]
fn no_message_uses_up_the_epochs() {
    let last = Epoch { number: u64::MAX, author: u64::MAX };
    let reply = Reply { taken: false, highest: last };
    let begun = Time::from_nanos(1);
    let (mut one, mut other) =
        (Clique::new(0, 2, 7, TIMING, begun), Clique::new(1, 2, 8, TIMING, begun));
    let mut now = begun + TIMING.delay * 2;
    for member in [&mut one, &mut other] {
        assert!(!member.on_token(now, last, 1).taken && !member.on_claim(now, last).taken);
    }
    // A claim that is answered so ends, and the next one is made.
    for answer in [Some(reply), None] {
        now = one.timeout();
        one.on_timeout(now);
        let Some(Order::Claim { to: 1, epoch }) = one.poll() else { panic!("it claims") };
        assert_eq!(epoch, Epoch { number: 1, author: 7 });
        let reply = answer.unwrap_or_else(|| other.on_claim(now, epoch));
        one.on_claim_result(now, 1, epoch, Sent::Answered(reply));
    }
    now = one.timeout();
    one.on_timeout(now);
    assert!(one.holds(now), "nobody objects");
    assert!(matches!(one.poll(), Some(Order::Probe(_))));
    // So does the answer to a token that is passed on.
    now = one.timeout();
    one.on_timeout(now);
    let Some(Order::Pass { to: 1, serial, .. }) = one.poll() else { panic!("it passes") };
    one.on_pass_result(now, 1, serial, Sent::Answered(reply));
    assert_eq!((one.highest().number, other.highest().number), (1, 1));
}
