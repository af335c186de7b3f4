//! A caller's way over depots: connections to the other end that go through them, and directly
//! when they fail.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use packtrain_io::tcp::tls::any_name;
use packtrain_io::tcp::{ConnectOptions, Identity, connect, tune};
use packtrain_io::{clock, entropy};
use packtrain_proto::session::{
    Answer, Hop, Host, Kind, Place, Reason, Refusal, Session, SessionId,
};
use packtrain_units::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::api::{NodeError, Notice, NoticeLevel};
use crate::depot::{read_answer, write_all};
use crate::keys;

/// The most depots that a route of ours may have.
const HOP_LIMIT: u8 = 4;
/// How long the depots together have to connect, and then the other end to shake hands.
const ANSWER: Duration = Duration::from_secs(8);
/// Failures in a row after which it is tried without depots; silence counts twice.
const TRIES: u32 = 3;
/// The longest wait for a depot that says when to come again.
const LONGEST: Duration = Duration::from_secs(5);
/// A network that is gone this long ends a connection over depots: there may be another way.
pub(crate) const DEAD: Duration = Duration::from_secs(20);

/// A route, as far as it works.
pub(crate) struct Route {
    depots: Vec<Place>,
    identity: Identity,
    failures: AtomicU32,
    direct: AtomicBool,
    notices: Mutex<Vec<Notice>>,
}

/// The route of a transfer and where it leads.
#[derive(Clone)]
pub(crate) struct Via {
    pub(crate) route: Arc<Route>,
    /// The other end, as depots are to find it.
    pub(crate) host: Host,
}

impl std::fmt::Debug for Via {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Via({} to {})", self.route, self.host)
    }
}

/// Why a connection over depots did not come about.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    /// A depot says no.
    #[error("the depot {0} refuses: {1}")]
    Refused(String, Refusal),
    /// Depots cannot be reached, or break off.
    #[error("{0}")]
    Away(String),
    /// Nothing comes.
    #[error("{0}")]
    Silent(String),
    /// The other end was reached, and something is wrong with it.
    #[error("{0}")]
    Shake(#[from] std::io::Error),
}

impl DialError {
    /// Whether it is of no use to try again, or without depots: the user is to decide.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            Self::Refused(_, refusal) => !refusal.reason.passes(),
            Self::Away(_) | Self::Silent(_) | Self::Shake(_) => false,
        }
    }

    /// Whether what is missing is a permission.
    pub(crate) fn is_denied(&self) -> bool {
        let denied = [Reason::NotAuthorised, Reason::Forbidden];
        matches!(self, Self::Refused(_, refusal) if denied.contains(&refusal.reason))
    }

    fn wait(&self) -> Duration {
        match self {
            Self::Refused(_, refusal) => refusal.retry_after.unwrap_or_default().min(LONGEST),
            Self::Away(_) | Self::Silent(_) | Self::Shake(_) => Duration::ZERO,
        }
    }
}

impl std::fmt::Display for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<String> = self.depots.iter().map(Place::to_string).collect();
        f.write_str(&names.join(","))
    }
}

impl Route {
    /// A route over these depots, first to last; none over none.
    pub(crate) fn over(depots: &[Place]) -> Result<Option<Arc<Self>>, NodeError> {
        if depots.is_empty() {
            return Ok(None);
        }
        Ok(Some(Arc::new(Self {
            depots: depots.to_vec(),
            identity: keys::identity()?,
            failures: AtomicU32::new(0),
            direct: AtomicBool::new(false),
            notices: Mutex::default(),
        })))
    }

    /// Whether it was given up.
    pub(crate) fn is_direct(&self) -> bool {
        self.direct.load(Ordering::Relaxed)
    }

    /// What there is to say of it.
    pub(crate) fn said(&self) -> Vec<Notice> {
        std::mem::take(&mut *self.notices.lock().expect("no holder panics"))
    }

    fn say(&self, text: String) {
        let mut notices = self.notices.lock().expect("no holder panics");
        notices.push(Notice::new(NoticeLevel::Warning, text));
    }

    fn failed(&self, error: &DialError) {
        let weight = if matches!(error, DialError::Silent(_)) { 2 } else { 1 };
        let failures = self.failures.fetch_add(weight, Ordering::Relaxed) + weight;
        if failures >= TRIES && !self.direct.swap(true, Ordering::Relaxed) {
            self.say(format!("{error}; going on without depots"));
        } else if !self.is_direct() {
            self.say(format!("{error}; trying again"));
        }
    }

