//! The sending end's transports.

use std::ops::Range;

use packtrain_net::limit::RateLimiter;
use packtrain_os::clock;
use packtrain_transfer::message::Message;
use packtrain_transfer::{Custody, Failure, TransportEvent, TransportId};
use packtrain_units::{ByteCount, DataRate, Duration, Offset, Time};

use super::flow::FlowSource;
use super::local::{self, LocalLink};
use super::offer::{ControlMessage, Offer};
use super::path_samples::PathSamples;
use super::pipe;
use super::tcp::source::TcpSource;
use super::transport::{SourceContext, SourceTransport, Wake, temporary};
use super::{Moved, TransportConfig};
use crate::control::Control;
use crate::reader::Reader;
use crate::session::Observer;
use packtrain_service::evidence::{Net, PathPart};
use packtrain_service::{Notice, NoticeLevel, StreamsReport, TransportChoice};

/// How long the transports have to come up before a last resort is used.
const RACE: Duration = Duration::from_secs(2);

/// Without any transport for this long, and no last resort allowed, the transfer ends.
const GIVE_UP: Duration = Duration::from_secs(35);

/// How much later than the end of its transports a sink's last message may come.
const LAST_WORD: Duration = Duration::from_secs(2);

/// What the transports report to the source.
pub(crate) enum TransportNews {
    /// A transport reports this.
    Event(TransportId, TransportEvent),
    /// There is none, and none will come.
    Hopeless(Failure),
}

/// A transport and what is known of it here.
struct Slot {
    transport: Box<dyn SourceTransport>,
    rank: u8,
    /// From the peer's offer until it came up first.
    up_after: Option<Duration>,
    custody: Custody,
    /// It closed after all was sent, for this reason; until then the sink's last word may come.
    closing: Option<(Time, Failure)>,
}

impl Slot {
    fn is_up(&self) -> bool {
        self.custody.is_up()
    }

    /// The next event. A sink that is done closes its transports as soon as it says so, and a
    /// datagram may overtake that message: while the end is near, a transport that closes is not
    /// missed yet.
    fn next_event(&mut self, now: Time, is_end_near: bool) -> Option<TransportEvent> {
        if let Some((until, _)) = &self.closing
            && is_end_near
            && now < *until
        {
            return None;
        }
        if let Some((_, failure)) = self.closing.take() {
            return Some(TransportEvent::Closed(failure));
        }
        match self.transport.poll_event(now)? {
            TransportEvent::Closed(failure) if is_end_near && self.is_up() => {
                self.closing = Some((now + LAST_WORD, failure));
                None
            }
            event => Some(event),
        }
    }

    /// It came up, `since_offer` after the peer's offer.
    fn on_up(&mut self, rank: u8, since_offer: Duration) {
        self.rank = rank;
        self.up_after.get_or_insert(since_offer);
    }
}

/// All transports of a source.
pub struct SourceTransports {
    plan: TransportConfig,
    /// What all transports together are held to.
    limiter: Option<RateLimiter>,
    started: Time,
    alone_since: Time,
    /// Whether the responder has not agreed yet.
    calling: bool,
    /// Whether a last resort was asked to come up.
    resorted: bool,
    /// When the peer made its offer; another is not listened to.
    offered: Option<Time>,
    slots: Vec<Slot>,
    wake: Option<Wake>,
    /// When the last transport closed that did, and why.
    closed: Option<(Time, Failure)>,
    /// When transports closed that were up, and why, until the user is told.
    lost: Vec<(Time, String)>,
    /// All that the sink asked for has been sent.
    is_end_near: bool,
    samples: PathSamples,
}

impl SourceTransports {
    /// The transports that the configuration names, none of which is connected yet.
    pub fn new(plan: TransportConfig) -> Self {
        let limiter = plan.send_limiter();
        let mut transports: Vec<Box<dyn SourceTransport>> = Vec::new();
        if plan.udp() {
            transports.push(Box::new(FlowSource::new(plan.clone(), limiter.clone())));
        }
        if plan.tcp() {
            transports.push(Box::new(TcpSource::new(plan.clone(), limiter.clone())));
        }
        if plan.pipe() {
            transports.push(Box::new(pipe::source(limiter.clone())));
        }
        Self { limiter, ..Self::of(plan, transports) }
    }

