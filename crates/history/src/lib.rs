//! What became of transfers: one row each, in SQLite below the state directory or, when a URL says
//! so, in PostgreSQL.
//!
//! [`Row`] is what is known of one transfer; [`Place`] says where rows are kept; [`Store`] keeps,
//! finds and forgets them. The statements are the same for both databases: whole numbers, floating
//! point numbers and text are all that a column holds, and `db` is the one place that knows which
//! database is at the other end. The crate reads no clock: who calls says what time it is.

mod access;
mod column;
mod db;
mod error;
mod place;
mod postgres;
mod row;
mod schema;
mod sqlite;
mod store;
mod tls;
mod value;

pub use column::{column_names, values};
pub use error::HistoryError;
pub use place::{Place, PlaceError};
pub use row::{Ended, Kind, Point, Role, Row, Side, StreamSample, TransportBytes};
pub use store::{Filter, Retention, Store};
pub use value::Value;
