//! The current clients of a server: limits in total and per key, of their number and of the flows of
//! their measurements, and no new clients after the request to stop.

use std::collections::BTreeMap;
use std::sync::Arc;

use packtrain_transfer::{Failure, FailureKind};
use parking_lot::Mutex;
use tokio::sync::watch;

use packtrain_identity::pubkey::PublicKey;

/// Limits of concurrent clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientLimits {
    /// In total.
    pub all: u32,
    /// Per key.
    pub per_key: u32,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self { all: 64, per_key: 32 }
    }
}

/// Maximum flows over UDP of all measurements and of those of one key. A flow has eight sockets and a
/// thread, and a measurement has up to 64 flows.
const MAX_FLOWS: u32 = 256;
const MAX_FLOWS_PER_KEY: u32 = 128;

/// The clients of one server.
#[derive(Debug)]
pub(super) struct Clients {
    limits: ClientLimits,
    state: Mutex<State>,
    /// Their number.
    count: watch::Sender<u32>,
}

#[derive(Debug, Default)]
struct State {
    keys: BTreeMap<PublicKey, InUse>,
    /// Flows of all keys.
    flows: u32,
    draining: bool,
}

/// What one key uses.
#[derive(Clone, Copy, Debug, Default)]
struct InUse {
    clients: u32,
    flows: u32,
}

/// One client; it counts until this value is dropped.
#[derive(Debug)]
pub(super) struct ClientPermit {
    clients: Arc<Clients>,
    key: PublicKey,
    flows: u32,
}

impl Clients {
    pub(super) fn new(limits: ClientLimits) -> Arc<Self> {
        Arc::new(Self { limits, state: Mutex::default(), count: watch::Sender::new(0) })
    }

    /// Admits an authorized client with `key`, which measures with this number of flows over UDP,
    /// within the limits.
    pub(super) fn admit(
        self: &Arc<Self>,
        key: &PublicKey,
        flows: u32,
    ) -> Result<ClientPermit, Failure> {
        let busy = |text: String| Err(Failure::new(FailureKind::Temporary, text));
        let mut state = self.state.lock();
        if state.draining {
            return busy("the server is about to end: try again later".to_owned());
        }
        let all = *self.count.borrow();
        if all >= self.limits.all {
            return busy(format!(
                "the server has {all} clients, as many as it takes: try again later"
            ));
        }
        let InUse { clients, flows: own } = state.keys.get(key).copied().unwrap_or_default();
        if clients >= self.limits.per_key {
            let text =
                format!("this key has {clients} transfers at this server, as many as it may");
            return busy(format!("{text}: try again later"));
        }
        for (whose, now, most) in
            [("this key", own, MAX_FLOWS_PER_KEY), ("the server", state.flows, MAX_FLOWS)]
        {
            if flows > 0 && now + flows > most {
                return busy(format!(
                    "{whose} measures with {now} flows over UDP already, and may with {most}: try \
                     again later, or with a smaller --parallel"
                ));
            }
        }
        state.keys.insert(*key, InUse { clients: clients + 1, flows: own + flows });
        state.flows += flows;
        self.count.send_modify(|count| *count += 1);
        Ok(ClientPermit { clients: Arc::clone(self), key: *key, flows })
    }

    /// Refuses new clients from now on; returns the number of current ones.
    pub(super) fn drain(&self) -> u32 {
        self.state.lock().draining = true;
        *self.count.borrow()
    }

    /// Waits until there are no clients.
    pub(super) async fn wait_empty(&self) {
        let mut count = self.count.subscribe();
        // `self` holds the sender, so this never fails.
        let _ = count.wait_for(|count| *count == 0).await;
    }
}

impl Drop for ClientPermit {
    fn drop(&mut self) {
        let mut state = self.clients.state.lock();
        state.flows = state.flows.saturating_sub(self.flows);
        if let Some(own) = state.keys.get_mut(&self.key) {
            own.clients = own.clients.saturating_sub(1);
            own.flows = own.flows.saturating_sub(self.flows);
            if own.clients == 0 {
                state.keys.remove(&self.key);
            }
        }
        self.clients.count.send_modify(|count| *count = count.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: PublicKey = PublicKey([1; 32]);
    const B: PublicKey = PublicKey([2; 32]);
    const C: PublicKey = PublicKey([3; 32]);

    #[tokio::test]
    async fn one_key_leaves_room_for_others() {
        let clients = Clients::new(ClientLimits { all: 4, per_key: 2 });
        let mut held: Vec<_> = (0..2).map(|_| clients.admit(&A, 0).expect("room")).collect();
        let failure = clients.admit(&A, 0).expect_err("as many as it may");
        assert_eq!(failure.kind, FailureKind::Temporary);
        assert!(failure.text.contains("this key has 2"), "{}", failure.text);
        held.extend((0..2).map(|_| clients.admit(&B, 0).expect("room")));
        let failure = clients.admit(&C, 0).expect_err("as many as there may be");
        assert!(failure.text.contains("has 4 clients"), "{}", failure.text);
        drop(held.remove(0));
        held.push(clients.admit(&A, 0).expect("room again"));
        assert_eq!(clients.drain(), 4);
        drop(held.remove(0));
        let failure = clients.admit(&C, 0).expect_err("no new ones");
        assert_eq!(failure.kind, FailureKind::Temporary);
        assert!(failure.text.contains("about to end"), "{}", failure.text);
        drop(held);
        clients.wait_empty().await;
        assert!(clients.state.lock().keys.is_empty());
    }

    #[test]
    fn one_key_leaves_flows_of_measurements_to_others() {
        let clients = Clients::new(ClientLimits::default());
        let mut held: Vec<_> = (0..2).map(|_| clients.admit(&A, 64).expect("room")).collect();
        let failure = clients.admit(&A, 1).expect_err("as many as it may");
        assert_eq!(failure.kind, FailureKind::Temporary);
        assert!(failure.text.contains("this key measures with 128"), "{}", failure.text);
        // It may copy, and others may measure.
        held.push(clients.admit(&A, 0).expect("no flow"));
        held.extend((0..2).map(|_| clients.admit(&B, 64).expect("its own share")));
        let failure = clients.admit(&C, 1).expect_err("as many as there may be");
        assert!(failure.text.contains("the server measures with 256"), "{}", failure.text);
        drop(held.remove(0));
        held.push(clients.admit(&C, 64).expect("room again"));
        drop(held);
        let state = clients.state.lock();
        assert!(state.keys.is_empty() && state.flows == 0);
    }
}