    /// The transport to a sink in this process, which has the same link.
    pub fn local(plan: TransportConfig, link: LocalLink) -> Self {
        let limiter = plan.send_limiter();
        let local = local::source(link, limiter.clone());
        Self { limiter, ..Self::of(plan, vec![Box::new(local)]) }
    }

    /// These transports and no others. They keep to the rate limit by themselves.
    pub fn of(plan: TransportConfig, transports: Vec<Box<dyn SourceTransport>>) -> Self {
        let now = clock::now();
        let slot = |transport| {
            let custody = Custody::default();
            Slot { transport, rank: u8::MAX, up_after: None, custody, closing: None }
        };
        Self {
            limiter: None,
            plan,
            started: now,
            alone_since: now,
            calling: false,
            resorted: false,
            offered: None,
            slots: transports.into_iter().map(slot).collect(),
            wake: None,
            closed: None,
            lost: Vec::new(),
            is_end_near: false,
            samples: PathSamples::default(),
        }
    }

    /// Binds, listens and makes the peer an offer.
    pub(crate) fn start(&mut self, control: &Control, reader: Option<Reader>, wake: Wake) {
        self.started = clock::now();
        let context = SourceContext { control: control.tx.clone(), reader, wake: wake.clone() };
        self.wake = Some(wake);
        let mut offer = Offer::new(&self.plan);
        for slot in &mut self.slots {
            slot.transport.start(&context, &mut offer);
        }
        control.tx.send(&Message::Channel(offer.encode()));
    }

    /// The responder has agreed: `plan` has the limits of both ends, and is otherwise that of the
    /// offer. What the limits leave no room for is dropped. Comes before the peer's offer.
    pub(crate) fn agree(&mut self, plan: TransportConfig) {
        self.limiter = plan.send_limiter();
        self.slots.retain(|slot| plan.uses(slot.transport.name()));
        for slot in &mut self.slots {
            slot.transport.on_agreed(&plan, self.limiter.as_ref());
        }
        self.plan = plan;
        // The race begins now.
        self.started = clock::now();
        (self.alone_since, self.calling) = (self.started, false);
    }

    /// The responder has not agreed yet: no transport can come up.
    pub(crate) fn wait_for_agreement(&mut self) {
        self.calling = true;
    }

    /// A message of the peer about transports; gives why the two ends cannot go together.
    pub(crate) fn on_control(&mut self, message: &ControlMessage) -> Option<Failure> {
        let now = clock::now();
        let ControlMessage::Offer(offer) = message else {
            self.slots.iter_mut().for_each(|slot| slot.transport.on_control(now, message));
            return None;
        };
        if self.offered.is_some() {
            return None;
        }
        self.offered = Some(now);
        if let Err(failure) = offer.check(&self.plan) {
            return Some(failure);
        }
        self.samples.begin(now);
        self.slots.iter_mut().for_each(|slot| slot.transport.on_offer(offer));
        None
    }

    /// Whether depots are in between.
    pub(crate) fn is_relayed(&self) -> bool {
        self.plan.relayed
    }

    /// The peer took this many bytes in all off the control connection.
    pub(crate) fn on_data_taken(&mut self, total: u64) {
        let total = ByteCount(total);
        self.slots.iter_mut().for_each(|slot| slot.transport.on_data_taken(total));
    }

    /// What a transport that is up is given. A transport that is down has told the source so: the
    /// source has given its ranges to others.
    pub(crate) fn assign(&mut self, id: TransportId, range: Range<Offset>) {
        let Some(slot) = self.slots.get_mut(id.0 as usize) else { return };
        // It may own some of it since it was up before: a range has one owner, once.
        let fresh: Vec<_> = slot.custody.owned().gaps(range).collect();
        for part in fresh {
            if slot.custody.on_assign(&part).is_ok() {
                slot.transport.assign(part);
            }
        }
    }

