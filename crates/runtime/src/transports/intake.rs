//! Enforces the limits at the receiving end, whatever the sending end does: the rate, the number of
//! streams, and the allowed transports.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use packtrain_net::limit::RateLimiter;
use packtrain_transfer::{Failure, FailureKind};
use packtrain_units::{ByteCount, Duration, Offset};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::TransportConfig;
use crate::assembly::Assembly;
use crate::control::PayloadSink;

/// The limits of incoming data for one transfer; clones share them.
#[derive(Clone)]
pub(super) struct Intake(Arc<Shared>);

struct Shared {
    limits: Mutex<Limits>,
    /// Streams that have delivered data, oldest first.
    streams: Mutex<VecDeque<Arc<Evicted>>>,
}

struct Limits {
    limiter: Option<RateLimiter>,
    most_streams: usize,
    /// Whether payload may arrive on the control connection.
    pipe: bool,
}

impl Limits {
    fn of(plan: &TransportConfig) -> Self {
        Self {
            limiter: plan.receive_limiter(),
            most_streams: plan.most_streams as usize,
            pipe: plan.pipe(),
        }
    }
}

/// Notifies a stream that it was evicted.
#[derive(Default)]
struct Evicted {
    now: AtomicBool,
    notify: Notify,
}

impl Intake {
    pub(super) fn new(plan: &TransportConfig) -> Self {
        let limits = Mutex::new(Limits::of(plan));
        Self(Arc::new(Shared { limits, streams: Mutex::default() }))
    }

    /// The other end has told its limits: those of both hold. Nothing has come in yet.
    pub(super) fn agree(&self, plan: &TransportConfig) {
        *self.0.limits.lock() = Limits::of(plan);
    }

    /// The limiter of the rate.
    pub(super) fn limiter(&self) -> Option<RateLimiter> {
        self.0.limits.lock().limiter.clone()
    }

    /// The time to wait before reading `bytes`.
    pub(super) fn wait(&self, bytes: ByteCount) -> Duration {
        self.limiter().map_or(Duration::ZERO, |limiter| limiter.reserve(bytes))
    }

    /// Registers a stream that delivers its first bytes. Above the limit the oldest stream is
    /// evicted, because its other end may no longer exist.
    pub(super) fn stream(&self) -> Membership {
        let own = Arc::<Evicted>::default();
        let most = self.0.limits.lock().most_streams;
        let mut streams = self.0.streams.lock();
        streams.push_back(Arc::clone(&own));
        while streams.len() > most {
            if let Some(oldest) = streams.pop_front() {
                oldest.now.store(true, Ordering::Release);
                oldest.notify.notify_one();
            }
        }
        Membership { intake: self.clone(), own }
    }

    /// The receiver of payload on the control connection.
    pub(super) fn pipe(&self, assembly: Assembly) -> Arc<dyn PayloadSink> {
        Arc::new(Pipe { intake: self.clone(), assembly })
    }
}

/// The registration of a stream.
pub(super) struct Membership {
    intake: Intake,
    own: Arc<Evicted>,
}

impl Membership {
    /// Waits until the stream is evicted.
    pub(super) async fn evicted(&self) {
        while !self.own.now.load(Ordering::Acquire) {
            self.own.notify.notified().await;
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.intake.0.streams.lock().retain(|one| !Arc::ptr_eq(one, &self.own));
    }
}

struct Pipe {
    intake: Intake,
    assembly: Assembly,
}

impl PayloadSink for Pipe {
    fn payload(&self, at: Offset, bytes: &[u8]) -> Result<(), Failure> {
        if !self.intake.0.limits.lock().pipe {
            let text = "data came over the control connection, which was not asked for or which \
                        policy does not allow (--transport pipe)";
            return Err(Failure::new(FailureKind::NotAuthorised, text));
        }
        let wait = self.intake.wait(ByteCount(bytes.len() as u64));
        if !wait.is_zero() {
            self.assembly.sleep_until_closed(wait);
        }
        self.assembly.payload(at, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handshake::SessionRequest;
    use crate::permissions::Permissions;
    use crate::transports::Hints;
    use packtrain_service::ceilings::Ceilings;

    fn intake(streams: u32) -> Intake {
        let ceilings = Ceilings { streams: Some(streams), ..Ceilings::default() };
        let allowed = Permissions { ceilings, ..Permissions::default() };
        let plan =
            SessionRequest::default().plan(Hints::default(), &allowed, &Ceilings::default(), None);
        Intake::new(&plan)
    }

    #[test]
    fn payload_that_waits_for_its_pace_ends_with_the_session() {
        let ceilings = Ceilings { rate_bps: Some(1), ..Ceilings::default() };
        let allowed = Permissions { ceilings, ..Permissions::default() };
        let request = SessionRequest { choice: 3, ..SessionRequest::default() };
        let plan = request.plan(Hints::default(), &allowed, &Ceilings::default(), None);
        let (assembly, gate, next) = crate::assembly::room::tests::full();
        let pipe = Intake::new(&plan).pipe(assembly.clone());
        let (tell, told) = crossbeam_channel::unbounded();
        packtrain_service::executor::spawn("pays", move || {
            // Unexpected bytes. At this rate the second ones would be placed after weeks.
            for _ in 0..3 {
                let at = next + ByteCount(1 << 40);
                let _ = tell.send(pipe.payload(at, &[0; 200_000]));
            }
        });
        let limit = std::time::Duration::from_secs(60);
        told.recv_timeout(limit).expect("at once").expect("it is allowed");
        assembly.close();
        for _ in 0..2 {
            told.recv_timeout(limit).expect("it does not wait").expect("it is allowed");
        }
        drop(gate);
    }

    #[test]
    fn of_more_streams_than_allowed_the_oldest_go() {
        let intake = intake(2);
        let gone = |one: &Membership| one.own.now.load(Ordering::Acquire);
        let streams: Vec<Membership> = (0..5).map(|_| intake.stream()).collect();
        let all: Vec<bool> = streams.iter().map(gone).collect();
        assert_eq!(all, [true, true, true, false, false]);
        drop(streams);
        // A stream that ends makes room.
        let (one, two) = (intake.stream(), intake.stream());
        assert!(!gone(&one) && !gone(&two));
        drop(one);
        let three = intake.stream();
        assert!(!gone(&two) && !gone(&three));
    }
}
