//! A PostgreSQL server, which several machines can share.

use std::error::Error as _;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use bytes::BytesMut;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tokio_postgres::config::Host;
use tokio_postgres::types::{IsNull, ToSql, Type};
use tokio_postgres::{Client, Config};

use crate::access::DATABASE_TIMEOUT;
use crate::error::HistoryError;
use crate::place::Server;
use crate::tls::Tls;
use crate::value::Value;

/// A connection to a server. It has its own runtime, because the callers are threads that may
/// block.
pub(crate) struct Postgres {
    place: String,
    client: Client,
    /// Taken on drop.
    runtime: Option<Runtime>,
}

type Result<T> = std::result::Result<T, HistoryError>;
type Foreign = Box<dyn std::error::Error + Sync + Send>;

impl Postgres {
    /// Connects, with the password of the URL, of `PGPASSWORD` or of the password file.
    pub(crate) fn connect(server: &Server) -> Result<Self> {
        let place = server.to_string();
        let failed = |text: String| HistoryError::Other { place: place.clone(), text };
        let mut config = server.config.clone();
        if config.get_password().is_none()
            && let Some(password) = password(&config)
        {
            config.password(password);
        }
        let tls = Tls::new(server.roots.as_deref(), &config).map_err(failed)?;
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| failed(e.to_string()))?;
        let connected = runtime.block_on(async {
            let connected = timeout(DATABASE_TIMEOUT, config.connect(tls)).await;
            let (client, connection) =
                connected.map_err(|_| "no answer".to_owned())?.map_err(text)?;
            tokio::spawn(async {
                // An error of the connection appears in later calls of the client.
                let _ = connection.await;
            });
            Ok(client)
        });
        let client = match connected {
            Ok(client) => client,
            Err(text) => {
                runtime.shutdown_background();
                return Err(failed(text));
            }
        };
        let mut db = Self { place, client, runtime: Some(runtime) };
        // A lock of another client must not delay the end of a transfer for longer.
        db.batch(&format!(
            "SET statement_timeout = {0}; SET lock_timeout = {0}; SET client_min_messages = error",
            DATABASE_TIMEOUT.as_millis()
        ))?;
        Ok(db)
    }

    fn wait<T>(
        &self,
        work: impl Future<Output = std::result::Result<T, tokio_postgres::Error>>,
    ) -> Result<T> {
        let runtime = self.runtime.as_ref().expect("there until it is dropped");
        let done = runtime.block_on(async { timeout(DATABASE_TIMEOUT * 2, work).await });
        let done = done.map_err(|_| "no answer".to_owned()).and_then(|done| done.map_err(text));
        done.map_err(|text| HistoryError::Other { place: self.place.clone(), text })
    }

    pub(crate) fn batch(&mut self, sql: &str) -> Result<()> {
        self.wait(self.client.batch_execute(sql))
    }

    pub(crate) fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64> {
        self.wait(self.client.execute(sql, &parameters(values)))
    }

    pub(crate) fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Vec<Value>>> {
        let rows = self.wait(self.client.query(sql, &parameters(values)))?;
        Ok(rows.iter().map(|row| (0..row.len()).map(|i| cell(row, i)).collect()).collect())
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // A resolver that does not answer must not block the drop.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn parameters(values: &[Value]) -> Vec<&(dyn ToSql + Sync)> {
    values.iter().map(|value| value as &(dyn ToSql + Sync)).collect()
}

fn cell(row: &tokio_postgres::Row, i: usize) -> Value {
    let kind = row.columns()[i].type_();
    let value = if *kind == Type::INT8 {
        row.try_get::<_, Option<i64>>(i).ok().flatten().map(Value::Int)
    } else if *kind == Type::FLOAT8 {
        row.try_get::<_, Option<f64>>(i).ok().flatten().map(Value::Real)
    } else {
        row.try_get::<_, Option<String>>(i).ok().flatten().map(Value::Text)
    };
    value.unwrap_or(Value::Null)
}

impl ToSql for Value {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> std::result::Result<IsNull, Foreign> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Int(n) => n.to_sql_checked(kind, out),
            Self::Real(x) => x.to_sql_checked(kind, out),
            Self::Text(text) => text.to_sql_checked(kind, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    tokio_postgres::types::to_sql_checked!();
}

/// The message of an error, without the library's own text around it.
fn text(error: tokio_postgres::Error) -> String {
    match (error.as_db_error(), error.source()) {
        (Some(told), _) => told.message().to_owned(),
        (None, Some(source)) => source.to_string(),
        (None, None) => error.to_string(),
    }
}

/// The password of the environment or of the password file, as PostgreSQL's own programs read it.
fn password(config: &Config) -> Option<String> {
    if let Some(password) = std::env::var("PGPASSWORD").ok().filter(|p| !p.is_empty()) {
        return Some(password);
    }
    let path = match std::env::var_os("PGPASSFILE") {
        Some(path) => PathBuf::from(path),
        None => PathBuf::from(std::env::var_os("HOME")?).join(".pgpass"),
    };
    let mut file = std::fs::File::open(path).ok()?;
    // A file that others can read is ignored.
    if file.metadata().ok()?.mode() & 0o077 != 0 {
        return None;
    }
    let mut text = String::new();
    file.by_ref().take(1 << 20).read_to_string(&mut text).ok()?;
    let host = match config.get_hosts().first()? {
        Host::Tcp(name) => name.clone(),
        Host::Unix(_) => "localhost".to_owned(),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432).to_string();
    let user = config.get_user().map(str::to_owned).or_else(|| std::env::var("USER").ok())?;
    let database = config.get_dbname().unwrap_or(&user).to_owned();
    from_file(&text, &[&host, &port, &database, &user])
}

/// The password of the first matching line: `host:port:database:user:password`, where `*` matches
/// everything and a backslash escapes the next character.
fn from_file(text: &str, wanted: &[&str; 4]) -> Option<String> {
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let mut fields = vec![(String::new(), false)];
        let mut letters = line.chars();
        while let Some(letter) = letters.next() {
            let last = fields.len() == 5;
            let field = fields.last_mut()?;
            match letter {
                '\\' => {
                    field.0.extend(letters.next());
                    field.1 = true;
                }
                ':' if !last => fields.push((String::new(), false)),
                letter => field.0.push(letter),
            }
        }
        let fits = fields.len() == 5
            && fields
                .iter()
                .zip(wanted)
                .all(|((field, escaped), want)| (field == "*" && !escaped) || field == want);
        fits.then(|| fields.pop().map(|(password, _)| password)).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_file_is_read_as_others_read_it() {
        let text = "# a comment:*:*:*:no\nother:5432:site:me:no\nshort:5432\n\
                    db:*:site:me:one\\:two\n*:*:*:*:last\n";
        let found = |host: &str, user: &str| from_file(text, &[host, "5432", "site", user]);
        assert_eq!(found("db", "me").as_deref(), Some("one:two"));
        assert_eq!(found("db", "you").as_deref(), Some("last"));
        assert_eq!(from_file("\\*:*:*:*:no", &["db", "1", "x", "y"]), None);
    }
}