    pub(crate) fn revoke(&mut self, id: TransportId, range: Range<Offset>) {
        if let Some(slot) = self.slots.get_mut(id.0 as usize).filter(|slot| slot.is_up()) {
            slot.transport.revoke(range);
        }
    }

    /// So much is left to move, as far as that is known.
    pub(crate) fn on_remaining(&mut self, left: Option<ByteCount>) {
        self.slots.iter_mut().for_each(|slot| slot.transport.on_remaining(left));
    }

    /// What happened since; looks after the transports.
    pub(crate) fn poll(&mut self, now: Time, observer: &dyn Observer) -> Vec<TransportNews> {
        if let Some(wake) = &self.wake {
            wake.begin_poll();
        }
        let mut news = self.poll_events(now, observer);
        if let Some(via) = &self.plan.via {
            via.route.said().iter().for_each(|notice| observer.notice(notice));
        }
        self.sample(now);
        if self.calling {
            return news;
        }
        if let Some(failure) = self.check_hopeless(now) {
            news.push(TransportNews::Hopeless(failure));
        } else if self.resort(now, observer) {
            news.extend(self.poll_events(now, observer));
        }
        news
    }

    fn poll_events(&mut self, now: Time, observer: &dyn Observer) -> Vec<TransportNews> {
        let mut news = Vec::new();
        let others = self.slots.len() > 1;
        for (id, slot) in self.slots.iter_mut().enumerate() {
            let id = TransportId(id as u32);
            while let Some(event) = slot.next_event(now, self.is_end_near) {
                if let TransportEvent::Up { rank } = &event {
                    slot.on_up(*rank, self.offered.map_or(Duration::ZERO, |then| now.since(then)));
                }
                if let TransportEvent::Closed(failure) = &event {
                    if slot.is_up() && others {
                        self.lost.push((now, failure.text.clone()));
                    }
                    self.closed = Some((now, failure.clone()));
                }
                let events = slot.custody.admit(event).into_iter();
                news.extend(events.map(|event| TransportNews::Event(id, event)));
            }
            while let Some(notice) = slot.transport.poll_notice() {
                observer.notice(&notice);
            }
        }
        self.report_lost(now, observer);
        news
    }

    /// Tells the user of transports that closed, unless the transfer ends soon after. A sink that
    /// fails closes its transports, and the reason may come after that.
    fn report_lost(&mut self, now: Time, observer: &dyn Observer) {
        while self.lost.first().is_some_and(|(closed, _)| now.since(*closed) >= LAST_WORD) {
            let (_, why) = self.lost.remove(0);
            let text = match self.current() {
                Some(name) => format!("{why}; going on over {name}"),
                None => format!("{why}; going on without it"),
            };
            observer.notice(&Notice::new(NoticeLevel::Info, text));
        }
    }

    fn is_alone(&self) -> bool {
        !self.slots.iter().any(|slot| slot.is_up() && !slot.transport.is_last_resort())
    }

    /// Whether all that are no last resort are over.
    fn are_others_over(&self) -> bool {
        let mut others = self.slots.iter().filter(|slot| !slot.transport.is_last_resort());
        others.all(|slot| slot.transport.is_over())
    }

    /// Why nothing can move any more, if that is so.
    fn check_hopeless(&mut self, now: Time) -> Option<Failure> {
        let last_resort = self.slots.iter().any(|slot| slot.transport.is_last_resort());
        if !self.is_alone() || last_resort {
            self.alone_since = now;
            return None;
        }
        let name = self.plan.choice.name();
        if self.are_others_over()
            && let Some((_, failure)) =
                self.closed.take_if(|(closed, _)| now.since(*closed) >= LAST_WORD)
        {
            // The one transport of a web server or a store was not chosen by the user.
            let is_chosen = self.slots.iter().any(|slot| slot.transport.name() == name);
            let text = match self.plan.choice {
                TransportChoice::Auto => failure.text,
                _ if !is_chosen => failure.text,
                _ => format!("{}; --transport {name} leaves no other way", failure.text),
            };
            return Some(Failure { text, ..failure });
        }
        if now.since(self.alone_since) < GIVE_UP {
            return None;
        }
        self.alone_since = now;
        Some(temporary(match &self.plan.allowed {
            Some(allowed) => format!(
                "nothing gets through by {name} between the two ends, and policy allows only {}: \
                 open its ports (--ports)",
                allowed.join(", ")
            ),
            None => format!(
                "nothing gets through by {name} between the two ends: open its ports (--ports), or \
                 let --transport auto choose"
            ),
        }))
    }