    /// The header of a new session to `destination`.
    fn header(&self, destination: Place) -> Result<Vec<u8>, DialError> {
        self.header_of(Kind::Synchronous, destination)
    }

    /// The same of another kind.
    pub(crate) fn header_of(&self, kind: Kind, destination: Place) -> Result<Vec<u8>, DialError> {
        let session = Session {
            kind,
            id: SessionId(entropy::bytes()),
            sent: clock::wall(),
            hop_limit: HOP_LIMIT,
            source: None,
            destination: Hop::tcp(destination),
            route: self.depots.iter().cloned().map(Hop::tcp).collect(),
            tree: Vec::new(),
            spool: None,
        };
        let sealed = session.seal(self.identity.public().0, |text| self.identity.sign(text));
        sealed.map(|header| header.write()).map_err(|e| DialError::Away(e.to_string()))
    }

    /// Connects to `destination` over the depots, once. The first words of TLS go right behind the
    /// header, so that nothing waits for the depots' answer but what waits for the other end's.
    pub(crate) async fn dial(
        &self,
        destination: Place,
        tls: &TlsConnector,
        options: &ConnectOptions,
    ) -> Result<TlsStream<TcpStream>, DialError> {
        let dialled = self.dial_once(destination, tls, options).await;
        match &dialled {
            Ok(_) => self.failures.store(0, Ordering::Relaxed),
            Err(error) => self.failed(error),
        }
        dialled
    }

    /// The same, and nothing is said or remembered of it.
    pub(crate) async fn dial_once(
        &self,
        destination: Place,
        tls: &TlsConnector,
        options: &ConnectOptions,
    ) -> Result<TlsStream<TcpStream>, DialError> {
        let first = &self.depots[0];
        let away = |text: String| DialError::Away(format!("the depot {first}: {text}"));
        let silent = |text: &str| DialError::Silent(format!("the depot {first}: {text}"));
        let socket = connect(&first.host.to_string(), first.port, options)
            .await
            .map_err(|e| away(e.to_string()))?;
        // What a system lacks of these, it does without.
        let _ = tune::set_nodelay(&socket);
        let _ = tune::set_dead_after(&socket, DEAD);
        let mut words = self.header(destination)?;
        let shaking = tls.connect_with(any_name(), socket, |client| {
            // Writing to memory does not fail.
            let _ = client.write_tls(&mut words);
        });
        let broken = || away("the connection broke".to_owned());
        let socket = shaking.get_ref().ok_or_else(broken)?;
        let answered = async {
            write_all(socket, &words).await.map_err(|e| e.to_string())?;
            read_answer(socket).await
        };
        let answer = tokio::time::timeout(ANSWER.to_std(), answered).await;
        match answer.map_err(|_| silent("no answer"))?.map_err(away)? {
            Answer::Accepted => {}
            Answer::Refused(refusal) => {
                let who = self.depots.get(usize::from(refusal.depot));
                let who = who.map_or_else(|| self.to_string(), Place::to_string);
                return Err(DialError::Refused(who, refusal));
            }
        }
        let shaken = tokio::time::timeout(ANSWER.to_std(), shaking).await;
        Ok(shaken.map_err(|_| silent("nothing comes from the other end"))??)
    }

    /// Connects over the depots, a few times; none if that is to be done directly.
    ///
    /// # Errors
    /// A depot's refusal that only its owner or the user can change, or the other end's word.
    pub(crate) async fn dial_long(
        &self,
        destination: &Place,
        tls: &TlsConnector,
        options: &ConnectOptions,
    ) -> Result<Option<TlsStream<TcpStream>>, DialError> {
        while !self.is_direct() {
            match self.dial(destination.clone(), tls, options).await {
                Ok(stream) => return Ok(Some(stream)),
                Err(error) if error.is_final() => return Err(error),
                // The other end's key is of no matter to depots.
                Err(DialError::Shake(error)) if packtrain_io::tcp::tls::is_key_refused(&error) => {
                    return Err(error.into());
                }
                Err(error) => tokio::time::sleep(error.wait().to_std()).await,
            }
        }
        Ok(None)
    }
}