    /// Has a last resort come up when nothing else did in time or all else is gone. Tells whether
    /// there is one.
    fn resort(&mut self, now: Time, observer: &dyn Observer) -> bool {
        let over = self.are_others_over();
        let due = over || now.since(self.started) >= RACE;
        if self.resorted || !self.is_alone() || !due {
            return false;
        }
        let mut last_resorts =
            self.slots.iter_mut().filter(|slot| slot.transport.is_last_resort()).peekable();
        if last_resorts.peek().is_none() {
            return false;
        }
        last_resorts.for_each(|slot| slot.transport.on_alone(now));
        self.resorted = true;
        if !over {
            let text = "neither UDP nor TCP gets through between the two ends: the data goes \
                        through the control connection, which is slower; open UDP or TCP ports \
                        (--ports) for full speed";
            observer.notice(&Notice::new(NoticeLevel::Warning, text));
        }
        true
    }

    /// The preferred one of those that are up.
    fn best(&mut self) -> Option<&mut Slot> {
        self.slots.iter_mut().filter(|slot| slot.is_up()).min_by_key(|slot| slot.rank)
    }

    fn sample(&mut self, now: Time) {
        if !self.samples.is_due(now) {
            return;
        }
        let mut samples = std::mem::take(&mut self.samples);
        if let Some(slot) = self.best() {
            slot.transport.sample(now, &mut samples);
        }
        self.samples = samples;
    }

    /// What is known of the path, and of the thread that sends datagrams.
    pub(crate) fn evidence(&mut self) -> (PathPart, Option<Net>) {
        let moved = self.moved();
        let mut part = self.samples.part();
        let mut net = None;
        for slot in &self.slots {
            net = net.or(slot.transport.report_evidence(&mut part, slot.up_after));
        }
        part.asked_rate = self.plan.rate_bps.map(DataRate::from_bps);
        let name = moved.shares.first().map(|share| share.0.as_str()).or(self.current());
        part.transport = name.unwrap_or("none").to_owned();
        (part, net)
    }

    /// The transport that moves data now.
    pub(crate) fn current(&mut self) -> Option<&'static str> {
        self.best().map(|slot| slot.transport.name())
    }

    /// Whether all that the sink asked for has been sent.
    pub(crate) fn set_end_near(&mut self, is_end_near: bool) {
        self.is_end_near = is_end_near;
    }

    /// The sink has the whole object: what is under way arrived.
    pub(crate) fn on_complete(&mut self) {
        self.slots.iter_mut().for_each(|slot| slot.transport.on_complete());
    }

    /// Ends them all. Returns what they moved, with the report about streams.
    pub(crate) fn close(&mut self) -> Moved {
        let moved = self.moved_with_streams();
        self.slots.iter_mut().for_each(|slot| slot.transport.close());
        moved
    }

    /// What they have moved so far, with the report about streams, which takes time.
    pub(crate) fn moved_with_streams(&mut self) -> Moved {
        Moved { streams: self.report_streams(), ..self.moved() }
    }

    /// The report about streams, if there were any. It takes time.
    pub(crate) fn report_streams(&self) -> Option<StreamsReport> {
        self.slots.iter().find_map(|slot| slot.transport.report_streams())
    }

    /// What they have moved so far, without the report about streams.
    pub(crate) fn moved(&mut self) -> Moved {
        let held = self.plan.held_by(self.limiter.as_ref());
        let mut moved = Moved { held, ..Moved::default() };
        self.slots.iter_mut().for_each(|slot| slot.transport.account(&mut moved));
        moved.shares.retain(|(_, bytes)| *bytes > ByteCount::ZERO);
        moved.shares.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        moved
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use packtrain_service::ceilings::Ceilings;
    use packtrain_transfer::{FileReport, SinkTotals, SourceTotals, Transport};

    use super::*;
    use crate::handshake::SessionRequest;
    use crate::permissions::Permissions;
    use crate::transports::Hints;

    struct Nobody;

    impl Observer for Nobody {
        fn file(&self, _: &[u8], _: &FileReport) {}
        fn source(&self, _: &SourceTotals) {}
        fn sink(&self, _: &SinkTotals) {}
        fn transport(&self, _: &str) {}
        fn notice(&self, _: &Notice) {}
    }

    /// The plan of an initiator whose peer allows these transports.
    fn plan(allowed: Option<&[&str]>) -> TransportConfig {
        let transports = allowed.map(|names| names.iter().map(|&name| name.to_owned()).collect());
        let peer = Ceilings { transports, ..Ceilings::default() };
        SessionRequest::default().plan(Hints::default(), &Permissions::default(), &peer, None)
    }

    #[test]
    fn what_the_responder_excludes_is_dropped_and_nothing_comes_up_before_it_agrees() {
        let mut all = SourceTransports::new(plan(None));
        let names = |all: &SourceTransports| {
            all.slots.iter().map(|slot| slot.transport.name()).collect::<Vec<_>>()
        };
        assert_eq!(names(&all), ["native", "tcp", "pipe"]);
        all.wait_for_agreement();
        let late = clock::now() + GIVE_UP * 2;
        assert!(all.poll(late, &Nobody).is_empty() && !all.resorted, "it waits for the answer");
        all.agree(plan(Some(&["tcp", "pipe"])));
        assert_eq!(names(&all), ["tcp", "pipe"]);
        all.poll(late, &Nobody);
        assert!(all.resorted, "the race is over");
    }

    /// A transport that reports these events.
    struct Reports(VecDeque<TransportEvent>);

    impl Transport for Reports {
        fn name(&self) -> &'static str {
            "tcp"
        }
        fn assign(&mut self, _: Range<Offset>) {}
        fn revoke(&mut self, _: Range<Offset>) {}
        fn poll_event(&mut self, _: Time) -> Option<TransportEvent> {
            self.0.pop_front()
        }
        fn close(&mut self) {}
    }

    impl SourceTransport for Reports {
        fn start(&mut self, _: &SourceContext, _: &mut Offer) {}
        fn is_over(&self) -> bool {
            self.0.is_empty()
        }
        fn account(&mut self, moved: &mut Moved) {
            moved.shares.push((self.name().to_owned(), ByteCount(1)));
        }
        fn report_streams(&self) -> Option<StreamsReport> {
            Some(StreamsReport::default())
        }
    }

    #[test]
    fn the_report_about_streams_is_made_only_at_the_end() {
        let all = || SourceTransports::of(plan(None), vec![Box::new(Reports(VecDeque::new()))]);
        assert_eq!(all().evidence().0.transport, "tcp");
        assert!(all().moved().streams.is_none());
        assert!(all().moved_with_streams().streams.is_some());
        assert!(all().close().streams.is_some());
    }

    #[test]
    fn a_transport_that_closes_at_the_end_is_missed_only_when_no_last_word_comes() {
        let closed = || TransportEvent::Closed(temporary("the other end closed it"));
        let run = |is_end_near: bool| {
            let events = VecDeque::from([TransportEvent::Up { rank: 0 }, closed()]);
            let mut all = SourceTransports::of(plan(None), vec![Box::new(Reports(events))]);
            all.set_end_near(is_end_near);
            let now = clock::now();
            [Duration::ZERO, LAST_WORD / 2, LAST_WORD].map(|late| {
                let news = all.poll(now + late, &Nobody);
                news.iter()
                    .any(|one| matches!(one, TransportNews::Event(_, TransportEvent::Closed(_))))
            })
        };
        assert_eq!(run(true), [false, false, true]);
        assert_eq!(run(false), [true, false, false]);
    }
}
